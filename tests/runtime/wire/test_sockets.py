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
from hive.runtime.wire import sockets as wire
from hive.runtime.wire.arrays import Frames
from hive.runtime.wire.messages import Message, decode, encode, type_set
from hive.runtime.wire.protocol import NODE_TYPES
from hive.runtime.wire.sockets import (
    HINT_BYTES,
    HINT_PIPE,
    HINTS_BYTES,
    MAX_PATH_BYTES,
    PORTION,
    QUEUE_MESSAGES,
    SECRET_BYTES,
    ZmqTransport,
)

LATEST_S = 0.1  # a required figure: no message is received later than this after it was sent
STALL_NS = 5_000_000  # a turn of the loop takes microseconds
SECRET = bytes(range(SECRET_BYTES))
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
        self.transports.append(ZmqTransport(SECRET))
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


class BusyPair:
    """Two sockets that keep the loop busy: what is read is written again at once, so the loop never sleeps.

    It also knows when the machine held up this whole process: then there are no turns. Such time is not the
    transport's and does not count as late.
    """

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.turns = 0
        self.last_ns = time.monotonic_ns()
        self.stalls_ns: list[tuple[int, int]] = []
        asyncio.get_running_loop().add_reader(self.theirs, self.turn)
        self.ours.send(b"x")

    def turn(self) -> None:
        now = time.monotonic_ns()
        if now - self.last_ns > STALL_NS:
            self.stalls_ns.append((self.last_ns, now))
        self.last_ns = now
        self.turns += 1
        self.ours.send(self.theirs.recv(64))

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.theirs)
        self.turn()
        self.ours.close()
        self.theirs.close()

    def late_s(self, sent_ns: int, received_ns: int) -> float:
        stalled = sum(max(min(end, received_ns) - max(start, sent_ns), 0) for start, end in self.stalls_ns)
        return (received_ns - sent_ns - stalled) / 1e9


class Pacer(threading.Thread):
    """A sender in a thread and context of its own: bursts, each followed by a trickle.

    In the trickle a message leaves only when the one before has been received: the inbox is idle every time.
    """

    def __init__(self, address: str, rounds: int, burst: int, trickle: int) -> None:
        super().__init__()
        self.address = address
        self.counts = ([burst] + [1] * trickle) * rounds
        self.received: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def run(self) -> None:
        transport = ZmqTransport(SECRET)
        number = 0
        for count in self.counts:
            for number in range(number, number + count):  # noqa: B020
                sent = time.monotonic_ns()
                transport.post(self.address, [number.to_bytes(4, "little"), sent.to_bytes(8, "little")])
            if not self.heard(number):
                break
            number += 1
        transport.close()

    def heard(self, number: int) -> bool:
        """Waits until the message of this number was received; False when the test is over."""
        while (received := self.received.get()) is not None:
            if received == number:
                return True
        return False


@pytest.mark.parametrize("burst", [1, PORTION, 3 * PORTION + 1])
def test_a_burst_and_then_a_trickle_beside_a_busy_descriptor(run: Run, address: str, burst: int) -> None:
    rounds, trickle = 4, 60
    numbers: list[int] = []
    times_ns: list[tuple[int, int]] = []

    async def main(opened: Opened) -> None:
        busy, done = BusyPair(), asyncio.Event()
        pacer = Pacer(address, rounds, burst, trickle)

        def receive(frames: Frames) -> None:
            times_ns.append((int.from_bytes(frames[1], "little"), time.monotonic_ns()))
            numbers.append(int.from_bytes(frames[0], "little"))
            pacer.received.put(numbers[-1])
            if len(numbers) == rounds * (burst + trickle):
                done.set()

        opened.peer().bind(address, receive)
        pacer.start()
        try:
            await done.wait()
        finally:
            busy.close()
            pacer.received.put(None)
            pacer.join()
        assert busy.turns > len(numbers) / 4, "the other descriptor was served meanwhile"
        assert max(busy.late_s(*times) for times in times_ns) < LATEST_S

    run(main)
    assert numbers == list(range(rounds * (burst + trickle)))


def test_a_trickle_arrives_in_time_though_every_edge_is_lost(run: Run, address: str) -> None:
    async def main(opened: Opened) -> None:
        inbox, peer, busy = opened.inbox(address), opened.peer(), BusyPair()
        assert inbox.transport.inbox is not None
        descriptor: Any = inbox.transport.inbox.get(wire.zmq.FD)
        peer.post(address, [b"connected"])
        await inbox.until(1)
        asyncio.get_running_loop().remove_reader(descriptor)
        times_ns = []
        for number in range(5):
            sent = time.monotonic_ns()
            peer.post(address, [b"x"])
            await inbox.until(number + 2)
            times_ns.append((sent, time.monotonic_ns()))
        busy.close()
        assert max(busy.late_s(*times) for times in times_ns) < LATEST_S

    run(main)


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
    """As in `Drain`: messages that were sent earlier must be received earlier."""

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


# --- a removed path


def test_a_removed_path_is_bound_again_and_connections_stay(run: Run, folder: Path, address: str) -> None:
    """The folder is made by the supervisor: an inbox only waits for it."""

    async def main(opened: Opened) -> None:
        inbox, early, late = opened.inbox(address), opened.peer(), opened.peer()
        early.post(address, [b"one"])
        await inbox.until(1)
        shutil.rmtree(folder)
        early.post(address, [b"two"])
        late.post(address, [b"three"])
        await inbox.until(2)
        inbox.transport._tick()
        assert not folder.exists()
        folder.mkdir()
        await inbox.until(3)
        early.post(address, [b"four"])
        assert [b"".join(frames) for frames in await inbox.until(4)] == [b"one", b"two", b"three", b"four"]

    run(main)


