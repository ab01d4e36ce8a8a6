"""The accumulator of a run: the mean of gradient slots, computed where they lie in shared memory.

    accumulator = GradAccumulator.for_slots(flat.parameter_elements, bootstrap_rounds, codec)
    mean = accumulator.zeros()
    for slot in slots:                          # every turn
        accumulator.adopt(slot, samples)
    gradient = accumulator.mean_reduce(out=mean).array
    accumulator.clear()

    mean = (n_0 / n) f_0 g_0 + (n_1 / n) f_1 g_1 + ...     n = n_0 + n_1 + ...     in the order of adoption

Each weight is computed from left to right in float64 and rounded once to float32, and the sums are float32, so all
replicas of a learner compute bit-identical results. A round of zero samples is never read. Scripts, which accumulate
the gradients of a module, have another GradAccumulator in hive.compat.rlpack.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from hive import _native
from hive.gradients.codecs import PLAIN, Codec, Floats

Slot = Mapping[str, NDArray[Any]]
Places = Mapping[str, tuple[slice, tuple[int, ...]]]  # parameter -> its elements and its shape


class ReductionReport(NamedTuple):
    """The inputs and the outcome of a reduction.

    `rounds` of `bootstrap_rounds` were held, with the total `weight`; `norm` is the Euclidean norm over all parameters.
    If the result is not `finite`, `parameter` is the name of the first parameter with NaN or infinity, and `bad_round`
    the position of the first such round. They are "" and -1 if there is none, for example if only the sum of finite
    rounds overflows. `samples` is the total over adopted rounds, and 0 for others.
    """

    rounds: int
    bootstrap_rounds: int
    weight: float
    norm: float
    finite: bool
    parameter: str
    bad_round: int = -1
    samples: int = 0

    @property
    def partial(self) -> bool:
        """Whether fewer than `bootstrap_rounds` rounds were held."""
        return self.rounds < self.bootstrap_rounds


class MeanGradient(Mapping[str, Tensor]):
    """The mean of adopted slots: `array`, float32 [parameter_elements], and the tensors of parameters, views of it."""

    __slots__ = ("_places", "array")

    def __init__(self, array: Floats, places: Places) -> None:
        self.array = array
        self._places = places

    def __getitem__(self, name: str) -> Tensor:
        elements, shape = self._places[name]
        return torch.from_numpy(self.array[elements]).view(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class GradAccumulator:
    """The mean of up to `bootstrap_rounds` gradient slots, weighted by samples.

    parameter_elements: the length of a slot's gradient, padding included. codec: its compression.
    parameters: name and shape of every parameter, as FlatParameters.describe() returns them. None: results have one
        tensor, `gradient`, float32 [parameter_elements].

    Raises ValueError for parameters that do not fill the gradient of a slot.
    """

    def __init__(
        self,
        parameter_elements: int,
        bootstrap_rounds: int,
        codec: Codec = PLAIN,
        *,
        parameters: Sequence[tuple[str, Sequence[int]]] | None = None,
    ) -> None:
        if not isinstance(parameter_elements, int):
            raise TypeError("parameter_elements must be an integer; scripts use hive.compat.rlpack.GradAccumulator")
        described = [("gradient", (parameter_elements,))] if parameters is None else parameters
        sizes = [math.prod(shape) for _, shape in described]
        self.bootstrap_rounds = bootstrap_rounds
        self.codec = codec
        self.report: ReductionReport | None = None
        """The report of the last reduction; None before the first."""
        self._elements = parameter_elements
        self._native = _native.GradAccumulator()
        self._native.lay_out(["float32"] * len(sizes), sizes)
        filled = parameter_elements if parameters is None else self._native.bytes // 4
        if filled != parameter_elements:
            raise ValueError(f"the parameters fill {filled} elements, the gradient of a slot has {parameter_elements}")
        self._native.lay_out_slots(parameter_elements, codec.name)
        begins = [offset // 4 for offset in self._native.offsets]
        self._places: Places = {
            name: (slice(begin, begin + size), tuple(shape))
            for (name, shape), begin, size in zip(described, begins, sizes, strict=True)
        }
        self._rounds = self._samples = 0
        self._single: tuple[Floats, float] | None = None  # a slot's gradient that is the mean already, and its norm

    @classmethod
    def for_slots(
        cls,
        parameter_elements: int,
        bootstrap_rounds: int,
        codec: Codec = PLAIN,
        *,
        parameters: Sequence[tuple[str, Sequence[int]]] | None = None,
    ) -> GradAccumulator:
        """Return an accumulator of gradient slots of `codec`. Arguments and errors: those of the class."""
        return cls(parameter_elements, bootstrap_rounds, codec, parameters=parameters)

    def adopt(self, slot: Slot, samples: int, factor: float = 1.0, norm: float = 0.0) -> None:
        """Add a gradient slot (hive.gradients.blocks) as a round, without copying it.

        The slot must not change until `clear()`. It is not read before the reduction, and with 0 `samples` never.

        samples: the weight of the round, a count. factor: multiplies the round after the weights have been normalized,
            for example to reduce the influence of a stale gradient.
        norm: the Euclidean norm of a gradient that its worker has found to be finite; 0: not known. A plain slot with
            a norm is not read again if it is the only round: it is the mean.

        Raises OverflowError if the accumulator is full, ValueError and TypeError for a slot that does not fit.
        """
        if self._rounds >= self.bootstrap_rounds:
            rounds = self.bootstrap_rounds
            raise OverflowError(f"all {rounds} rounds are held: reduce them and clear() before the next adopt()")
        try:
            self._native.adopt(slot, samples, factor)
        except KeyError as error:
            raise ValueError(f"the slot has no {error}, which the codec `{self.codec.name}` needs") from None
        self._rounds += 1
        self._samples += samples
        is_mean = self._rounds == 1 and norm > 0.0 and samples > 0 and factor == 1.0 and self.codec.in_place
        self._single = (slot["gradient"], norm) if is_mean else None

    def mean_reduce(self, out: MeanGradient | None = None) -> MeanGradient:
        """Return the mean of the adopted slots; zeros if they have no samples. `report` has its norm.

        out: an earlier result or `zeros()`, to overwrite; None: new memory. A single slot that was adopted with its
            norm is returned as a view, and `out` does not change.

        Raises ValueError if no slot is adopted, and for an `out` of another size or in an adopted slot.
        """
        if not self._rounds:
            raise ValueError("no gradients have been adopted: call adopt() before a reduction")
        norm, finite, parameter, bad_round = 0.0, True, "", -1
        if self._single is not None:
            array, norm = self._single
            out = MeanGradient(array, self._places)
        else:
            out = self.zeros() if out is None else out
            found = self._native.reduce_adopted(out.array)
            norm, finite, bad_round = found.norm, found.finite, found.bad_input
            parameter = list(self._places)[found.bad_index] if found.bad_index >= 0 else ""
        weight = float(self._samples)
        self.report = ReductionReport(
            self._rounds, self.bootstrap_rounds, weight, norm, finite, parameter, bad_round, self._samples
        )
        return out

    def zeros(self) -> MeanGradient:
        """Return a result of zeros to pass as `out`."""
        return MeanGradient(torch.zeros(self._elements).numpy(), self._places)  # torch aligns it to 64 bytes

    def clear(self) -> None:
        """Release the adopted slots."""
        self._native.release()
        self._rounds = self._samples = 0
        self._single = None
