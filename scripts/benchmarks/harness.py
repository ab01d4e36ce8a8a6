"""What every bench shares: the order of measurement, medians with spreads, tables, checks, rows of a CSV file.

Each repetition measures every way once, so the k-th values of two ways belong together: a machine that is slow for a
minute slows both. A ratio is therefore the median of the ratios of each repetition, not the ratio of two medians.

A bench is a module with a `BENCH`. `scripts/bench` adds its command, measures, and prints and writes its `Report`.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.machine import machine_facts
from benchmarks.programs import BenchError, run_program

WIDTH = 120  # maximum width of a table in columns
NOTHING = "–"  # cell of a value that was not measured
VERDICTS = {True: "pass", False: "FAIL", None: NOTHING}
GAP = "  "
QUIET_CORES = 0.1  # cores that other programs may use without a warning in the report: the kernel uses some
LARGE_LOAD = 1.0  # load average from which other programs disturb the figures

Value = TypeVar("Value")


@dataclass(frozen=True)
class Check:
    """One promise and its measurement. `passed` is None where the measurement allows no verdict."""

    promise: str
    measured: str
    passed: bool | None


@dataclass(frozen=True)
class Report:
    """The result of a bench: lines of text, figures for the JSON document, checks, errors of what was not measured."""

    lines: Sequence[str]
    figures: Mapping[str, Any] = field(default_factory=dict)
    checks: Sequence[Check] = ()
    errors: Sequence[str] = ()


@dataclass(frozen=True)
class Bench:
    """A command of `scripts/bench`. measure: options and the facts of the machine -> report. Raises BenchError."""

    name: str
    help: str
    epilog: str
    add_options: Callable[[argparse.ArgumentParser], None]
    measure: Callable[[argparse.Namespace, Mapping[str, object]], Report]


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def begin(document: Path | None) -> dict[str, object]:
    """Return the facts of the machine, and print them. document: the JSON file that will be written.

    Raises BenchError if its folder does not exist.
    """
    if document is not None and not document.parent.is_dir():
        raise BenchError(f"the folder of `{document}` does not exist")
    machine = machine_facts()
    say(f"{machine['cpu']}, {machine['cores']} cores, load {machine['load_before']}, hive at {machine['commit']}")
    return machine


def write_document(path: Path | None, document: Mapping[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(document, indent=2) + "\n")


def interleaved(
    names: Sequence[str], repetitions: int, measure: Callable[[str, int], Value], *, skip_failed: bool = False
) -> tuple[dict[str, list[Value]], dict[str, str]]:
    """Measure every name once in each repetition, in alternating directions (A B B A); return the values and errors.

    measure: name, number of the repetition -> its value. With `skip_failed` a name that fails once is not
    measured again and has no values; otherwise its BenchError ends the bench.
    """
    found: dict[str, list[Value]] = {name: [] for name in names}
    failed: dict[str, str] = {}
    for repetition in range(repetitions):
        for name in reversed(names) if repetition % 2 else names:
            if name in failed:
                continue
            try:
                found[name].append(measure(name, repetition))
            except BenchError as error:
                if not skip_failed:
                    raise
                failed[name] = str(error)
                say(f"{repetition + 1}/{repetitions}  {name:<36} failed: {error}")
    return {name: values for name, values in found.items() if name not in failed}, failed


def measured_programs(
    commands: Mapping[str, Sequence[object]], repetitions: int, seconds: float, rate: str
) -> dict[str, list[dict[str, float]]]:
    """Run every program once in each repetition; return what each printed. rate: the key that must be above 0.

    The seconds to measure for are the last word of each command. Raises BenchError.
    """

    def figures(name: str, repetition: int) -> dict[str, float]:
        say(f"{repetition + 1}/{repetitions} {name}")
        return run_program([*commands[name], seconds], seconds, rate)

    return interleaved(list(commands), repetitions, figures)[0]


# --- numbers


@dataclass(frozen=True)
class Spread:
    """The median of some values, and the least and the greatest of them."""

    median: float
    least: float
    most: float


def spread_of(values: Sequence[float]) -> Spread:
    """Return the spread of the values. Raises ValueError if there are none."""
    if not values:
        raise ValueError("no value was measured")
    return Spread(statistics.median(values), min(values), max(values))


def ratio_of(values: Sequence[float], others: Sequence[float]) -> Spread:
    """Divide `values` by `others`, repetition by repetition. Raises ValueError if the lengths differ or one is 0."""
    if len(values) != len(others):
        raise ValueError(f"{len(values)} values cannot be compared with {len(others)}")
    if not all(others):
        raise ValueError("cannot divide by a measured rate of 0")
    return spread_of([value / other for value, other in zip(values, others, strict=True)])


def best_of(rates: Mapping[str, Sequence[float]]) -> str:
    """Return the name with the highest median.

    It is one name for all repetitions, because the best of each repetition would exceed every contender by the noise.
    """
    return max(rates, key=lambda name: statistics.median(rates[name]))


def medians(rows: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Return the median of every key over rows with the same keys; None where a row has None."""
    found: dict[str, float | None] = {}
    for key in rows[0] if rows else ():
        values = [row[key] for row in rows]
        known = [value for value in values if value is not None]
        found[key] = statistics.median(known) if len(known) == len(values) else None
    return found


