"""Strikes: who is hit, with which signal, and when. One seeded generator decides, so a seed is a rhythm.

What a seed cannot repeat is the run that is hit: its processes go their own way. Of each strike exactly three numbers
are drawn (pause, signal, victim), whatever the run does, so the rhythm stays the same.

Whoever is alive may be hit, also one that is just coming back. The first strikes go through all roles once, in random
order, so that a short run meets each; after that every process is equally likely.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["SIGNALS", "Rhythm", "Strike", "Victim", "role_of", "victims_of"]

SIGNALS = (signal.SIGKILL, signal.SIGSTOP)


def role_of(name: str) -> str:
    """`gradient-worker-1` -> `gradient-worker`; `fork-server` is its own role."""
    head, _, tail = name.rpartition("-")
    return head if tail.isdecimal() else name


@dataclass(frozen=True)
class Victim:
    """A process that may be hit, by the name of an actor that lives in it."""

    name: str
    pid: int
    incarnation: int  # of the actor; -1 of a helper, which has none

    @property
    def role(self) -> str:
        return role_of(self.name)


@dataclass
class Strike:
    """One signal that was sent. Times in seconds since the chaos began."""

    victim: Victim
    signal: str  # "SIGKILL" or "SIGSTOP"
    at_s: float
    wall: float  # seconds since 1970, to be compared with events
    alone: bool = True  # whether everybody else was there until it was back; a dead fork server forks nobody
    back_ms: float | None = None  # until its next incarnation was running
    over: bool = False  # the run came to its end first

    @property
    def pending(self) -> bool:
        """Whether it is still being waited for."""
        return self.back_ms is None and not self.over


class Rhythm:
    """Draws strikes. `pause_s`: least and most seconds between two."""

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
        self.unseen: list[str] | None = None  # roles whose first time is still to come

    def pause(self) -> float:
        """Seconds until the next strike."""
        return self.random.uniform(*self.pause_s)

    def choose(self, there: Sequence[Victim]) -> tuple[Victim, signal.Signals] | None:
        """One of those that are there, and what to send. None when none of them may be hit."""
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
    """All processes but the supervisor's, as the supervisor's status tells of them."""
    helpers, actors = status["helpers"], status["actors"]
    assert isinstance(helpers, Sequence)
    assert isinstance(actors, Sequence)
    found = [Victim(row["name"], row["pid"], -1) for row in helpers]
    return found + [Victim(row["name"], row["pid"], row["incarnation"]) for row in actors]
