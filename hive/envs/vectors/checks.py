"""Checks the values that environments return while they are copied into a row.

The fast path handles a whole row at once: one native pass copies arrays of the usual types and checks their shapes and
that every number is finite. If it refuses a row, NumPy converts the values and the same checks follow. Only if these
fail too, the observations are stored one by one, so that none depends on its neighbors and the error names the
environment at fault:
`CartPole-v1 returned an observation of shape (5,), expected (4,) (env 3, step 1,204 of this collector)`.

The checks of observations include the shape, finiteness and the kind of number: a float64 for a float32 is converted; a
float, and an integer beyond 255, is refused for a uint8. Every element of a discrete space is accepted, whatever its
type: True for Discrete(2). The checks do not include the bounds of other spaces, because many environments exceed
theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive import _native
from hive.envs.spaces.observation import NO_ACTION, ArraySpec, MaskPart, ObservationPart, ObservationSpec
from hive.envs.vectors.rows import FinalObservations
from hive.envs.ways_out import is_permanent, way_out
from hive.errors import EnvironmentFailed, UsageError
from hive.printable import printable
from hive.runtime.actor.error_location import is_interrupt, named

RESULTS = {"reset": "(observation, info)", "step": "(observation, reward, terminated, truncated, info)"}
"""Method of a Gymnasium environment -> the tuple that it returns."""

OLD_RESULT = (
    "the old package gym had other results: return (observation, {}) from reset, and divide `done` of step into "
    "`terminated`, at the goal or a failure, and `truncated`, at a time limit"
)
ONE_REWARD = "return float(reward) from step"
SEVERAL_REWARDS = (
    "combine its parts into one number, for example in a custom wrapper (env.wrappers); for rewards of several agents, "
    "let both spaces be a Tuple with a part for each"
)
SOME_ACTION = (
    "end the episode where nothing is left to do (terminated), or allow an action that does nothing; a custom wrapper "
    "can do either (env.wrappers), and without env.action_mask all actions are allowed"
)
NO_SEED = (
    "define `def reset(self, *, seed=None, options=None)`, and begin it with `super().reset(seed=seed)` in a class of "
    "gymnasium.Env; for a class of a package, in a subclass"
)
SHOWN_LENGTH = 60  # maximum characters of a reward in an error


class Checks:
    """Writes the values that the environments of one vector return into rows, or raises EnvironmentFailed.

    `steps` is the number of calls of the vector's `step`, for error messages; the vector increments it. first: the
    number that its first environment has in the collector.
    """

    __slots__ = ("_first", "_id", "_one", "_spec", "steps")

    def __init__(self, id: str, spec: ObservationSpec, first: int = 0) -> None:
        self._id = id
        self._first = first
        self._spec = spec
        self._one = np.zeros((1, *spec.shape), spec.dtype)
        self.steps = 0

    def observations(self, observations: Sequence[Any] | NDArray[Any], out: NDArray[Any]) -> None:
        """Write B observations into `out` [B, ...], of the spec's dtype. Raises EnvironmentFailed."""
        if store(self._spec, observations, out):
            return
        for index, observation in enumerate(observations):
            self._observation(index, observation)
            out[index % len(out)] = self._one[0]
        if len(observations) != len(out):
            raise self.violation(f"{len(observations)} observations, expected {len(out)}")

    def batches(self, observations: Any, out: NDArray[Any]) -> None:
        """Write B observations into `out` [B, ...], given as arrays [B, ...] in the structure of one observation."""
        if not self._spec.parts:
            self.observations(observations, out)
            return
        if not _store_columns(self._spec, lambda part: part.of(observations), out):
            try:
                each = [at(observations, index) for index in range(len(out))]
            except (LookupError, TypeError):
                raise self.violation(f"observations that are not arrays of {len(out)} environments") from None
            self.observations(each, out)  # names the one at fault

    def final(self, index: int, observation: Any, finals: FinalObservations) -> int:
        """Add the last observation of environment `index` to `finals`; return its index there."""
        self._observation(index, self._closed(observation))
        return finals.add(self._one[0])

    def resting(self, observation: Any, other: Any) -> Any:
        """Return what no valid row sees, the last observation of an episode; `other` where it cannot be stored."""
        closed = self._closed(observation)
        return closed if store(self._spec, [closed], self._one) else other

    def _closed(self, observation: Any) -> Any:
        return observation if self._spec.mask is None else self._spec.mask.closing(observation)

    def rewards(self, rewards: Sequence[Any] | NDArray[Any], out: NDArray[np.float32]) -> None:
        """Write B rewards into `out` [B] float32. Raises EnvironmentFailed."""
        if not _store_rewards(rewards, out):
            for index, reward in enumerate(rewards):
                if not _store_rewards([reward], np.zeros(1, np.float32)):
                    number = isinstance(reward, (float, np.floating))  # any other type is wrong in every step
                    hint = "look for a division by zero" if number else ONE_REWARD
                    hint = SEVERAL_REWARDS if as_array(reward).size > 1 else hint
                    what = f"the reward {short(reward)}, expected a finite number"
                    raise self.violation(what, index, not_finite=number, hint=hint)
            raise self.violation(f"{len(rewards)} rewards, expected {len(out)}")

    def violation(
        self, what: str, index: int | None = None, *, not_finite: bool = False, hint: str = ""
    ) -> EnvironmentFailed:
        """Return the error for an environment that returned `what`, against its spaces or Gymnasium's interface."""
        text = f"{self._id} returned {what} {self._place(index)}"
        return EnvironmentFailed(text, hint=hint, permanent=True, not_finite=not_finite)

    def raised(self, error: BaseException, method: str, index: int | None = None) -> EnvironmentFailed:
        """Return the error for an environment that raised `error` in `method`; the caller raises it from `error`.

        `error` is an exception of any kind: in a call that awaits nothing, SystemExit, CancelledError and
        KeyboardInterrupt come from the environment too. Only Ctrl-C in a script is raised again, and UsageError.
        """
        if is_interrupt(error) or isinstance(error, UsageError):  # of a function that plays (hive.envs.acting)
            raise error
        if isinstance(error, EnvironmentFailed):  # hive's own wrappers say all themselves
            return EnvironmentFailed(f"{error} {self._place(index)}", hint=error.hint, permanent=error.permanent)
        lacks = isinstance(error, TypeError) and ("'seed'" in str(error) or "'options'" in str(error))
        no_seed = method == "reset" and lacks
        text = f"{self._id} raised {named(error)} in {method} {self._place(index)}"
        hint = NO_SEED if no_seed else way_out(error)
        return EnvironmentFailed(text, hint=hint, permanent=no_seed or is_permanent(error))

    def refused_action(self, text: str, index: int) -> EnvironmentFailed:
        """Return the error for an action that is not among the choices of a compiled environment."""
        return EnvironmentFailed(f"{self._id} cannot take the action {text} {self._place(index)}", permanent=True)

    def failed(self, text: str, index: int | None = None) -> EnvironmentFailed:
        """Return the error for a compiled environment that failed, with the `text` that says where and why."""
        return EnvironmentFailed(f"{self._id} failed {text} {self._place(index)}")

    def wrong_result(self, result: Any, method: str, index: int | None = None) -> EnvironmentFailed:
        """Return the error for a `method` that did not return Gymnasium's tuple."""
        got = f"an object of type {type(result).__name__}"
        if isinstance(result, tuple):
            got = f"{len(result)} values"
        old = method == "reset" or (isinstance(result, tuple) and len(result) == 4)  # as in the old package gym
        return self.violation(f"{got} from {method}, expected {RESULTS[method]}", index, hint=OLD_RESULT * old)

    def _place(self, index: int | None) -> str:
        env = "" if index is None else f"env {self._first + index}, "
        return f"({env}step {self.steps:,} of this collector)"

    def _observation(self, index: int, observation: Any) -> None:
        """Write one observation into `_one`, or raise EnvironmentFailed for it."""
        if not store(self._spec, [observation], self._one):
            what, not_finite = fault_of(self._spec, observation)
            hint = SOME_ACTION if what.startswith(NO_ACTION) else ""
            raise self.violation(what, index, not_finite=not_finite, hint=hint)


