"""One stepper under supervision: its limits, its budget of restarts, and what has failed.

starting ──constructed──> idle ──reset──> resetting ──> running          before the run; a barrier resets it again
   ^                                                       │
   │ at once, or later after failures without a step       │ it exits, raises, or exceeds a limit
   └── delayed <── ended, with children <── closing <──────┘             too often: it is left out, or ends the run

One that raises closes its environments, for CLOSE_S at most, before its process is ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hive.envs.context import EnvContext
from hive.envs.processes.ending import resident_bytes
from hive.envs.processes.stepper import Activity, Doing, Stepper
from hive.errors import EnvironmentFailed
from hive.runtime.process.user_code.companion import state_of

State = Literal["starting", "idle", "resetting", "running", "closing", "delayed", "left out"]

CLOSE_S = 5.0  # time to close its environments for a process that has raised an error
SAME = 3  # times that a first reset may raise the same error, ...
SAME_S = 5.0  # ... and seconds that these must take: a server beside it may need some until it answers
DELAY_S = 0.5  # before the second start in a row that came to no step; doubled for each further one
MAX_DELAY_S = 30.0
STOPPED_S = 0.02  # between two looks whether a process was stopped: its neighbours' rows may take far less
KEYS: dict[Activity, str] = {"start": "env.start_limit_s", "reset": "env.reset_limit_s", "step": "env.step_limit_s"}
WORDS: dict[Activity, str] = {"start": "starting", "reset": "being reset", "step": "stepping"}
GIB = 1 << 30


@dataclass(frozen=True)
class Limits:
    """What an environment may take, in seconds and bytes (0: no limit), and what follows when it fails.

    restarts: within `window_s` seconds; the next failure is one for good, which ends the run, unless `leaves_out`.
    passes_on: an error of a process is raised as it is, and nothing is started again.
    """

    start_s: float
    reset_s: float
    step_s: float
    memory_bytes: int = 0
    restarts: int = 10
    window_s: float = 600.0
    leaves_out: bool = False
    passes_on: bool = False

    def of(self, activity: Activity) -> float:
        """Return the limit of an activity, in seconds."""
        return {"start": self.start_s, "reset": self.reset_s, "step": self.step_s}[activity]


@dataclass(frozen=True)
class Failure:
    """One failure of a process or program.

    indices: of its environments in the run. seconds: since the activity began. number: of failures within the window.
    """

    indices: Sequence[int]
    activity: Activity
    seconds: float
    cause: str
    output: str
    number: int
    limits: Limits
    for_good: bool

    @property
    def name(self) -> str:
        """The environments, as "env 3" or "envs 4 to 7"."""
        first, last = self.indices[0], self.indices[-1]
        return f"env {first}" if first == last else f"envs {first} to {last}"

    @property
    def what(self) -> str:
        """Which environments failed, in which activity, and why."""
        return f"{self.name} failed while {WORDS[self.activity]} ({self.seconds:.1f} s): {self.cause}"

    @property
    def text(self) -> str:
        """The failure, and whether a restart follows."""
        count = f"{self.number} of env.restarts = {self.limits.restarts} within {self.limits.window_s:g} s"
        follows = f"it is started again ({count})"
        if self.for_good:
            follows = "it is left out from now on" if self.limits.leaves_out else "it is not started again"
        return f"{self.what}; {follows}"


class Supervised:
    """A stepper of environments `contexts` of a run, whose columns of a row are `columns`.

    now_ns: CLOCK_MONOTONIC, or a virtual clock. reseed: the seed of an environment's first reset after a restart.
    on_failure: is told of each failure. seeds: of the reset that follows its construction; None: it stays idle.
    has_seam: whether its columns have rows that are not valid since a failure; the vector ends the seam. is_behind:
    whether its environments may lack attributes that the block has.
    """

    def __init__(
        self,
        stepper: Stepper,
        columns: slice,
        rows: int,
        limits: Limits,
        now_ns: Callable[[], int],
        reseed: Callable[[int, int], int],
        on_failure: Callable[[Failure], None],
    ) -> None:
        self.stepper = stepper
        self.columns = columns
        self.limits = limits
        self.state: State = "idle"
        self.seeds: Sequence[int] | None = None
        self.contexts: Sequence[EnvContext] = ()
        self.failures = 0
        self.steps = 0
        self.last_failure = ""
        self.has_seam = False
        self.is_behind = False
        self._is_open = False
        self._rows = rows
        self._now_ns, self._reseed, self._on_failure = now_ns, reseed, on_failure
        self._failed_ns: deque[int] = deque()
        self._cause, self._same = "", 0  # of the last failure, and how often it came in a row without a step
        self._same_ns = 0  # when it came first
        self._in_vain = 0  # starts in a row that came to no step
        self._looked_ns = 0
        self._steps_before = 0
        self._retry_ns = 0

    def start(self, contexts: Sequence[EnvContext]) -> None:
        """Start the process with environments that are to be reset later."""
        self.seeds, self.contexts = None, contexts
        self._start()

    def renew(self, contexts: Sequence[EnvContext]) -> None:
        """Construct the environments of a running process again."""
        restarts = self.failures
        self.seeds = None
        self.contexts = [replace(one, incarnation=one.incarnation + restarts) for one in contexts]
        self._order("starting", lambda: self.stepper.renew(self.contexts))

    def reset(self, seeds: Sequence[int]) -> None:
        """Begin an episode in each environment of an idle or running process, or once another one is constructed."""
        if self.state in ("idle", "running"):
            self.seeds = seeds
            self._order("resetting", lambda: self.stepper.reset(seeds))

    def step(self) -> None:
        """Step each environment of a running process once, with the actions of the block."""
        self._order("running", self.stepper.step)

    def has_stepped(self, limit_s: float = 0.0) -> bool:
        """Wait for the end of the step; return whether it has ended well, which counts."""
        if self.has_seam:  # it has failed meanwhile, and what is open is its start
            return False
        ended = self.done(limit_s)
        self.steps += ended
        return ended

    def give(self, order: Callable[[], None]) -> None:
        """Give the stepper of an idle or running process another order, which changes no state."""
        self._order(self.state, order)

    def tend(self, limit_s: float = 0.0) -> None:
        """Follow one that does not run on its way back; wait at most `limit_s` for it."""
        if self.state == "delayed":
            if self._now_ns() >= self._retry_ns:
                self._start()
        elif self.state == "closing":
            if self.stepper.left(limit_s) or self._now_ns() >= self._retry_ns:
                self.stepper.end(0.0)
                self._start_again(self._now_ns())
        elif self.state == "starting":
            if self.done(limit_s):
                if self.is_behind:
                    self.is_behind = False
                    self._order("starting", self.stepper.change)
                    return
                self.state = "idle"
                if self.seeds is not None:
                    self.reset(self.seeds)
        elif self.state == "resetting" and self.done(limit_s):
            self.state = "running"

    def done(self, limit_s: float) -> bool:
        """Wait for the end of the open order; return whether none is open any more. It may have failed meanwhile."""
        if not self._is_open:
            return self.state in ("running", "idle")
        try:
            ended = self.stepper.done(limit_s)
        except EnvironmentFailed as error:
            self._failed(error)
            return False
        if ended:
            self._is_open = False
        else:
            self._check_time()
            self._check_stopped()
        return ended

    def look(self) -> None:
        """Fail it if its processes are larger than their limit; keep its output within a size."""
        self.stepper.bound()
        limit = self.limits.memory_bytes
        if not limit or self.state in ("closing", "delayed", "left out"):
            return
        size = sum(resident_bytes(pid) for pid in self.stepper.pids())
        if size > limit:
            self._fail(
                f"its processes take {size / GIB:.2f} GiB, over the limit (env.memory_limit, {limit / GIB:g} GiB)"
            )

    def _start(self) -> None:
        self._steps_before = self.steps
        self._order("starting", lambda: self.stepper.start(self.contexts))

    def _order(self, state: State, give: Callable[[], None]) -> None:
        self.state, self._is_open = state, True
        try:
            give()
        except EnvironmentFailed as error:
            self._failed(error)

    def _check_time(self) -> None:
        doing = self.stepper.doing()
        seconds, limit = self._seconds(doing), self.limits.of(doing.activity)
        if seconds > limit:
            self._fail(f"it took longer than {limit:g} s ({KEYS[doing.activity]})")

    def _check_stopped(self) -> None:
        """Fail one that was stopped (SIGSTOP), because it would not continue before its limit."""
        now_ns = self._now_ns()
        if not self._is_open or now_ns - self._looked_ns < STOPPED_S * 1e9:
            return
        self._looked_ns = now_ns
        if any(state_of(pid) == "T" for pid in self.stepper.pids()):
            self._fail("it was stopped (SIGSTOP) and so was killed")

    def _seconds(self, doing: Doing) -> float:
        return max(self._now_ns() - doing.since_ns, 0) / 1e9

    def _failed(self, error: EnvironmentFailed) -> None:
        if self.limits.passes_on:
            raise error
        self._fail(str(error), error.hint, permanent=error.permanent)

    def _fail(self, cause: str, hint: str = "", *, permanent: bool = False) -> None:
        """End it with all that it has started, and start it again, now or later, or never."""
        if self.limits.passes_on:
            raise EnvironmentFailed(cause, hint=hint, permanent=permanent)
        doing, now_ns = self.stepper.doing(), self._now_ns()
        self._is_open, self.has_seam = False, True
        stepped = self.steps > self._steps_before
        self._in_vain = 0 if stepped else self._in_vain + 1
        self.failures += 1
        self._failed_ns.append(now_ns)
        while self._failed_ns and now_ns - self._failed_ns[0] > self.limits.window_s * 1e9:
            self._failed_ns.popleft()
        if stepped or self._cause != cause:
            self._same, self._same_ns = 0, now_ns
        self._same += 1
        self._cause = cause
        often = SAME if now_ns - self._same_ns >= SAME_S * 1e9 else self._same + 1
        most = 2 if permanent else often if doing.activity == "reset" and not self.steps else self._same + 1
        for_good = self._same >= most or len(self._failed_ns) > self.limits.restarts
        if for_good:
            self.stepper.left(CLOSE_S)
            self.stepper.end(0.0)
        is_one = doing.activity == "reset" and doing.environment is not None
        indices = [self.contexts[doing.environment or 0].index] if is_one else [one.index for one in self.contexts]
        failure = Failure(
            indices,
            doing.activity,
            self._seconds(doing),
            f"{cause} ({hint})" if hint else cause,
            self.stepper.tail(),
            len(self._failed_ns),
            self.limits,
            for_good,
        )
        self.last_failure = failure.what
        self._on_failure(failure)
        if for_good:
            self.state = "left out"
            if not self.limits.leaves_out:
                raise EnvironmentFailed(
                    f"{failure.text}\n{failure.output}".rstrip(),
                    hint='env.on_failure = "leave out" goes on without it; env.restarts allows more restarts',
                    permanent=True,
                )
            return
        self.contexts = [
            replace(one, incarnation=one.incarnation + 1, seed=self._reseed(one.index, one.incarnation + 1))
            for one in self.contexts
        ]
        self.seeds = [one.seed for one in self.contexts for _ in range(self._rows)]
        if self.stepper.left(0.0):
            self.stepper.end(0.0)
            self._start_again(now_ns)
        else:
            self.state, self._retry_ns = "closing", now_ns + int(CLOSE_S * 1e9)

    def _start_again(self, now_ns: int) -> None:
        """Start a process that has ended, now or later."""
        self.state, self._retry_ns = "delayed", now_ns
        if self._in_vain > 1:
            self._retry_ns += int(min(DELAY_S * 2 ** (self._in_vain - 2), MAX_DELAY_S) * 1e9)
        else:
            self._start()
