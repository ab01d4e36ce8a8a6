"""Batches: they arrive as they were, share what they may, and are refused whole."""

from __future__ import annotations

import re
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hive.errors import WireError
from hive.runtime.wire.arrays import MAX_FRAMES
from hive.runtime.wire.batches import MAX_BATCH, batch_length, batch_of, decode_batch, encode_batch
from hive.runtime.wire.messages import Message, Tree, type_set


class Point(Message):
    x: int
    y: float


class Everything(Message):
    text: str
    array: np.ndarray
    point: Point
    arrays: dict[str, np.ndarray]
    tree: Tree


class Leaf(Message):
    tree: Tree


class Pictures(Message):
    pictures: tuple[np.ndarray, ...]


class Empty(Message):
    """Says all by being there."""


TYPES = type_set([Point, Everything, Leaf, Pictures, Empty])

points = st.builds(Point, st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False))
numpy_arrays = st.integers(0, 5).map(lambda size: np.arange(size, dtype=np.float32))
scalars = st.none() | st.booleans() | st.integers(0, 99) | st.text(max_size=9)
trees = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4))
everything = st.builds(
    Everything, st.text(max_size=9), numpy_arrays, points, st.dictionaries(st.text(), numpy_arrays, max_size=3), trees
)


def batch_over_the_wire(messages: list[Any]) -> list[Message]:
    return decode_batch([bytes(frame) for frame in encode_batch(messages)], TYPES)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(everything, min_size=1, max_size=4) | st.lists(points, min_size=1, max_size=30))
def test_a_batch_arrives_as_it_was(messages: list[Message]) -> None:
    assert batch_over_the_wire(messages) == messages


@pytest.mark.parametrize("y", [float("inf"), float("-inf"), 1e300])
def test_numbers_beyond_integers_arrive(y: float) -> None:
    assert batch_over_the_wire([Point(1, y), Point(2**64 - 1, -y)]) == [Point(1, y), Point(2**64 - 1, -y)]
    (point,) = batch_over_the_wire([Point(-(2**63), float("nan"))])
    assert isinstance(point, Point)
    assert (point.x, point.y != point.y) == (-(2**63), True)


def test_a_batch_is_of_one_type() -> None:
    with pytest.raises(TypeError, match="expected Point, got Empty"):
        encode_batch([Point(1, 2.0), Empty()])
    with pytest.raises(TypeError, match=r"Point\.x: an integer of more than 64 bits"):
        encode_batch([Point(1, 2.0), Point(2**64, 2.0)])


def test_how_many_fit_one_batch() -> None:
    assert batch_of([Point(1, 2.0)] * 3) == 3
    assert batch_of([Point(1, 2.0)] * 3000) == MAX_BATCH
    assert batch_of([Leaf({"a": [1]})] * 3000) == MAX_BATCH
    pictures = [Pictures((np.zeros(1),) * 100)] * 5
    assert batch_of(pictures) == MAX_FRAMES // 100
    assert batch_over_the_wire(pictures[:2]) == pictures[:2]
    assert [batch_length(encode_batch(pictures[:n])[0]) for n in (1, 2)] == [1, 2]
    assert batch_of([Pictures((np.zeros(1),) * (MAX_FRAMES + 1))] * 2) == 1  # which its writer then refuses


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (["Point"], "a batch of 0 messages"),
        (["Point", *([[1, 2.0]] * (MAX_BATCH + 1))], f"a batch of {MAX_BATCH + 1} messages"),
        (["Point", [1, 2.0], [1]], "Point: expected the 2 fields of Point"),
        (["Point", 1, 2.0], "Point: expected the 2 fields of Point"),
        (["Nobody", [1]], "a message of type 'Nobody', which this socket does not carry"),
    ],
)
def test_what_is_no_batch_is_refused(body: list[Any], text: str) -> None:
    with pytest.raises(WireError, match=re.escape(text)):
        decode_batch([msgpack.packb(body)], TYPES)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.binary(max_size=60) | trees.map(msgpack.packb))
def test_garbage_is_no_batch(garbage: bytes) -> None:
    with pytest.raises(WireError):
        decode_batch([garbage], TYPES)
