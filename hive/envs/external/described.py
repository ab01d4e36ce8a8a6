"""Spaces as a program describes them in its hello, and as Gymnasium has them.

    {"type": "box", "dtype": "float32", "shape": [4], "low": -1.0, "high": 1.0}   low, high: a number for all elements,
                                                                                  bytes of all, or left out: no bound
    {"type": "discrete", "n": 4, "start": 0}                                      start may be left out: 0
    {"type": "multi_discrete", "nvec": [3, 2], "start": [0, 0]}
    {"type": "multi_binary", "shape": [5]}
    {"type": "dict", "parts": {"name": space, ...}}                               without dicts inside

Every field is checked and bounded before Gymnasium sees it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hive.envs.external.frames import Misbehaved
from hive.printable import printable

if TYPE_CHECKING:
    from gymnasium import spaces
    from gymnasium.spaces import Space
    from numpy.typing import NDArray

DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float32", "float64")
MOST_AXES = 8  # of a shape
MOST_SPACE_BYTES = 1 << 24  # of one observation, or of one action: 16 MiB
MOST_CHOICES = 1 << 24  # of a discrete space: integers beyond are not exact in float32
MOST_START = 1 << 31  # of the smallest value of a discrete space, in both directions
MOST_PARTS = 256  # of a dict space
MOST_DISCRETE = 4096  # elements of a multi_discrete space
MOST_NAME = 64  # characters of a name

FIELDS = {
    "box": {"dtype", "shape", "low", "high"},
    "discrete": {"n", "start"},
    "multi_discrete": {"nvec", "start"},
    "multi_binary": {"shape"},
    "dict": {"parts"},
}
"""Type of a space -> its fields."""


def space_of(described: Any, what: str) -> Space[Any]:
    """Return the space that a program describes. what: "observation" or "action". Raises Misbehaved."""
    from gymnasium import spaces

    kind = _kind(described, what)
    if kind != "dict":
        space = _array(kind, described, what)
        _check_bytes(what, [space])
        return space
    parts = described.get("parts")
    if not isinstance(parts, dict) or not 0 < len(parts) <= MOST_PARTS:
        raise _fault(what, "parts", parts, f"a map of 1 to {MOST_PARTS} parts")
    found = {}
    for name, part in parts.items():
        if not is_name(name):
            raise _fault(what, "parts", name, f"names of 1 to {MOST_NAME} printable characters")
        place = f"{what}.{name}"
        inner = _kind(part, place)
        if inner == "dict":
            raise _fault(place, "type", inner, "no dict inside a dict: name the part `outer.inner`")
        found[name] = _array(inner, part, place)
        _check_bytes(what, [*found.values()])  # before the next one takes memory
    return spaces.Dict(found)


def is_name(value: object) -> bool:
    """Whether a value is a name of a part, of a value of `info`, or of a program."""
    return isinstance(value, str) and 0 < len(value) <= MOST_NAME and value.isprintable()


def wire_dtype(space: Space[Any]) -> np.dtype[Any]:
    """Return the dtype of the elements of a space in messages."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        return np.dtype(space.dtype).newbyteorder("<")
    return np.dtype("|u1") if isinstance(space, spaces.MultiBinary) else np.dtype("<i8")


def shape_of(space: Space[Any]) -> tuple[int, ...]:
    """Return the shape of an element of a space that is no dictionary."""
    return tuple(space.shape or ())


def _array(kind: str, described: Mapping[str, Any], what: str) -> Space[Any]:
    from gymnasium import spaces

    if kind == "box":
        return _box(described, what)
    if kind == "discrete":
        n = _integer(described.get("n"), 1, MOST_CHOICES, what, "n")
        return spaces.Discrete(n, start=_integer(described.get("start", 0), -MOST_START, MOST_START, what, "start"))
    if kind == "multi_binary":
        return spaces.MultiBinary(_shape(described.get("shape"), 1, what) or [1])
    nvec, start = described.get("nvec"), described.get("start")
    if not isinstance(nvec, list) or not 0 < len(nvec) <= MOST_DISCRETE:
        raise _fault(what, "nvec", nvec, f"an array of 1 to {MOST_DISCRETE:,} integers")
    counts = [_integer(n, 1, MOST_CHOICES, what, "nvec") for n in nvec]
    if start is None:
        return spaces.MultiDiscrete(counts)
    if not isinstance(start, list) or len(start) != len(nvec):
        raise _fault(what, "start", start, f"an array of {len(nvec):,} integers")
    starts = [_integer(one, -MOST_START, MOST_START, what, "start") for one in start]
    return spaces.MultiDiscrete(counts, start=starts)


