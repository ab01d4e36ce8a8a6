"""Observations and actions of several environments as bytes in messages, and as arrays.

An array [n, ...] is the raw little-endian elements of its space's dtype in C order. A dict space is a map from the
names of its parts to such bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hive.envs.external.described import shape_of, wire_dtype
from hive.envs.external.frames import Misbehaved

if TYPE_CHECKING:
    from gymnasium.spaces import Space
    from numpy.typing import NDArray

NAME_BYTES = 4 * 64 + 16  # of the name and the length of one part in a message, at most


class Batches:
    """Arrays of one space. what: the field that they are in, for errors."""

    __slots__ = ("_alone", "_bits", "_parts", "_what", "most_bytes")

    def __init__(self, space: Space[Any], what: str) -> None:
        from gymnasium import spaces

        self._what = what
        self._alone = not isinstance(space, spaces.Dict)
        parts = {"": space} if self._alone else space.spaces  # type: ignore[attr-defined]
        self._parts = {name: (wire_dtype(part), shape_of(part)) for name, part in parts.items()}
        self._bits = {name for name, part in parts.items() if isinstance(part, spaces.MultiBinary)}
        self.most_bytes = sum(prod(shape) * dtype.itemsize for dtype, shape in self._parts.values())
        """Bytes of the elements of one environment."""

    def limit(self, count: int) -> int:
        """Return the most bytes that `count` of them take in a message."""
        return count * self.most_bytes + NAME_BYTES * len(self._parts)

    def read(self, value: Any, count: int) -> Any:
        """Return arrays [count, ...], in a dictionary for a dict space. Raises Misbehaved."""
        if self._alone:
            return self._array("", value, count)
        if not isinstance(value, dict) or value.keys() != self._parts.keys():
            names = ", ".join(f"`{name}`" for name in self._parts)
            raise Misbehaved(f"sent `{self._what}` without exactly the parts {names}")
        return {name: self._array(name, part, count) for name, part in value.items()}

    def written(self, batch: NDArray[Any] | Mapping[str, NDArray[Any]]) -> bytes | dict[str, bytes]:
        """Return what a message has for arrays [n, ...] that the space contains."""
        if isinstance(batch, Mapping):
            return {name: self._bytes(name, part) for name, part in batch.items()}
        return self._bytes("", batch)

    def _bytes(self, name: str, array: NDArray[Any]) -> bytes:
        return np.ascontiguousarray(array, self._parts[name][0]).tobytes()

    def _array(self, name: str, value: Any, count: int) -> NDArray[Any]:
        dtype, shape = self._parts[name]
        array = array_of(value, dtype, (count, *shape), f"{self._what}.{name}" if name else self._what)
        if name in self._bits and array.max(initial=0) > 1:
            raise Misbehaved(f"sent `{self._what}` with a {array.max()} among bits, expected 0 or 1")
        return array


def array_of(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], what: str) -> NDArray[Any]:
    """Return the bytes of a message as an array that cannot be written. Raises Misbehaved."""
    size = prod(shape) * dtype.itemsize
    if not isinstance(value, bytes):
        raise Misbehaved(f"sent `{what}` as {type(value).__name__}, expected {size:,} bytes of {dtype.name} {[*shape]}")
    if len(value) != size:
        raise Misbehaved(f"sent `{what}` of {len(value):,} bytes, expected {size:,}: {dtype.name} {[*shape]}")
    return np.frombuffer(value, dtype).reshape(shape)


def flags_of(value: Any, count: int, what: str) -> NDArray[np.bool_]:
    """Return `count` flags of a message, bytes 0 or 1. Raises Misbehaved."""
    flags = array_of(value, np.dtype("|u1"), (count,), what)
    if flags.max(initial=0) > 1:
        raise Misbehaved(f"sent `{what}` with a {flags.max()}, expected 0 or 1")
    return flags.view(np.bool_)
