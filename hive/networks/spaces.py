"""The spaces a network is built for: what goes in, and which actions come out.

These are the few attributes that a network needs, as protocols: the specs of `hive.envs` have them. Nothing
here knows environments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = [
    "ActionSpec",
    "BoundedAction",
    "BoxAction",
    "DiscreteAction",
    "InputArray",
    "InputSpec",
    "MultiDiscreteAction",
    "Spaces",
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
    """An input that is no observation: an array of this shape and dtype."""

    shape: tuple[int, ...]
    dtype: str


@runtime_checkable
class DiscreteAction(Protocol):
    """One of `n` actions, counted from 0; the environment adds a start of its own."""

    @property
    def n(self) -> int: ...


@runtime_checkable
class MultiDiscreteAction(Protocol):
    """One choice out of `nvec[k]` for each k, all counted from 0."""

    @property
    def nvec(self) -> Sequence[int]: ...


@runtime_checkable
class BoxAction(Protocol):
    """An array of reals. Bounds are the environment's affair: distributions are unbounded, it clips."""

    @property
    def shape(self) -> tuple[int, ...]: ...


@runtime_checkable
class BoundedAction(BoxAction, Protocol):
    """An array of reals with bounds, flat or of its shape, maybe infinite. Only squashed policies read them."""

    @property
    def low(self) -> Sequence[float]: ...

    @property
    def high(self) -> Sequence[float]: ...


ActionSpec = DiscreteAction | MultiDiscreteAction | BoxAction


@dataclass(frozen=True, slots=True)
class Spaces:
    """Named inputs, for example `{"observation": ...}`, and the action of an agent."""

    observations: Mapping[str, InputSpec]
    action: ActionSpec
