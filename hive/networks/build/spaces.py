"""The spaces that a network is built for: its inputs and its actions.

The protocols name the few attributes that a network needs; the specs of `hive.envs` have them. This module does not
depend on environments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from hive.declared import PIXELS, Bounds, channels_of


class InputSpec(Protocol):
    """One named input of the network, without its batch axis.

    `bounds_of`, `channels_at` and `counts_of` read what else it may have.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str:
        """`"float32"` or `"uint8"`."""


@dataclass(frozen=True, slots=True)
class InputArray:
    """An input other than an observation, such as the action: an array of this shape and dtype, without batch axis.

    low, high, channels: as in hive.declared; None, None and "": by the rules of that module. counts: of numbers in
    bytes, uint8 [..., elements, 4], the number of values of each element; empty for other arrays.
    """

    shape: tuple[int, ...]
    dtype: str
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    channels: str = ""
    counts: tuple[int, ...] = ()


def bounds_of(spec: InputSpec) -> Bounds:
    """Return the numbers that a network scales to 0 and 1; bytes that declare none are pixels."""
    low, high = getattr(spec, "low", None), getattr(spec, "high", None)
    if low is None or high is None:
        return PIXELS if spec.dtype == "uint8" and not counts_of(spec) else ((), ())
    return low, high


def channels_at(spec: InputSpec) -> str:
    """Return where an input has the channels of an image; NO_IMAGE for any other array."""
    return getattr(spec, "channels", "") or channels_of(spec.shape, bounds_of(spec))


def counts_of(spec: InputSpec) -> tuple[int, ...]:
    """Return the number of values of each element if an input has numbers in bytes; () for any other input."""
    counts: Any = getattr(spec, "counts", ())
    return tuple(counts) if spec.dtype == "uint8" else ()


@runtime_checkable
class DiscreteAction(Protocol):
    """One of `n` actions, counted from 0; the environment adds its `start`."""

    @property
    def n(self) -> int: ...


@runtime_checkable
class MultiDiscreteAction(Protocol):
    """One of `nvec[k]` choices for each k, all counted from 0."""

    @property
    def nvec(self) -> Sequence[int]: ...


@runtime_checkable
class BoxAction(Protocol):
    """An array of reals. Distributions are unbounded; the environment clips actions to its bounds."""

    @property
    def shape(self) -> tuple[int, ...]: ...


@runtime_checkable
class BoundedAction(BoxAction, Protocol):
    """An array of reals with bounds, flat or of its shape, possibly infinite. Only squashed policies read them."""

    @property
    def low(self) -> Sequence[float]: ...

    @property
    def high(self) -> Sequence[float]: ...


@runtime_checkable
class CompositeAction(Protocol):
    """Several actions at once, whose elements are one row; the parts may be composite too."""

    @property
    def parts(self) -> Sequence[ActionSpec]: ...


ActionSpec: TypeAlias = DiscreteAction | MultiDiscreteAction | BoxAction | CompositeAction


def simple_actions(action: ActionSpec) -> list[ActionSpec]:
    """Return the parts of a composite action that are not composite, in order; of any other action, itself."""
    if not isinstance(action, CompositeAction):
        return [action]
    return [simple for part in action.parts for simple in simple_actions(part)]


@dataclass(frozen=True, slots=True)
class Spaces:
    """The named observations of an agent, for example `{"observation": ...}`, and its action."""

    observations: Mapping[Any, InputSpec]  # by names, inside the network of a row of parts by their paths
    action: ActionSpec
