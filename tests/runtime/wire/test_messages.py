from __future__ import annotations

import math
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from hive.errors import WireError
from hive.runtime.wire import messages
from hive.runtime.wire.arrays import DTYPES
from hive.runtime.wire.messages import MAX_ITEMS, MAX_TEXT_BYTES, Message, Tree, decode, encode, type_set


class Point(Message):
    x: int
    y: float


class Everything(Message):
    number: int
    real: float
    flag: bool
    text: str
    raw: bytes
    array: np.ndarray
    point: Point
    maybe: int | None
    points: tuple[Point, ...]
    arrays: dict[str, np.ndarray]
    tree: Tree


class Chain(Message):
    following: Chain | None


class Texts(Message):
    texts: tuple[str, ...]


class Counts(Message):
    counts: dict[str, int]


class Leaf(Message):
    tree: Tree


class Picture(Message):
    pixels: np.ndarray


class Pictures(Message):
    pictures: tuple[np.ndarray, ...]


class Empty(Message):
    """Says all by being there."""


TYPES = type_set([Point, Everything, Chain, Texts, Counts, Leaf, Picture, Pictures, Empty])

integers = st.integers(-(2**63), 2**64 - 1)
texts = st.text(max_size=20)
points = st.builds(Point, integers, st.floats(allow_nan=False))
numpy_arrays = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda dtype: arrays_of.arrays(
        dtype,
        arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
        elements={"allow_nan": False} if "float" in dtype else None,
    )
)
scalars = st.none() | st.booleans() | integers | st.floats(allow_nan=False) | texts | st.binary(max_size=20)
trees = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4))
everything = st.builds(
    Everything,
    integers,
    st.floats(allow_nan=False),
    st.booleans(),
    texts,
    st.binary(max_size=50),
    numpy_arrays,
    points,
    st.none() | integers,
    st.lists(points, max_size=3).map(tuple),
    st.dictionaries(texts, numpy_arrays, max_size=3),
    trees,
)

SAMPLE = Everything(
    number=-3,
    real=0.5,
    flag=True,
    text="Grüße",
    raw=b"\x00\xff",
    array=np.arange(6, dtype=np.float32).reshape(2, 3),
    point=Point(1, 2.0),
    maybe=None,
    points=(Point(3, 4.0), Point(5, 6.0)),
    arrays={"mask": np.array([True, False])},
    tree={"a": [1, None, {"b": b"c"}]},
)


def over_the_wire(message: Message) -> Message:
    return decode([bytes(frame) for frame in encode(message)], TYPES)


def raw(*body: Any, frames: tuple[bytes, ...] = ()) -> list[bytes]:
    """What a peer may send that does not use `encode`."""
    return [msgpack.packb(list(body)), *frames]


def refusal(frames: list[bytes]) -> str:
    with pytest.raises(WireError) as caught:
        decode(frames, TYPES)
    return str(caught.value)


# --- what goes in comes out


@settings(max_examples=120, deadline=None, derandomize=True)
@given(everything)
def test_a_message_of_every_kind_of_field_arrives_as_it_was(message: Everything) -> None:
    arrived = over_the_wire(message)
    assert arrived == message
    assert isinstance(arrived, Everything)
    assert arrived.array.dtype == message.array.dtype
    assert arrived.array.shape == message.array.shape


def test_frame_zero_is_plain_msgpack() -> None:
    frames = encode(SAMPLE)
    name, *fields = msgpack.unpackb(frames[0])
    assert name == "Everything"
    assert fields == [
        -3, 0.5, True, "Grüße", b"\x00\xff", [1, "float32", [2, 3]], [1, 2.0], None, [[3, 4.0], [5, 6.0]],
        {"mask": [2, "bool", [2]]}, {"a": [1, None, {"b": b"c"}]},
    ]  # fmt: skip
    assert [len(frame) for frame in frames[1:]] == [24, 2]
    assert np.frombuffer(frames[1], np.float32).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_message_written_by_plain_msgpack_is_read() -> None:
    pixels = np.array([[1, 2]], np.uint8)
    assert decode(raw("Picture", [1, "uint8", [1, 2]], frames=(pixels.tobytes(),)), TYPES) == Picture(pixels)


