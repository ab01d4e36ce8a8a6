"""The supervisor's side of the control socket.

Any number of views, served in the supervisor's loop. One document serves all that watch, and a view that does not read
misses some. Garbage closes that connection and nothing else. The requests and answers are those of
hive.runtime.control; what they do is the run's business (`Requests`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from hive.errors import HiveError, WireError
from hive.runtime.control import (
    REQUESTS,
    Accepted,
    Down,
    GiveStatus,
    Inspect,
    Inspection,
    Kill,
    Pause,
    Refused,
    Resume,
    Save,
    Scale,
    Set,
    Status,
    Watch,
)
from hive.runtime.messages import Message, Tree
from hive.runtime.stream import pack, read

__all__ = ["ControlServer", "Requests"]

MAX_VIEWS = 64  # at once; a view holds one connection
PUSH_S = 1.0  # between two documents told to who watches: what a person can follow, and next to no work
PUSH_BYTES = 1 << 16  # not yet read by a view: it is told nothing more until it has read
INSPECTION_BYTES = 1 << 19  # of a stack: thousands of frames, and within the limits of a message
ACCEPT_AGAIN_S = 1.0  # when the process has no descriptor left for a view: not at once, or it would do nothing else


class Requests(Protocol):
    """What the supervisor's side can be asked. What it refuses it raises, as a HiveError."""

    def status(self) -> dict[str, Tree]: ...

    def down(self, reason: str, now: bool) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def save(self) -> None: ...

    def set(self, sets: Sequence[str]) -> None: ...

    def scale(self, sets: Sequence[str]) -> None: ...

    async def inspect(self, actor: str, stack: bool) -> tuple[str, Sequence[str]]: ...

    def kill(self, actor: str, by_hand: bool) -> None: ...


class ControlServer:
    """The supervisor's side."""

    def __init__(self, path: Path, run: Requests) -> None:
        self.path = path
        self.run = run
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self.views: dict[socket.socket, asyncio.Task[None]] = {}
        self.told: tuple[float, bytes] = (float("-inf"), b"")  # when, and what, those who watch were told last

    async def start(self) -> None:
        self.listener.bind(str(self.path))
        self.listener.listen(MAX_VIEWS)
        self._listen()

    def _listen(self) -> None:
        if self.listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self.listener, self._accept)

    def _accept(self) -> None:
        """Takes a view in. It is known from here on and not from when its task first runs, so `close` misses none.

        (asyncio's own server loses a connection that it has accepted when it is closed one turn later.)
        """
        loop = asyncio.get_running_loop()
        try:
            line, _ = self.listener.accept()
        except BlockingIOError:
            return  # it has left again
        except OSError:
            loop.remove_reader(self.listener)
            loop.call_later(ACCEPT_AGAIN_S, self._listen)
            return
        if len(self.views) >= MAX_VIEWS:
            line.close()
        else:
            self.views[line] = loop.create_task(self._serve(line))

    async def _serve(self, line: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=line)
        telling: asyncio.Task[None] | None = None
        try:
            while True:
                request = await read(reader, REQUESTS)
                writer.write(pack(await self._answer(request)))
                if isinstance(request, Watch) and telling is None:
                    telling = asyncio.get_running_loop().create_task(self._tell(writer))
                await writer.drain()
        except (WireError, asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.views.pop(line, None)
            writer.close()
            if telling is not None and not telling.cancel():
                telling.result()  # it has ended before: with an error, which is nobody's but this view's

    async def _tell(self, writer: asyncio.StreamWriter) -> None:
        """Tells one view the status again and again. What cannot be told costs that view only."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(PUSH_S)
                if loop.time() - self.told[0] > PUSH_S / 2:  # else another view was told this moment: it is the same
                    self.told = loop.time(), pack(Status(self.run.status()))
                if writer.transport.get_write_buffer_size() < PUSH_BYTES:
                    writer.write(self.told[1])
        finally:
            writer.close()

    async def _answer(self, request: Message) -> Message:
        try:
            if isinstance(request, GiveStatus | Watch):
                return Status(self.run.status())
            if isinstance(request, Inspect):
                stack, story = await self.run.inspect(request.actor, request.stack)
                return Inspection(stack[:INSPECTION_BYTES], tuple(story))
            if isinstance(request, Down):
                self.run.down(request.reason, request.now)
            elif isinstance(request, Pause):
                self.run.pause()
            elif isinstance(request, Resume):
                self.run.resume()
            elif isinstance(request, Save):
                self.run.save()
            elif isinstance(request, Set):
                self.run.set(request.sets)
            elif isinstance(request, Scale):
                self.run.scale(request.sets)
            elif isinstance(request, Kill):
                self.run.kill(request.actor, request.by_hand)
            return Accepted()
        except HiveError as error:
            return Refused(str(error), error.hint)

    async def close(self) -> None:
        """Nobody is accepted any more, and every view learns at once that it will get no answer."""
        if self.listener.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self.listener)
            self.listener.close()
        for line in self.views:
            with contextlib.suppress(OSError):  # it has left
                line.shutdown(socket.SHUT_RDWR)  # which its task sees as the end
        await asyncio.gather(*self.views.values(), return_exceptions=True)
