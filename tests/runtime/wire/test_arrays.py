"""What a message declares of its arrays: checked at both ends, and turned into the layout of a slot."""

from __future__ import annotations

from typing import Annotated, Any

import msgpack
import numpy as np
import pytest
import typing_extensions
from numpy.typing import NDArray

import hive
from hive.errors import TopologyError, WireError
from hive.runtime.wire.arrays import Shape, array_kind, disagreement
from hive.runtime.wire.messages import decode, encode, type_set


class Sample(hive.Message):
    observations: Annotated[NDArray[np.float32], Shape("T", "B", 4)]
    rewards: Annotated[NDArray[np.float32], Shape("T", "B")]
    done: Annotated[NDArray[np.bool_], Shape("B")] | None
    any_shape: NDArray[np.int64]
    anything: np.ndarray
    note: Annotated[str, "what a type checker ignores"] = ""


class Fixed(hive.Message):
    picture: Annotated[NDArray[np.uint8], Shape("H", "W", 3)]
    label: int
    weight: float
    seen: bool


TYPES = type_set([Sample, Fixed])


def sample(t: int = 2, b: int = 3, **changed: Any) -> Sample:
    arrays = {
        "observations": np.zeros((t, b, 4), np.float32),
        "rewards": np.ones((t, b), np.float32),
        "done": np.zeros(b, np.bool_),
        "any_shape": np.arange(5),
        "anything": np.zeros((1, 1), np.float16),
    }
    return Sample(**(arrays | changed))


@pytest.mark.parametrize(("t", "b"), [(2, 3), (7, 1), (0, 0)])
def test_names_are_any_size_that_all_arrays_agree_on(t: int, b: int) -> None:
    message = sample(t, b)
    assert decode(encode(message), TYPES) == message
    without = sample(t, b, done=None)
    assert decode(encode(without), TYPES) == without


