from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hive.errors import WireError
from hive.runtime.wire import stream
from hive.runtime.wire.messages import Message, type_set
from hive.runtime.wire.stream import LENGTH, MAX_BYTES, pack, read, receive, send


class Hello(Message):
    name: str
    pid: int


class Picture(Message):
    pixels: np.ndarray


TYPES = type_set([Hello, Picture])
HELLO = Hello("collector-3", 4711)


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def reader_of(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


def test_a_message_is_its_length_and_its_frame() -> None:
    packed = pack(HELLO)
    assert int.from_bytes(packed[:4], "little") == len(packed) - 4
    assert msgpack.unpackb(packed[4:]) == ["Hello", "collector-3", 4711]


def test_arrays_do_not_travel_over_a_stream() -> None:
    with pytest.raises(TypeError, match="Picture carries arrays and cannot be sent over a stream"):
        pack(Picture(np.zeros(2)))


def test_messages_follow_each_other(line: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = line
    sent = [Hello("x" * number, number) for number in range(100)]
    for message in sent:
        send(ours, message)
    ours.close()
    assert [receive(theirs, TYPES) for _ in sent] == sent
    assert receive(theirs, TYPES) is None
    assert receive(theirs, TYPES) is None


async def test_the_reader_of_a_loop_reads_the_same() -> None:
    sent = [Hello("x" * number, number) for number in range(100)]
    reader = reader_of(b"".join(pack(message) for message in sent))
    assert [await read(reader, TYPES) for _ in sent] == sent
    with pytest.raises(asyncio.IncompleteReadError):
        await read(reader, TYPES)


async def test_bytes_may_come_one_by_one() -> None:
    reader = asyncio.StreamReader()
    reading = asyncio.ensure_future(read(reader, TYPES))
    for byte in pack(HELLO):
        assert not reading.done()
        reader.feed_data(bytes([byte]))
        await asyncio.sleep(0)
    assert await reading == HELLO


def test_a_long_message_comes_in_many_pieces(line: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = line
    long = Hello("x" * 50_000, 1)
    for size in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        ours.setsockopt(socket.SOL_SOCKET, size, 1 << 18)
    send(ours, long)
    assert receive(theirs, TYPES) == long


async def test_a_stream_that_ends_in_the_middle_is_no_message() -> None:
    packed = pack(HELLO)
    for end in range(len(packed)):
        with pytest.raises(asyncio.IncompleteReadError):
            await read(reader_of(packed[:end]), TYPES)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(packed[:end])
            ours.close()
            assert receive(theirs, TYPES) is None


@pytest.mark.parametrize("length", [MAX_BYTES + 1, 2**32 - 1])
async def test_a_length_beyond_the_limit_is_refused_unread(length: int) -> None:
    head = LENGTH.pack(length)
    reader = asyncio.StreamReader()
    reader.feed_data(head)
    with pytest.raises(WireError, match=f"a message of {length} bytes; the limit is {MAX_BYTES}"):
        await read(reader, TYPES)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(head)
        with pytest.raises(WireError, match="the limit is"):
            receive(theirs, TYPES)


async def test_a_message_of_the_greatest_length_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack(HELLO)
    monkeypatch.setattr(stream, "MAX_BYTES", len(packed) - 4)
    assert await read(reader_of(packed), TYPES) == HELLO
    monkeypatch.setattr(stream, "MAX_BYTES", len(packed) - 5)
    with pytest.raises(WireError, match="the limit is"):
        await read(reader_of(packed), TYPES)


async def test_a_type_that_this_stream_does_not_carry_is_refused() -> None:
    with pytest.raises(WireError, match="a message of type 'Hello', which this socket does not carry"):
        await read(reader_of(pack(HELLO)), type_set([Picture]))


async def test_an_empty_message_is_refused() -> None:
    with pytest.raises(WireError):
        await read(reader_of(LENGTH.pack(0)), TYPES)


async def test_after_a_bad_message_the_next_is_read() -> None:
    reader = reader_of(LENGTH.pack(3) + b"\xff\xff\xff" + pack(HELLO))
    with pytest.raises(WireError):
        await read(reader, TYPES)
    assert await read(reader, TYPES) == HELLO


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.binary(max_size=40))
def test_garbage_is_refused_or_incomplete(data: bytes) -> None:
    async def main() -> None:
        with pytest.raises((WireError, asyncio.IncompleteReadError)):
            await read(reader_of(data), TYPES)

    asyncio.run(main())


def test_waiting_for_an_answer_has_the_sockets_limit(line: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = line
    ours.settimeout(0.01)
    with pytest.raises(TimeoutError):
        receive(ours, TYPES)
