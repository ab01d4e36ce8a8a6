"""The control socket: how views and commands speak to a supervisor.

    view -> supervisor      GiveStatus · Watch · Down · Scale · Inspect · Kill
    supervisor -> view      Status · Accepted · Refused · Inspection

A unix socket in the run's private socket folder; requests are answered one by one, in order. After `Watch` the view is
also told the Status once a second, until it leaves; one document serves all views, and a view that does not read misses
some. Leaving is closing the connection and changes nothing for the run. Garbage closes that connection and nothing
else.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from hive.errors import HiveError, UsageError, WireError
from hive.runtime.messages import Message, Tree, type_set
from hive.runtime.stream import pack, read, receive, send

__all__ = [
    "Accepted",
    "ControlServer",
    "Down",
    "GiveStatus",
    "Inspect",
    "Inspection",
    "Kill",
    "Refused",
    "Requests",
    "Scale",
    "Status",
    "Watch",
    "control_path",
    "open_control",
]

MAX_VIEWS = 64  # at once; a view holds one connection
ANSWER_S = 5.0  # a supervisor that takes longer is stopped or gone
PUSH_S = 1.0  # between two documents told to who watches: what a person can follow, and next to no work
PUSH_BYTES = 1 << 16  # not yet read by a view: it is told nothing more until it has read
INSPECTION_BYTES = 1 << 19  # of a stack: thousands of frames, and within the limits of a message
ACCEPT_AGAIN_S = 1.0  # when the process has no descriptor left for a view: not at once, or it would do nothing else


class GiveStatus(Message):
    """Asks for everything a view shows."""


class Watch(Message):
    """Asks for the same at once, and then once a second."""


class Inspect(Message):
    """Asks what an actor is executing, and how it came to be as it is."""

    actor: str


class Kill(Message):
    """Kills the process of an actor. It comes back as after any death; `by_hand` does not count against its limits."""

    actor: str
    by_hand: bool


class Down(Message):
    """Ends the run: drain and save, or with `now` kill."""

    reason: str
    now: bool


class Scale(Message):
    """Goes on with these keys of the config changed, as `--set` takes them: `collection.workers=4`."""

    sets: tuple[str, ...]


class Status(Message):
    status: Tree


class Accepted(Message):
    """The request will be carried out."""


class Refused(Message):
    """The request will not be carried out, and nothing has changed."""

    text: str
    hint: str


class Inspection(Message):
    """`stack`: of all its process's threads, innermost call first, "" where it cannot say; `story`: oldest first."""

    stack: str
    story: tuple[str, ...]


REQUESTS = type_set([GiveStatus, Watch, Down, Scale, Inspect, Kill])
ANSWERS = type_set([Status, Accepted, Refused, Inspection])


class Requests(Protocol):
    """What the supervisor's side can be asked. What it refuses it raises, as a HiveError."""

    def status(self) -> dict[str, Tree]: ...

    def down(self, reason: str, now: bool) -> None: ...

    def scale(self, sets: Sequence[str]) -> None: ...

    async def inspect(self, actor: str) -> tuple[str, Sequence[str]]: ...

    def kill(self, actor: str, by_hand: bool) -> None: ...


def control_path(socket_folder: Path) -> Path:
    return socket_folder / "control"


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
                stack, story = await self.run.inspect(request.actor)
                return Inspection(stack[:INSPECTION_BYTES], tuple(story))
            if isinstance(request, Down):
                self.run.down(request.reason, request.now)
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


class ControlClient:
    """A view's side; blocking, with a limit. Raises UsageError when the supervisor is gone or does not answer."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line

    def _ask(self, request: Message) -> Message:
        return self._receive(request)

    def _receive(self, request: Message | None = None) -> Message:
        """The next answer, after a request if there is one."""
        try:
            if request is not None:
                send(self.line, request)
            answer = receive(self.line, ANSWERS)
        except TimeoutError:
            raise UsageError(
                "the supervisor does not answer", hint="it may be stopped: look at its state with `ps`"
            ) from None
        except OSError as error:
            raise UsageError(f"the supervisor is gone ({error})") from None
        if answer is None:
            raise UsageError("the supervisor is gone")
        if isinstance(answer, Refused):
            raise UsageError(answer.text, hint=answer.hint)
        return answer

    def status(self) -> dict[str, Any]:
        answer = self._ask(GiveStatus())
        assert isinstance(answer, Status)
        return answer.status  # type: ignore[no-any-return]

    def watch(self) -> dict[str, Any]:
        """The status now; from here on `told` gives the next ones, and this client serves nothing else."""
        answer = self._ask(Watch())
        assert isinstance(answer, Status)
        return answer.status  # type: ignore[no-any-return]

    def told(self) -> dict[str, Any]:
        """The next status that a watcher is told, at most a second from now. Raises UsageError as all the others."""
        answer = self._receive()
        if not isinstance(answer, Status):
            raise UsageError("the supervisor says something else than its status")
        return answer.status  # type: ignore[no-any-return]

    def inspect(self, actor: str) -> tuple[str, tuple[str, ...]]:
        """(stack, story) of an actor. Raises UsageError where there is no such actor."""
        answer = self._ask(Inspect(actor))
        assert isinstance(answer, Inspection)
        return answer.stack, answer.story

    def kill(self, actor: str, *, by_hand: bool) -> None:
        self._ask(Kill(actor, by_hand))

    def down(self, reason: str, *, now: bool = False) -> None:
        self._ask(Down(reason, now))

    def scale(self, sets: Sequence[str]) -> None:
        self._ask(Scale(tuple(sets)))

    def close(self) -> None:
        self.line.close()


def open_control(socket_folder: Path) -> ControlClient:
    """Connects to the supervisor whose sockets lie in this folder. Raises UsageError when nobody listens there."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(ANSWER_S)
    try:
        line.connect(str(control_path(socket_folder)))
    except OSError as error:
        line.close()
        raise UsageError(f"no supervisor listens in {socket_folder} ({error})") from None
    return ControlClient(line)