# --- text


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table whose first column is text and whose other columns are numbers."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return [
        GAP.join(
            [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in (head, *rows)
    ]


def number(value: float | None, digits: int = 0) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1%}"


def spread_text(spread: Spread) -> str:
    """Return `1.33 (1.10..1.60)`: the median, the least and the greatest value."""
    return f"{spread.median:.2f} ({spread.least:.2f}..{spread.most:.2f})"


def spread_cells(values: Sequence[float], digits: int) -> tuple[str, str]:
    """Return the cells of a median, and of the least and the greatest value."""
    spread = spread_of(values)
    return number(spread.median, digits), f"{number(spread.least, digits)}..{number(spread.most, digits)}"


def check_lines(checks: Sequence[Check]) -> list[str]:
    """Return the table of the checks after an empty line; nothing without checks."""
    rows = [(check.promise, check.measured, VERDICTS[check.passed]) for check in checks]
    return ["", *aligned(("checks", "measured", ""), rows)] if rows else []


def ways_table(title: str, unit: str, ways: Mapping[str, Sequence[float]], digits: int, ours: str) -> list[str]:
    """Return a table with a row for each way; its last column is the ratio of `ours` to this way."""
    rows = [
        (f"  {way}", *spread_cells(values, digits), spread_text(ratio_of(ways[ours], values)))
        for way, values in ways.items()
    ]
    return ["", *aligned((title, unit, "least..most", "x"), rows)]


def load_warning(load: Sequence[float]) -> list[str]:
    """Return the lines that warn of a busy machine. load: averages over 1, 5 and 15 minutes."""
    if max(load[:2]) < LARGE_LOAD:
        return []
    return ["", f"Not a quiet machine: a load of {load[0]:.1f}, in the last five minutes {load[1]:.1f}."]


# --- rows of a CSV file


def check_csv(path: Path, columns: Sequence[str]) -> None:
    """Raise BenchError if rows cannot be appended: before the measurements, which take long."""
    if not path.parent.is_dir():
        raise BenchError(f"the folder of `{path}` does not exist")
    if path.exists():
        with path.open(newline="") as file:
            head = next(csv.reader(file), [])
        if head != [*columns]:
            raise BenchError(f"`{path}` has other columns than {', '.join(columns)}")


def append_rows(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> None:
    """Append rows, after the names of the columns in a new file. Raises BenchError."""
    check_csv(path, columns)
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerows(rows)


# --- options


def count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got `{text}`")
    return int(text)


def duration(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 86400.0:
        raise argparse.ArgumentTypeError(f"expected seconds, above 0 and below a day, got `{text}`")
    return seconds


def add_repetitions(parser: argparse.ArgumentParser, repetitions: int, seconds: float | None = None) -> None:
    parser.add_argument("--repetitions", type=count, default=repetitions, help="default %(default)d")
    if seconds is not None:
        text = "duration of each measurement (default %(default)g)"
        parser.add_argument("--seconds", type=duration, default=seconds, help=text)
