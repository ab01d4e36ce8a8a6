"""The runtime's own messages: who may send which to whom, and that somebody there understands them."""

from __future__ import annotations

import inspect
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hive.errors import WireError
from hive.runtime.process.channel_ends import TO_SOURCE, TO_TARGET
from hive.runtime.process.node import HANDLERS
from hive.runtime.supervise import inbox
from hive.runtime.wire import protocol
from hive.runtime.wire.batches import decode_batch, encode_batch
from hive.runtime.wire.messages import MAX_TEXT_BYTES, Message, decode, encode
from hive.runtime.wire.protocol import NODE_TYPES, SUPERVISOR_TYPES, Ack, Deliver, Failed, Joined, Member, Note, Reply

CLASSES: list[type[Message]] = [
    cls for cls in vars(protocol).values() if inspect.isclass(cls) and issubclass(cls, Message) and cls is not Message
]
SOCKETS = NODE_TYPES | SUPERVISOR_TYPES

numbers, texts = st.integers(-(2**63), 2**63 - 1), st.text(max_size=30)
trees = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": numbers,
    "str": texts,
    "bool": st.booleans(),
    "Tree": trees,
    "tuple[Ack, ...]": st.lists(st.builds(Ack, *[numbers] * len(Ack.__annotations__)), max_size=3).map(tuple),
}
members = st.dictionaries(numbers, st.builds(Member, numbers, texts, st.booleans()), max_size=3)


def messages(cls: type[Message]) -> st.SearchStrategy[Message]:
    """Messages of a type, with a value of the declared kind in every field."""
    if cls is Joined:
        return members.map(Joined.of)
    return st.builds(cls, *(VALUES[kind] for kind in cls.__annotations__.values()))


def plain(cls: type[Message]) -> Message:
    """The plainest message of a type."""
    values: dict[str, Any] = {"int": 0, "str": "", "bool": False, "Tree": None}
    return cls(*(values.get(kind, ()) for kind in cls.__annotations__.values()))


@pytest.mark.rotates
@pytest.mark.parametrize("cls", sorted(SOCKETS.values(), key=lambda cls: cls.__name__))
@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.data())
def test_a_message_arrives_as_it_was_sent(cls: type[Message], data: st.DataObject) -> None:
    message = data.draw(messages(cls))
    assert decode(encode(message), SOCKETS) == message


def test_every_message_travels_to_exactly_one_kind_of_process() -> None:
    assert NODE_TYPES.keys().isdisjoint(SUPERVISOR_TYPES)
    assert set(SOCKETS.values()) == set(CLASSES)


def test_the_drawing_names_the_messages_of_each_direction() -> None:
    drawn: dict[str, set[str]] = {"supervisor": set(), "process": set()}
    for line in (protocol.__doc__ or "").splitlines():
        if "->" in line:
            direction, words = line.rsplit("-> ", 1)[1].split(maxsplit=1)
            drawn[direction] |= {word for word in words.replace("·", " ").split() if word in SOCKETS}
    assert drawn == {"supervisor": set(SUPERVISOR_TYPES), "process": set(NODE_TYPES)}


def test_a_process_handles_every_message_it_may_get() -> None:
    assert {*HANDLERS, *TO_SOURCE, *TO_TARGET} == {*NODE_TYPES.values()}


def test_the_supervisor_handles_every_message_it_may_get() -> None:
    assert {*inbox.HANDLERS} == {*SUPERVISOR_TYPES.values()}


@pytest.mark.parametrize("name", sorted(SOCKETS))
def test_the_wrong_socket_refuses_a_message(name: str) -> None:
    wrong = SUPERVISOR_TYPES if name in NODE_TYPES else NODE_TYPES
    frames = encode(plain(SOCKETS[name]))
    with pytest.raises(WireError, match=f"a message of type '{name}', which this socket does not carry"):
        decode(frames, wrong)


def test_members_travel_in_joined() -> None:
    told = {0: Member(0, "ipc://x", True), 7: Member(2, "ipc://y", False)}
    joined = decode(encode(Joined.of(told)), NODE_TYPES)
    assert isinstance(joined, Joined)
    assert joined.members == told
    assert Joined.of({}).members == {}


def test_texts_of_a_column_are_measured_one_by_one() -> None:
    """The longest in characters need not be the longest in bytes."""
    long, wide = "x" * (MAX_TEXT_BYTES // 4), "\ud800" * (MAX_TEXT_BYTES // 5)
    with pytest.raises(TypeError, match=r"Joined\.addresses: .* bytes of text"):
        encode(Joined.of({0: Member(0, long, True), 1: Member(0, wide, True)}))


def test_members_with_half_of_what_belongs_to_them_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        Joined((0, 1), (0, 0), ("ipc://x",), (True, True))
    body = ["Joined", [0, 1], [0, 0], ["ipc://x"], [True, True]]
    with pytest.raises(WireError, match="Joined: the columns differ in length"):
        decode([msgpack.packb(body)], NODE_TYPES)


def test_the_frames_of_a_delivered_message_follow_the_envelope() -> None:
    envelope, inner = Deliver(0, 1, 2, 3, 4), [Note(0, "kind", "text", {"a": n}) for n in range(3)]
    frames = [*encode(envelope), *encode_batch(inner)]
    assert decode(frames[:1], NODE_TYPES) == envelope
    assert decode_batch(frames[1:], SUPERVISOR_TYPES) == inner


def test_a_report_of_a_long_traceback_is_refused_where_it_is_made() -> None:
    failed = Failed(0, 0, "KeyError", "x", "", "setup", "x" * (MAX_TEXT_BYTES + 1), False)
    with pytest.raises(TypeError, match=r"Failed\.traceback: .* bytes of text"):
        encode(failed)


def test_what_an_endpoint_returns_is_checked_where_it_is_sent() -> None:
    with pytest.raises(
        TypeError, match=r"Reply\.value: a tree holds scalars, lists and maps with text keys, not object"
    ):
        encode(Reply(1, 0, object(), "", "", ""))
