"""Membership: what the supervisor remembers of each process, and whether one that died comes back.

The process is the unit of restart: actors that share one return together. A process may die `restarts` times within
`window_s`; one more ends the run. Incarnations that end themselves within a second of their start are a crash loop and
wait ever longer before the next; one that somebody else killed comes back at once.
"""

from __future__ import annotations

import signal
from collections import deque
from dataclasses import dataclass, field

from hive.runtime.processes import Exit
from hive.runtime.protocol import Ack, Failed
from hive.runtime.states import ActorState
from hive.runtime.status import BUSY, RUNTIME, ActorStatus

__all__ = ["ProcessRecord", "Settings"]

BACKOFF_S = (0.0, 0.1, 0.5, 2.0, 5.0)  # before a restart, by how many short lives ended in a row
SHORT_LIFE_S = 1.0  # an incarnation that ends itself sooner has done nothing


@dataclass(frozen=True)
class Settings:
    """[supervision] of the config."""

    restarts: int = 5
    window_s: float = 60.0
    phase_limit_s: float = 60.0
    drain_s: float = 30.0


@dataclass
class ProcessRecord:
    """One process of the plan, over all its incarnations."""

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
    deaths: deque[int] = field(default_factory=deque)  # times in ns, within the window
    short_lives: int = 0  # in a row
    why: str = ""  # set before the supervisor itself kills it
    by_hand: bool = False  # somebody asked for a new incarnation: no failure of this one
    given_up: bool = False  # killed because the run is to end now: that has been told
    taken: dict[int, tuple[Ack, ...]] = field(default_factory=dict)  # what its actors that are done have said last
    failures: list[Failed] = field(default_factory=list)  # of this incarnation
    cut_short: bool = False  # it died while the run was ending, before it had finished
    stack: str = ""  # what it was executing when it was found stuck

    def begin(self, address: str, now_ns: int) -> None:
        """A new incarnation is about to start."""
        self.incarnation += 1
        self.why, self.stack, self.failures, self.taken = "", "", [], {}
        self.listening = self.by_hand = self.given_up = self.cut_short = False
        self.address = address
        self.started_ns = now_ns
        self.pid = self.forked_ns = 0
        self.alive = True

    def forked(self, pid: int, now_ns: int) -> None:
        """It is there, which can take as long as a new fork server does."""
        self.pid, self.forked_ns = pid, now_ns

    def died(self, how: Exit, now_ns: int, window_s: float) -> None:
        """Counts a death that nobody had asked for."""
        if not self.by_hand:
            self.deaths.append(now_ns)
        while self.deaths and self.deaths[0] < now_ns - window_s * 1e9:
            self.deaths.popleft()
        short = now_ns - self.started_ns < SHORT_LIFE_S * 1e9 and how.signal != signal.SIGKILL
        self.short_lives = self.short_lives + 1 if short else 0

    def opened(self, status: ActorStatus) -> bool:
        """Whether that page is of the incarnation that lives, and says what it does."""
        return status.incarnation == self.incarnation and status.pid == self.pid and status.since_ns > 0

    def stuck_s(self, status: ActorStatus, state: ActorState, now_ns: int) -> float:
        """Seconds since one of its actors last made progress. One that waits for others is not stuck.

        Nor is one whose event loop runs: it awaits something of its own, a timer or a subprocess.
        """
        if not self.pid:
            return 0.0  # whoever forks it has a limit of its own
        if not self.opened(status):
            return (now_ns - self.forked_ns) / 1e9
        judged = status.kind == BUSY or (status.kind == RUNTIME and state is not ActorState.ready)
        return status.still_s if judged and state is not ActorState.finished else 0.0

    @property
    def backoff_s(self) -> float:
        """How long the next incarnation waits."""
        return BACKOFF_S[min(self.short_lives, len(BACKOFF_S) - 1)]

    def too_often(self, settings: Settings) -> str:
        """Why it does not come back any more; "" when it does."""
        if len(self.deaths) <= settings.restarts:
            return ""
        times = "once" if len(self.deaths) == 1 else f"{len(self.deaths)} times"
        return f"{times} within {settings.window_s:g} s; [supervision] restarts = {settings.restarts}"
