"""The report of `bench channel`: the document, the tables and the checks, as pure functions of the measurements.

Required rates:

    arrays   >= 0.8 x a bare ring buffer of slots in shared memory
    small    >= 100,000 messages a second, many at once
    call     a round trip takes <= 1.5 x that of a bare zmq.asyncio ping-pong
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from benchmarks.channel import Results
from benchmarks.figures import Spread, ratio_of, spread_of
from benchmarks.report import Check
from benchmarks.table import aligned, number, spread_text

__all__ = ["checks_of", "document_of", "text_of"]

LEAST_OF_RING, LEAST_SMALL, MOST_OF_PING_PONG = 0.8, 100_000, 1.5
UNITS = {
    "arrays": ("GB/s", "rate", 2),
    "rollouts": ("GB/s", "rate", 2),
    "small": ("messages/s", "rate", 0),
    "call": ("us, p50", "p50_us", 0),
}


def _values(results: Results, name: str) -> list[float]:
    return [one[UNITS[name.partition("/")[0]][1]] for one in results[name]]


def _times(results: Results, name: str, other: str) -> Spread:
    return ratio_of(_values(results, name), _values(results, other))


def checks_of(results: Results) -> list[Check]:
    """Return the checks of the ways that were measured."""
    found = []
    if {"arrays/hive", "arrays/bare ring"} <= results.keys():
        spread = _times(results, "arrays/hive", "arrays/bare ring")
        found.append(Check("arrays: >= 0.8 x a bare ring", spread_text(spread), spread.median >= LEAST_OF_RING))
    if "small/hive" in results:
        rate = spread_of(_values(results, "small/hive"))
        found.append(Check("small: >= 100,000 a second", number(rate.median), rate.median >= LEAST_SMALL))
    if {"call/hive", "call/zmq.asyncio"} <= results.keys():
        spread = _times(results, "call/hive", "call/zmq.asyncio")
        found.append(Check("call: <= 1.5 x a ping-pong", spread_text(spread), spread.median <= MOST_OF_PING_PONG))
    return found


def document_of(results: Results, seconds: float, machine: Mapping[str, object]) -> dict[str, Any]:
    """Return all results as one JSON document with stable keys. `machine` comes from `machine_facts`."""
    return {
        "bench": "channel",
        "machine": dict(machine),
        "seconds": seconds,
        "measured": {name: [dict(one) for one in values] for name, values in results.items()},
        "checks": [dataclasses.asdict(check) for check in checks_of(results)],
    }


def text_of(results: Results, seconds: float) -> str:
    """Return the tables and the checks as text."""
    lines = [f"Two processes; medians of {seconds:g} s each, measured in turn."]
    for kind, (unit, _, digits) in UNITS.items():
        rows = []
        for name in results:
            if name.startswith(f"{kind}/"):
                spread = spread_of(_values(results, name))
                measured = f"{number(spread.least, digits)}..{number(spread.most, digits)}"
                rows.append((f"  {name.partition('/')[2]}", number(spread.median, digits), measured))
        lines += ["", *aligned((kind, unit, "least..most"), rows)] if rows else []
    words = {True: "pass", False: "FAIL", None: "–"}
    checks = [(check.promise, check.measured, words[check.passed]) for check in checks_of(results)]
    return "\n".join([*lines, "", *aligned(("checks", "measured", ""), checks)])