# --- garbage


def test_garbage_on_the_socket_is_harmless(run: Run, folder: Path, address: str) -> None:
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


def test_messages_without_the_secret_of_the_run_are_dropped_and_counted(
    run: Run, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(opened: Opened) -> None:
        inbox = opened.inbox(address)
        stranger = ZmqTransport(bytes(SECRET_BYTES))
        opened.transports.append(stranger)
        assert stranger.post(address, [b"forged", b"frame"])
        bare = stranger.context.socket(wire.zmq.PUSH)
        bare.connect(address)
        for frames in ([b""], [b"short"], [SECRET[:-1]], [b"\x00" * 40, b"x"]):
            bare.send_multipart(frames)
        while inbox.transport.foreign < 5:
            await asyncio.sleep(0)
        bare.close(linger=0)
        opened.peer().post(address, [b"ours"])
        assert await inbox.until(1) == [[b"ours"]]

    run(main)
    assert [record.args for record in caplog.records] == [(1,), (2,), (4,)]


def test_hints_arrive_and_equal_ones_once(run: Run, address: str) -> None:
    async def main(opened: Opened) -> None:
        inbox, peer, stranger = opened.inbox(address), opened.peer(), ZmqTransport(bytes(SECRET_BYTES))
        opened.transports.append(stranger)
        for _ in range(HINTS_BYTES // SECRET_BYTES):  # more than the pipe has room for
            assert peer.post(address, [b"again"], hint=True)
        assert await inbox.until(1) == [[b"again"]]
        assert stranger.post(address, [b"forged"], hint=True)
        assert peer.post(address, [b"one"], hint=True)
        assert await inbox.until(2) == [[b"again"], [b"one"]]
        assert inbox.transport.foreign == 1

    run(main)


def test_hints_become_messages_where_there_is_no_pipe(run: Run, address: str) -> None:
    async def main(opened: Opened) -> None:
        inbox, peer = opened.inbox(address), opened.peer()
        Path(f"{inbox.transport.path}{HINT_PIPE}").unlink()
        assert peer.post(address, [b"one"], hint=True)
        assert peer.post(address, [b"long" * HINT_BYTES], hint=True)
        assert await inbox.until(2) == [[b"one"], [b"long" * HINT_BYTES]]

    run(main)


def test_hints_to_a_process_that_has_exited_are_dropped(run: Run, address: str) -> None:
    async def main(opened: Opened) -> None:
        inbox, peer = opened.inbox(address), opened.peer()
        assert peer.post(address, [b"one"], hint=True)
        await inbox.until(1)
        inbox.transport.close()
        peer.post(address, [b"two"], hint=True)
        assert inbox.messages == [[b"one"]]

    run(main)


def test_garbage_in_the_frames_is_delivered_and_refused_by_decode(run: Run, address: str) -> None:
    random = np.random.default_rng(0)
    garbage = [
        [random.bytes(int(random.integers(0, 50))) for _ in range(int(random.integers(1, 5)))] for _ in range(200)
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
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context["exception"]))
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


def test_a_missing_peer_does_not_block_and_its_queue_is_limited(run: Run, address: str) -> None:
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
        begun = time.monotonic()
        peer.close(linger_s=LIMIT_S)
        assert time.monotonic() - begun < LIMIT_S / 2, "nothing was left to send"
        inbox = opened.inbox(address)
        opened.peer().post(address, [b"for its successor"])
        assert await inbox.until(1) == [[b"for its successor"]]

    run(main)


# --- addresses


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:5555", "inproc://x", "memory://x", "/tmp/x", "udp://x", "IPC:///tmp/x"]
)
def test_addresses_of_other_kinds_are_refused(address: str) -> None:
    transport = ZmqTransport(SECRET)
    for use in (
        lambda: transport.bind(address, lambda frames: None),
        lambda: transport.post(address, [b"x"]),
    ):
        with pytest.raises(
            WireError, match=r"is not an ipc:// address; the processes of a host talk through ipc:// only"
        ):
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


def held() -> set[str]:
    """The descriptors and threads of this process."""
    descriptors = {fd: Path(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    return {f"{fd} {os.readlink(path)}" for fd, path in descriptors.items() if path.is_symlink()} | {
        f"thread {thread}" for thread in os.listdir("/proc/self/task")
    }


def test_closing_leaves_no_descriptor_and_no_thread(run: Run, address: str) -> None:
    async def main(opened: Opened) -> None:
        before = held()
        inbox, peer = opened.inbox(address), opened.peer()
        peer.post(address, [b"x"])
        peer.post(f"{address}-missing", [b"x"])
        await inbox.until(1)
        assert len(held() - before) > 4
        peer.close()
        inbox.transport.close()
        while not held() <= before:  # a joined thread may be listed for a moment longer
            await asyncio.sleep(0)

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


def test_closing_waits_for_a_missing_peer_at_most_linger_s(run: Run, address: str) -> None:
    async def main(opened: Opened) -> None:
        for linger_s in (0.0, 0.05):
            peer = opened.peer()
            peer.post(address, [b"x"])
            begun = time.monotonic()
            peer.close(linger_s)
            assert time.monotonic() - begun < LIMIT_S  # it would wait forever

    run(main)


def test_closing_does_not_wait_for_a_peer_that_has_exited(run: Run, address: str) -> None:
    async def main(opened: Opened) -> None:
        inbox, peer = opened.inbox(address), opened.peer()
        peer.post(address, [b"one"])
        await inbox.until(1)
        inbox.transport.close()
        peer.post(address, [b"two"])
        begun = time.monotonic()
        peer.close(linger_s=LIMIT_S)
        assert time.monotonic() - begun < LIMIT_S / 2

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
