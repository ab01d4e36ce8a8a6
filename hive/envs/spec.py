"""What an environment takes and gives, as plain data.

An `EnvironmentSpec` is read once from the Gymnasium spaces; networks, storage and algorithms are built from
it and never see a Gymnasium space. Observations are float32 or uint8 arrays, actions are integers or float32
arrays:

    space                       stored as
    Box, uint8                  uint8, the same shape
    Box, any other number       float32, the same shape
    Discrete(n)                 one-hot float32 of shape (n,)           (observations)
    Discrete(n)                 int64 of shape (), 0 .. n - 1           (actions)
    MultiDiscrete([a, b, ..])   int64 of shape (k,), each from 0        (actions)
    Box                         float32, clipped to its bounds          (actions)

Dict, Tuple, Text, Graph and the like are refused with the way out. `action_converter` turns stored actions
back into what the environment takes: counted from its own start, within its bounds, of its dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hive.errors import EnvironmentFailed

if TYPE_CHECKING:
    from gymnasium.spaces import Space

__all__ = [
    "ActionSpec",
    "Box",
    "Discrete",
    "EnvironmentSpec",
    "MultiDiscrete",
    "ObservationSpec",
    "action_converter",
    "action_spec",
    "observation_spec",
]


@dataclass(frozen=True)
class ObservationSpec:
    """One observation as stored: `shape` and `dtype`, "float32" or "uint8".

    `first` is None for a Box; for a Discrete space it is the space's smallest value, and the stored
    observation is one-hot: value v sets element v - first.
    """

    shape: tuple[int, ...]
    dtype: str
    first: int | None = None


@dataclass(frozen=True)
class Discrete:
    """One of `n` actions, stored as int64 from 0; the environment itself counts from `start`."""

    n: int
    start: int = 0
    shape: ClassVar[tuple[int, ...]] = ()
    dtype: ClassVar[str] = "int64"


@dataclass(frozen=True)
class MultiDiscrete:
    """k discrete actions at once, the i-th one of `nvec[i]`, stored as int64 [k] from 0.

    The environment counts the i-th from `start[i]`; () is 0 for all.
    """

    nvec: tuple[int, ...]
    start: tuple[int, ...] = ()
    dtype: ClassVar[str] = "int64"

    @property
    def shape(self) -> tuple[int, ...]:
        """(k,)."""
        return (len(self.nvec),)


@dataclass(frozen=True)
class Box:
    """Continuous actions of `shape`, stored as float32. `low` and `high` are flat, maybe infinite."""

    shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    dtype: ClassVar[str] = "float32"


ActionSpec = Discrete | MultiDiscrete | Box


@dataclass(frozen=True)
class EnvironmentSpec:
    """All that the rest of hive knows of an environment. `max_episode_steps` is None where undeclared."""

    id: str
    observation: ObservationSpec
    action: ActionSpec
    max_episode_steps: int | None = None


def observation_spec(id: str, space: Space[Any]) -> ObservationSpec:
    """How observations of `space` are stored. Raises EnvironmentFailed for other than Box and Discrete."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        return ObservationSpec(tuple(space.shape), "uint8" if space.dtype == np.uint8 else "float32")
    if isinstance(space, spaces.Discrete):
        return ObservationSpec((int(space.n),), "float32", first=int(space.start))
    raise EnvironmentFailed(
        f"`{id}` has {type(space).__name__} observations, expected Box or Discrete",
        hint="make them one array, as gymnasium.wrappers.FlattenObservation does, in a class of your own",
        permanent=True,
    )


def action_spec(id: str, space: Space[Any]) -> ActionSpec:
    """How actions of `space` are stored. Raises EnvironmentFailed for a space that hive cannot act in."""
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
        hint="translate them with gymnasium.wrappers.TransformAction in a class of your own",
        permanent=True,
    )


def action_converter(space: Space[Any]) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """From stored actions [B, ...] to a fresh array [B, ...] of what environments of this space take."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        low, high, dtype = space.low, space.high, space.dtype
        return lambda actions: np.minimum(np.maximum(actions, low), high).astype(dtype, copy=False)
    assert isinstance(space, spaces.Discrete | spaces.MultiDiscrete), "action_spec has let nothing else through"
    start, dtype = np.asarray(space.start, np.int64), space.dtype
    if dtype != np.int64:  # A space takes no integers of more bits than its own.
        return lambda actions: (actions + start).astype(dtype)
    return (lambda actions: actions + start) if start.any() else np.ndarray.copy
