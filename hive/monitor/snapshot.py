"""A snapshot: one typed document that every view draws.

It is made from what the supervisor says of itself (`hive.runtime.control`), which reads status pages: asking costs the
run nothing. Rates come from successive snapshots, so a view keeps a `Rates`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ActorRow", "Rates", "Snapshot", "snapshot_of"]

RATE_S = 10.0  # the window of a rate: long enough to be steady, short enough to show a change


@dataclass(frozen=True)
class ActorRow:
    """One line of `ps`. Shares are of the actor's whole life; `since_s` is how long it does what it does."""

    name: str
    pid: int
    state: str
    restarts: int
    activity: str
    since_s: float
    busy: float
    wait_in: float
    wait_out: float
    version: int
    lag: int


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment. `mean_return` is None before the first episode has ended."""

    run: str
    state: str
    reason: str
    env_steps: int
    goal_steps: int
    updates: int
    episodes: int
    mean_return: float | None
    restarts: int
    train_s: float
    actors: tuple[ActorRow, ...]
    channels: Mapping[str, Mapping[str, Any]]

    @property
    def lag(self) -> int:
        """The oldest version that a collector works with, in versions behind the latest."""
        return max((row.lag for row in self.actors if row.name.startswith("collector")), default=0)

    @property
    def dropped(self) -> int:
        return sum(sum(account["dropped"].values()) for account in self.channels.values())


def snapshot_of(status: Mapping[str, Any]) -> Snapshot:
    """From the supervisor's answer."""
    rows, results = [], {}
    for actor in status["actors"]:
        rows.append(ActorRow(**{name: actor[name] for name in ActorRow.__dataclass_fields__}))
        if actor["name"] == status.get("results_actor"):
            results = actor["counters"]
    mean_return = results.get("mean_return_100", math.nan)
    return Snapshot(
        run=status["run"],
        state=status["state"],
        reason=status.get("reason", ""),
        env_steps=int(results.get("env_steps", 0)),
        goal_steps=status["steps"],
        updates=int(results.get("updates", 0)),
        episodes=int(results.get("episodes", 0)),
        mean_return=mean_return if results.get("episodes") and math.isfinite(mean_return) else None,
        restarts=sum({row.pid: row.restarts for row in rows}.values()),
        train_s=results.get("train_s", 0.0),
        actors=tuple(rows),
        channels=status["channels"],
    )


class Rates:
    """Environment steps per second over the last ten seconds of training time."""

    def __init__(self) -> None:
        self.seen: deque[tuple[float, int]] = deque()

    def update(self, snapshot: Snapshot) -> float:
        self.seen.append((snapshot.train_s, snapshot.env_steps))
        while len(self.seen) > 2 and self.seen[0][0] < snapshot.train_s - RATE_S:
            self.seen.popleft()
        (start, first), (end, last) = self.seen[0], self.seen[-1]
        if end > start:
            return (last - first) / (end - start)
        return 0.0
