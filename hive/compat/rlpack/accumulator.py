"""GradAccumulator: collects the gradients of several backward passes and computes their mean or sum.

    accumulator = GradAccumulator(None, bootstrap_rounds=4)
    for batch in batches:
        model.zero_grad()
        loss_of(batch).backward()
        accumulator.accumulate(model.named_parameters(), weight=len(batch))
        if accumulator.step_due():              # true after the fourth call
            accumulator.mean_reduce(into=model)
            accumulator.clear()
            optimizer.step()

With `store="rounds"` every round is stored, and the accumulator is a list of them: indices, slices, deletion,
iteration. With `store="running"` one block holds the sums, for any number of rounds. Both add in the order of the calls
and divide once, so their results are bit-identical: sum = w0 g0 + w1 g1 + ..., mean = sum / (w0 + w1 + ...).

Reductions do not change the stored rounds: their results are separate memory, and only `into` sets `.grad` of the
model. A round is checked once, as a whole, when it is accumulated. The accumulator steps no optimizer, zeroes no
gradient and clips nothing. It is not thread-safe.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import torch
from torch import Tensor

from hive import _native
from hive.compat.rlpack.map_of_tensors import MapOfTensors
from hive.compat.rlpack.named import check_choice, checked_names, field_of, gradients_of, pairs_of
from hive.compat.rlpack.results import Into, block_for, copy_into, targets_in
from hive.compat.rlpack.rounds import GradientField, ReductionOutcome, RoundBlock, Rounds, rounds_for, zero_bad
from hive.errors import NotFinite
from hive.gradients import ReductionReport

NamedParameters = Iterable[tuple[str, Tensor]] | Mapping[str, Tensor]
NonFinite = Literal["raise", "skip", "zero", "report"]

KEPT_NO_ROUNDS = "a running accumulator stores no rounds to index; construct it with store='rounds'"


class GradientNotFinite(NotFinite, RuntimeError):
    """A gradient contains NaN or infinity; `parameter` is the name of the first such parameter."""

    def __init__(self, message: str, parameter: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.parameter = parameter


@dataclass(slots=True)
class _Round:
    block: RoundBlock
    weight: float
    had: list[bool]  # whether each parameter had a gradient


class GradAccumulator:
    """Up to `bootstrap_rounds` gradients of a model, reduced by mean or sum.

    parameter_keys: names as in `model.named_parameters()`, in the order of the results; None: those of the first
        call. Other names in an iterable are ignored.
    bootstrap_rounds: the greatest number of rounds held, at least 1.
    store: "rounds" or "running", see the module.
    non_finite: how to treat a round with NaN or infinity: "raise" GradientNotFinite, "skip" it (see `skipped`), set
        its bad elements to "zero" (see `zeroed`), or accept it and only "report" (see `report`).
    strict: raise ValueError in reductions of fewer than `bootstrap_rounds` rounds.
    unused: a trainable parameter without a gradient counts as zeros ("zero", see `unused_counts`) or raises
        RuntimeError ("raise"). A frozen one always counts as zeros. A round without any gradient always raises
        RuntimeError.

    Raises ValueError and TypeError for other arguments.
    """

    def __init__(
        self,
        parameter_keys: Sequence[str] | None,
        bootstrap_rounds: int,
        *,
        store: Literal["rounds", "running"] = "rounds",
        non_finite: NonFinite = "raise",
        strict: bool = False,
        unused: Literal["zero", "raise"] = "zero",
    ) -> None:
        if not isinstance(bootstrap_rounds, int) or isinstance(bootstrap_rounds, bool):
            raise TypeError(f"bootstrap_rounds must be an integer, got {type(bootstrap_rounds).__name__}")
        if bootstrap_rounds < 1:
            raise ValueError(f"bootstrap_rounds must be at least 1, got {bootstrap_rounds}")
        check_choice("store", store, ("rounds", "running"))
        check_choice("non_finite", non_finite, ("raise", "skip", "zero", "report"))
        check_choice("unused", unused, ("zero", "raise"))
        self.bootstrap_rounds = bootstrap_rounds
        self.store = store
        self.non_finite = non_finite
        self.strict = strict
        self.unused = unused
        self.skipped = 0
        """The number of rounds skipped since `clear()`."""
        self.zeroed = 0
        """The number of elements set to zero since `clear()`."""
        self.report: ReductionReport | None = None
        """The report of the last reduction, including one that raised GradientNotFinite; None before the first."""
        self.c_grad_accumulator = _native.GradAccumulator()
        """The C++ accumulator. The first gradients set its layout; torch takes its place for those on a GPU."""
        self._names = None if parameter_keys is None else checked_names(parameter_keys)
        self._rounds: Rounds | None = None
        self._held: list[_Round] = []
        self._free: list[RoundBlock] = []
        self._sums: RoundBlock | None = None  # this and the next three: only with store="running"
        self._summed = 0
        self._weight = 0.0
        self._had_counts: list[int] = []

    def _lay_out(self, fields: Sequence[GradientField]) -> None:
        self._rounds = rounds_for(self.c_grad_accumulator, fields)
        self._had_counts = [0] * len(fields)

    # --- rounds

    def accumulate(self, named_parameters: NamedParameters, weight: float = 1.0) -> None:
        """Add a copy of the gradients of `model.named_parameters()`, an iterable of pairs or a mapping, as a round.

        A MapOfTensors contains the gradients themselves instead of parameters.

        weight: the weight of the round, for example the number of samples of a mean loss; finite, not negative.

        Raises OverflowError if the accumulator is full, ValueError for a missing name and for a gradient whose shape,
        dtype or device differs from earlier rounds, GradientNotFinite (a RuntimeError) depending on `non_finite`, and
        RuntimeError if backward() was not called.
        """
        if self.full:
            rounds = self.bootstrap_rounds
            raise OverflowError(f"all {rounds} rounds are held: reduce them and clear() before the next accumulate()")
        weight = float(weight)
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"weight must be a finite number of at least 0, got {weight}")
        known = self._names, self._rounds
        try:
            gradients = self._gradients_of(named_parameters)
            if self.store == "running":
                self._add(gradients, weight)
            elif (new := self._new_round(gradients, weight, self.non_finite)) is not None:
                self._held.append(new)
        except BaseException:
            self._forget(*known)
            raise

    def _forget(self, names: tuple[str, ...] | None, rounds: Rounds | None) -> None:
        """Restore the names and the layout after a refused call."""
        if self._rounds is not rounds:  # the refused call was the first, so no rounds are held
            self._rounds, self._sums = rounds, None
            self._had_counts = []
            self._free.clear()
            self.c_grad_accumulator.lay_out([], [])
        self._names = names

    def _gradients_of(self, named_parameters: NamedParameters) -> list[Tensor | None]:
        given = pairs_of(named_parameters)
        if self._names is None:
            self._names = checked_names(list(given))
        try:
            values = [given[name] for name in self._names]
        except KeyError as error:
            raise ValueError(f"named_parameters lacks the parameter `{error.args[0]}`") from None
        if self._rounds is None:
            fields = [field_of(name, value) for name, value in zip(self._names, values, strict=True)]
            self._lay_out(fields)
        if isinstance(given, MapOfTensors):
            return list(values)
        return gradients_of(self._names, values, strict=self.unused == "raise")

    def _new_round(self, gradients: list[Tensor | None], weight: float, non_finite: str) -> _Round | None:
        """Return a checked copy of the gradients; None if the round is skipped."""
        rounds = self._laid_out()
        block = self._take_block()
        try:
            bad = rounds.gather(gradients, block)
            if bad >= 0 and non_finite == "zero":
                self.zeroed += zero_bad(block.tensors)
            elif bad >= 0 and non_finite != "report":
                self._refuse(bad, non_finite)
                self._free.append(block)
                return None
        except BaseException:
            self._free.append(block)
            raise
        return _Round(block, weight, [gradient is not None for gradient in gradients])

    def _add(self, gradients: list[Tensor | None], weight: float) -> None:
        rounds = self._laid_out()
        bad = rounds.first_bad(gradients)
        if bad >= 0 and self.non_finite == "zero":
            gradients = [None if g is None else g.detach().clone() for g in gradients]
            self.zeroed += zero_bad([g for g in gradients if g is not None])
        elif bad >= 0 and self.non_finite != "report":
            return self._refuse(bad, self.non_finite)
        if self._sums is None:
            self._sums = rounds.new_sums()
        if weight:  # store="rounds" leaves out rounds of weight 0 too, so both results are bit-identical
            rounds.add(gradients, weight, self._sums, onto=self._weight > 0)
        self._summed += 1
        self._weight += weight
        self._had_counts = [n + (g is not None) for n, g in zip(self._had_counts, gradients, strict=True)]
        return None

    def _refuse(self, bad: int, non_finite: str) -> None:
        """Count a non-finite round under non_finite="skip"; raises GradientNotFinite otherwise."""
        if non_finite == "skip":
            self.skipped += 1
            return
        name = self._known_names()[bad]
        hint = "check the loss, or construct the accumulator with non_finite='skip' or 'zero'"
        raise GradientNotFinite(f"the gradient of `{name}` is not finite", name, hint=hint)

    # --- reductions

    def mean_reduce(self, out: MapOfTensors | None = None, into: Into | None = None) -> MapOfTensors:
        """Return the sum of weight * gradient over the rounds held, divided by the sum of the weights.

        Fewer rounds than `bootstrap_rounds` are allowed unless `strict`; `report` has their number and the norm.

        out: the map to overwrite, of the same names, shapes and dtypes; an earlier result needs no copy.
        into: a module, or named parameters, whose `.grad` become the result's tensors. Frozen parameters do not
            change; one without a gradient in any round gets None, as after backward().

        Raises ValueError, and changes nothing, if no rounds are held, all weights are 0, or `out` or `into` do not
        fit; GradientNotFinite under non_finite="raise" if the result is not finite.
        """
        return self._reduce(True, out, into)

    def sum_reduce(self, out: MapOfTensors | None = None, into: Into | None = None) -> MapOfTensors:
        """Return the sum of weight * gradient over the rounds held. Arguments and errors: as for `mean_reduce`."""
        return self._reduce(False, out, into)

    def _reduce(self, mean: bool, out: MapOfTensors | None, into: Into | None) -> MapOfTensors:
        count = len(self)
        if not count:
            raise ValueError("no gradients have been accumulated: call accumulate() before a reduction")
        if self.strict and count < self.bootstrap_rounds:
            raise ValueError(f"{count} of {self.bootstrap_rounds} rounds are held, and strict=True requires all")
        rounds = self._laid_out()
        targets = None if into is None else targets_in(into, rounds.fields, self._counts())
        block = block_for(out, rounds, [one.block for one in self._held])
        weight, (norm, finite, bad_field, bad_round) = self._reduce_to(block, rounds, mean)
        bad = self._known_names()[bad_field] if bad_field >= 0 else ""
        self.report = ReductionReport(count, self.bootstrap_rounds, weight, norm, finite, bad, bad_round)
        if not finite and self.non_finite == "raise":
            raise GradientNotFinite(f"the reduced gradient of `{bad}` is not finite", bad)
        if out is None:
            out = self._map_of(block)
        else:
            copy_into(out, block)
        for name, parameter, had in targets or ():
            parameter.grad = out[name] if had else None
        return out

    def _reduce_to(self, block: RoundBlock, rounds: Rounds, mean: bool) -> tuple[float, ReductionOutcome]:
        """Write the result to `block`; returns the total weight of the rounds, and the outcome."""
        weight = self._total_weight()
        if mean and weight == 0:
            raise ValueError("the weights of all rounds are 0, so they have no mean")
        divisor = weight if mean else 1.0
        if self._sums is not None:
            if weight == 0:  # the block may still have the sums from before clear()
                torch._foreach_zero_(list(self._sums.tensors))
            return weight, rounds.finish(self._sums, divisor, block)
        held = self._held
        return weight, rounds.reduce([r.block for r in held], [r.weight for r in held], divisor, block)

    def zeros(self) -> MapOfTensors:
        """Return a result of zeros to pass as `out`. Raises ValueError while the parameters are unknown."""
        if self._rounds is None:
            raise ValueError("the parameters are unknown before the first accumulate()")
        return self._map_of(self._rounds.new_block())

    def _map_of(self, block: RoundBlock) -> MapOfTensors:
        return MapOfTensors.lazy(self._known_names(), lambda: block.tensors, block)

    # --- a list of rounds

    def __len__(self) -> int:
        """Return the number of rounds held."""
        return self._summed if self.store == "running" else len(self._held)

    @overload
    def __getitem__(self, index: int) -> MapOfTensors: ...
    @overload
    def __getitem__(self, index: slice) -> list[MapOfTensors]: ...
    def __getitem__(self, index: int | slice) -> MapOfTensors | list[MapOfTensors]:
        """Return the live gradients of a round (writing to them changes the round), or for a slice a list of them.

        Raises TypeError with store="running", IndexError for an index out of range.
        """
        held = self._indexable()[index]
        return [self._lend(one) for one in held] if isinstance(held, list) else self._lend(held)

    def __setitem__(self, index: int | slice, named_parameters: Any) -> None:
        """Replace a round by a copy of other gradients, as for `accumulate`; its weight does not change.

        A slice takes an equal number of iterables of named parameters, with step 1 any number that fits. Added rounds
        have weight 1. A non-finite round raises GradientNotFinite under non_finite="skip" too. Other errors: as for
        `accumulate` and indexing; ValueError for a wrong number of rounds.
        """
        held = self._indexable()
        old = held[index] if isinstance(index, slice) else [held[index]]
        given = list(named_parameters) if isinstance(index, slice) else [named_parameters]
        if len(held) - len(old) + len(given) > self.bootstrap_rounds:
            raise OverflowError(f"{len(given)} rounds do not fit: {self.bootstrap_rounds} can be held")
        if len(given) != len(old) and isinstance(index, slice) and index.step not in (None, 1):
            raise ValueError(f"cannot assign {len(given)} rounds to a slice of {len(old)}")
        policy = "raise" if self.non_finite == "skip" else self.non_finite
        weights = [one.weight for one in old] + [1.0] * len(given)
        known = self._names, self._rounds
        try:
            made = [self._new_round(self._gradients_of(n), w, policy) for n, w in zip(given, weights, strict=False)]
        except BaseException:
            self._forget(*known)
            raise
        new = [one for one in made if one is not None]
        if isinstance(index, slice):
            held[index] = new
        else:
            held[index] = new[0]
        self._give_back(old)

    def __delitem__(self, index: int | slice) -> None:
        """Remove a round, or those of a slice; later rounds move up."""
        held = self._indexable()
        old = held[index] if isinstance(index, slice) else [held[index]]
        del held[index]
        self._give_back(old)

    def __iter__(self) -> Iterator[MapOfTensors]:
        return (self._lend(one) for one in list(self._indexable()))

    def clear(self) -> None:
        """Remove all rounds and reset `skipped` and `zeroed`; keep the memory for the next rounds."""
        self._give_back(self._held)
        self._held, self._summed, self._weight = [], 0, 0.0
        self._had_counts = [0] * len(self._had_counts)
        self.skipped = self.zeroed = 0

    # --- copies

    def __getstate__(self) -> dict[str, Any]:
        """Return copies of all rounds: for pickle, copy.deepcopy and torch.save."""
        state = dict(self.__dict__)
        rounds = state.pop("_rounds")
        del state["c_grad_accumulator"], state["_free"]
        state["_held"] = [(_copied(one.block), one.weight, one.had) for one in self._held]
        state["_sums"] = None if self._sums is None else _copied(self._sums)
        state["fields"] = None if rounds is None else list(rounds.fields)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        fields, held, sums = (state.pop(name) for name in ("fields", "_held", "_sums"))
        counts = state["_had_counts"]
        self.__dict__.update(state)
        self.c_grad_accumulator = _native.GradAccumulator()
        self._rounds = self._sums = None
        self._held, self._free = [], []
        if fields is not None:
            self._lay_out(fields)
            rounds = self._laid_out()
            self._had_counts = counts
            self._held = [_Round(RoundBlock(rounds, memory), weight, had) for memory, weight, had in held]
            self._sums = None if sums is None else RoundBlock(rounds, sums)

    # --- properties

    @property
    def full(self) -> bool:
        """Whether `bootstrap_rounds` rounds are held."""
        return len(self) >= self.bootstrap_rounds

    def step_due(self) -> bool:
        """Return whether to reduce, clear and step now: after `bootstrap_rounds` calls, skipped ones included.

        It is False while no round is held, because there would be no gradient to step with.
        """
        return len(self) > 0 and len(self) + self.skipped >= self.bootstrap_rounds

    @property
    def weights(self) -> tuple[float, ...]:
        """The weights of the rounds held. Raises TypeError as indexing does."""
        return tuple(one.weight for one in self._indexable())

    @property
    def unused_counts(self) -> dict[str, int]:
        """Parameter name -> number of held rounds without its gradient, if not 0; frozen parameters are included."""
        return {name: len(self) - count for name, count in self._counts().items() if count < len(self)}

    @property
    def map_of_tensors(self) -> MapOfTensors:
        """The gradients of the last round, live; empty without a round and with store="running"."""
        return self._lend(self._held[-1]) if self._held else MapOfTensors()

    def _counts(self) -> dict[str, int]:
        counts = self._had_counts
        if self.store == "rounds":
            counts = [sum(column) for column in zip(*(one.had for one in self._held), strict=True)]
        return dict(zip(self._names or (), counts, strict=False))

    def _total_weight(self) -> float:
        if self.store == "running":
            return self._weight
        total = 0.0
        for one in self._held:  # not sum(): Python 3.12 compensates its rounding, which running sums cannot reproduce
            total += one.weight
        return total

    def _indexable(self) -> list[_Round]:
        if self.store == "running":
            raise TypeError(KEPT_NO_ROUNDS)
        return self._held

    def _lend(self, one: _Round) -> MapOfTensors:
        one.block.lent = True
        return self._map_of(one.block)

    def _take_block(self) -> RoundBlock:
        return self._free.pop() if self._free else self._laid_out().new_block()

    def _give_back(self, rounds: Iterable[_Round]) -> None:
        """Keep the blocks for new rounds, except those that the caller may still read (see `_lend`)."""
        self._free += [one.block for one in rounds if not one.block.lent]

    def _laid_out(self) -> Rounds:
        assert self._rounds is not None
        return self._rounds

    def _known_names(self) -> Sequence[str]:
        assert self._names is not None
        return self._names


def _copied(block: RoundBlock) -> Any:
    """Return a copy of the memory of a block, as one tensor or a list of them."""
    memory = block.memory
    return memory.clone() if isinstance(memory, Tensor) else [tensor.detach().clone() for tensor in memory]