def test_arrays_are_neither_copied_out_nor_in() -> None:
    pixels = np.zeros(1000, np.float32)
    frames = encode(Picture(pixels))
    pixels[7] = 1.0
    assert np.frombuffer(frames[1], np.float32)[7] == 1.0
    arrived = decode(frames, TYPES)
    assert isinstance(arrived, Picture)
    assert np.shares_memory(arrived.pixels, pixels)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12).reshape(3, 4)[:, ::2],
        np.arange(6)[::-1],
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.float64(3.5),
        [1, 2, 3],
    ],
)
def test_arrays_of_any_strides_numbers_and_lists_become_arrays(array: Any) -> None:
    arrived = over_the_wire(Picture(array))
    assert isinstance(arrived, Picture)
    assert arrived.pixels.shape == np.shape(array)
    assert np.array_equal(arrived.pixels, array)


def test_numbers_of_numpy_are_numbers() -> None:
    arrived = over_the_wire(Point(np.int64(3), np.float32(0.5)))  # type: ignore[arg-type]
    assert arrived == Point(3, 0.5)
    assert over_the_wire(Leaf({"n": np.int32(4), "b": np.bool_(True)})) == Leaf({"n": 4, "b": True})


def test_a_float_field_takes_an_integer_and_is_a_float_then() -> None:
    arrived = over_the_wire(Point(1, 2))
    assert isinstance(arrived, Point)
    assert type(arrived.y) is float


def test_not_a_number_and_infinity_arrive() -> None:
    arrived = over_the_wire(Point(1, math.nan))
    assert isinstance(arrived, Point)
    assert math.isnan(arrived.y)
    assert over_the_wire(Point(1, -math.inf)) == Point(1, -math.inf)


def test_text_that_is_no_unicode_still_arrives() -> None:
    """A traceback about a file whose name is no text must not be lost."""
    assert over_the_wire(Leaf("file \udcff")) == Leaf("file \\udcff")


def test_a_message_that_holds_its_own_kind() -> None:
    message = Chain(Chain(Chain(None)))
    assert over_the_wire(message) == message


def test_messages_are_frozen_and_compare_by_type_and_value() -> None:
    point = Point(1, 2.0)
    with pytest.raises(AttributeError):
        point.x = 2  # type: ignore[misc]
    assert point != Point(2, 2.0)
    assert point != (1, 2.0)
    assert Picture(np.zeros(2)) != Picture(np.zeros(2, np.float32))
    assert Picture(np.zeros(2)) != Picture(np.zeros(3))
    with pytest.raises(TypeError, match="unhashable"):
        hash(point)


# --- what may not come in


def test_every_truncation_is_refused() -> None:
    frames = [bytes(frame) for frame in encode(SAMPLE)]
    for number, frame in enumerate(frames):
        for end in range(len(frame)):
            cut = list(frames)
            cut[number] = frame[:end]
            refusal(cut)
    for count in range(len(frames)):
        refusal(frames[:count])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.binary(max_size=60), max_size=4))
