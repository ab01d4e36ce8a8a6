"""The control socket: how views and commands speak to a supervisor.

    view -> supervisor      GiveStatus · Down
    supervisor -> view      Status · Accepted

A unix socket in the run's private socket folder; requests are answered one by one, in order. Leaving is closing the
connection and changes nothing for the run. Garbage closes that connection and nothing else.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hive.errors import UsageError, WireError
from hive.runtime.messages import Message, Tree, type_set
from hive.runtime.stream import pack, read, receive, send

__all__ = ["Accepted", "ControlServer", "Down", "GiveStatus", "Status", "control_path", "open_control"]

MAX_VIEWS = 64  # at once; a view holds one connection
ANSWER_S = 5.0  # a supervisor that takes longer is stopped or gone


class GiveStatus(Message):
    """Asks for everything a view shows."""


class Down(Message):
    """Ends the run: drain and save, or with `now` kill."""

    reason: str
    now: bool


class Status(Message):
    status: Tree


class Accepted(Message):
    """The request will be carried out."""


REQUESTS = type_set([GiveStatus, Down])
ANSWERS = type_set([Status, Accepted])


def control_path(socket_folder: Path) -> Path:
    return socket_folder / "control"


class ControlServer:
    """The supervisor's side."""

    def __init__(self, path: Path, status: Callable[[], dict[str, Tree]], down: Callable[[str, bool], None]) -> None:
        self.path = path
        self.status = status
        self.down = down
        self.server: asyncio.Server | None = None
        self.views: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self.server = await asyncio.start_unix_server(self._serve, self.path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self.views) >= MAX_VIEWS:
            writer.close()
            return
        self.views.add(writer)
        try:
            while True:
                request = await read(reader, REQUESTS)
                if isinstance(request, Down):
                    self.down(request.reason, request.now)
                    answer: Message = Accepted()
                else:
                    answer = Status(self.status())
                writer.write(pack(answer))
                await writer.drain()
        except (WireError, asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.views.discard(writer)
            writer.close()

    async def close(self) -> None:
        if self.server is not None:
            self.server.close()
            for view in list(self.views):
                view.close()


class ControlClient:
    """A view's side; blocking, with a limit. Raises UsageError when the supervisor is gone or does not answer."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line

    def _ask(self, request: Message) -> Message:
        try:
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
        return answer

    def status(self) -> dict[str, Any]:
        answer = self._ask(GiveStatus())
        assert isinstance(answer, Status)
        return answer.status  # type: ignore[no-any-return]

    def down(self, reason: str, *, now: bool = False) -> None:
        self._ask(Down(reason, now))

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
