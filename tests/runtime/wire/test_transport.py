from __future__ import annotations

import asyncio

import numpy as np

from hive.runtime.wire.arrays import Frames
from hive.runtime.wire.transport import MemoryTransport, Transport


async def settle() -> None:
    """Lets everything that is ready happen."""
    for _ in range(5):
        await asyncio.sleep(0)


class Box:
    """An inbox that keeps what it received."""

    def __init__(self) -> None:
        self.received: list[Frames] = []

    def __call__(self, frames: Frames) -> None:
        self.received.append(frames)


async def test_a_message_arrives_in_a_later_turn_of_the_loop() -> None:
    transport: Transport = MemoryTransport()
    box = Box()
    transport.bind("memory://a", box)
    assert transport.post("memory://a", [b"one", bytearray(b"two"), memoryview(b"three")])
    assert box.received == []
    await settle()
    assert box.received == [[b"one", b"two", b"three"]]


async def test_messages_keep_their_order() -> None:
    transport, box = MemoryTransport(), Box()
    transport.bind("memory://a", box)
    for number in range(100):
        transport.post("memory://a", [bytes([number])])
    await settle()
    assert box.received == [[bytes([number])] for number in range(100)]


async def test_a_missing_mailbox_says_so() -> None:
    transport = MemoryTransport()
    assert not transport.post("memory://nobody", [b"x"])
    transport.forget("memory://nobody")


async def test_every_address_has_a_box_of_its_own() -> None:
    transport, first, second = MemoryTransport(), Box(), Box()
    transport.bind("memory://first", first)
    transport.bind("memory://second", second)
    transport.post("memory://second", [b"x"])
    await settle()
    assert (first.received, second.received) == ([], [[b"x"]])


async def test_what_a_sender_writes_later_does_not_change_the_message() -> None:
    transport, box = MemoryTransport(), Box()
    transport.bind("memory://a", box)
    array = np.zeros(3, np.uint8)
    transport.post("memory://a", [array.data])
    array[:] = 7
    await settle()
    assert box.received == [[bytes(3)]]


async def test_a_forgotten_address_gets_nothing_more_not_even_what_is_on_its_way() -> None:
    transport, box = MemoryTransport(), Box()
    transport.bind("memory://a", box)
    transport.post("memory://a", [b"x"])
    transport.forget("memory://a")
    assert not transport.post("memory://a", [b"y"])
    await settle()
    assert box.received == []


async def test_a_successor_does_not_get_its_predecessors_mail() -> None:
    transport, before, after = MemoryTransport(), Box(), Box()
    transport.bind("memory://a", before)
    transport.post("memory://a", [b"for the first"])
    transport.bind("memory://a", after)
    transport.post("memory://a", [b"for the second"])
    await settle()
    assert (before.received, after.received) == ([], [[b"for the second"]])


async def test_a_receiver_may_post_and_bind() -> None:
    transport, box = MemoryTransport(), Box()

    def relay(frames: Frames) -> None:
        transport.bind("memory://b", box)
        transport.post("memory://b", frames)

    transport.bind("memory://a", relay)
    transport.post("memory://a", [b"x"])
    await settle()
    assert box.received == [[b"x"]]


async def test_polling_and_closing_change_nothing() -> None:
    transport, box = MemoryTransport(), Box()
    transport.bind("memory://a", box)
    transport.post("memory://a", [b"x"])
    transport.poll()
    transport.close(1.0)
    assert box.received == []
    await settle()
    assert box.received == [[b"x"]]
