"""The report of `bench tree`: the document, the tables and the checks, as pure functions of the measurements.

Required of what a trainer calls: 5 million priorities written a second and 2 million rows drawn a second.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import Spread, ratio_of, spread_of
from benchmarks.report import Check
from benchmarks.table import aligned, number, spread_text
from benchmarks.tree import Results

__all__ = ["checks_of", "document_of", "text_of"]

LEAST = {"updates_per_s": 5e6, "samples_per_s": 2e6}
TITLES = {"updates_per_s": "priorities written", "samples_per_s": "rows drawn"}
KINDS = {"whole": "what a trainer calls: powers and weights too", "tree": "the tree alone"}
LARGE_LOAD = 1.0  # load average from which other programs disturb the figures


def _rates(results: Results, name: str, rate: str) -> list[float]:
    return [one[rate] for one in results[name]]


def times_faster(results: Results, name: str, rate: str) -> Spread:
    """Return how many times faster hive is than this way at the same task."""
    return ratio_of(_rates(results, f"{name.partition('/')[0]}/hive", rate), _rates(results, name, rate))


def checks_of(results: Results) -> list[Check]:
    """Return the checks of hive's rates."""
    found = []
    for rate, least in LEAST.items():
        spread = spread_of(_rates(results, "whole/hive", rate))
        promise = f"{TITLES[rate]}: >= {least / 1e6:g} M/s on one core"
        found.append(Check(promise, f"{spread.median / 1e6:.1f} M/s", spread.median >= least))
    return found


def document_of(results: Results, seconds: float, machine: Mapping[str, object]) -> dict[str, Any]:
    """Return all results as one JSON document with stable keys. `machine` comes from `machine_facts`."""
    return {
        "bench": "tree",
        "machine": dict(machine),
        "seconds": seconds,
        "measured": {name: [dict(one) for one in values] for name, values in results.items()},
        "checks": [dataclasses.asdict(check) for check in checks_of(results)],
    }


def text_of(results: Results, repetitions: int, load: Sequence[float]) -> str:
    """Return the tables and the checks as text."""
    lines = [
        "Prioritized replay of 1,000,000 rows in batches of 512, one core.",
        f"Million rows a second, medians of {repetitions} interleaved repetitions; x: how much faster hive is.",
    ]
    for kind, title in KINDS.items():
        for rate, what in TITLES.items():
            names = [name for name in results if name.startswith(f"{kind}/")]
            rows = [(f"  {name.partition('/')[2]}", *_cells(results, name, rate)) for name in names]
            lines += ["", *aligned((f"{what}, {title}", "M/s", "least..most", "x"), rows)]
    checks = [(check.promise, check.measured, "pass" if check.passed else "FAIL") for check in checks_of(results)]
    lines += ["", *aligned(("checks", "measured", ""), checks)]
    if max(load[:2]) >= LARGE_LOAD:
        lines += ["", f"Not a quiet machine: a load of {load[0]:.1f}, in the last five minutes {load[1]:.1f}."]
    return "\n".join(lines)


def _cells(results: Results, name: str, rate: str) -> tuple[str, str, str]:
    spread = spread_of([value / 1e6 for value in _rates(results, name, rate)])
    measured = f"{number(spread.least, 2)}..{number(spread.most, 2)}"
    return number(spread.median, 2), measured, spread_text(times_faster(results, name, rate))
