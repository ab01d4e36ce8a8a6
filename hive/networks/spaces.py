"""The spaces that a network is built for: its inputs and its actions.

The protocols name the few attributes that a network needs; the specs of `hive.envs` have them. This module does not
depend on environments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

__all__ = [
    "ActionSpec",
    "BoundedAction",
    "BoxAction",
    "CompositeAction",
    "DiscreteAction",
    "InputArray",
    "InputSpec",
    "MultiDiscreteAction",
    "Spaces",
    "simple_actions",
]


class InputSpec(Protocol):
    """One named input of the network, without its batch axis."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str:
        """`"float32"` or `"uint8"`."""


@dataclass(frozen=True, slots=True)
class InputArray:
    """An input other than an observation, such as the action: an array of this shape and dtype, without batch axis."""

    shape: tuple[int, ...]
    dtype: str


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
    """Returns the parts of a composite action that are not composite, in order; of any other action, itself."""
    if not isinstance(action, CompositeAction):
        return [action]
    return [simple for part in action.parts for simple in simple_actions(part)]


@dataclass(frozen=True, slots=True)
class Spaces:
    """The named observations of an agent, for example `{"observation": ...}`, and its action."""

    observations: Mapping[str, InputSpec]
    action: ActionSpec
