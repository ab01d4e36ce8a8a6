"""The receiver of gradients in a run writes the gradient of `reinforce` or `jointly` into one gradient slot.

A slot takes one gradient, and an algorithm yields after each. A graph holds views of the weights that it was made with,
and the next gradient binds another block. Backpropagating an earlier graph would then mix two versions, so a loss of
earlier outputs is refused. A gradient that is not finite is marked in the slot's header and never applied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hive import _native
from hive.errors import NetworkError
from hive.experience import Rollout
from hive.gradients import CAUSE, CAUSES, SAMPLES, Codec
from hive.learning import AnyPart, NativePart, Part, RemotePart
from hive.learning.receivers import Outputs
from hive.networks.weights.device import DeviceParameters
from hive.networks.weights.flat import FlatParameters, aligned_block
from hive.runtime.memory.segments import Arrays
from hive.training.gradient.devices import device_errors, one_thread
from hive.training.gradient.numerics import NonFiniteOrigin, find_origin
from hive.training.gradient.threads import ONE_THREAD, Threads


class GradientSlot:
    """Writes gradients of the network of `flat` into gradient slots. It is a GradientReceiver (hive.learning).

    on_not_finite: a function of (NonFiniteOrigin, header of the slot), called while the gradient's inputs still exist.
    """

    def __init__(self, flat: FlatParameters, codec: Codec, threads: Threads = ONE_THREAD) -> None:
        self.flat = flat
        self.codec = codec
        self.threads = threads
        _native.set_threads(threads.native, threads.spin_us)
        self.residual = codec.residual(flat.parameter_elements)
        """float32 [parameter_elements], or [0]: the part of earlier gradients that the codec has not sent yet."""
        self.on_not_finite: Callable[[NonFiniteOrigin, NDArray[np.int64]], None] = lambda finding, header: None
        elements = 0 if codec.in_place else flat.parameter_elements
        self._gradient = aligned_block(4 * elements).view(np.float32)  # gradient before compression
        self._binding = 0  # number of times that weights were bound
        self._out: Arrays | None = None
        self._rollouts: Sequence[Rollout] = ()
        self._made = False

    @property
    def device(self) -> torch.device | None:
        """Where the network computes, on copies of its weights; None: on the CPU, on the weights themselves."""
        return self.flat.device if isinstance(self.flat, DeviceParameters) else None

    def rebound(self) -> None:
        """Refuse losses of earlier outputs from now on, because other weights are bound."""
        self._binding += 1

    @contextmanager
    def filling(
        self,
        out: Arrays,
        rollouts: Sequence[Rollout] = (),
        describe: Callable[[], str] = lambda: "a gradient",
        smaller: str = "",
    ) -> Iterator[None]:
        """Write the one gradient that is made within this context, of these rollouts, into `out`, a cleared slot.

        describe, smaller: the work, and how to make it smaller, for an error of a device without memory.
        """
        self._out, self._rollouts, self._made = out, rollouts, False
        if self.threads.torch > 1:
            torch.set_num_threads(self.threads.torch)
        try:
            with device_errors(self.device, describe, smaller), one_thread(self.device):
                yield
        finally:
            self._out = None
            if self.threads.torch > 1:  # a collector of this process acts with one thread, as in a separate process
                torch.set_num_threads(1)

    def watch(self, outputs: Outputs) -> Outputs:
        """Mark outputs with the bound weights. Backpropagating them later, with other weights, raises NetworkError."""
        made_with = self._binding

        def check(gradient: Tensor) -> None:
            if self._binding != made_with:
                raise NetworkError(
                    "this loss belongs to outputs of earlier weights, and other weights are bound now",
                    hint="call the network again after each yield",
                )

        for tensor in _tensors(outputs):
            if tensor.requires_grad:
                tensor.register_hook(check)
        return outputs

    def reinforce(self, parts: Sequence[AnyPart], samples: int | None, statistics: Sequence[float]) -> None:
        """Write the gradient of the sum of the parts' losses into the open slot.

        samples: the number of samples that the losses are means of; 0 leaves a gradient of zero samples. statistics: no
        more than the algorithm names. Raises NetworkError without an open slot, for a second gradient in one
        slot, without `samples`, and for too many statistics.
        """
        out = self._opened(samples, statistics)
        if not samples:
            return
        gradient, mask = out["gradient"] if self.codec.in_place else self._gradient, out["mask"]
        losses: list[float] = []
        if graphs := [part for part in parts if not isinstance(part, NativePart)]:
            losses = self._by_torch(graphs, mask, gradient)
        else:
            gradient[:] = 0
            mask[:] = 0
        for part in parts:
            if isinstance(part, NativePart):
                overlaps = (mask & part.forward.mask).any()  # elsewhere `gradient` is zero
                addend = np.zeros_like(gradient) if overlaps else gradient
                part.forward.differentiate(part.slopes, addend)
                if overlaps:
                    gradient += addend
                mask |= part.forward.mask
                losses.append(part.value)
        out["statistics"][: len(statistics)] = statistics
        out["header"][SAMPLES] = samples
        norm, finite = _native.norm_and_finite(gradient)
        if finite and all(map(math.isfinite, losses)):
            out["norm"][0] = norm
            if not self.codec.in_place:
                self.codec.encode(gradient, out, self.residual)
        else:
            inputs = [tensor for part in parts for tensor in _tensors(part.inputs)]
            finding = find_origin(self.flat, self._rollouts, inputs, losses, gradient)
            out["header"][CAUSE] = CAUSES.index(finding.cause)
            self.codec.clear(out)
            self.on_not_finite(finding, out["header"])

    def _opened(self, samples: int | None, statistics: Sequence[float]) -> Arrays:
        """Return the open slot, for the one gradient that it takes; see `reinforce` for what is refused."""
        out = self._out
        if out is None:
            raise NetworkError("no gradient slot is open", hint="call reinforce from within `gradients`")
        if self._made:
            raise NetworkError(
                "a second gradient was made before a yield", hint="yield after each reinforce, or use jointly(...)"
            )
        if samples is None:
            raise NetworkError("the number of samples is missing", hint="call reinforce(loss, samples=n)")
        if len(statistics) > len(out["statistics"]):
            raise NetworkError(
                f"the loss reports {len(statistics)} statistics, the algorithm names {len(out['statistics'])}",
                hint="name all of them in the algorithm's `statistics`",
            )
        self._made = True
        return out

    def _by_torch(
        self, parts: Sequence[Part | RemotePart], mask: NDArray[np.uint8], gradient: NDArray[np.float32]
    ) -> list[float]:
        """Write the gradient of the parts with a graph, and its mask; return their losses."""
        if all(part.parameters is not None for part in parts):
            self.flat.clear_gradient(gradient)
            mask[:] = 0
            for part in parts:  # a few parameters, such as a temperature
                assert isinstance(part, Part)
                parameters = list(part.parameters or ())
                gradients = torch.autograd.grad(part.loss, parameters, allow_unused=True)
                self.flat.add_gradient(gradient, mask, parameters, gradients)
        else:
            self.flat.release_gradients()
            for part in parts:
                part.backward()
            mask[:] = self.flat.gradient(gradient)
        return [part.value for part in parts]


def _tensors(value: Any) -> list[Tensor]:
    """Return the tensors in a tensor, a sequence, a mapping, or an object with an `observation`."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in _tensors(item)]
    observation = getattr(value, "observation", None)
    return [observation] if isinstance(observation, Tensor) else []