def _box(described: Mapping[str, Any], what: str) -> spaces.Box:
    from gymnasium import spaces

    name = described.get("dtype")
    if name not in DTYPES:
        raise _fault(what, "dtype", name, f"one of {', '.join(DTYPES)}")
    dtype = np.dtype(name)
    shape = _shape(described.get("shape"), dtype.itemsize, what)
    low, high = (_bound(described.get(key), key, dtype, shape, what) for key in ("low", "high"))
    if (low > high).any():
        raise Misbehaved(f"describes `{_short(what)}` with a low above its high")
    return spaces.Box(low, high, shape, dtype.type)


def _bound(value: Any, key: str, dtype: np.dtype[Any], shape: tuple[int, ...], what: str) -> NDArray[Any]:
    """Return one bound of every element."""
    real = dtype.kind == "f"
    limits: Any = np.finfo(dtype) if real else np.iinfo(dtype)
    if isinstance(value, bytes):
        if len(value) != prod(shape) * dtype.itemsize:
            raise _fault(what, key, f"{len(value):,} bytes", f"{prod(shape) * dtype.itemsize:,}")
        each = np.frombuffer(value, dtype.newbyteorder("<")).astype(dtype).reshape(shape)
        if real and np.isnan(each).any():
            raise _fault(what, key, "NaN", "numbers")
        return each
    if value is None:
        value = (math.inf if real else limits.max) * (1 if key == "high" else -1)
        value = value if real or key == "high" else limits.min
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and real and (math.isinf(value) or -limits.max <= value <= limits.max):
        return np.full(shape, value, dtype)
    if number and not real and limits.min <= value <= limits.max and value == int(value):
        return np.full(shape, int(value), dtype)
    raise _fault(what, key, value, f"a number of {dtype}, or {prod(shape) * dtype.itemsize:,} bytes")


def _kind(described: Any, what: str) -> str:
    if not isinstance(described, dict):
        raise Misbehaved(f"describes `{_short(what)}` by {_short(described)}, expected a map")
    kind = described.get("type")
    if not isinstance(kind, str) or kind not in FIELDS:
        raise _fault(what, "type", kind, f"one of {', '.join(FIELDS)}")
    if unknown := described.keys() - FIELDS[kind] - {"type"}:
        raise Misbehaved(f"describes `{_short(what)}` with the unknown field `{_short(min(unknown))}`")
    return kind


def _shape(shape: Any, itemsize: int, what: str) -> tuple[int, ...]:
    if not isinstance(shape, list) or len(shape) > MOST_AXES:
        raise _fault(what, "shape", shape, f"an array of at most {MOST_AXES} sizes")
    sizes = tuple([_integer(size, 1, MOST_SPACE_BYTES, what, "shape") for size in shape])
    if prod(sizes) * itemsize > MOST_SPACE_BYTES:
        raise _fault(what, "shape", shape, f"at most {MOST_SPACE_BYTES:,} bytes")
    return sizes


def _integer(value: Any, least: int, most: int, what: str, field: str) -> int:
    if type(value) is not int or not least <= value <= most:
        raise _fault(what, field, value, f"integers from {least:,} to {most:,}")
    return value


def _check_bytes(what: str, parts: list[Space[Any]]) -> None:
    size = sum(prod(shape_of(part)) * wire_dtype(part).itemsize for part in parts)
    if size > MOST_SPACE_BYTES:
        raise Misbehaved(f"describes `{_short(what)}` with {size:,} bytes, at most {MOST_SPACE_BYTES:,} are allowed")


def _fault(what: str, field: str, value: Any, expected: str) -> Misbehaved:
    return Misbehaved(f"describes `{_short(what)}` with `{field}` = {_short(value)}, expected {expected}")


def _short(value: Any) -> str:
    """Return a value of a message in a few characters."""
    if isinstance(value, (list, dict, bytes)) and len(value) > 8:
        return f"a {type(value).__name__} of {len(value):,}"
    return printable(" ".join((value if isinstance(value, str) else repr(value)).split()), 60)
