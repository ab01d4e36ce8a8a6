"""The report of `bench accumulator`: the document, the tables and the checks, computed from the measurements.

Pure functions of milliseconds. A ratio is how many times faster hive is: the median of the ratios of each repetition.
Required speed:

    reduce   hive's C++ pass >= 0.85 x the plain C loop, which computes no norm
             hive >= 1.3 x the best way in torch at 25 M and K >= 4, >= 1.1 x at 25 M and K = 2, >= 1 x elsewhere
    whole    hive >= 5 x RLPack's scheme
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.accumulator import Case
from benchmarks.figures import Spread, ratio_of, spread_of
from benchmarks.report import Check
from benchmarks.table import aligned, number, spread_text

__all__ = ["checks_of", "document_of", "text_of"]

LEAST_OF_PLAIN = 0.85
LEAST_OF_TORCH = {("25 M", 2): 1.1, ("25 M", 4): 1.3, ("25 M", 8): 1.3}
LEAST_OF_RLPACK = 5.0
LARGE_LOAD = 1.0  # load average from which other programs disturb the figures

TORCH = ("reduce/foreach_add", "reduce/flat add", "reduce/stack.sum")

Results = Mapping[Case, Mapping[str, Sequence[float]]]  # milliseconds of every way, by repetition


def times_faster(timings: Mapping[str, Sequence[float]], name: str, ours: str = "hive") -> Spread:
    """Return how many times faster `ours` is than `name` at the same task."""
    return ratio_of(timings[name], timings[f"{name.partition('/')[0]}/{ours}"])


def best_torch(timings: Mapping[str, Sequence[float]]) -> str:
    """Return the way in torch with the least median."""
    return min(TORCH, key=lambda name: spread_of(timings[name]).median)


def checks_of(results: Results) -> list[Check]:
    """Return the checks of every case."""
    found = []
    for case, timings in results.items():
        best = best_torch(timings)
        for ours, name, least in (
            ("hive's pass", "reduce/plain C", LEAST_OF_PLAIN),
            ("hive", best, LEAST_OF_TORCH.get((case.size, case.count), 1.0)),
            ("hive", "whole/RLPack's scheme", LEAST_OF_RLPACK),
        ):
            spread = times_faster(timings, name, ours)
            promise = f"{case.size}, K = {case.count}: {ours} >= {least:g} x {name.partition('/')[2]}"
            found.append(Check(promise, spread_text(spread), spread.median >= least))
    return found


def document_of(results: Results, repetitions: int, machine: Mapping[str, object]) -> dict[str, Any]:
    """Return all results as one JSON document with stable keys. `machine` comes from `machine_facts`."""
    return {
        "bench": "accumulator",
        "machine": dict(machine),
        "repetitions": repetitions,
        "threads": 1,
        "cases": [
            {
                "size": case.size,
                "parameters": case.parameters,
                "rounds": case.count,
                "measured_ms": {name: list(values) for name, values in timings.items()},
                "times_faster": {name: dataclasses.asdict(times_faster(timings, name)) for name in timings},
            }
            for case, timings in results.items()
        ],
        "checks": [dataclasses.asdict(check) for check in checks_of(results)],
    }


def text_of(results: Results, repetitions: int, load: Sequence[float]) -> str:
    """Return the tables and the checks as text."""
    lines = [
        "K gradients to their mean, its norm and a check for finite values; the plain loop computes the mean only.",
        f"Milliseconds, medians of {repetitions} interleaved repetitions, one thread each; x: how much faster hive is.",
    ]
    for case, timings in results.items():
        rows = []
        for name, values in timings.items():
            spread, faster = spread_of(values), times_faster(timings, name)
            measured = f"{number(spread.least, 3)}..{number(spread.most, 3)}"
            rows.append((f"  {name.replace('/', ': ')}", number(spread.median, 3), measured, spread_text(faster)))
        head = (f"{case.size} ({case.parameters:,} parameters), K = {case.count}", "ms", "least..most", "x")
        lines += ["", *aligned(head, rows)]
    words = {True: "pass", False: "FAIL", None: "–"}
    checks = [(check.promise, check.measured, words[check.passed]) for check in checks_of(results)]
    lines += ["", *aligned(("checks", "measured", ""), checks)]
    if max(load[:2]) >= LARGE_LOAD:
        lines += ["", f"Not a quiet machine: a load of {load[0]:.1f}, in the last five minutes {load[1]:.1f}."]
    return "\n".join(lines)