def test_garbage_is_refused(frames: list[bytes]) -> None:
    refusal(frames)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_a_message_with_a_changed_byte_is_read_or_refused(data: st.DataObject) -> None:
    frames = [bytearray(frame) for frame in encode(SAMPLE)]
    frame = data.draw(st.sampled_from(frames))
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        assert isinstance(decode(frames, TYPES), Message)
    except WireError:
        pass


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(TYPES)), st.lists(trees, max_size=3))
def test_well_formed_messages_of_wrong_fields_are_read_or_refused(name: str, fields: list[Any]) -> None:
    try:
        assert type(decode(raw(name, *fields), TYPES)) is TYPES[name]
    except WireError:
        pass


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ([], "not a message"),
        ([5], "not a message"),
        (["Pointless", 1, 2.0], "a message of type 'Pointless', which this socket does not carry"),
        (["x" * 1000], f"a message of type '{'x' * 64}', which this socket does not carry"),
        (["Point", 1], "Point: expected the 2 fields of Point"),
        (["Point", 1, 2.0, 3], "Point: expected the 2 fields of Point"),
        (["Empty", None], "Empty: expected the 0 fields of Empty"),
        (["Point", "1", 2.0], "Point.x: expected int, got str"),
        (["Point", True, 2.0], "Point.x: expected int, got bool"),
        (["Point", 1.0, 2.0], "Point.x: expected int, got float"),
        (["Point", 1, None], "Point.y: expected float, got NoneType"),
        (["Chain", [[[5]]]], "Chain.following.following.following.following: expected the 1 fields of Chain"),
        (["Texts", "abc"], "Texts.texts: expected a list, got str"),
        (["Texts", ["a", 5]], "Texts.texts[1]: expected str, got int"),
        (["Counts", [1]], "Counts.counts: expected a map, got list"),
        (["Counts", {"a": 1, "b": "2"}], "Counts.counts.b: expected int, got str"),
    ],
)
def test_refusals_say_where(body: list[Any], text: str) -> None:
    assert refusal(raw(*body)) == text


@pytest.mark.parametrize(
    ("packed", "text"),
    [
        (msgpack.packb({"Point": 1}), "not a message"),
        (msgpack.packb(["Leaf", {1: 2}]), "int is not allowed for map key"),
        (msgpack.packb(["Leaf", {b"a": 2}]), "keys that are not text"),
        (b"\x92\xa4Leaf\xc7\x00\x05", "extension type 5"),
        (b"\x92\xa4Leaf\xd6\xff\x00\x00\x00\x00", "max_ext_len"),
        (msgpack.packb(["Empty"]) + b"\x00", "extra data"),
        (b"\x92\xa4Leaf\xa1\xff", "can't decode byte"),
        (msgpack.packb(["Leaf", "x" * (MAX_TEXT_BYTES + 1)]), "max_str_len"),
        (msgpack.packb(["Leaf", b"x" * (MAX_TEXT_BYTES + 1)]), "max_bin_len"),
        (msgpack.packb(["Leaf", [None] * (MAX_ITEMS + 1)]), "max_array_len"),
        (b"\x92\xa4Leaf\xdf\xff\xff\xff\xff", "max_map_len"),
        (b"\x92\xa4Leaf\xdd\xff\xff\xff\xff", "max_array_len"),
        (b"\x92\xa4Leaf" + b"\x91" * 100_000 + b"\xc0", "not msgpack"),
    ],
)
def test_what_msgpack_could_say_beyond_our_limits(packed: bytes, text: str) -> None:
    assert text in refusal([packed])


def test_a_chain_too_long_for_the_stack_is_refused() -> None:
    refused = refusal([b"\x92\xa5Chain" + b"\x91" * 900 + b"\xc0"])
    assert refused.startswith("Chain: maximum recursion depth exceeded")


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (
            [1, "float32", [3]],
            ".pixels: an array of shape [3] and dtype float32 does not fill a frame of 8 bytes",
        ),
        (
            [1, "float64", [2]],
            ".pixels: an array of shape [2] and dtype float64 does not fill a frame of 8 bytes",
        ),
        (
            [1, "float32", []],
            ".pixels: an array of shape [] and dtype float32 does not fill a frame of 8 bytes",
        ),
        ([1, "float32", [2**20, 2**20, 2**20]], ".pixels: an array of shape"),
        ([1, "object", [1]], ".pixels: an array with an invalid frame number or dtype"),
        ([1, "O", [1]], ".pixels: an array with an invalid frame number or dtype"),
        ([1, "<f4", [2]], ".pixels: an array with an invalid frame number or dtype"),
        ([0, "float32", [2]], ".pixels: an array with an invalid frame number or dtype"),
        ([2, "float32", [2]], ".pixels: an array with an invalid frame number or dtype"),
        ([-1, "float32", [2]], ".pixels: an array with an invalid frame number or dtype"),
        (["1", "float32", [2]], ".pixels: an array with an invalid frame number or dtype"),
        ([True, "float32", [2]], ".pixels: an array with an invalid frame number or dtype"),
        ([1, ["float32"], [2]], ": unhashable type: 'list'"),
        ([1, "float32", [-1, -2]], ".pixels: an array with an invalid shape"),
        ([1, "float32", [2**40, 0]], ".pixels: an array with an invalid shape"),
        ([1, "float32", [2.0]], ".pixels: an array with an invalid shape"),
        ([1, "float32", 2], ".pixels: an array with an invalid shape"),
        ([1, "float32", [1] * 16 + [2]], ".pixels: an array with an invalid shape"),
        ([1, "float32"], ".pixels: expected an array"),
        (None, ".pixels: expected an array"),
    ],
)
def test_arrays_are_checked_against_their_frame(array: Any, text: str) -> None:
    assert refusal(raw("Picture", array, frames=(bytes(8),))).startswith(f"Picture{text}")