def store(spec: ObservationSpec, observations: Sequence[Any] | NDArray[Any], out: NDArray[Any]) -> bool:
    """Write B observations into `out` [B, ...]. Returns False if one violates the spec; `out` is then undefined."""
    if not spec.parts:
        return _store(spec, observations, out)
    return _store_columns(spec, lambda part: [part.of(observation) for observation in observations], out)


def _store_columns(
    spec: ObservationSpec, column: Callable[[ObservationPart | MaskPart], Any], out: NDArray[np.uint8]
) -> bool:
    """Write every part of B observations into rows `out` [B, bytes]. `column` returns B values of one part."""
    try:
        stored = all(_store(part, column(part), part.view(out)) for part in spec.parts)
        return stored and (spec.mask is None or _store_masks(spec.mask, column(spec.mask), spec.mask.view(out)))
    except (LookupError, TypeError):
        return False


def fault_of(spec: ObservationSpec, observation: Any) -> tuple[str, bool]:
    """Describe an observation that `store` has refused; return the text and whether it is NaN or infinity."""
    for part in spec.parts:
        try:
            value = part.of(observation)
        except (LookupError, TypeError):
            return f"an observation without its part `{part.name}`", False
        if not _store(part, [value], np.zeros((1, *part.shape), part.dtype)):
            return _fault(part, value, f"an observation part `{part.name}`" if part.path else "an observation")
    return _mask_fault(spec.mask, observation) if spec.mask else _fault(spec, observation, "an observation")


