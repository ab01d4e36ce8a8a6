"""The rows of a group of actors as one: means of their shares, main phases, and actors that should run and do not."""

from __future__ import annotations

from collections.abc import Sequence

from hive.monitor.rows import ActorRow

__all__ = ["main_phases", "mean", "missing"]

PHASES = 3  # phases that are named
LEAST = 0.005  # smallest share of a phase that is named: it would round to 0 %
PRESENT = ("running", "draining", "finished", "paused")  # states of an actor without a fault


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def main_phases(rows: Sequence[ActorRow]) -> list[tuple[str, float]]:
    """Return (phase, share) of the phases that take most of the group's work."""
    shares: dict[str, float] = {}
    for row in rows:
        for phase, part in row.phases.items():
            if row.kinds.get(phase) in ("busy", "runtime"):
                shares[phase] = shares.get(phase, 0.0) + part / len(rows)
    return sorted((item for item in shares.items() if item[1] >= LEAST), key=lambda item: -item[1])[:PHASES]


def missing(rows: Sequence[ActorRow]) -> list[ActorRow]:
    """Return the actors that should run and do not."""
    return [row for row in rows if row.state not in PRESENT]
