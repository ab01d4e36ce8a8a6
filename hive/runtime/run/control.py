"""The control socket, over which views and commands talk to a supervisor: requests, replies, and the client.

    view -> supervisor      GiveStatus · Watch · Down · PauseRun · ResumeRun · Save · Set · Scale · Inspect · KillActor
    supervisor -> view      StatusReply · RequestAccepted · RequestRefused · InspectReply

It is a unix socket in the run's private socket folder. Requests are answered one by one, in order. After `Watch` the
supervisor also sends a StatusReply once a second, until the view closes the connection, which does not affect the run.
The server is hive.runtime.run.control_server. This client blocks, and imports neither NumPy nor asyncio, so that
commands such as `hive ps` start fast.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from hive import __version__
from hive.errors import UsageError, WireError
from hive.records import RunDirectory, read_run_facts
from hive.records.owner import owner_of
from hive.runtime.run.status_document import misfit_of
from hive.runtime.wire.messages import Message, Tree, type_set
from hive.runtime.wire.stream import receive, send

PROTOCOL = 2  # version of these messages and of a status; increased with every change that an older view misreads
ANSWER_S = 5.0  # deadline of a reply; a supervisor that takes longer is stopped or gone

M = TypeVar("M", bound=Message)


class OtherProtocol(UsageError):
    """The supervisor belongs to a hive with another version of these messages."""


class InvalidReply(OtherProtocol):
    """Something else than the requested reply was received; the connection cannot be used any more."""

    def __init__(self, cause: str) -> None:
        super().__init__(
            f"the supervisor sent an invalid reply: {cause}",
            hint="another program or version of hive listens at its control socket",
        )


class GiveStatus(Message):
    """Requests the status: everything that a view shows."""


class Watch(Message):
    """Requests the status at once, and then once a second."""


class Inspect(Message):
    """Requests an actor's transition history and, with `stack`, its stack. The stack costs the process a signal."""

    actor: str
    stack: bool


class KillActor(Message):
    """Kills the process of an actor, which is then restarted. With `by_hand` it does not count against its limits."""

    actor: str
    by_hand: bool


class Down(Message):
    """Ends the run: drains and saves, or with `now` kills its processes. `reason` names who stopped it: "hive down"."""

    reason: str
    now: bool


class PauseRun(Message):
    """Stops the sources. The run is paused once the other actors have processed all messages."""


class ResumeRun(Message):
    """Continues a paused run."""


class Save(Message):
    """Writes a checkpoint of the run's current state."""


class Set(Message):
    """Changes keys of [algorithm] at once, for example `algorithm.learning_rate=1e-4`."""

    sets: tuple[str, ...]


class Scale(Message):
    """Continues with changed keys of the config, written as for `--set`: `collection.workers=4`."""

    sets: tuple[str, ...]


class StatusReply(Message):
    """Everything that a view shows."""

    status: Tree


class RequestAccepted(Message):
    """The request will be carried out."""


class RequestRefused(Message):
    """The request is refused, and nothing has changed. `hint` says what to do instead."""

    text: str
    hint: str


class InspectReply(Message):
    """The reply to Inspect.

    `stack` shows all threads of the process, innermost call first; "" if the process did not provide it.
    `transitions` is the actor's transition history, oldest first.
    """

    stack: str
    transitions: tuple[str, ...]


REQUESTS = type_set([GiveStatus, Watch, Down, PauseRun, ResumeRun, Save, Set, Scale, Inspect, KillActor])
ANSWERS = type_set([StatusReply, RequestAccepted, RequestRefused, InspectReply])


def control_path(socket_folder: Path) -> Path:
    """Return the path of the control socket."""
    return socket_folder / "control"


def _indented(text: str) -> str:
    """Return a text from a supervisor with its later lines indented, so that they cannot pass for lines of hive."""
    return text.replace("\n", "\n  ")


def _no_answer() -> UsageError:
    return UsageError("the supervisor does not answer", hint="it may be stopped: check its state with `ps`")


