"""Describes the actions of an environment as plain data, and converts stored actions to the environment's.

    space                              stored as
    Discrete(n)                        int64 of shape (), 0 .. n - 1
    MultiDiscrete of any shape         int64 of shape (k,), each from 0
    MultiBinary of any shape           int64 of shape (k,), each 0 or 1
    Box of integers, few values        int64 of shape (k,), each from 0: choices without an order
    Box of floats                      float32 of its shape, clipped to its bounds
    Dict, Tuple of these, nested too   one row (k,) of all parts in order: int64, or float32 with a Box of floats

Integers up to 2^24 are exact in float32, and a network with that many choices has no place in memory. All other spaces
are refused by an error that names the part. `action_converter` converts stored actions to those that the environment
takes: counted from its own start, within its bounds, of its shapes and dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hive.errors import EnvironmentFailed

if TYPE_CHECKING:
    from gymnasium import spaces
    from gymnasium.spaces import Space

MAX_VALUES = 256  # of an element of a Box of integers; beyond, choices without an order would not learn

SERVED = "Discrete, MultiDiscrete, MultiBinary, Box, or a Dict or Tuple of these"
CONVERT = "convert it in a custom class, for example with gymnasium.wrappers.TransformAction"

Converter: TypeAlias = Callable[[NDArray[Any]], Any]


@dataclass(frozen=True)
class Discrete:
    """One of `n` actions, stored as int64 in 0 .. n - 1; the environment counts from `start`, in `env_dtype`."""

    n: int
    start: int = 0
    env_dtype: str = field(default="int64", compare=False)
    shape: ClassVar[tuple[int, ...]] = ()
    dtype: ClassVar[str] = "int64"


@dataclass(frozen=True)
class MultiDiscrete:
    """k discrete actions at once, stored as int64 [k]; the i-th is in 0 .. nvec[i] - 1.

    The environment counts the i-th from `start[i]`; an empty `start` means 0 for all. It takes them in `env_shape`
    (None: flat) and `env_dtype`.
    """

    nvec: tuple[int, ...]
    start: tuple[int, ...] = ()
    env_shape: tuple[int, ...] | None = None
    env_dtype: str = field(default="int64", compare=False)
    dtype: ClassVar[str] = "int64"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a stored action: (k,)."""
        return (len(self.nvec),)


