"""State that all parts of the terminal UI share: run, latest snapshot, log, and the requests that it would accept now.

A pane posts a `Request`; the application asks for a confirmation where one is needed, and sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from textual.message import Message

from hive.monitor.log_view import MergedLog
from hive.monitor.replay import with_last_rows
from hive.monitor.requests import ACCEPTED
from hive.monitor.rows import ActorRow
from hive.monitor.series import Series
from hive.monitor.snapshot import Snapshot
from hive.records import RunDirectory

LIVE = ("running", "draining", "paused")  # states in which a supervisor answers about its actors


class Request(Message):
    """A request to the supervisor. kind: of hive.monitor.requests. actor: the one concerned. sets: KEY=VALUE."""

    def __init__(self, kind: str, actor: str = "", sets: Sequence[str] = ()) -> None:
        super().__init__()
        self.kind = kind
        self.actor = actor
        self.sets = tuple(sets)


@dataclass
class ViewState:
    """The state of one terminal UI. lock: held while curves are drawn: the polling thread adds points to `series`."""

    directory: RunDirectory
    series: Series
    others: Callable[[], Sequence[RunDirectory]]  # runs whose curves can be compared with this one's
    readonly: bool
    lock: AbstractContextManager[object]
    snapshot: Snapshot | None = None
    problem: str = ""  # why there is no snapshot
    live: Snapshot | None = field(default=None)  # the last snapshot of the live run

    def __post_init__(self) -> None:
        self.log = MergedLog(self.directory.logs)

    def show(self, snapshot: Snapshot) -> None:
        """Replace the snapshot. The rows of a run that ends while the view is open keep their last values."""
        if snapshot.actors and snapshot.pid:
            self.live = snapshot
        elif self.live is not None and snapshot.state not in (*LIVE, "starting"):
            snapshot = with_last_rows(snapshot, self.live)
        self.snapshot, self.problem = snapshot, ""

    def may(self, kind: str) -> bool:
        """Return whether the supervisor would accept this request now."""
        seen = self.snapshot
        return bool(not self.readonly and seen and not seen.supervisor and seen.state in ACCEPTED[kind])

    def answers(self) -> bool:
        """Return whether the supervisor can supply the stack of an actor."""
        return self.snapshot is not None and not self.snapshot.supervisor and self.snapshot.state in LIVE

    def row(self, name: str) -> ActorRow | None:
        """Return the row of an actor or another process of the run."""
        rows = (*self.snapshot.helpers, *self.snapshot.actors) if self.snapshot else ()
        return next((row for row in rows if row.name == name), None)

    def is_actor(self, name: str) -> bool:
        return self.snapshot is not None and any(row.name == name for row in self.snapshot.actors)


def question_of(request: Request, row: ActorRow | None) -> str:
    """Return the question that confirms a request, with its consequence. row: of the actor that it concerns."""
    if request.kind in ("restart", "kill"):
        counted = "" if request.kind == "restart" else ", and this counts as a failure"
        after = "it is restarted" if row is None or row.restartable else "the run ends, because it is not restarted"
        return f"{request.kind} {request.actor}? Its unfinished work is lost{counted}; {after}."
    return {
        "pause": "pause the run? All its state stays in memory.",
        "resume": "resume the run?",
        "save": "save a checkpoint now?",
        "down": "end the run? It finishes the work in progress and saves its state.",
        "set": f"set {' '.join(request.sets)}? It holds from the next update on.",
        "scale": f"scale to {' '.join(request.sets)}? The run saves its state and restarts its processes.",
    }[request.kind]
