"""Record the state of each process of a run: its incarnation, its exits within the window, why it was killed.

The process is the unit of restart: all actors in it restart together. Two counts limit its unexpected exits, and each
may reach `restarts`; one more exit ends the run:

    chain     exits in a row without progress between them, however long that takes
    window    exits with progress since the one before, within `window_s` seconds

Progress is that of the actor that failed: it has sent something (a rollout, a gradient, a turn), or it collects and has
come to a later step of its rollout than any incarnation before. Time in which a process hung until a limit killed it is
not part of the window: otherwise a window as long as the limit would never hold two such exits.

Incarnations that exit by themselves within a second of their start, without progress since the last exit, form a crash
loop, so each restart waits longer. Others restart at once. An exception that repeats the last one, at the same lines,
in the same step of the same rollout and without progress between, would only be raised again. The same holds for native
code that exits or crashes twice in the same phase, and for a start that hangs twice. With a custom number of `restarts`
such a process is restarted, too: the user has stated how often.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from hive.config import START_LIMIT_S
from hive.runtime.memory.status import BUSY, RUNTIME, START, ActorStatus
from hive.runtime.process.processes import Exit
from hive.runtime.supervise.actions import Kill
from hive.runtime.supervise.states import ActorState
from hive.runtime.wire.protocol import Ack, Failed

BACKOFF_S = (0.0, 0.1, 0.5, 2.0, 5.0)  # delay before a restart, indexed by the number of futile incarnations in a row
REPEATED = "the same error twice in a row, with no progress between: another restart would not help"
PHASE_LIMIT, START_LIMIT = "supervision.phase_limit_s", "env.start_limit_s"  # keys of the two limits
SHORT_INCARNATION_S = 1.0  # an incarnation that exits sooner, without output, has done no useful work


@dataclass(frozen=True)
class Settings:
    """The keys of [supervision] in the config and `env.start_limit_s`, with times in seconds, and the goal of [run].

    None: no such goal.
    """

    restarts: int = 5
    window_s: float = 60.0
    phase_limit_s: float = 60.0
    drain_s: float = 30.0
    start_limit_s: float = START_LIMIT_S
    strict: bool = False
    goal_steps: int | None = None
    goal_score: float | None = None


@dataclass(frozen=True)
class FailedAt:
    """Where an error of a process ended it."""

    actor: int
    error: str  # name of the exception's type; how the process ended where native code ended it
    lines: tuple[str, ...]  # file and line of every frame, without text that may hold counts; of native code, the phase
    position: tuple[int, int] | None = None  # rollout and phase changes in it (`ActorStatus.position`)


@dataclass(frozen=True)
class Work:
    """What the actors of a process have done until it exited: actor -> output (`accounting.output_of`), position."""

    outputs: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    positions: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # without those that have none


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
    exits: deque[int] = field(default_factory=deque)  # times of exits with progress, and of the first, in the window
    chain: int = 0  # unexpected exits without progress between them, up to the last one
    futile_incarnations: int = 0  # consecutive incarnations shorter than SHORT_INCARNATION_S and without output
    why: str = ""  # reason of a kill by the supervisor, set before the kill
    by_hand: bool = False  # a user requested this restart: it does not count as a failure
    given_up: bool = False  # killed to end the run, which was reported already: no crash report follows
    taken: dict[int, tuple[Ack, ...]] = field(default_factory=dict)  # last acknowledgements of its finished actors
    failures: list[Failed] = field(default_factory=list)  # errors that actors of this incarnation raised
    cut_short: bool = False  # it exited while the run was ending, before it had finished
    stack: str = ""  # stacks at the moment it was found stuck
    limit: str = ""  # key of the limit that killed it: PHASE_LIMIT, START_LIMIT
    done: Work | None = None  # what its actors had done at the last exit; positions are the furthest ever
    failed_at: FailedAt | None = None  # the error of the last unexpected exit, if it was one of the process itself
    repeated: bool = False  # it was the same as that of the exit before

    def begin(self, address: str, now_ns: int) -> None:
        """Reset the record for a new incarnation that is about to start."""
        self.incarnation += 1
        self.why, self.stack, self.limit, self.failures, self.taken = "", "", "", [], {}
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
        suspect: int,
        work: Work | None = None,
        failed_at: FailedAt | None = None,
        hung_s: float = 0.0,
    ) -> None:
        """Count an unexpected exit, unless a user or another actor requested the restart.

        suspect: the actor that failed. work: None for a start that failed, before any work. failed_at: the error that
        ended it; None if it was killed. hung_s: time without progress after which a limit killed it.
        """
        first, progress = self.chain == 0, self._progress(suspect, work)
        hung_ns = int(hung_s * 1e9)
        self.exits = deque(at + hung_ns for at in self.exits if at + hung_ns >= now_ns - window_s * 1e9)
        self.repeated = failed_at is not None and failed_at == self.failed_at and not progress
        self.failed_at = failed_at
        if not self.by_hand:
            self.chain = 1 if progress else self.chain + 1
            if progress or first:
                self.exits.append(now_ns)
        short = now_ns - self.started_ns < SHORT_INCARNATION_S * 1e9 and how.signal != signal.SIGKILL
        self.futile_incarnations = self.futile_incarnations + 1 if short and not progress else 0

    def _progress(self, suspect: int, work: Work | None) -> bool:
        """Return whether the suspect has made progress since the last exit, and keep what has been done until now.

        The first exit has none to compare with, so it never counts as progress.
        """
        before = self.done
        if work is None:
            self.done = before or Work()
            return False
        positions = dict(before.positions) if before else {}
        later = [actor for actor, at in work.positions.items() if at > positions.get(actor, (-1, 0))]
        self.done = Work(work.outputs, positions | {actor: work.positions[actor] for actor in later})
        if before is None:
            return False
        return suspect in later or before.outputs.get(suspect, ()) != work.outputs.get(suspect, ())

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

    def limit_of(self, status: ActorStatus, state: ActorState, settings: Settings) -> tuple[str, float]:
        """Return the key and the value, in seconds, of the limit that holds for what the actor of this page does."""
        starts = state is ActorState.starting or (self.owns_page(status) and status.phase == START)
        return (START_LIMIT, settings.start_limit_s) if starts else (PHASE_LIMIT, settings.phase_limit_s)

    @property
    def counted_exits(self) -> int:
        """The exits that count against `restarts`: those of the chain or of the window, whichever are more."""
        return max(self.chain, len(self.exits))

    def restart_limit(self, settings: Settings) -> str:
        """Return the text that explains which limit forbids another restart; "" if it is allowed."""
        times = f"{self.counted_exits} times" if self.counted_exits > 1 else "once"
        budget = f"[supervision] restarts = {settings.restarts}"
        if len(self.exits) > settings.restarts:
            return f"{times} within {settings.window_s:g} s; {budget}"
        if self.chain > settings.restarts:
            return f"{times} in a row without progress between; {budget}"
        return REPEATED if self.repeated and settings.restarts == Settings.restarts else ""

    def unfinished_rollout(self, suspect: int) -> str:
        """Describe the rollout that the last incarnations of an actor did not complete; "" if there is none."""
        if self.chain < 2 or self.done is None or suspect not in self.done.positions:
            return ""
        rollout, changes = self.done.positions[suspect]
        steps = (changes + 1) // 2
        return f"rollout {rollout:,} was not completed in {self.chain} attempts, which came to step {steps:,} at most"
