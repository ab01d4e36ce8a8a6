"""Plain data: every kind comes back as it was, others are refused, and damaged bytes raise ValueError."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np
import pytest

from hive.plain_data import is_plain, pack, read_content, unpack, write_content

VALUES: list[Any] = [
    *(None, True, 3, -(2**70), 2.5, "text", b"bytes", [1, [2]], (1, (2, "x")), {"a": (1,)}, {1: 2, (3, 4): 5}),
    *({1, 2}, frozenset({"a"}), deque([1, 2], 3), np.float32(2.5), np.int64(3)),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    found = unpack(pack(value))
    assert (type(found), found) == (type(value), value)
    assert getattr(found, "maxlen", None) == getattr(value, "maxlen", None)


def test_arrays_and_generators_come_back() -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    found = unpack(pack(array))
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)
    for generator in (np.random.default_rng(3), np.random.Generator(np.random.MT19937(2)), random.Random(4)):
        generator.random()
        assert unpack(pack(generator)).random() == generator.random()


@pytest.mark.parametrize("value", [object(), print, np.array([object()]), [lambda: 0], {"a": open}, type])
def test_other_values_are_refused(value: Any) -> None:
    assert not is_plain(value)


@pytest.mark.parametrize("data", [b"", b"\xc1", pack([1, 2])[:-1], b"\xc7\x00\x63", b"\xd9\xff"])
def test_damaged_bytes_raise_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="no plain data"):
        unpack(data)


def test_a_block_keeps_its_content_and_refuses_more_than_it_holds() -> None:
    block = np.full(32, 7, np.uint8)
    write_content(b"abc", block)
    assert read_content(block) == b"abc"
    with pytest.raises(ValueError, match="do not fit"):
        write_content(bytes(25), block)
