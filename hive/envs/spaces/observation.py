"""Describes the observations of an environment as plain data.

    space                       stored as
    Box, uint8                  uint8, the same shape
    Box, any other number       float32, the same shape
    MultiBinary                 float32, the same shape
    Discrete(n)                 one-hot float32 of shape (n,)
    MultiDiscrete([a, b, ..])   float32 of shape (a + b + ..,): the one-hot vectors of all elements
    with many values            a part of a row, uint8 of shape (4,) or (elements, 4): from 0, lowest byte first
    Dict, Tuple                 one row of bytes with all parts, however deep they are nested

A row of bytes keeps one observation one array, so rollouts, final observations and checkpoints are the same for every
environment. Parts of float32 lie first, those of uint8 follow, and then the action mask, if there is one:

    bytes 0 ..               `floats` float32 numbers: these parts in order of their names
          4 * floats ..      uint8 parts in order of their names
          ..                 the action mask: uint8, 1 for an action that is allowed
                             zeros up to a multiple of 4, so that all rows are aligned

The network takes a row apart again (hive.networks.rows.packed). Text, Graph, Sequence and other spaces are refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hive.declared import (
    EXACT,
    NO_IMAGE,
    NUMBER_BYTES,
    PIXELS,
    channels_of,
    declared_bounds,
    declares,
    is_within,
)
from hive.envs.wrappers import needed_wrappers
from hive.errors import EnvironmentFailed

if TYPE_CHECKING:
    from gymnasium import spaces
    from gymnasium.spaces import Space

MASK_KEY = "action_mask"
"""The key that an action mask has in `info` and, by convention, in dictionaries of observations."""

NO_ACTION = "an action mask that allows no action"

BESIDE_MASK = "observation"
"""The key of an observation beside its mask, if the environment gives the mask in `info`."""

INDEX_KEY = "agent"
"""The part of an observation that says which of several agents sees it, one-hot (env.agent_index)."""

STATE_KEY = "state"
"""The part with the state of the whole environment of several agents (env.state)."""

ALIGNMENT = 4  # bytes: rows begin where a float32 may begin

MOST_ONE_HOT = 1024
"""Values of an element of a Discrete or MultiDiscrete space that is stored one-hot, in 4 KiB. With more, a network has
an embedding table for it, and a row its number in 4 bytes."""

Path = tuple[str | int, ...]
"""The keys of dictionaries and the positions in tuples that lead to a part."""


@dataclass(frozen=True)
class ArraySpec:
    """One stored array: its `shape` and its `dtype`, "float32" or "uint8".

    counts, firsts: of Discrete and MultiDiscrete spaces the number of values of each element and the smallest value;
    they are stored one-hot: value v sets element v - first of its part of the array; or, with many values, as these
    numbers in bytes (`numbered`). Empty for other spaces.
    low, high: numbers that the network scales to 0 and 1, flat, one for all elements or one for each; empty: none.
    channels: where the channels of an image are, as in hive.declared. Both follow from shape and dtype if not given.
    These say what the array means, not its form: specs of the same form are equal.
    env_dtype: the environment's dtype, "bool" of a MultiBinary space, whose elements are 0 or 1; "" if it is unknown.
    env_shape: of Discrete and MultiDiscrete spaces the shape in which the environment returns them; None if unknown.
    origin: what is subtracted from the environment's numbers before they become float32, for each element, flat: whole
    numbers where its dtype is one of integers; empty: nothing (hive.envs.spaces.origins).
    """

    shape: tuple[int, ...]
    dtype: str
    counts: tuple[int, ...] = ()
    firsts: tuple[int, ...] = ()
    low: tuple[float, ...] | None = field(default=None, compare=False)
    high: tuple[float, ...] | None = field(default=None, compare=False)
    channels: str = field(default="", compare=False)
    env_dtype: str = field(default="", compare=False)
    env_shape: tuple[int, ...] | None = field(default=None, compare=False)
    origin: tuple[float, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        bounds = (self.low, self.high)
        if self.low is None or self.high is None:
            bounds = PIXELS if self.dtype == "uint8" and not self.counts else ((), ())
            object.__setattr__(self, "low", bounds[0])
            object.__setattr__(self, "high", bounds[1])
        if not self.channels:
            found = NO_IMAGE if self.counts else channels_of(self.shape, bounds)  # type: ignore[arg-type]
            object.__setattr__(self, "channels", found)

    @property
    def numbered(self) -> bool:
        """Whether a Discrete or MultiDiscrete space is stored as numbers in bytes instead of one-hot."""
        return bool(self.counts) and self.dtype == "uint8"

    @property
    def bytes(self) -> int:
        """The size of the stored array."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    def relative(self, batch: NDArray[Any]) -> NDArray[Any]:
        """Return numbers of the environment [..., *shape] less `origin`, which is subtracted without rounding."""
        whole = batch.dtype.kind in "iub" and all(isinstance(one, int) for one in self.origin)
        base = self._base(whole=whole)
        if whole:  # the difference of 64-bit integers modulo 2^64, of either sign
            steps: NDArray[np.int64] = (batch.astype(np.uint64) - base).view(np.int64)
            return steps
        difference: NDArray[np.float64] = batch.astype(np.float64) - base
        return difference

    def absolute(self, stored: NDArray[np.float32]) -> NDArray[Any]:
        """Return the environment's numbers of stored ones [..., *shape], in its dtype: the inverse of `relative`."""
        numbers: NDArray[Any] = stored.astype(np.float64) + self._base(whole=False)
        if np.dtype(self.env_dtype).kind in "iu":
            numbers = np.rint(stored).astype(np.int64).view(np.uint64) + self._base(whole=True)
        return numbers.astype(self.env_dtype)

    def _base(self, *, whole: bool) -> NDArray[Any]:
        """Return `origin` as an array: of uint64, modulo 2^64, or of float64."""
        if whole:
            return np.array([int(one) % 2**64 for one in self.origin], np.uint64).reshape(self.shape)
        return np.array(self.origin, np.float64).reshape(self.shape)


