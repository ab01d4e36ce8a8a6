"""The report of `bench goal`: medians, spreads and ratios of the times, and the checks.

A ratio is that of two medians: the runs of one seed have nothing in common but its number. Checked are

    hive-a2c <= 1/6 of sb3-a2c-zoo
    the faster of hive-ppo and hive-ppo-zoo <= 1/4 of sb3-ppo-zoo
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import Spread, spread_of
from benchmarks.goal import TARGET, Finish, Racer
from benchmarks.report import Check
from benchmarks.table import NOTHING, aligned, number

__all__ = ["checks_of", "document_of", "text_of"]

GOALS = ((("hive-a2c",), "sb3-a2c-zoo", 6), (("hive-ppo", "hive-ppo-zoo"), "sb3-ppo-zoo", 4))
"""(racers of hive, of which the fastest counts; the peer; how many times as fast hive must be)."""

Results = Mapping[str, Sequence[Finish]]  # name of a racer -> its finishes


def times_of(results: Results, name: str, limit: float) -> Spread | None:
    """Return the spread of a racer's times in seconds; None if it did not run."""
    finishes = results.get(name, ())
    return spread_of([finish.seconds(limit) for finish in finishes]) if finishes else None


def checks_of(results: Results, limit: float) -> list[Check]:
    found = []
    for names, peer, times in GOALS:
        ours = {name: spread for name in names if (spread := times_of(results, name, limit))}
        theirs = times_of(results, peer, limit)
        if ours and theirs:
            best = min(ours, key=lambda name: ours[name].median)
            ratio = theirs.median / ours[best].median
            found.append(Check(f"{best} <= 1/{times} of {peer}", f"1/{ratio:.2f}", ratio >= times))
    return found


def document_of(results: Results, limit: float, machine: Mapping[str, object]) -> dict[str, Any]:
    """Return all results as one JSON document with stable keys."""
    return {
        "bench": "goal",
        "machine": dict(machine),
        "target": TARGET,
        "limit_s": limit,
        "racers": [
            {
                "name": name,
                "seconds": dataclasses.asdict(spread_of([finish.seconds(limit) for finish in finishes])),
                "finishes": [dataclasses.asdict(finish) for finish in finishes],
            }
            for name, finishes in results.items()
        ],
        "checks": [dataclasses.asdict(check) for check in checks_of(results, limit)],
    }


def text_of(racers: Sequence[Racer], results: Results, limit: float) -> str:
    """Return the table and the checks as text."""
    head = ("", "seconds", "least..most", "reached", "exit", "steps")
    lines = [
        f"Seconds from the command to a mean return of {TARGET:g} on CartPole-v1; not reached: {limit:g} s.",
        *aligned(head, [_row(racer, results[racer.name], limit) for racer in racers]),
    ]
    checks = checks_of(results, limit)
    if checks:
        words = {True: "pass", False: "FAIL", None: NOTHING}
        rows = [(check.promise, check.measured, words[check.passed]) for check in checks]
        lines += ["", *aligned(("checks", "measured", ""), rows)]
    return "\n".join(lines)


def _row(racer: Racer, finishes: Sequence[Finish], limit: float) -> list[str]:
    spread = spread_of([finish.seconds(limit) for finish in finishes])
    reached = sum(finish.reached_s is not None for finish in finishes)
    return [
        f"{racer.name}: {racer.title}",
        number(spread.median, 1),
        f"{spread.least:.1f}..{spread.most:.1f}",
        f"{reached} of {len(finishes)}",
        number(statistics.median(finish.exit_s for finish in finishes), 1),
        number(statistics.median(finish.steps for finish in finishes)),
    ]
