"""The server of the control socket.

It serves up to MAX_VIEWS views in the supervisor's event loop. All views that watch receive the same status document; a
view that reads too slowly misses some of them. An invalid request closes its own connection only. The requests and
replies are defined in hive.runtime.run.control; the run carries them out (`Requests`).

No view can lock others out. A request is small and has to be complete soon after its first byte. When all places are
taken, a new view gets that of the one that has been silent longest and does not watch; views that watch may take only
MAX_WATCHING places, so that commands always find one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hive.errors import HiveError, WireError
from hive.runtime.run.control import (
    REQUESTS,
    Down,
    GiveStatus,
    Inspect,
    InspectReply,
    KillActor,
    PauseRun,
    RequestAccepted,
    RequestRefused,
    ResumeRun,
    Save,
    Scale,
    Set,
    StatusReply,
    Watch,
)
from hive.runtime.wire.messages import Message, Tree
from hive.runtime.wire.stream import is_removed, pack, read

MAX_VIEWS = 64  # maximum simultaneous connections; each view has one
MAX_WATCHING = 48  # maximum views that watch; the other places are for commands
REQUEST_BYTES = 1 << 20  # maximum size of a request: a `hive set` of many keys takes kilobytes
REQUEST_S = 5.0  # time limit for the rest of a request whose first byte has arrived
PUSH_S = 1.0  # interval between two status documents: readable for a person, and negligible work
PUSH_BYTES = 1 << 16  # unread bytes of a view above which documents are skipped until it has read them
INSPECTION_BYTES = 1 << 19  # maximum size of a stack: thousands of frames, and within the limits of a message
KEEP_S = 0.25  # interval between two looks whether the socket's path is still there
ACCEPT_AGAIN_S = 1.0  # delay after `accept` found no free descriptor; retrying at once would keep the loop busy


class Requests(Protocol):
    """The operations that a view can request. An operation that is refused raises a HiveError."""

    def status(self) -> dict[str, Tree]: ...

    def down(self, reason: str, now: bool) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def save(self) -> None: ...

    def set(self, sets: Sequence[str]) -> None: ...

    def scale(self, sets: Sequence[str]) -> None: ...

    async def inspect(self, actor: str, stack: bool) -> tuple[str, Sequence[str]]: ...

    def kill(self, actor: str, by_hand: bool) -> None: ...


# How each request that is answered by RequestAccepted is carried out; it raises a HiveError if it is refused.
CARRY_OUT: Mapping[type[Message], Callable[[Requests, Any], None]] = {
    Down: lambda run, request: run.down(request.reason, request.now),
    PauseRun: lambda run, request: run.pause(),
    ResumeRun: lambda run, request: run.resume(),
    Save: lambda run, request: run.save(),
    Set: lambda run, request: run.set(request.sets),
    Scale: lambda run, request: run.scale(request.sets),
    KillActor: lambda run, request: run.kill(request.actor, request.by_hand),
}


@dataclass
class ViewConnection:
    """One connection. `heard_s`: loop time of its last complete request, or of its beginning."""

    heard_s: float
    task: asyncio.Task[None] | None = None
    watching: bool = False


class ControlServer:
    """Accepts connections at `path` and carries out their requests on `run`."""

    def __init__(self, path: Path, run: Requests) -> None:
        self.path = path
        self.run = run
        self.listener = _new_socket()
        self.keeping: asyncio.TimerHandle | None = None  # the next look at the path
        self.views: dict[socket.socket, ViewConnection] = {}
        self.last_push: tuple[float, bytes] = (float("-inf"), b"")  # (loop time, document) of the last status sent

    async def start(self) -> None:
        self._bind(self.listener)
        self._listen()
        self._keep()

    def _bind(self, listener: socket.socket) -> None:
        listener.bind(str(self.path))
        listener.listen(MAX_VIEWS)

    def _keep(self) -> None:
        self.keeping = asyncio.get_running_loop().call_later(KEEP_S, self._keep)
        self._bind_again()

    def _bind_again(self) -> None:
        """Listen on a new socket if somebody has removed the path of this one; connections of before stay."""
        if not is_removed(self.path):
            return
        listener = _new_socket()
        try:
            self._bind(listener)
        except OSError:  # such as a full disk: the next look tries again
            listener.close()
            return
        asyncio.get_running_loop().remove_reader(self.listener)
        self.listener.close()
        self.listener = listener
        self._listen()

    def _listen(self) -> None:
        if self.listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self.listener, self._accept)

    def _accept(self) -> None:
        """Accept a connection. It is registered here and not when its task first runs, so that `close` closes it too.

        (asyncio's server loses an accepted connection if it is closed in the next iteration of the loop.)
        """
        loop = asyncio.get_running_loop()
        try:
            line, _ = self.listener.accept()
        except BlockingIOError:
            return  # the view has disconnected again
        except OSError:
            loop.remove_reader(self.listener)
            loop.call_later(ACCEPT_AGAIN_S, self._listen)
            return
        if len(self.views) >= MAX_VIEWS and not self._make_room():
            line.close()
            return
        self.views[line] = ViewConnection(loop.time())
        self.views[line].task = loop.create_task(self._serve(line))

    def _make_room(self) -> bool:
        """Close the connection of the view that has been silent longest. Return False if all views watch."""
        silent = [line for line, view in self.views.items() if not view.watching]
        if silent:
            line = min(silent, key=lambda line: self.views[line].heard_s)
            _hang_up(line)
            del self.views[line]
        return bool(silent)

    async def _serve(self, line: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=line)
        view, pushing = self.views.get(line, ViewConnection(0.0)), None
        try:
            while True:
                begun = await reader.readexactly(1)
                async with asyncio.timeout(REQUEST_S):
                    request = await read(reader, REQUESTS, limit=REQUEST_BYTES, begun=begun)
                view.heard_s = asyncio.get_running_loop().time()
                writer.write(pack(await self._answer(request, view)))
                if view.watching and pushing is None:
                    pushing = asyncio.get_running_loop().create_task(self._push(writer))
                await writer.drain()
        except (WireError, TimeoutError, asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.views.pop(line, None)
            writer.close()
            if pushing is not None and not pushing.cancel():
                pushing.result()  # raises the error that ended it, in this view's task only

    async def _push(self, writer: asyncio.StreamWriter) -> None:
        """Send one view the status every PUSH_S. An error closes the connection of this view only."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(PUSH_S)
                if loop.time() - self.last_push[0] > PUSH_S / 2:  # else another view's document is recent enough
                    self.last_push = loop.time(), pack(StatusReply(self.run.status()))
                if writer.transport.get_write_buffer_size() < PUSH_BYTES:
                    writer.write(self.last_push[1])
        finally:
            writer.close()

    async def _answer(self, request: Message, view: ViewConnection) -> Message:
        try:
            if isinstance(request, Watch) and not view.watching:
                if sum(other.watching for other in self.views.values()) >= MAX_WATCHING:
                    return RequestRefused(f"{MAX_WATCHING} views watch this run already", "close one of them")
                view.watching = True
            if isinstance(request, GiveStatus | Watch):
                return StatusReply(self.run.status())
            if isinstance(request, Inspect):
                stack, transitions = await self.run.inspect(request.actor, request.stack)
                return InspectReply(stack[:INSPECTION_BYTES], tuple(transitions))
            CARRY_OUT[type(request)](self.run, request)
            return RequestAccepted()
        except HiveError as error:
            return RequestRefused(str(error), error.hint)

    async def close(self) -> None:
        """Stop accepting and close every connection, so that no view waits for a reply."""
        if self.keeping is not None:
            self.keeping.cancel()
        if self.listener.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self.listener)
            self.listener.close()
        tasks = [view.task for view in self.views.values() if view.task is not None]
        for line in self.views:
            _hang_up(line)
        await asyncio.gather(*tasks, return_exceptions=True)


def _new_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)


def _hang_up(line: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the view has disconnected
        # Not `close`: the view's task reads the end of the stream and closes the socket itself.
        line.shutdown(socket.SHUT_RDWR)