WRONG = {
    "dtype": ({"rewards": np.ones((2, 3))}, "Sample.rewards: declared float32[T, B], got float64[2, 3]"),
    "dimensions": ({"rewards": np.ones(6, np.float32)}, "Sample.rewards: declared float32[T, B], got float32[6]"),
    "a fixed size": (
        {"observations": np.zeros((2, 3, 5), np.float32)},
        "Sample.observations: declared float32[T, B, 4], got float32[2, 3, 5]",
    ),
    "a name": ({"rewards": np.ones((9, 3), np.float32)}, "Sample: `rewards` has T = 9, `observations` has T = 2"),
    "a name, of one that may be missing": (
        {"done": np.ones(4, bool)},
        "Sample: `done` has B = 4, `observations` has B",
    ),
    "dtype without a shape": ({"any_shape": np.ones(5, np.int32)}, "Sample.any_shape: declared int64, got int32[5]"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_writer_refuses_what_was_not_declared(case: str) -> None:
    changed, text = WRONG[case]
    with pytest.raises(TypeError) as caught:
        encode(sample(**changed))
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("case", WRONG)
def test_a_reader_refuses_it_as_well(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed, text = WRONG[case]
    frames: list[Any] = []
    body = []
    for name in Sample.__dataclass_fields__:  # what a writer that checks nothing would send
        value = getattr(sample(**changed), name)
        if isinstance(value, np.ndarray):
            frames.append(value.tobytes())
            value = [len(frames), value.dtype.name, list(value.shape)]
        body.append(value)
    with pytest.raises(WireError) as caught:
        decode([msgpack.packb([Sample.__hive_name__, *body]), *frames], TYPES)
    assert str(caught.value).startswith(text)


def test_names_of_one_message_are_others_in_the_next() -> None:
    for t in (1, 5):
        assert decode(encode(sample(t)), TYPES).rewards.shape == (t, 3)  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [-1, 2.0, "not a name", "", True, None])
def test_what_is_no_size(size: Any) -> None:
    with pytest.raises(TypeError, match=r"invalid size .*: expected an integer >= 0 or a name"):
        Shape("T", size)


def test_kinds() -> None:
    assert array_kind(int) is None
    assert array_kind(Annotated[int, "a number"]) is None
    assert str(array_kind(Annotated[NDArray[np.float64], "doc", Shape(2, "N")])) == "float64[2, N]"
    assert str(array_kind(Annotated[np.ndarray, Shape("N")])) == "any dtype [N]"
    with pytest.raises(TypeError, match="a Shape can only annotate an array"):
        array_kind(Annotated[int, Shape()])
    with pytest.raises(TypeError, match="arrays of complex128 cannot be sent; use one of bool, float16"):
        array_kind(NDArray[np.complex128])


def test_a_dtype_that_cannot_travel_names_the_field() -> None:
    class Odd(hive.Message):
        spectrum: NDArray[np.complex64]

    Odd.__annotations__["spectrum"] = NDArray[np.complex64]
    with pytest.raises(TypeError, match=r"Odd\.spectrum: arrays of complex64 cannot be sent"):
        type_set([Odd])


def test_disagreement_looks_at_names_only() -> None:
    shapes = {"a": Shape("N", 2), "b": Shape("N")}
    fits, not_ = {"a": np.zeros((3, 2)), "b": np.zeros(3)}, {"a": np.zeros((3, 2)), "b": np.zeros(4)}
    assert disagreement(shapes, type("Fits", (), fits)) == ""
    assert disagreement(shapes, type("DoesNot", (), not_)) == "`b` has N = 4, `a` has N = 3"


# --- layouts


def test_a_layout_follows_from_the_message() -> None:
    layout = hive.Layout.of(Fixed, H=5, W=7)
    assert {name: (str(dtype), shape) for name, (dtype, shape) in layout.fields.items()} == {
        "picture": ("uint8", (5, 7, 3)),
        "label": ("int64", ()),
        "weight": ("float64", ()),
        "seen": ("bool", ()),
    }
    assert layout.fault(Fixed) == ""


@pytest.mark.parametrize(
    ("message", "sizes", "text"),
    [
        (Fixed, {"H": 5}, "`Fixed.picture` is uint8[H, W, 3], but the size W is missing"),
        (Fixed, {"H": 5, "W": 7, "D": 1}, "no array of `Fixed` has a size called D"),
        (Sample, {"T": 2, "B": 3}, "`Sample.done` has no fixed size"),
    ],
)
def test_a_layout_that_does_not_follow(message: type[hive.Message], sizes: dict[str, int], text: str) -> None:
    with pytest.raises(TopologyError) as caught:
        hive.Layout.of(message, **sizes)
    assert str(caught.value).startswith(text)


class Sends(hive.Actor):
    out = hive.Outlet(Fixed)

    async def run(self) -> None:
        await self.out.send(Fixed(np.full((2, 2, 3), 7, np.uint8), 1, 0.5, True))


class Takes(hive.Actor):
    into = hive.Inlet(Fixed)

    async def run(self) -> None:
        message = await self.into.receive()
        self.end_run(f"{message.picture.sum()} {message.label} {message.weight} {message.seen}")


def test_such_messages_lie_in_slots() -> None:
    t = hive.Topology()
    t.connect(t.add(Sends).out, t.add(Takes).into, hive.Slots(hive.Layout.of(Fixed, H=2, W=2)))
    outcome = hive.testing.run_inline(t)
    assert outcome.reason == "84 1 0.5 True"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"picture": ("uint8", (2, 2, 4))}, "`picture`: declared uint8[H, W, 3], got uint8[2, 2, 4]"),
        ({"label": ("int64", (2,))}, "`label`: declared any dtype [], got int64[2]"),
        ({"more": ("int64", ())}, "`more` is in the layout only"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused_where_it_is_connected(fields: dict[str, Any], text: str) -> None:
    good = {name: (str(dtype), shape) for name, (dtype, shape) in hive.Layout.of(Fixed, H=2, W=2).fields.items()}
    t = hive.Topology()
    sends, takes = t.add(Sends), t.add(Takes)
    with pytest.raises(TopologyError) as caught:
        t.connect(sends.out, takes.into, hive.Slots(hive.Layout(good | fields)))
    assert str(caught.value).startswith(f"the layout of `sends.out` does not fit Fixed: {text}")
    assert caught.value.hint == "Layout.of(Fixed, ...) makes one that fits"


def test_a_layout_without_one_of_the_fields_is_refused() -> None:
    t = hive.Topology()
    sends, takes = t.add(Sends), t.add(Takes)
    layout = hive.Layout({"picture": ("uint8", (2, 2, 3)), "weight": ("float64", ()), "seen": ("bool", ())})
    with pytest.raises(TopologyError, match="`label` is in the message only"):
        t.connect(sends.out, takes.into, hive.Slots(layout))


Floats = typing_extensions.TypeAliasType("Floats", Annotated[NDArray[np.float32], Shape("T", 4)])
Item = typing_extensions.TypeVar("Item", bound=np.generic)
Rows = typing_extensions.TypeAliasType("Rows", NDArray[Item], type_params=(Item,))


@pytest.mark.parametrize("hint", [Floats, Annotated[Rows[np.float32], Shape("T", 4)]], ids=["Floats", "Rows[...]"])
def test_an_alias_is_what_it_stands_for(hint: Any) -> None:
    """From NumPy 2.5 on, NDArray itself is an alias of a `type` statement."""
    assert str(array_kind(hint)) == "float32[T, 4]"
