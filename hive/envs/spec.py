"""Describes an environment and its actions as plain data.

An `EnvironmentSpec` is read once from the Gymnasium spaces. Networks, storage and algorithms use it and never see a
Gymnasium space. hive.envs.observation has the form of observations. Actions are integers or float32 arrays:

    space                       stored as
    Discrete(n)                 int64 of shape (), 0 .. n - 1
    MultiDiscrete([a, b, ..])   int64 of shape (k,), each from 0
    Box                         float32, clipped to its bounds

Dict, Tuple, Text, Graph and other spaces are refused, with a hint. `action_converter` converts stored actions to those
that the environment takes: counted from its own start, within its bounds, of its dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hive.envs.observation import ObservationSpec
from hive.errors import EnvironmentFailed

if TYPE_CHECKING:
    from gymnasium.spaces import Space

__all__ = [
    "ActionSpec",
    "Box",
    "Discrete",
    "EnvironmentSpec",
    "MultiDiscrete",
    "action_converter",
    "action_spec",
]


@dataclass(frozen=True)
class Discrete:
    """One of `n` actions, stored as int64 in 0 .. n - 1; the environment counts from `start`."""

    n: int
    start: int = 0
    shape: ClassVar[tuple[int, ...]] = ()
    dtype: ClassVar[str] = "int64"


@dataclass(frozen=True)
class MultiDiscrete:
    """k discrete actions at once, stored as int64 [k]; the i-th is in 0 .. nvec[i] - 1.

    The environment counts the i-th from `start[i]`; an empty `start` means 0 for all.
    """

    nvec: tuple[int, ...]
    start: tuple[int, ...] = ()
    dtype: ClassVar[str] = "int64"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a stored action: (k,)."""
        return (len(self.nvec),)


@dataclass(frozen=True)
class Box:
    """Continuous actions of `shape`, stored as float32. The bounds `low` and `high` are flat and may be infinite."""

    shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    dtype: ClassVar[str] = "float32"


ActionSpec = Discrete | MultiDiscrete | Box


@dataclass(frozen=True)
class EnvironmentSpec:
    """The description of an environment for the rest of hive. `max_episode_steps` is None if not declared.

    frame_skip: frames of the game per step, for environments that declare it; 1 for all others.
    """

    id: str
    observation: ObservationSpec
    action: ActionSpec
    max_episode_steps: int | None = None
    frame_skip: int = 1


def action_spec(id: str, space: Space[Any]) -> ActionSpec:
    """Return the form in which actions of `space` are stored.

    Raises EnvironmentFailed for spaces other than Discrete, flat MultiDiscrete and Box of floats; `id` is for its
    message.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return MultiDiscrete(tuple(space.nvec.tolist()), tuple(space.start.tolist()) if space.start.any() else ())
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return Box(tuple(space.shape), tuple(space.low.ravel().tolist()), tuple(space.high.ravel().tolist()))
    found = " ".join(str(space).split())
    raise EnvironmentFailed(
        f"`{id}` takes actions of {found}, expected Discrete, a flat MultiDiscrete or a Box of floats",
        hint="convert them in a custom class, for example with gymnasium.wrappers.TransformAction",
        permanent=True,
    )


def action_converter(space: Space[Any]) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return a function from stored actions [B, ...] to a new array [B, ...] of the actions that `space` contains."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        low, high, dtype = space.low, space.high, space.dtype
        return lambda actions: np.minimum(np.maximum(actions, low), high).astype(dtype, copy=False)
    assert isinstance(space, spaces.Discrete | spaces.MultiDiscrete), "action_spec refuses other spaces"
    start, dtype = np.asarray(space.start, np.int64), space.dtype
    if dtype != np.int64:  # a space does not contain integers with more bits than its dtype
        return lambda actions: (actions + start).astype(dtype)
    return (lambda actions: actions + start) if start.any() else np.ndarray.copy
