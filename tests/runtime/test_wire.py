from __future__ import annotations

import asyncio
import os
import queue
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop

from hive.errors import WireError
from hive.runtime import wire
from hive.runtime.messages import Frames, Message, decode, encode, type_set
from hive.runtime.protocol import NODE_TYPES
from hive.runtime.wire import MAX_PATH_BYTES, PORTION, QUEUE_MESSAGES, ZmqTransport

LATEST_S = 0.1  # a required figure: no message is received later than this after it was sent
LIMIT_S = 20.0  # of a whole test, so that a lost message is a failure and not a hang


class Inbox:
    """A bound transport that keeps what it received, and lets a test wait for it."""

    def __init__(self, transport: ZmqTransport, address: str) -> None:
        self.messages: list[list[bytes]] = []
        self.arrived = asyncio.Event()
        self.transport = transport
        self.transport.bind(address, self.receive)

    def receive(self, frames: Frames) -> None:
        self.messages.append([bytes(frame) for frame in frames])
        self.arrived.set()

    async def until(self, count: int) -> list[list[bytes]]:
        while len(self.messages) < count:
            self.arrived.clear()
            await self.arrived.wait()
        return self.messages


class Opened:
    """What a test opens; closed at its end in any case."""

    def __init__(self) -> None:
        self.transports: list[ZmqTransport] = []

    def peer(self) -> ZmqTransport:
        self.transports.append(ZmqTransport())
        return self.transports[-1]

    def inbox(self, address: str) -> Inbox:
        return Inbox(self.peer(), address)

    def close(self) -> None:
        for transport in self.transports:
            transport.close()