def at(batches: Any, index: int) -> Any:
    """Return the observation at `index` of batches [B, ...] in nested dictionaries and tuples."""
    if isinstance(batches, Mapping):
        return {key: at(part, index) for key, part in batches.items()}
    if isinstance(batches, tuple):
        return tuple(at(part, index) for part in batches)
    return batches[index]


def short(value: Any) -> str:
    """Return a value of any type in one short line."""
    return printable(" ".join(repr(value).split()), SHOWN_LENGTH)


def _all_finite(array: NDArray[Any]) -> bool:
    """Whether a float array has no NaN and no infinity."""
    # The sum of squares is finite only if every element is: one pass, no temporary array. The sum may overflow, so a
    # sum that is not finite needs the exact check.
    return math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())


def _store(spec: ArraySpec, observations: Sequence[Any] | NDArray[Any], out: NDArray[Any]) -> bool:
    """Write arrays into `out` [B, ...]. Returns False if one violates the spec; `out` is then undefined."""
    if not spec.counts and not spec.origin and _native.store_observations(observations, out):
        return True
    if len(spec.counts) == 1 and not spec.numbered and _native.store_choices(observations, spec.firsts[0], out):
        return True
    batch = as_array(observations)
    if spec.counts:
        return _store_choices(spec, batch, out)
    if batch.shape != out.shape or not _converts(batch, out.dtype):
        return False
    out[...] = spec.relative(batch) if spec.origin else batch
    return spec.dtype == "uint8" or _all_finite(out)


def as_array(values: Any) -> NDArray[Any]:
    """Return values as an array; one of objects if they have different shapes or cannot be read."""
    try:
        return np.asarray(values)
    except Exception:  # the `__array__` of any class: a tensor of torch that requires a gradient raises RuntimeError
        return np.empty((), object)