class ControlClient:
    """A blocking client of the control socket.

    Every method raises UsageError when the supervisor refuses, is gone, sends something else than the reply, or has not
    sent all of it within ANSWER_S.
    """

    def __init__(self, line: socket.socket) -> None:
        self.line = line

    def _request(self, request: Message, expected: type[M]) -> M:
        """Send a request and return its reply."""
        self._send(request)
        return self._receive(expected)

    def _send(self, request: Message) -> None:
        try:
            send(self.line, request)
        except TimeoutError:
            raise _no_answer() from None
        except OSError as error:
            raise UsageError(f"the supervisor is gone ({error})") from None

    def _receive(self, expected: type[M]) -> M:
        """Return the next reply. All of it must arrive within the timeout of the line."""
        try:
            answer = receive(self.line, ANSWERS)
        except TimeoutError:
            raise _no_answer() from None
        except OSError as error:
            raise UsageError(f"the supervisor is gone ({error})") from None
        except WireError as error:
            raise InvalidReply(str(error)) from None
        if answer is None:
            raise UsageError("the supervisor is gone")
        if isinstance(answer, RequestRefused):
            raise UsageError(_indented(answer.text), hint=_indented(answer.hint))
        if not isinstance(answer, expected):
            raise InvalidReply(f"{type(answer).__name__} instead of {expected.__name__}")
        return answer

    def _status(self, answer: StatusReply) -> dict[str, Any]:
        if wrong := misfit_of(answer.status):
            raise InvalidReply(wrong)
        return answer.status  # type: ignore[no-any-return]

    def status(self) -> dict[str, Any]:
        return self._status(self._request(GiveStatus(), StatusReply))

    def watch(self) -> dict[str, Any]:
        """Return the current status. From now on only `next_status` may be called on this client."""
        self.request_watch()
        return self.next_status()

    def request_watch(self) -> None:
        """Request what `watch` returns, which is the first `next_status`, without waiting for it."""
        self._send(Watch())

    def next_status(self) -> dict[str, Any]:
        """Return the next status after `watch`, which the supervisor sends once a second."""
        return self._status(self._receive(StatusReply))

    def inspect(self, actor: str, *, stack: bool = True) -> tuple[str, tuple[str, ...]]:
        """Return (stack, transition history) of an actor. Raises UsageError for an unknown actor."""
        answer = self._request(Inspect(actor, stack), InspectReply)
        return answer.stack, answer.transitions

    def kill(self, actor: str, *, by_hand: bool) -> None:
        self._request(KillActor(actor, by_hand), RequestAccepted)

    def pause(self) -> None:
        """Request a pause and return at once. The status shows when the run is paused."""
        self._request(PauseRun(), RequestAccepted)

    def resume(self) -> None:
        self._request(ResumeRun(), RequestAccepted)

    def save(self) -> None:
        """Request a checkpoint and return at once. The event log shows when it is written."""
        self._request(Save(), RequestAccepted)

    def set(self, sets: Sequence[str]) -> None:
        self._request(Set(tuple(sets)), RequestAccepted)

    def down(self, reason: str, *, now: bool = False) -> None:
        self._request(Down(reason, now), RequestAccepted)

    def scale(self, sets: Sequence[str]) -> None:
        self._request(Scale(tuple(sets)), RequestAccepted)

    def close(self) -> None:
        self.line.close()


def open_run(directory: RunDirectory) -> ControlClient:
    """Connect to the supervisor of a run. Raises UsageError, and OtherProtocol if another hive started the run."""
    if not directory.run_file.exists():
        raise UsageError(f"no supervisor of {directory.name} listens: it is starting, or never began")
    facts = read_run_facts(directory)
    if facts.protocol != PROTOCOL:
        raise OtherProtocol(
            f"this hive ({__version__}) speaks protocol {PROTOCOL}, {directory.name} speaks {facts.protocol}",
            hint=f"use the hive that started it ({facts.hive}); `kill -TERM {facts.pid}` drains, saves and ends it",
        )
    folder = Path(facts.socket_folder)
    owner = None if control_path(folder).exists() else owner_of(directory)
    if owner is not None and not owner.is_reachable:
        raise UsageError(
            f"{directory.name} runs as {owner.text}, where this process reaches no socket of it",
            hint="give the command there",
        )
    return open_control(folder)


def open_control(socket_folder: Path) -> ControlClient:
    """Connect to the supervisor with this socket folder. Raises UsageError when no supervisor listens there."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(ANSWER_S)
    try:
        line.connect(str(control_path(socket_folder)))
    except OSError as error:
        line.close()
        hint = "if this folder was removed, the run makes it again within a second or two: try again"
        gone = isinstance(error, FileNotFoundError)
        raise UsageError(f"no supervisor listens in {socket_folder} ({error})", hint=hint if gone else "") from None
    return ControlClient(line)
