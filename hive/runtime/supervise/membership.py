"""Record the state of each process of a run: its incarnation, its exits within the window, why it was killed.

The process is the unit of restart: all actors in it restart together. A process may exit unexpectedly `restarts` times
within `window_s` seconds; one more exit ends the run. Incarnations that exit by themselves within a second of their
start, with no output since the last exit, form a crash loop, so each restart waits longer. Others restart at once. An
exception that repeats the last one, at the same lines and with no output between, would only be raised again. The same
holds for native code that exits or crashes twice in the same phase.
"""

from __future__ import annotations

import signal
from collections import deque
from dataclasses import dataclass, field

from hive.runtime.memory.status import BUSY, RUNTIME, ActorStatus
from hive.runtime.process.processes import Exit
from hive.runtime.supervise.actions import Kill
from hive.runtime.supervise.states import ActorState
from hive.runtime.wire.protocol import Ack, Failed

__all__ = ["REPEATED", "FailedAt", "ProcessRecord", "Settings"]

BACKOFF_S = (0.0, 0.1, 0.5, 2.0, 5.0)  # delay before a restart, indexed by the number of futile incarnations in a row
REPEATED = "the same error twice in a row, with no progress between: another restart would not help"
SHORT_INCARNATION_S = 1.0  # an incarnation that exits sooner, without output, has done no useful work


@dataclass(frozen=True)
class Settings:
    """The keys of [supervision] in the config, with times in seconds, and the goal of [run]; None: no such goal."""

    restarts: int = 5
    window_s: float = 60.0
    phase_limit_s: float = 60.0
    drain_s: float = 30.0
    goal_steps: int | None = None
    goal_score: float | None = None


@dataclass(frozen=True)
class FailedAt:
    """Where an error of a process ended it."""

    actor: int
    error: str  # name of the exception's type; how the process ended where native code ended it
    lines: tuple[str, ...]  # file and line of every frame, without text that may hold counts; of native code, the phase


@dataclass
class ProcessRecord:
    """The state of one process of the plan, across all its incarnations. Times are ns of the monotonic clock."""

    name: str
    actors: list[int]
    incarnation: int = -1
    pid: int = 0
    address: str = ""
    alive: bool = False
    listening: bool = False
    started_ns: int = 0
    forked_ns: int = 0
    restarts: int = 0
    exits: deque[int] = field(default_factory=deque)  # times of unexpected exits within the window
    futile_incarnations: int = 0  # consecutive incarnations shorter than SHORT_INCARNATION_S and without output
    why: str = ""  # reason of a kill by the supervisor, set before the kill
    by_hand: bool = False  # a user requested this restart: it does not count as a failure
    given_up: bool = False  # killed to end the run, which was reported already: no crash report follows
    taken: dict[int, tuple[Ack, ...]] = field(default_factory=dict)  # last acknowledgements of its finished actors
    failures: list[Failed] = field(default_factory=list)  # errors that actors of this incarnation raised
    cut_short: bool = False  # it exited while the run was ending, before it had finished
    stack: str = ""  # stacks at the moment it was found stuck
    output: tuple[float, ...] | None = None  # that of its actors at the last exit (`accounting.output_of`)
    failed_at: FailedAt | None = None  # the error of the last unexpected exit, if it was one of the process itself
    repeated: bool = False  # it was the same as that of the exit before

    def begin(self, address: str, now_ns: int) -> None:
        """Reset the record for a new incarnation that is about to start."""
        self.incarnation += 1
        self.why, self.stack, self.failures, self.taken = "", "", [], {}
        self.listening = self.by_hand = self.given_up = self.cut_short = False
        self.address = address
        self.started_ns = now_ns
        self.pid = self.forked_ns = 0
        self.alive = True

    def forked(self, pid: int, now_ns: int) -> None:
        """Record the pid. The fork can come long after `begin`, if a new fork server had to start first."""
        self.pid, self.forked_ns = pid, now_ns

    def kill(self, why: str, *, given_up: bool = False) -> Kill:
        """Record why the supervisor kills this process, and return the action that does."""
        self.why, self.given_up = why, given_up
        return Kill(self.name)

    def record_exit(
        self,
        how: Exit,
        now_ns: int,
        window_s: float,
        failed_at: FailedAt | None = None,
        output: tuple[float, ...] | None = None,
    ) -> None:
        """Count an unexpected exit, unless a user or another actor requested the restart.

        failed_at: the error that ended it; None if it was killed. output: what its actors have produced until now;
        None: nothing since the last exit. The first exit has none to compare with, so it never counts as progress.
        """
        while self.exits and self.exits[0] < now_ns - window_s * 1e9:
            self.exits.popleft()
        before, self.output = self.output, self.output if output is None else output
        progress = before is not None and self.output != before
        self.repeated = bool(self.exits) and failed_at is not None and failed_at == self.failed_at and not progress
        self.failed_at = failed_at
        if not self.by_hand:
            self.exits.append(now_ns)
        short = now_ns - self.started_ns < SHORT_INCARNATION_S * 1e9 and how.signal != signal.SIGKILL
        self.futile_incarnations = self.futile_incarnations + 1 if short and not progress else 0

    def owns_page(self, status: ActorStatus) -> bool:
        """Return whether the current incarnation has opened this status page and entered a phase."""
        return status.incarnation == self.incarnation and status.pid == self.pid and status.since_ns > 0

    def stuck_s(self, status: ActorStatus, state: ActorState, now_ns: int) -> float:
        """Return the seconds since the actor of this page last made progress; 0 if it waits for others or is finished.

        An actor whose event loop runs is not stuck either: it awaits a timer, a subprocess or a call.
        """
        if not self.pid:
            return 0.0  # not forked yet: the request to the fork server has its own time limit
        if not self.owns_page(status):
            return (now_ns - self.forked_ns) / 1e9
        judged = status.kind == BUSY or (status.kind == RUNTIME and state is not ActorState.ready)
        return status.still_s if judged and state is not ActorState.finished else 0.0

    @property
    def backoff_s(self) -> float:
        """Seconds to wait before the next incarnation starts."""
        return BACKOFF_S[min(self.futile_incarnations, len(BACKOFF_S) - 1)]

    def restart_limit(self, settings: Settings) -> str:
        """Return the text that explains which limit forbids another restart; "" if it is allowed."""
        if len(self.exits) <= settings.restarts:
            return REPEATED if self.repeated else ""
        times = "once" if len(self.exits) == 1 else f"{len(self.exits)} times"
        return f"{times} within {settings.window_s:g} s; [supervision] restarts = {settings.restarts}"