def test_an_empty_array_of_an_impossible_shape_is_refused() -> None:
    assert refusal(raw("Picture", [1, "float32", [0, *[2**30] * 15]], frames=(b"",))).startswith("Picture: ")


def test_the_number_and_size_of_frames_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal([]) == "a message of 0 frames"
    assert refusal([b""] * (messages.MAX_FRAMES + 2)) == f"a message of {messages.MAX_FRAMES + 2} frames"
    monkeypatch.setattr(messages, "MAX_ARRAY_BYTES", 100)
    frames = raw("Picture", [1, "uint8", [101]], frames=(bytes(101),))
    assert refusal(frames) == "a frame of more than 100 bytes"


# --- what may not go out


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Point("1", 2.0), "Point.x: expected int, got str"),  # type: ignore[arg-type]
        (Point(True, 2.0), "Point.x: expected int, got bool"),
        (Point(1, "2"), "Point.y: expected float, got str"),  # type: ignore[arg-type]
        (Point(2**64, 0.0), "Point.x: an integer of more than 64 bits"),
        (Point(-(2**63) - 1, 0.0), "Point.x: an integer of more than 64 bits"),
        (Chain(Point(1, 2.0)), "Chain.following: expected Chain, got Point"),  # type: ignore[arg-type]
        (Chain(Chain(5)), "Chain.following: Chain.following: expected Chain, got int"),  # type: ignore[arg-type]
        (Texts("abc"), "Texts.texts: expected a tuple, got str"),  # type: ignore[arg-type]
        (Texts((None,)), "Texts.texts: expected str, got NoneType"),  # type: ignore[arg-type]
        (Texts(("x" * (MAX_TEXT_BYTES + 1),)), f"Texts.texts: {MAX_TEXT_BYTES + 1} bytes of text; at most"),
        (
            Texts(("ü" * (MAX_TEXT_BYTES // 2 + 1),)),
            f"Texts.texts: {MAX_TEXT_BYTES + 2} bytes of text; at most",
        ),
        (Texts(("",) * (MAX_ITEMS + 1)), f"Texts.texts: {MAX_ITEMS + 1} items; at most {MAX_ITEMS} are allowed"),
        (Counts([1]), "Counts.counts: expected a map with text keys, got list"),  # type: ignore[arg-type]
        (Counts({1: 1}), "Counts.counts: expected a map with text keys, got dict"),  # type: ignore[dict-item]
        (Leaf({1, 2}), "Leaf.tree: a tree holds scalars, lists and maps with text keys, not set"),
        (Leaf([{1: 2}]), "Leaf.tree: a tree holds scalars, lists and maps with text keys, not dict"),
        (Leaf(np.zeros(2)), "Leaf.tree: a tree holds scalars, lists and maps with text keys, not ndarray"),
        (Leaf({"a": [2**70]}), "Leaf.tree: an integer of more than 64 bits"),
        (
            Picture(np.array([object()])),
            "Picture.pixels: arrays of dtype object cannot be sent; use one of bool,",
        ),
        (Picture("text"), "Picture.pixels: arrays of dtype <U4 cannot be sent"),  # type: ignore[arg-type]
        (Picture(np.zeros(2, np.complex64)), "Picture.pixels: arrays of dtype complex64 cannot be sent"),
        (Picture(np.array([1.0], ">f4")), "Picture.pixels: arrays of dtype >f4 cannot be sent"),
        (Pictures((np.zeros(1),) * 257), "Pictures.pictures: a message holds at most 256 arrays of at most"),
    ],
)
def test_a_writer_names_the_field_it_refuses(message: Message, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        encode(message)
    assert str(caught.value).startswith(text)


def test_a_tree_too_deep_for_the_stack_does_not_go_out() -> None:
    tree: Tree = None
    for _ in range(3000):
        tree = [tree]
    with pytest.raises(TypeError, match=r"Leaf\.tree: maximum recursion depth"):
        encode(Leaf(tree))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    trees
    | st.binary()
    | st.text(st.characters())
    | st.integers()
    | st.dictionaries(st.integers() | texts, st.integers())
)
def test_what_a_writer_accepts_a_reader_accepts(tree: Any) -> None:
    try:
        frames = encode(Leaf(tree))
    except TypeError:
        return
    assert isinstance(decode(frames, TYPES), Leaf)


def test_256_arrays_are_the_most_in_one_message() -> None:
    arrived = over_the_wire(Pictures((np.zeros(1),) * 256))
    assert isinstance(arrived, Pictures)
    assert len(arrived.pictures) == 256


# --- declarations


def test_an_unsupported_annotation_is_named() -> None:
    class Wrong(Message):
        tags: set[str]

    with pytest.raises(TypeError, match=r"Wrong\.tags: a message cannot carry set\[str\]; use int,"):
        type_set([Wrong])
    with pytest.raises(TypeError, match=r"Wrong\.tags"):
        encode(Wrong({"a"}))


@pytest.mark.parametrize("kind", [dict[int, str], tuple[int, str], tuple[()], list[int], int | str, complex, object])
def test_unsupported_kinds(kind: Any) -> None:
    wrong = type("Wrong", (Message,), {"__annotations__": {"field": kind}})
    with pytest.raises(TypeError, match=r"Wrong\.field: a message cannot carry"):
        type_set([wrong])


def test_two_types_of_one_name_do_not_share_a_socket() -> None:
    def another() -> type[Message]:
        class Twin(Message):
            x: int

        return Twin

    first, second = another(), another()
    assert type_set([first, first]) == {first.__hive_name__: first}
    with pytest.raises(TypeError, match=r"two message types are called .*Twin; rename one"):
        type_set([first, second])


def test_a_subclass_adds_fields_and_is_another_type() -> None:
    class Spot(Point):
        colour: str

    types = type_set([Point, Spot])
    assert decode(encode(Spot(1, 2.0, "red")), types) == Spot(1, 2.0, "red")
    with pytest.raises(TypeError, match=r"expected Point, got .*Spot"):
        encode(Everything(**{**vars(SAMPLE), "point": Spot(1, 2.0, "red")}))


def test_methods_and_defaults_are_those_of_dataclasses() -> None:
    class Step(Message):
        size: float = 0.5

        @property
        def doubled(self) -> float:
            return 2 * self.size

    arrived = decode(encode(Step()), type_set([Step]))
    assert isinstance(arrived, Step)
    assert arrived.doubled == 1.0


def test_messages_with_arrays_inside_compare_too() -> None:
    pair = (np.zeros(2), np.ones(0))
    assert Pictures(pair) == Pictures((np.zeros(2), np.ones(0)))
    assert Pictures(pair) != Pictures((np.zeros(2), np.ones(1)))
    assert Pictures(pair) != Pictures(pair[:1])
    assert Leaf({"a": [1]}) != Leaf({"b": [1]})