@dataclass(frozen=True, kw_only=True)
class ObservationPart(ArraySpec):
    """A part of an observation, at byte `offset` of its row; `path` leads to it from the environment's observation."""

    path: Path
    offset: int = 0

    @property
    def name(self) -> str:
        """The path with dots between keys: `arm.joints`."""
        return ".".join(map(str, self.path))

    def of(self, observation: Any) -> Any:
        """Return this part of an observation of the environment. Raises KeyError, IndexError or TypeError."""
        return at_path(self.path, observation)

    def view(self, rows: NDArray[np.uint8]) -> NDArray[Any]:
        """Return this part of rows uint8 [..., bytes] as an array [..., *shape], without copying."""
        part = rows[..., self.offset : self.offset + self.bytes]
        return part.view(self.dtype).reshape((*rows.shape[:-1], *self.shape))


@dataclass(frozen=True)
class MaskPart:
    """The action mask, uint8 [sum(choices)] at byte `offset`. choices: number of actions of each discrete action."""

    path: Path
    choices: tuple[int, ...]
    offset: int

    def of(self, observation: Any) -> Any:
        """Return the mask in an observation of the environment. Raises KeyError, IndexError or TypeError."""
        return at_path(self.path, observation)

    def view(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the masks in rows uint8 [..., bytes], [..., sum(choices)], without copying."""
        return rows[..., self.offset : self.offset + sum(self.choices)]

    def closing(self, observation: Any) -> Any:
        """Return the last observation of an episode with a mask: one that allows all in the place of None or of none.

        No action follows it, so environments give what they like. A mask that allows some is kept, for the values of a
        truncated episode.
        """
        try:
            mask = np.asarray(self.of(observation)).reshape(-1) != 0
        except (LookupError, TypeError, ValueError):
            mask = np.zeros(0, bool)
        if mask.shape == (sum(self.choices),) and not self.fault(mask.astype(np.uint8)):
            return observation
        is_dict = isinstance(observation, Mapping) and len(self.path) == 1
        return {**observation, self.path[0]: np.ones(sum(self.choices), np.uint8)} if is_dict else observation

    def fault(self, mask: NDArray[np.uint8]) -> str:
        """Return what is wrong with one mask [sum(choices)]; "" for one that allows an action of every choice."""
        groups = np.split(mask, np.cumsum(self.choices)[:-1])
        closed = next((i for i, group in enumerate(groups) if not group.any()), None)
        if closed is None:
            return ""
        return NO_ACTION + (f" at position {closed}" if len(groups) > 1 else "")


@dataclass(frozen=True)
class ObservationSpec(ArraySpec):
    """One stored observation: its `shape` and its `dtype`, "float32" or "uint8".

    parts: of an observation that is stored as a row of bytes, `shape` is (bytes,) and `dtype` is "uint8". mask: where
    such a row has the action mask, None without one. stack: number of the last observations that a network sees.
    hidden: further parts of the row, which a policy does not see (network.critic_parts); observations may lack them.
    """

    parts: tuple[ObservationPart, ...] = ()
    mask: MaskPart | None = None
    stack: int = 1
    hidden: tuple[ObservationPart, ...] = field(default=(), compare=False)

    def without(self, names: Sequence[str]) -> ObservationSpec:
        """Return the same rows with the parts of these names, or within them, among `hidden`."""
        if not names:
            return self
        parts = tuple(part for part in self.parts if not is_within(part.name, names))
        hidden = tuple(part for part in self.parts if is_within(part.name, names))
        return replace(self, parts=parts, hidden=(*self.hidden, *hidden))

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        """The arrays that a network sees: the parts, or the observation itself."""
        return self.parts or (self,)

    @property
    def floats(self) -> int:
        """Number of float32 elements at the beginning of a row, or of a whole observation."""
        return sum(prod(one.shape) for one in (*self.inputs, *self.hidden) if one.dtype == "float32")

    @property
    def numbers_each(self) -> int:
        """Number of columns that `numbers` returns: the float32 elements of a row, or all of a whole observation."""
        return self.floats if self.parts else prod(self.shape)

    def numbers(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the float32 elements of stored rows, all elements of whole observations, [N, n], without copying."""
        if not self.parts:
            return rows.reshape(len(rows), -1)
        numbers: NDArray[np.float32] = rows[..., : 4 * self.floats].view(np.float32)
        return numbers


def observation_spec(id: str, space: Space[Any]) -> ObservationSpec:
    """Return the form in which observations of `space` are stored, and what they mean (hive.declared).

    A MaskedSpace (hive.envs.spaces.masks) says which part is the action mask. Raises EnvironmentFailed for spaces that
    cannot be stored; `id` is for its message.
    """
    mask_path: Path | None = getattr(space, "mask_path", None)
    choices: tuple[int, ...] = getattr(space, "choices", ())
    leaves = [(path, one) for path, one in leaves_of(space) if path != mask_path]
    if not leaves:
        raise EnvironmentFailed(f"`{id}` has observations without any part: {_short(space)}", permanent=True)
    if leaves[0][0] == () and not (alone := _array(id, (), space)).numbered:
        return ObservationSpec(**vars(alone))
    parts = [ObservationPart(**vars(_array(id, path, one)), path=path) for path, one in leaves]
    parts.sort(key=lambda part: (part.dtype != "float32", part.name, list(map(repr, part.path))))
    placed, offset = [], 0
    for part in parts:
        placed.append(replace(part, offset=offset))
        offset += part.bytes
    mask = None
    if mask_path is not None:
        mask = MaskPart(mask_path, choices, offset)
        offset += sum(choices)
    size = -(-offset // ALIGNMENT) * ALIGNMENT
    return ObservationSpec((size,), "uint8", low=(), high=(), parts=tuple(placed), mask=mask)


def at_path(path: Path, observation: Any) -> Any:
    """Return the part of an observation that `path` leads to. Raises KeyError, IndexError or TypeError."""
    for key in path:
        observation = observation[key]
    return observation


def leaves_of(space: Space[Any], path: Path = ()) -> Iterator[tuple[Path, Space[Any]]]:
    """Yield (path, space) of every part that is neither a Dict nor a Tuple."""
    from gymnasium import spaces

    inner: Mapping[Any, Space[Any]] | None = None
    if isinstance(space, spaces.Dict):
        inner = space.spaces
    elif isinstance(space, spaces.Tuple):
        inner = dict(enumerate(space.spaces))
    if inner is None:
        yield path, space
        return
    for key, one in inner.items():
        yield from leaves_of(one, (*path, key))


def _array(id: str, path: Path, space: Space[Any]) -> ArraySpec:
    """Return the form in which one part is stored."""
    from gymnasium import spaces

    match space:
        case spaces.Box():
            return _box(space)
        case spaces.MultiBinary():
            return ArraySpec(tuple(space.shape), "float32", env_dtype="bool")
        case spaces.Discrete():
            return _choices([space.n], [space.start], space)
        case spaces.MultiDiscrete():
            return _choices(space.nvec.ravel().tolist(), space.start.ravel().tolist(), space)
    place = f"as part `{'.'.join(map(str, path))}` of its observations" if path else "observations"
    raise EnvironmentFailed(
        f"`{id}` has {type(space).__name__} {place}, expected Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple",
        hint=_hint(id),
        permanent=True,
    )


def _hint(id: str) -> str:
    if known := needed_wrappers(id):
        return f"env.wrappers = {json.dumps(known)} leaves it out; `hive init {id}` writes such a config"
    return "convert them in a wrapper, for example a gymnasium.ObservationWrapper that returns an array"


def _box(space: spaces.Box) -> ArraySpec:
    shape, dtype = tuple(space.shape), str(space.dtype)
    if not np.issubdtype(space.dtype, np.integer):
        return ArraySpec(shape, "float32", env_dtype=dtype)
    known = np.iinfo(dtype)
    # An image has its values between the limits of an unsigned dtype; other numbers, such as counts, rarely reach them.
    fills = known.min == 0 and channels_of(shape, ((), ())) != NO_IMAGE
    limits: tuple[float, float] = int(known.min), math.inf if fills else int(known.max)
    lows, highs = space.low.ravel().tolist(), space.high.ravel().tolist()
    pairs = zip(lows, highs, strict=True)
    # Between bounds that are near each other but beyond EXACT, float32 would hold few of the numbers.
    origin = [low if declares(low, high, limits) and max(-low, high) > EXACT else 0 for low, high in pairs]
    lows, highs = ([bound - base for bound, base in zip(each, origin, strict=True)] for each in (lows, highs))
    low, high = declared_bounds(lows, highs, limits)
    stored = "uint8" if dtype == "uint8" else "float32"
    return ArraySpec(shape, stored, low=low, high=high, env_dtype=dtype, origin=tuple(origin) if any(origin) else ())


def _choices(counts: Sequence[int], firsts: Sequence[int], space: Space[Any]) -> ArraySpec:
    counts, firsts = tuple(map(int, counts)), tuple(map(int, firsts))
    numbered = max(counts, default=0) > MOST_ONE_HOT
    shape: tuple[int, ...] = (sum(counts),)
    if numbered:
        shape = (NUMBER_BYTES,) if len(counts) == 1 else (len(counts), NUMBER_BYTES)
    env_shape = tuple(map(int, space.shape or ()))
    dtype = "uint8" if numbered else "float32"
    return ArraySpec(shape, dtype, counts, firsts, env_dtype=str(space.dtype), env_shape=env_shape)


def _short(space: Space[Any]) -> str:
    return " ".join(str(space).split())