@dataclass(frozen=True)
class MultiBinary:
    """k bits at once, stored as int64 [k]; the environment takes them in `env_shape`, of k elements, as int8."""

    env_shape: tuple[int, ...]
    start: ClassVar[tuple[int, ...]] = ()
    env_dtype: ClassVar[str] = "int8"
    dtype: ClassVar[str] = "int64"

    @property
    def nvec(self) -> tuple[int, ...]:
        """The number of values of each element: 2."""
        return (2,) * prod(self.env_shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a stored action: (k,)."""
        return (prod(self.env_shape),)


@dataclass(frozen=True)
class Box:
    """Continuous actions of `shape`, stored as float32. The bounds `low` and `high` are flat and may be infinite.

    The environment takes them in `env_dtype`. scaled: whether a Gaussian policy acts in the scale in which finite
    bounds are -1 and 1; stored actions are the environment's all the same.
    """

    shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    env_dtype: str = field(default="float32", compare=False)
    scaled: bool = field(default=False, compare=False)
    dtype: ClassVar[str] = "float32"


@dataclass(frozen=True)
class Composite:
    """Several actions at once, `parts`, which may be composite too: a dictionary with `names`, or a tuple (None).

    Stored as one row [k], the flat parts in order: float32 if a part is, else int64.
    """

    parts: tuple[ActionSpec, ...]
    names: tuple[str, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a stored action: (k,)."""
        return (sum(prod(part.shape) for part in self.parts),)

    @property
    def dtype(self) -> str:
        """The dtype of a stored action."""
        return "float32" if any(part.dtype == "float32" for part in self.parts) else "int64"


ActionSpec: TypeAlias = Discrete | MultiDiscrete | MultiBinary | Box | Composite


def action_spec(id: str, space: Space[Any]) -> ActionSpec:
    """Return the form in which actions of `space` are stored.

    Raises EnvironmentFailed for a space, or a part of one, that the module does not list; `id` is for its message.
    """
    return _spec(id, space, ())


def action_converter(action: ActionSpec) -> Converter:
    """Return a function from stored actions [B, ...] to a new batch of the actions that the environment takes.

    A batch is an array [B, ...], or the environment's dictionary or tuple of such arrays, as vectorized classes of
    Gymnasium take it; `each_action` divides it.
    """
    if isinstance(action, Composite):
        return _composite_converter(action)
    dtype = np.dtype(action.env_dtype)
    if isinstance(action, Box):
        low, high = (np.asarray(bound, dtype).reshape(action.shape) for bound in (action.low, action.high))
        return lambda actions: np.minimum(np.maximum(actions, low), high).astype(dtype, copy=False)
    start = np.asarray(action.start or 0, np.int64)

    def shifted(actions: NDArray[Any]) -> NDArray[Any]:
        return (actions + start).astype(dtype, copy=False)  # a space contains no integers with more bits than its dtype

    convert: Converter = shifted if start.any() or dtype != np.int64 else np.ndarray.copy
    shape = None if isinstance(action, Discrete) else action.env_shape
    return convert if shape is None else lambda actions: convert(actions).reshape(-1, *shape)


def choices_of(action: ActionSpec) -> tuple[int, ...] | None:
    """Return the number of values of each discrete element, in stored order; None if an element is continuous."""
    match action:
        case Discrete():
            return (action.n,)
        case MultiDiscrete() | MultiBinary():
            return action.nvec
        case Box():
            return None
        case Composite():
            parts = [choices_of(part) for part in action.parts]
            return None if None in parts else tuple([n for part in parts for n in part or ()])


def each_action(batch: Any) -> Iterable[Any]:
    """Divide a batch that `action_converter` made into the B actions of single environments, in order."""
    if isinstance(batch, dict):
        return [dict(zip(batch, row, strict=True)) for row in zip(*map(each_action, batch.values()), strict=True)]
    if isinstance(batch, tuple):
        return [*zip(*map(each_action, batch), strict=True)]
    return batch  # type: ignore[no-any-return]


def _composite_converter(action: Composite) -> Converter:
    parts: list[tuple[slice, Converter]] = []
    start = 0
    for part in action.parts:
        end = start + prod(part.shape)
        parts.append((slice(start, end), partial(_convert_part, part.shape, part.dtype, action_converter(part))))
        start = end
    names = action.names
    if names is None:
        return lambda actions: tuple([convert(actions[:, columns]) for columns, convert in parts])
    named = [*zip(names, parts, strict=True)]
    return lambda actions: {name: convert(actions[:, columns]) for name, (columns, convert) in named}


def _convert_part(shape: tuple[int, ...], dtype: str, convert: Converter, columns: NDArray[Any]) -> Any:
    """Convert the columns [B, k] of one part, which has this stored shape and dtype."""
    return convert(columns.astype(dtype).reshape(-1, *shape))


def _spec(id: str, space: Space[Any], path: tuple[str, ...]) -> ActionSpec:
    from gymnasium import spaces

    match space:
        case spaces.Discrete():
            spec: ActionSpec = Discrete(int(space.n), int(space.start), str(space.dtype))
        case spaces.MultiDiscrete():
            spec = _choices(space.nvec, space.start, space)
        case spaces.MultiBinary():
            spec = MultiBinary(tuple(space.shape))
        case spaces.Box():
            spec = _box(id, space, path)
        case spaces.Dict():
            if any(not isinstance(name, str) for name in space.spaces):
                raise _refused(id, path, space, "expected names of type str", "rename them in a custom class")
            spec = Composite(_parts(id, space.spaces, path), tuple(map(str, space.spaces)))
        case spaces.Tuple():
            spec = Composite(_parts(id, dict(enumerate(space.spaces)), path))
        case _:
            raise _refused(id, path, space, f"expected {SERVED}", CONVERT)
    if not prod(spec.shape) or min(choices_of(spec) or (1,)) < 1:
        raise _refused(id, path, space, "which leaves nothing to choose", "leave it out of the action space")
    return spec


def _parts(id: str, parts: Mapping[Any, Space[Any]], path: tuple[str, ...]) -> tuple[ActionSpec, ...]:
    return tuple(_spec(id, part, (*path, str(name))) for name, part in parts.items())


def _box(id: str, space: spaces.Box, path: tuple[str, ...]) -> Box | MultiDiscrete:
    low, high = space.low, space.high
    if np.isnan(low).any() or np.isnan(high).any() or (low > high).any():
        raise _refused(id, path, space, "whose bounds are not numbers low <= high", "correct the bounds of the space")
    if np.issubdtype(space.dtype, np.floating):
        return Box(tuple(space.shape), tuple(low.ravel().tolist()), tuple(high.ravel().tolist()), str(space.dtype))
    if not np.issubdtype(space.dtype, np.integer):
        raise _refused(id, path, space, "expected a Box of floats or integers", "use spaces.MultiBinary for bits")
    values = [top - bottom + 1 for bottom, top in zip(low.ravel().tolist(), high.ravel().tolist(), strict=True)]
    if max(values, default=1) > MAX_VALUES:
        raise _refused(
            id,
            path,
            space,
            f"expected at most {MAX_VALUES} values per element of a Box of integers",
            "give it a Box of floats and round them in a custom class, for example gymnasium.wrappers.TransformAction",
        )
    return _choices(np.array(values, np.int64).reshape(space.shape), low, space)


def _choices(nvec: NDArray[Any], start: NDArray[Any], space: Space[Any]) -> MultiDiscrete:
    starts = tuple(start.ravel().tolist()) if start.any() else ()
    shape = None if nvec.ndim == 1 else nvec.shape
    return MultiDiscrete(tuple(nvec.ravel().tolist()), starts, shape, str(space.dtype))


def _refused(id: str, path: tuple[str, ...], space: Space[Any], why: str, hint: str) -> EnvironmentFailed:
    found = " ".join(str(space).split())
    place = f"actions of `{id}`: part `{'.'.join(path)}` is" if path else f"actions of `{id}` are"
    return EnvironmentFailed(f"{place} {found}, {why}", hint=hint, permanent=True)
