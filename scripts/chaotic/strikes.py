"""Choose the victim, signal and time of each strike with one seeded generator.

The run itself is not reproducible, because its processes run freely. Each strike draws exactly three numbers (pause,
signal, victim) whatever the run does, so the same seed always gives the same sequence of draws.

Every live process may be struck, even one that is just recovering. The first strikes go through all roles once, in
random order, so that a short run covers each; after that every process is equally likely.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SIGNALS = (signal.SIGKILL, signal.SIGSTOP)


def role_of(name: str) -> str:
    """Return the name without its number; the role of `fork-server` is `fork-server`."""
    head, _, tail = name.rpartition("-")
    return head if tail.isdecimal() else name


@dataclass(frozen=True)
class Victim:
    """A process that may be struck, named after an actor that it hosts."""

    name: str
    pid: int
    incarnation: int  # incarnation of the actor; -1 for a helper

    @property
    def role(self) -> str:
        return role_of(self.name)


@dataclass
class Strike:
    """One signal that was sent. Times in seconds since the chaos began."""

    victim: Victim
    signal: str  # "SIGKILL" or "SIGSTOP"
    at_s: float
    wall: float  # seconds since 1970, comparable with the times of events
    alone: bool = True  # whether no other victim was recovering meanwhile, such as the fork server, which it needs
    back_ms: float | None = None  # time until its next incarnation was running
    over: bool = False  # whether the run ended before that

    @property
    def pending(self) -> bool:
        """Whether its victim is still expected to recover."""
        return self.back_ms is None and not self.over


class Rhythm:
    """Draws strikes. `pause_s`: least and greatest number of seconds between two; `only`: roles, empty for all."""

    def __init__(
        self,
        seed: int,
        pause_s: tuple[float, float],
        signals: Sequence[signal.Signals] = SIGNALS,
        only: Sequence[str] = (),
    ) -> None:
        self.random = random.Random(seed)
        self.pause_s = pause_s
        self.signals = tuple(signals)
        self.only = frozenset(only)
        self.unseen: list[str] | None = None  # roles not struck yet; None before the first strike

    def pause(self) -> float:
        """Draw the seconds until the next strike."""
        return self.random.uniform(*self.pause_s)

    def choose(self, there: Sequence[Victim]) -> tuple[Victim, signal.Signals] | None:
        """Draw a victim among the live processes `there`, and a signal. None when none of them may be struck."""
        number, place = self.random.choice(self.signals), self.random.random()
        victims = sorted(self.eligible(there), key=lambda victim: victim.name)
        if self.unseen is None:
            self.unseen = sorted({victim.role for victim in victims})
            random.Random(place).shuffle(self.unseen)
        first = [victim for victim in victims if victim.role == self.unseen[-1]] if self.unseen else []
        if first:
            self.unseen.pop()
        victims = first or victims
        return (victims[int(place * len(victims))], number) if victims else None

    def eligible(self, there: Sequence[Victim]) -> list[Victim]:
        return [victim for victim in there if not self.only or victim.role in self.only]


def victims_of(status: Mapping[str, object]) -> list[Victim]:
    """Return all processes in the supervisor's status but the supervisor."""
    helpers, actors = status["helpers"], status["actors"]
    assert isinstance(helpers, Sequence)
    assert isinstance(actors, Sequence)
    found = [Victim(row["name"], row["pid"], -1) for row in helpers]
    return found + [Victim(row["name"], row["pid"], row["incarnation"]) for row in actors]
