"""Plain data as bytes: what callbacks keep and send, without pickle.

None, booleans, numbers, texts, bytes, lists, tuples, sets, dictionaries, deques, NumPy scalars and arrays,
and the random generators of NumPy and Python. Each comes back as the type that it was. Nothing else does, and nothing
is executed: a type that is not in this list is refused.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

MOST_ITEMS = 1 << 20  # of one container, and bytes of one text: what a damaged file may make a reader allocate
ARRAY, TUPLE, SET, INTEGER, MAP, DEQUE, GENERATOR, RANDOM, SCALAR, FROZEN = range(1, 11)  # codes of extension types
LENGTH_BYTES = 8  # before the content of a block of memory
WORD = 1 << 63  # msgpack's integers are smaller than this, in both directions
NUMBERS = "biufc"  # kinds of dtypes that an array may have
BIT_GENERATORS = {
    "PCG64": np.random.PCG64,
    "MT19937": np.random.MT19937,
    "Philox": np.random.Philox,
    "PCG64DXSM": np.random.PCG64DXSM,
    "SFC64": np.random.SFC64,
}


def is_plain(value: Any) -> bool:
    """Whether `value` can be packed."""
    try:
        pack(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False
    return True


def pack(value: Any) -> bytes:
    """Return the value as bytes. Raises TypeError or ValueError for what is not plain data."""
    return bytes(msgpack.packb(_simple(value), use_bin_type=True))


def unpack(data: bytes | memoryview) -> Any:
    """Return the value that was packed. Raises ValueError for other bytes."""
    try:
        return msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=False,
            ext_hook=_restored,
            max_str_len=MOST_ITEMS,
            max_array_len=MOST_ITEMS,
            max_map_len=MOST_ITEMS,
        )
    except (ValueError, TypeError, LookupError, RecursionError, msgpack.UnpackException) as error:
        raise ValueError(f"these bytes are no plain data: {error}") from None


def write_content(content: bytes, block: NDArray[np.uint8]) -> None:
    """Write bytes and their number to a block. Raises ValueError if it is too small."""
    size = len(content)
    if size + LENGTH_BYTES > len(block):
        raise ValueError(f"{size} bytes do not fit in a block of {len(block)}")
    block[:LENGTH_BYTES].view(np.int64)[0] = size
    block[LENGTH_BYTES : LENGTH_BYTES + size] = np.frombuffer(content, np.uint8)


def read_content(block: NDArray[np.uint8]) -> bytes:
    """Return the bytes that were written."""
    size = int(block[:LENGTH_BYTES].view(np.int64)[0])
    return block[LENGTH_BYTES : LENGTH_BYTES + size].tobytes()


def _simple(value: Any) -> Any:
    """Return what msgpack can pack in place of a value."""
    kind = type(value)
    if value is None or kind in (bool, float, str, bytes):
        return value
    if kind is int:
        return value if -WORD <= value < WORD else msgpack.ExtType(INTEGER, str(value).encode())
    if kind is list:
        return [_simple(item) for item in value]
    if kind is dict:
        if all(type(key) is str for key in value):
            return {key: _simple(item) for key, item in value.items()}
        return msgpack.ExtType(MAP, pack([[key, item] for key, item in value.items()]))
    if kind in (tuple, set, frozenset, deque):
        return _container(value)
    if isinstance(value, np.ndarray | np.generic):
        return _array(value)
    if kind is np.random.Generator:
        return msgpack.ExtType(GENERATOR, pack(value.bit_generator.state))
    if kind is random.Random:
        return msgpack.ExtType(RANDOM, pack(list(value.getstate())))
    raise TypeError(f"{kind.__name__} is no plain data")


def _container(value: Any) -> msgpack.ExtType:
    if type(value) is tuple:
        return msgpack.ExtType(TUPLE, pack(list(value)))
    if type(value) is deque:
        return msgpack.ExtType(DEQUE, pack([value.maxlen, list(value)]))
    code = SET if type(value) is set else FROZEN
    return msgpack.ExtType(code, pack(sorted(value, key=lambda item: (type(item).__name__, item))))


def _array(value: Any) -> msgpack.ExtType:
    array = np.asarray(value)
    if array.dtype.kind not in NUMBERS:
        raise TypeError(f"an array of {array.dtype} is no plain data")
    code = ARRAY if isinstance(value, np.ndarray) else SCALAR
    return msgpack.ExtType(code, pack([array.dtype.str, list(array.shape), array.tobytes()]))


def _restored(code: int, data: bytes) -> Any:
    """Return the value of an extension type."""
    if code == INTEGER:
        return int(data)
    value = unpack(data)
    if code in (ARRAY, SCALAR):
        dtype, shape, content = value
        if np.dtype(dtype).kind not in NUMBERS:
            raise ValueError(f"an array of {dtype}")
        array = np.frombuffer(content, dtype).reshape(shape).copy()
        return array if code == ARRAY else array[()]
    if code == MAP:
        return dict(value)
    if code == DEQUE:
        return deque(value[1], value[0])
    if code == GENERATOR:
        return _generator(value)
    if code == RANDOM:
        made = random.Random()
        made.setstate((value[0], tuple(value[1]), value[2]))
        return made
    return {TUPLE: tuple, SET: set, FROZEN: frozenset}[code](value)


def _generator(state: Mapping[str, Any]) -> np.random.Generator:
    bits = BIT_GENERATORS[state["bit_generator"]]()
    bits.state = state
    return np.random.Generator(bits)
