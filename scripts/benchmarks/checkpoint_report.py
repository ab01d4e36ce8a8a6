"""The report of `bench checkpoint`: the document, the tables and the checks, computed from the measurements.

Pure functions of milliseconds. Checks of each kind of run:

    every pause < 5 ms                      the learner hands a checkpoint over and does not write it. With fewer cores
                                            than processes, a longer pause fails only if the learner itself was busy for
                                            that long: the rest of the time other processes used its core
    publishing takes < 1.5 plain copies     it copies the weights once, not twice
    taking up takes < 0.5 plain copies      a successor uses the state in place, without a copy
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import spread_of
from benchmarks.report import QUIET_CORES, Check
from benchmarks.table import aligned, number

__all__ = ["checks_of", "document_of", "text_of"]

MOST_PAUSE_MS = 5.0
MOST_COPIES_TO_PUBLISH = 1.5
MOST_COPIES_TO_TAKE_UP = 0.5

PROCESSES = 4  # busy processes: collector, gradient worker, learner, recorder

Figures = Mapping[str, Any]  # name -> milliseconds, as checkpoint.figures_of gives them; others_cores, skipped

ROWS = (
    ("a checkpoint: the learner's pause", "pause"),
    ("    of which it was busy (CPU)", "pause_cpu"),
    ("the check when no checkpoint is due", "no_pause"),
    ("a turn, while no checkpoint is being written", "turn"),
    ("    the first after a checkpoint was handed over", "turn_after"),
    ("    while the recorder writes", "turn_written"),
    ("from turn to turn, while none is being written", "gap"),
    ("    the first after a checkpoint was handed over", "gap_after"),
    ("    while the recorder writes", "gap_written"),
    ("publishing the weights", "publish"),
    ("    a plain copy of the same size", "copy"),
    ("recovery: from kill -9 to the first turn", "recovery"),
    ("    until the successor's constructor begins", "born"),
    ("    its constructor", "constructed"),
    ("    taking up the state", "taken_up"),
    ("    its first turn", "first_turn"),
)
"""(text of a line, name of its figure)."""


def checks_of(results: Mapping[str, Figures], cores: int) -> list[Check]:
    """Return the checks of every kind of run. `results` maps a kind to its figures; `cores`: of the machine."""
    found = []
    for kind, figures in results.items():
        found.append(_pause_check(kind, figures, cores))
        copy = statistics.median(figures["copy"])
        publish = statistics.median(figures["publish"]) / copy
        text = f"{kind}: publishing < {MOST_COPIES_TO_PUBLISH} plain copies"
        found.append(Check(text, f"{publish:.2f}", publish < MOST_COPIES_TO_PUBLISH))
        if figures["taken_up"]:
            taken_up = statistics.median(figures["taken_up"]) / copy
            text = f"{kind}: taking up the state < {MOST_COPIES_TO_TAKE_UP} plain copies"
            found.append(Check(text, f"{taken_up:.2f}", taken_up < MOST_COPIES_TO_TAKE_UP))
    return found


def _pause_check(kind: str, figures: Figures, cores: int) -> Check:
    wall, busy = spread_of(figures["pause"]), spread_of(figures["pause_cpu"])
    measured = f"{wall.median:.2f} ms, at most {wall.most:.2f} ms"
    passed: bool | None = wall.most < MOST_PAUSE_MS
    if not passed and cores < PROCESSES and busy.most < MOST_PAUSE_MS:
        measured, passed = f"{measured}, {busy.most:.2f} ms of CPU: fewer cores than processes", None
    return Check(f"{kind}: a checkpoint's pause < {MOST_PAUSE_MS:g} ms", measured, passed)


def document_of(
    results: Mapping[str, Figures], parameters: int, seconds: float, machine: Mapping[str, object]
) -> dict[str, Any]:
    """Return all results as one JSON document with stable keys. `machine` comes from `machine_facts`."""
    return {
        "bench": "checkpoint",
        "machine": dict(machine),
        "parameters": parameters,
        "seconds": seconds,
        "runs": [
            {
                "kind": kind,
                "spreads_ms": {name: dataclasses.asdict(spread_of(figures[name])) for _, name in ROWS if figures[name]},
                "measured_ms": {name: list(figures[name]) for _, name in ROWS},
                "skipped": figures["skipped"],
                "others_cores": figures["others_cores"],
            }
            for kind, figures in results.items()
        ],
        "checks": [dataclasses.asdict(check) for check in checks_of(results, int(str(machine["cores"])))],
    }


def text_of(results: Mapping[str, Figures], parameters: int, seconds: float, cores: int) -> str:
    """Return the tables and the checks as text."""
    megabytes = 4 * parameters / 1e6
    lines = [
        f"Checkpoints of {parameters / 1e6:.1f} M parameters: {megabytes:.0f} MB of weights, twice that of moments.",
        f"{seconds:g} s each, then kills of the learner. Times in ms.",
    ]
    for kind, figures in results.items():
        rows = [_row(text, figures[name]) for text, name in ROWS if figures[name]]
        lines += ["", *aligned((kind, "median", "least..most", "of"), rows)]
        if figures["skipped"]:
            lines.append(f"{figures['skipped']} more were skipped: the previous one was still being written.")
    words = {True: "pass", False: "FAIL", None: "–"}
    checks = [(check.promise, check.measured, words[check.passed]) for check in checks_of(results, cores)]
    lines += ["", *aligned(("checks", "measured", ""), checks)]
    others = max(figures["others_cores"] for figures in results.values())
    if others > QUIET_CORES:
        lines += ["", f"Warning: other programs used up to {others:.2f} cores of CPU."]
    return "\n".join(lines)


def _row(text: str, values: Sequence[float]) -> tuple[str, str, str, str]:
    spread = spread_of(values)
    return text, number(spread.median, 2), f"{number(spread.least, 2)}..{number(spread.most, 2)}", str(len(values))
