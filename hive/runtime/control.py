"""The control socket: how views and commands speak to a supervisor. Requests, answers, and the view's side.

    view -> supervisor      GiveStatus · Watch · Down · Pause · Resume · Save · Set · Scale · Inspect · Kill
    supervisor -> view      Status · Accepted · Refused · Inspection

A unix socket in the run's private socket folder; requests are answered one by one, in order. After `Watch` the view is
also told the Status once a second, until it leaves. Leaving is closing the connection and changes nothing for the run.
The supervisor's side is hive.runtime.control_server; this one blocks, and loads neither NumPy nor asyncio, so that a
command that looks answers at once.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hive import __version__
from hive.errors import UsageError
from hive.records import RunDirectory, read_run_facts
from hive.runtime.messages import Message, Tree, type_set
from hive.runtime.stream import receive, send

__all__ = [
    "ANSWERS",
    "PROTOCOL",
    "REQUESTS",
    "Accepted",
    "ControlClient",
    "Down",
    "GiveStatus",
    "Inspect",
    "Inspection",
    "Kill",
    "OtherProtocol",
    "Pause",
    "Refused",
    "Resume",
    "Save",
    "Scale",
    "Set",
    "Status",
    "Watch",
    "control_path",
    "open_control",
    "open_run",
]

PROTOCOL = 1  # of these messages and of what a Status holds: one more with every change that an older view misreads
ANSWER_S = 5.0  # a supervisor that takes longer is stopped or gone


class OtherProtocol(UsageError):
    """The supervisor is of a hive whose messages this one does not know."""


class GiveStatus(Message):
    """Asks for everything a view shows."""


class Watch(Message):
    """Asks for the same at once, and then once a second."""


class Inspect(Message):
    """Asks what an actor is executing (unless `stack` is False: that takes a signal), and how it came to be so."""

    actor: str
    stack: bool


class Kill(Message):
    """Kills the process of an actor. It comes back as after any death; `by_hand` does not count against its limits."""

    actor: str
    by_hand: bool


class Down(Message):
    """Ends the run: drain and save, or with `now` kill."""

    reason: str
    now: bool


class Pause(Message):
    """Sources begin nothing more; the run is paused once what is on its way has come to rest."""


class Resume(Message):
    """A paused run goes on."""


class Save(Message):
    """Writes a checkpoint of the run as it is."""


class Set(Message):
    """Goes on at once with these keys of [algorithm] changed: `algorithm.learning_rate=1e-4`."""

    sets: tuple[str, ...]


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


REQUESTS = type_set([GiveStatus, Watch, Down, Pause, Resume, Save, Set, Scale, Inspect, Kill])
ANSWERS = type_set([Status, Accepted, Refused, Inspection])


def control_path(socket_folder: Path) -> Path:
    return socket_folder / "control"


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

    def inspect(self, actor: str, *, stack: bool = True) -> tuple[str, tuple[str, ...]]:
        """(stack, story) of an actor. Raises UsageError where there is no such actor."""
        answer = self._ask(Inspect(actor, stack))
        assert isinstance(answer, Inspection)
        return answer.stack, answer.story

    def kill(self, actor: str, *, by_hand: bool) -> None:
        self._ask(Kill(actor, by_hand))

    def pause(self) -> None:
        """Returns at once; the status says when it is paused."""
        self._ask(Pause())

    def resume(self) -> None:
        self._ask(Resume())

    def save(self) -> None:
        """Returns at once; the diary says when it is written."""
        self._ask(Save())

    def set(self, sets: Sequence[str]) -> None:
        self._ask(Set(tuple(sets)))

    def down(self, reason: str, *, now: bool = False) -> None:
        self._ask(Down(reason, now))

    def scale(self, sets: Sequence[str]) -> None:
        self._ask(Scale(tuple(sets)))

    def close(self) -> None:
        self.line.close()


def open_run(directory: RunDirectory) -> ControlClient:
    """Connects to the supervisor of a run. Raises UsageError, and OtherProtocol of another hive's."""
    facts = read_run_facts(directory)
    if facts.protocol != PROTOCOL:
        raise OtherProtocol(
            f"this hive ({__version__}) speaks protocol {PROTOCOL}, {directory.name} speaks {facts.protocol}",
            hint=f"use the hive that started it ({facts.hive}); `kill -TERM {facts.pid}` drains, saves and ends it",
        )
    return open_control(Path(facts.socket_folder))


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