Main = Callable[[Opened], Awaitable[None]]
Run = Callable[[Main], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine function on a new loop of either kind."""

    def run(main: Main) -> None:
        async def limited() -> None:
            opened = Opened()
            try:
                async with asyncio.timeout(LIMIT_S):
                    await main(opened)
            finally:
                opened.close()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(limited())

    return run


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of a short name: pytest's own may be too long for a socket."""
    path = Path(tempfile.mkdtemp(prefix="hive-test-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def address(folder: Path) -> str:
    return f"ipc://{folder}/inbox"


# --- the wake-up trap (pyzmq #2173)


def busy_pair(loop: asyncio.AbstractEventLoop) -> tuple[list[int], Callable[[], None]]:
    """Two sockets that keep `loop` busy: whatever is read is written again. Returns its turns and its end."""
    ours, theirs = socket.socketpair()
    turns = [0]

    def turn() -> None:
        turns[0] += 1
        ours.send(theirs.recv(64))

    loop.add_reader(theirs, turn)
    ours.send(b"x")

    def end() -> None:
        loop.remove_reader(theirs)
        ours.close()
        theirs.close()

    return turns, end


class Pacer(threading.Thread):
    """A sender in a thread and context of its own: bursts, each followed by a trickle.

    In the trickle a message leaves only when the one before has been received: the inbox is idle every time.
    """

    def __init__(self, address: str, rounds: int, burst: int, trickle: int) -> None:
        super().__init__()
        self.address, self.rounds, self.burst, self.trickle = address, rounds, burst, trickle
        self.received: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.lost = False

    def run(self) -> None:
        transport = ZmqTransport()
        number = 0

        def send(count: int) -> None:
            nonlocal number
            for _ in range(count):
                sent = time.monotonic_ns()
                assert transport.post(
                    self.address, [number.to_bytes(4, "little"), sent.to_bytes(8, "little")]
                )
                number += 1
            while self.received.get(timeout=LIMIT_S) != number - 1:
                pass

        try:
            for _ in range(self.rounds):
                send(self.burst)
                for _ in range(self.trickle):
                    send(1)
        except queue.Empty:
            self.lost = True
        finally:
            transport.close()


@pytest.mark.parametrize("burst", [1, PORTION, 3 * PORTION + 1])
def test_a_burst_and_then_a_trickle_beside_a_busy_descriptor(run: Run, address: str, burst: int) -> None:
    rounds, trickle = 4, 60
    numbers: list[int] = []
    late_s: list[float] = []

    async def main(opened: Opened) -> None:
        loop = asyncio.get_running_loop()
        turns, end = busy_pair(loop)
        done = asyncio.Event()
        pacer = Pacer(address, rounds, burst, trickle)
        transport = opened.peer()

        def receive(frames: Frames) -> None:
            late_s.append((time.monotonic_ns() - int.from_bytes(frames[1], "little")) / 1e9)
            numbers.append(int.from_bytes(frames[0], "little"))
            pacer.received.put(numbers[-1])
            if len(numbers) == rounds * (burst + trickle):
                done.set()

        transport.bind(address, receive)
        pacer.start()
        try:
            await done.wait()
        finally:
            pacer.received.put(-1)
            end()
        pacer.join()
        assert not pacer.lost
        assert turns[0] > len(numbers) / 2, "the other descriptor was served meanwhile"

    run(main)
    assert numbers == list(range(rounds * (burst + trickle)))
    assert max(late_s) < LATEST_S


def test_a_trickle_arrives_in_time_though_every_edge_is_lost(run: Run, address: str) -> None:
    late_s: list[float] = []

    async def main(opened: Opened) -> None:
        inbox, peer = opened.inbox(address), opened.peer()
        assert inbox.transport.inbox is not None
        descriptor: Any = inbox.transport.inbox.get(wire.zmq.FD)
        peer.post(address, [b"connected"])
        await inbox.until(1)
        asyncio.get_running_loop().remove_reader(descriptor)
        for number in range(5):
            sent = time.monotonic()
            peer.post(address, [b"x"])
            await inbox.until(number + 2)
            late_s.append(time.monotonic() - sent)

    run(main)
    assert max(late_s) < LATEST_S


def test_a_burst_is_read_in_portions(run: Run, address: str) -> None:
    """However much has arrived, the loop runs between two portions."""

    async def main(opened: Opened) -> None:
        loop = asyncio.get_running_loop()
        inbox, peer = opened.inbox(address), opened.peer()
        most_at_once, before = 0, 0
        for _ in range(10 * PORTION):
            assert peer.post(address, [b"x"])

        def turn() -> None:
            nonlocal most_at_once, before
            most_at_once = max(most_at_once, len(inbox.messages) - before)
            before = len(inbox.messages)
            if before < 10 * PORTION:
                loop.call_soon(turn)

        turn()
        await inbox.until(10 * PORTION)
        assert 0 < most_at_once <= 2 * PORTION  # a tick or an edge may read a second portion in the same turn

    run(main)


# --- messages


def test_messages_arrive_whole_and_in_order(run: Run, address: str) -> None:
    class Frame(Message):
        number: int
        pixels: np.ndarray

    types = type_set([Frame])

    async def main(opened: Opened) -> None:
        inbox, peer = opened.inbox(address), opened.peer()
        sent = [Frame(number, np.full((100, number), number, np.float32)) for number in range(50)]
        for frame in sent:
            assert peer.post(address, encode(frame))
        assert [decode(frames, types) for frames in await inbox.until(50)] == sent

    run(main)


def test_frames_of_every_kind_and_size(run: Run, address: str) -> None:
    async def main(opened: Opened) -> None:
        inbox, peer = opened.inbox(address), opened.peer()
        frames = [b"", b"one", bytearray(b"two"), memoryview(b"three"), bytes(1 << 20), b""]
        peer.post(address, frames)
        peer.post(address, [b""])
        assert await inbox.until(2) == [[bytes(frame) for frame in frames], [b""]]

    run(main)


def test_many_peers_share_an_inbox(run: Run, address: str) -> None:
    async def main(opened: Opened) -> None:
        inbox, peers = opened.inbox(address), [opened.peer() for _ in range(5)]
        for number in range(20):
            for peer, transport in enumerate(peers):
                transport.post(address, [bytes([peer, number])])
        messages = await inbox.until(100)
        for peer in range(5):
            assert [m[0][1] for m in messages if m[0][0] == peer] == list(range(20))

    run(main)


def test_poll_delivers_what_has_arrived_before_the_loop_runs_again(run: Run, address: str) -> None:
    async def main(opened: Opened) -> None:
        inbox, peer = opened.inbox(address), opened.peer()
        peer.post(address, [b"x"])
        limit = time.monotonic() + LIMIT_S
        while not inbox.messages and time.monotonic() < limit:
            inbox.transport.poll()
        assert inbox.messages == [[b"x"]]

    run(main)


def test_poll_inside_a_receiver_keeps_the_order(run: Run, address: str) -> None:
    """What `Drain` does: what was sent before must be heard before."""

    async def main(opened: Opened) -> None:
        seen: list[bytes] = []
        done = asyncio.Event()
        transport, peer = opened.peer(), opened.peer()

        def receive(frames: Frames) -> None:
            seen.append(bytes(frames[0]))
            if frames[0] == b"0":
                transport.poll()
            if len(seen) == 100:
                done.set()

        transport.bind(address, receive)
        for number in range(100):
            peer.post(address, [str(number).encode()])
        await done.wait()
        assert seen == [str(number).encode() for number in range(100)]

    run(main)


# --- garbage


def test_garbage_on_the_socket_hurts_nobody(run: Run, folder: Path, address: str) -> None:
    random = np.random.default_rng(0)

    async def main(opened: Opened) -> None:
        inbox, peer = opened.inbox(address), opened.peer()
        for greeting in (
            b"",
            b"\xff" + bytes(8) + b"\x7f",
            b"\xff" + bytes(8) + b"\x7f\x03" + bytes(53),
            b"GET / HTTP/1.1\r\n\r\n",
        ):
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(str(folder / "inbox"))
                line.sendall(greeting + random.bytes(1000))
        for text in (b"fine", b"still fine"):
            peer.post(address, [text])
            while [text] not in inbox.messages:
                await inbox.until(len(inbox.messages) + 1)
        for frames in inbox.messages:  # the oldest dialect has no greeting: to it garbage may be a message
            with pytest.raises(WireError):
                decode(frames, NODE_TYPES)

    run(main)


def test_garbage_in_the_frames_is_delivered_and_refused_by_decode(run: Run, address: str) -> None:
    random = np.random.default_rng(0)
    garbage = [
        [random.bytes(int(random.integers(0, 50))) for _ in range(int(random.integers(1, 5)))]
        for _ in range(200)
    ]

    async def main(opened: Opened) -> None:
        inbox, peer = opened.inbox(address), opened.peer()
        for frames in garbage:
            assert peer.post(address, frames)
        assert await inbox.until(200) == garbage
        for frames in inbox.messages:
            with pytest.raises(WireError):
                decode(frames, NODE_TYPES)

    run(main)


def test_a_receiver_that_raises_loses_its_own_message_only(run: Run, address: str) -> None:
    async def main(opened: Opened) -> None:
        complaints: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: complaints.append(context["exception"])
        )
        seen: list[bytes] = []
        done = asyncio.Event()
        transport, peer = opened.peer(), opened.peer()

        def receive(frames: Frames) -> None:
            if frames[0] == b"bad":
                raise KeyError("bad")
            seen.append(bytes(frames[0]))
            if len(seen) == 2:
                done.set()

        transport.bind(address, receive)
        for text in (b"first", b"bad", b"last"):
            peer.post(address, [text])
        await done.wait()
        assert seen == [b"first", b"last"]
        assert [str(error) for error in complaints] == ["'bad'"]

    run(main)


# --- peers that are not there


def test_a_missing_peer_blocks_nobody_and_its_queue_is_limited(run: Run, address: str) -> None:
    async def main(opened: Opened) -> None:
        transport = opened.peer()
        sent = 0
        while transport.post(address, [b"x"]):
            sent += 1
        assert sent == QUEUE_MESSAGES
        assert not transport.post(address, [b"x"])
        assert transport.post(f"{address}-of-another", [b"x"]), "the queues are separate"
        transport.forget(address)
        assert transport.post(address, [b"x"]), "forgotten with its queue"

    run(main)


def test_a_peer_that_comes_later_gets_what_was_sent(run: Run, address: str) -> None:
    async def main(opened: Opened) -> None:
        peer = opened.peer()
        assert peer.post(address, [b"early"])
        inbox = opened.inbox(address)
        assert await inbox.until(1) == [[b"early"]]

    run(main)


def test_what_was_queued_for_a_forgotten_peer_is_thrown_away(run: Run, address: str) -> None:
    async def main(opened: Opened) -> None:
        peer = opened.peer()
        for _ in range(10):
            peer.post(address, [b"for the dead"])
        peer.forget(address)
        peer.forget(address)
        peer.forget("ipc:///never/heard/of")
        inbox = opened.inbox(address)
        peer.post(address, [b"for its successor"])
        assert await inbox.until(1) == [[b"for its successor"]]

    run(main)


# --- addresses


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:5555", "inproc://x", "memory://x", "/tmp/x", "udp://x", "IPC:///tmp/x"]
)
def test_addresses_of_other_kinds_are_refused(address: str) -> None:
    transport = ZmqTransport()
    for use in (
        lambda: transport.bind(address, lambda frames: None),
        lambda: transport.post(address, [b"x"]),
    ):
        with pytest.raises(WireError, match=r"is not an ipc:// address; hive talks within one machine only"):
            use()
    transport.close()


def test_the_longest_path_works_and_one_byte_more_is_refused(run: Run, folder: Path) -> None:
    fits = f"ipc://{folder}/{'ü' * 60}"
    while len(os.fsencode(fits.removeprefix("ipc://"))) > MAX_PATH_BYTES:
        fits = fits[:-1]
    fits += "x" * (MAX_PATH_BYTES - len(os.fsencode(fits.removeprefix("ipc://"))))

    async def main(opened: Opened) -> None:
        inbox, peer = opened.inbox(fits), opened.peer()
        peer.post(fits, [b"x"])
        assert await inbox.until(1) == [[b"x"]]
        for use in (
            lambda: peer.bind(f"{fits}y", lambda frames: None),
            lambda: peer.post(f"{fits}y", [b"x"]),
        ):
            with pytest.raises(WireError, match="is longer than the 107 bytes of a unix socket's path"):
                use()

    run(main)


# --- the end


def open_descriptors() -> set[str]:
    return {
        f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}"
        for fd in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{fd}")
    }


def threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def test_closing_leaves_no_descriptor_and_no_thread(run: Run, address: str) -> None:
    async def main(opened: Opened) -> None:
        before = open_descriptors(), threads()
        inbox, peer = opened.inbox(address), opened.peer()
        peer.post(address, [b"x"])
        peer.post(f"{address}-missing", [b"x"])
        await inbox.until(1)
        assert threads() > before[1]
        peer.close()
        inbox.transport.close()
        assert (open_descriptors(), threads()) == before

    run(main)


def test_nothing_is_received_after_closing(run: Run, address: str) -> None:
    async def main(opened: Opened) -> None:
        received: list[Frames] = []
        transport, peer = opened.peer(), opened.peer()

        def receive(frames: Frames) -> None:
            received.append(frames)
            transport.close()

        transport.bind(address, receive)
        for _ in range(5 * PORTION):
            peer.post(address, [b"x"])
        while not received:
            await asyncio.sleep(0)
        transport.poll()
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(received) == 1

    run(main)


def test_last_words_still_leave(run: Run, address: str) -> None:
    async def main(opened: Opened) -> None:
        inbox, peer = opened.inbox(address), opened.peer()
        for number in range(1000):
            peer.post(address, [b"%d" % number])
        peer.close(linger_s=LIMIT_S)
        assert [frames[0] for frames in await inbox.until(1000)] == [b"%d" % number for number in range(1000)]

    run(main)


def test_closing_waits_for_a_missing_peer_no_longer_than_told(run: Run, address: str) -> None:
    async def main(opened: Opened) -> None:
        for linger_s in (0.0, 0.05):
            peer = opened.peer()
            peer.post(address, [b"x"])
            begun = time.monotonic()
            peer.close(linger_s)
            assert linger_s <= time.monotonic() - begun < linger_s + 1

    run(main)


def test_an_address_can_be_bound_again(run: Run, address: str) -> None:
    """A successor under the same name finds the socket's file of one that was killed."""

    async def main(opened: Opened) -> None:
        Path(address.removeprefix("ipc://")).touch()
        for _ in range(3):
            inbox, peer = opened.inbox(address), opened.peer()
            peer.post(address, [b"x"])
            await inbox.until(1)
            peer.close()
            inbox.transport.close()

    run(main)