def _converts(array: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether an array can be stored as `dtype`: numbers of the same kind, and for bytes all integers from 0 to 255."""
    if dtype == np.uint8 and array.dtype.kind in "iu":  # a list of integers becomes int64
        return array.size == 0 or bool(array.min() >= 0 and array.max() <= 255)
    return np.can_cast(array.dtype, dtype, "same_kind")


def _store_choices(spec: ArraySpec, batch: NDArray[Any], out: NDArray[Any]) -> bool:
    rows = len(out)
    if batch.shape[:1] != (rows,) or batch.size != rows * len(spec.counts) or batch.dtype.kind not in "biuf":
        return False
    if batch.dtype.kind == "f" and not np.array_equal(batch, np.floor(batch)):  # MultiDiscrete contains whole floats
        return False
    elements = batch.reshape(rows, -1).astype(np.int64) - spec.firsts
    if (elements < 0).any() or (elements >= spec.counts).any():
        return False
    if spec.numbered:
        out[...] = elements.astype("<u4").view(np.uint8).reshape(out.shape)
        return True
    out[...] = 0.0
    out[np.arange(rows)[:, None], elements + np.cumsum((0, *spec.counts[:-1]))] = 1.0
    return True


def _store_masks(part: MaskPart, masks: Sequence[Any], out: NDArray[np.uint8]) -> bool:
    """Write masks into `out` uint8 [B, actions]. Returns False if one is odd or allows no action."""
    try:
        batch = np.asarray(masks)
        flat = batch.reshape(len(out), -1)
        out[...] = flat != 0
    except (TypeError, ValueError):
        return False
    return batch.dtype.kind in "biuf" and np.array_equal(out, flat) and not any(map(part.fault, out))


def _mask_fault(part: MaskPart, observation: Any) -> tuple[str, bool]:
    """Describe an observation whose mask `_store_masks` has refused."""
    try:
        mask = np.asarray(part.of(observation))
        if mask.dtype.kind in "biuf" and mask.size == sum(part.choices):
            odd = mask[(mask != 0) & (mask != 1)]
            if odd.size:  # for example numbers to add to logits, where 0 allows an action
                return f"an action mask with {odd[0]} in it, expected 1 for allowed actions and 0 for others", False
            return part.fault((mask.ravel() != 0).astype(np.uint8)), False
    except (LookupError, TypeError, ValueError):
        return "an observation without its action mask", False
    return f"an action mask of {mask.dtype} {list(mask.shape)}, expected {sum(part.choices)} zeros and ones", False


def _store_rewards(rewards: Sequence[Any] | NDArray[Any], out: NDArray[np.float32]) -> bool:
    batch = as_array(rewards)
    if batch.shape != out.shape or batch.dtype.kind not in "biuf":
        return False
    out[...] = batch
    return _all_finite(out)


def _fault(spec: ArraySpec, observation: Any, what: str) -> tuple[str, bool]:
    """Describe an array that `_store` has refused, called `what`; return the text and whether it is NaN or infinity."""
    array = as_array(observation)
    shape = spec.shape
    if spec.counts:
        shape = spec.env_shape if spec.env_shape is not None else (len(spec.counts),) * (len(spec.counts) > 1)
    if array.dtype == object:
        return f"{what} of type {type(observation).__name__}, expected an array of shape {shape}", False
    if array.shape != shape and not (spec.counts and array.size == len(spec.counts)):  # those are stored in any shape
        return f"{what} of shape {array.shape}, expected {shape}", False
    if spec.counts:
        limits = [f"{first} to {first + n - 1}" for n, first in zip(spec.counts, spec.firsts, strict=True)]
        kind = "an integer" if shape == () else "integers"
        return f"{what.replace('an ', 'the ', 1)} {short(observation)}, expected {kind} from {', '.join(limits)}", False
    if not _converts(array, np.dtype(spec.dtype)):
        if array.dtype.kind == "i":
            return f"{what} with {array[(array < 0) | (array > 255)][0]} in it, expected 0 to 255", False
        return f"{what} of {array.dtype}, expected {spec.dtype}", False
    # Numbers beyond 3.4e38 become infinities when they are converted to float32.
    return f"{what} with {'nan' if np.isnan(array).any() else 'inf'} in it", True
