"""The transport between processes: ZeroMQ over `ipc://`, one inbox (PULL) per process and one PUSH socket per peer.

Why hive reads sockets itself. A ZeroMQ socket's descriptor is edge-triggered: it becomes readable when the socket's
state changes, and reading the state re-arms it. `zmq.asyncio` can miss such an edge when the loop also serves other
descriptors (pyzmq #2173), and then sleeps although messages wait. So this module reads as follows:

    descriptor readable, or a 50 ms tick  ->  recv(NOBLOCK) until there is none  ->  the last recv re-arms the edge

The inbox only receives and the peers' sockets only send, so no send can swallow an edge of the inbox. A burst is read
in portions, and the loop runs in between.

A hint, a short message that may be lost (Notify), travels through a named pipe beside the inbox instead. Its sender and
its receiver need one system call each, where a message of ZeroMQ also wakes an I/O thread on either side.

    HINT_PIPE    [length, uint8 | frame] ..., each written at once, so that writers never interleave

The first frame of every message begins with the secret of the run, SECRET_BYTES random bytes that the supervisor gives
to its processes. A message without it is dropped and counted: it comes from another run, or from any other program.

Addresses are `ipc://` only, in a folder that is private to the user (hive.runtime.run.folders). `tcp://` is refused
because nothing authenticates peers: hosts talk through hive.runtime.wire.links.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import zmq

from hive.errors import WireError
from hive.runtime.wire.arrays import MAX_ARRAY_BYTES, Frame, Frames
from hive.runtime.wire.stream import MAX_PATH_BYTES, fits, is_removed
from hive.runtime.wire.transport import Receive

SECRET_BYTES = 16  # length of the secret: no one guesses 128 bits
QUEUE_MESSAGES = 10_000  # maximum queued messages per socket; a peer this far behind is stuck, as messages are few
PORTION = 128  # maximum messages read before the loop may run other callbacks
TICK_S = 0.05  # interval of the polling tick: the longest delay by a lost edge
HINT_PIPE = ".hints"  # end of the name of an inbox's pipe, after the path of its socket
HINTS_BYTES = 1 << 16  # bytes of hints read at once: the capacity of a pipe
HINT_BYTES = 255  # maximum length of a hint, which one byte says
LOG = logging.getLogger("hive.runtime")


class ZmqTransport:
    """One process's sockets. Create it in the process that uses it: a ZeroMQ context does not survive a fork.

    secret: that of the run, SECRET_BYTES long. `foreign` counts the messages without it.
    """

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self.foreign = 0
        self.context = zmq.Context(io_threads=1)
        self.inbox: zmq.Socket[bytes] | None = None
        self.path = Path()  # of the inbox
        self.peers: dict[str, zmq.Socket[bytes]] = {}
        self.hints = -1  # descriptor of the pipe for hints to this process
        self.pipes: dict[str, int] = {}  # address -> descriptor of the pipe for hints to that process
        self.receive: Receive | None = None
        self.tick: asyncio.TimerHandle | None = None
        self.again: asyncio.Handle | None = None

    def bind(self, address: str, receive: Receive) -> None:
        _check(address)
        inbox = self.context.socket(zmq.PULL)
        inbox.set(zmq.LINGER, 0)
        inbox.set(zmq.RCVHWM, QUEUE_MESSAGES)
        inbox.set(zmq.MAXMSGSIZE, MAX_ARRAY_BYTES)
        inbox.bind(address)
        self.path, self.inbox, self.receive = _path(address), inbox, receive
        loop = asyncio.get_running_loop()
        loop.add_reader(int(inbox.get(zmq.FD)), self._readable)
        with contextlib.suppress(FileExistsError):  # left by a process that was killed
            os.mkfifo(f"{self.path}{HINT_PIPE}", 0o600)
        # Opened for writing too, so that the pipe never ends when its last sender exits.
        self.hints = os.open(f"{self.path}{HINT_PIPE}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        loop.add_reader(self.hints, self._hinted)
        self._tick()

    def _tick(self) -> None:
        self.tick = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self._bind_again()
        self._readable()

    def _bind_again(self) -> None:
        """Bind the inbox to its path again if somebody has removed it; connections of before stay."""
        if self.inbox is not None and is_removed(self.path):
            with contextlib.suppress(zmq.ZMQError):  # such as a full disk: the next tick tries again
                self.inbox.bind(f"ipc://{self.path}")

    def _readable(self) -> None:
        if self.again is not None:
            self.again.cancel()
            self.again = None
        if not self._read(PORTION):
            self.again = asyncio.get_running_loop().call_soon(self._readable)

    def _read(self, limit: int) -> bool:
        """Read up to `limit` messages. Returns True when the inbox is empty."""
        for number in range(limit):
            if self.inbox is None or self.receive is None:
                return True
            # Usually there is one message. Checking for a second one costs half as much as the exception zmq.Again.
            if number == 1 and not int(self.inbox.get(zmq.EVENTS)) & zmq.POLLIN:
                return True
            try:
                frames = _received(self.inbox)
            except zmq.Again:
                return True
            self._deliver(frames)
        return False

    def _deliver(self, frames: Sequence[Frame]) -> None:
        """Pass a message on if it has the secret, without the secret."""
        if hmac.compare_digest(bytes(frames[0][:SECRET_BYTES]), self.secret):
            if self.receive is not None:
                self.receive([frames[0][SECRET_BYTES:], *frames[1:]])
        else:
            self.foreign += 1
            if self.foreign.bit_count() == 1:  # 1, 2, 4, 8, ...: a flood takes a few lines
                LOG.warning("dropped %d messages without the secret of this run so far", self.foreign)

    def _hinted(self) -> None:
        """Deliver the hints that have arrived, equal ones once."""
        try:
            read = os.read(self.hints, HINTS_BYTES)
        except BlockingIOError:
            return
        frames: dict[bytes, None] = {}
        start = 0
        while start < len(read):
            end = start + 1 + read[start]
            frames[read[start + 1 : end]] = None
            start = end
        for frame in frames:
            self._deliver([frame])

    def _post_hint(self, address: str, frame: bytes) -> bool:
        """Write a hint to the pipe of that process. Returns False if it has none."""
        pipe = self.pipes.get(address)
        try:
            if pipe is None:
                path = f"{_path(address)}{HINT_PIPE}"
                pipe = self.pipes[address] = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.write(pipe, bytes([len(frame)]) + frame)
        except BlockingIOError:
            pass  # the pipe is full of hints, which the process has not read yet
        except OSError:  # its path was removed, or the process has exited
            return False
        return True

    def poll(self) -> None:
        while not self._read(PORTION):
            pass

    def post(self, address: str, frames: Frames, *, stable: bool = False, hint: bool = False) -> bool:
        first = self.secret + bytes(frames[0])
        if hint and len(first) <= HINT_BYTES and self._post_hint(address, first):
            return True
        peer = self.peers.get(address)
        if peer is None:
            _check(address)
            peer = self.context.socket(zmq.PUSH)
            peer.set(zmq.SNDHWM, QUEUE_MESSAGES)
            peer.set(zmq.LINGER, 0)
            peer.connect(address)
            self.peers[address] = peer
        try:
            peer.send_multipart([first, *frames[1:]], zmq.NOBLOCK, copy=not stable)  # short frames are always copied
        except zmq.Again:
            return False
        return True

    def forget(self, address: str) -> None:
        peer = self.peers.pop(address, None)
        if peer is not None:
            peer.close(linger=0)
        pipe = self.pipes.pop(address, None)
        if pipe is not None:
            os.close(pipe)

    def close(self, linger_s: float = 0.0) -> None:
        if self.tick is not None:
            self.tick.cancel()
        if self.again is not None:
            self.again.cancel()
        if self.inbox is not None:
            asyncio.get_running_loop().remove_reader(int(self.inbox.get(zmq.FD)))
            self.inbox.close(linger=0)
            self.inbox = None
            asyncio.get_running_loop().remove_reader(self.hints)
            self.pipes[""] = self.hints  # closed with the others below
            with contextlib.suppress(OSError):  # its folder was removed
                os.unlink(f"{self.path}{HINT_PIPE}")
        for address, peer in self.peers.items():
            # A process that exits removes its pipe, and receives nothing any more: waiting for it would take linger_s.
            has_exited = not os.path.lexists(f"{_path(address)}{HINT_PIPE}")
            peer.close(linger=0 if has_exited else int(linger_s * 1000))
        self.peers.clear()
        for pipe in self.pipes.values():
            os.close(pipe)
        self.pipes.clear()
        self.context.term()


def _received(inbox: zmq.Socket[bytes]) -> list[Frame]:
    """Return the frames of the next message; long ones in the memory of ZeroMQ. Raises zmq.Again without a message."""
    frames: list[Frame] = [inbox.recv(zmq.NOBLOCK)]
    while inbox.get(zmq.RCVMORE):
        frame = inbox.recv(zmq.NOBLOCK, copy=False)
        frames.append(frame.buffer if len(frame) >= zmq.COPY_THRESHOLD else frame.bytes)
    return frames


def _check(address: str) -> None:
    if not address.startswith("ipc://"):
        raise WireError(f"`{address}` is not an ipc:// address; the processes of a host talk through ipc:// only")
    if not fits(_path(address)):
        raise WireError(f"`{address}` is longer than the {MAX_PATH_BYTES} bytes of a unix socket's path")


def _path(address: str) -> Path:
    return Path(address.removeprefix("ipc://"))
