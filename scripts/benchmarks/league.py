"""`bench league`: hive beside the fastest trainers that run on a CPU, a row for each piece of work.

The rows are those of `benchmarks.league_rows`, named on the command line, or all. Each is one interleaved run: every
contender once in each repetition, in alternating directions (A B B A). A rate is taken between two looks at a program's
own counters, both at the end of a round and after its first updates, so neither start-up nor compilation counts. The
seconds that JAX and RLtools took to compile have their own column. Where a row compares seconds, they are those of
training.

`hive / it` is how many times as fast hive is: the median of the ratios of each repetition, with the least and the
greatest of them, below 1 where hive loses. A peer that was measured with one thread and with more is held to a goal by
the faster of them. Contenders that train another number of weights than hive are reported as errors.

With `--csv FILE` each contender of each row is appended to a CSV file:

    date, commit, machine, row, contender, unit, repetitions, median, least, most, compile_s, weights,
    ratio, ratio_least, ratio_most, goal, met, load, versions, settings

ratio: hive to this contender. load: of the machine before the bench, over one minute. settings: the work and hive's
keys, as JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contender import ROUND_S, Measurement, Pythons
from benchmarks.harness import (
    NOTHING,
    QUIET_CORES,
    Bench,
    Check,
    Report,
    Spread,
    add_repetitions,
    aligned,
    append_rows,
    check_csv,
    interleaved,
    number,
    ratio_of,
    say,
    spread_cells,
    spread_of,
    spread_text,
)
from benchmarks.hive_run import measure_budget, measure_run
from benchmarks.league_rows import EARLIER_HIVE, ROWS, UNITS, Row
from benchmarks.machine import CpuMeter
from benchmarks.peer_environments import EARLIER, GYMNASIUM, TORCH, add_cache_option
from benchmarks.programs import here, run_program
from hive.config import load_config
from hive.training import Blueprint

EARLIER_VERSIONS = {"hive": EARLIER, "torch": TORCH, "gymnasium": GYMNASIUM}
BUDGET_S = 300.0  # limit of a run with a budget of steps: ten times what the slowest takes
ONE = "-1-thread"  # end of the name of a contender with one thread

PROGRAMS: Mapping[str, tuple[str, str]] = {
    "sb3": ("sb3", "sb3_rates.py"),
    "sbx": ("sbx", "sbx_rates.py"),
    "rltools": ("rltools", "rltools_rates.py"),
    "rltools-compiled": ("rltools", "rltools_rates.py"),
    "environment": ("plain", "environment_steps.py"),
}
"""Peer -> the environment whose Python runs it, and its program."""

Results = Mapping[str, Sequence[Measurement]]  # contender of a row -> its measurements, one for each repetition


# --- measurement


def measure_contender(row: Row, shape: str, seconds: float, pythons: Pythons) -> Measurement:
    """Measure one contender of a row once. Raises BenchError."""
    if shape in row.hive or shape == EARLIER_HIVE:
        keys = row.keys(shape)
        if shape == EARLIER_HIVE:
            return {**measure_budget(keys, BUDGET_S, pythons.of(shape)), "versions": EARLIER_VERSIONS}
        return measure_budget(keys, BUDGET_S) if row.figure == "seconds" else measure_run(seconds, keys)
    python, program = PROGRAMS[shape.removesuffix(ONE)]
    threads, work = int(shape.endswith(ONE)), json.dumps(row.given(shape))
    command = [pythons.of(python), "-P", here("peers", program), seconds, threads, work]
    with one_core() if python == "sbx" and threads else nullcontext():
        return run_program(command, seconds + ROUND_S, row.figure)


@contextmanager
def one_core() -> Iterator[None]:
    """Allow this process and the programs that it starts only one core: JAX has no option for its threads."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def measure_row(
    row: Row, shapes: Sequence[str], repetitions: int, seconds: float, pythons: Pythons
) -> tuple[dict[str, list[Measurement]], dict[str, str]]:
    """Return the measurements of each contender, one for each repetition, and the errors of those that failed."""

    def measured(shape: str, repetition: int) -> Measurement:
        meter = CpuMeter()
        found = measure_contender(row, shape, seconds, pythons)
        others = meter.others_cores()
        value = f"{value_text(row, found[row.figure])} {UNITS[row.figure]}"
        say(f"{repetition + 1}/{repetitions}  {row.name:<22} {shape:<18} {value:>20}  (others used {others:.2f} cores)")
        return {**found, "others_cores": others}

    return interleaved(shapes, repetitions, measured, skip_failed=True)


def weights_of_hive(row: Row) -> int:
    """Return the number of trained weights of hive's network, without padding and target networks."""
    config = load_config("bench.toml", row.keys(row.ours), text="")
    return sum(math.prod(parameter.shape) for parameter in Blueprint(config).flat.parameters)


# --- arithmetic


@dataclass(frozen=True)
class Line:
    """One contender of a row. ratio: how many times as fast hive is; None for the shape of hive that is compared."""

    shape: str
    value: Spread
    ratio: Spread | None
    goal: str  # "" without one
    met: bool | None
    compile_s: float | None
    weights: int | None
    versions: Mapping[str, str]


def times_as_fast(row: Row, ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return how many times as fast ours are, repetition by repetition."""
    return ratio_of(ours, theirs) if row.figure == "steps_per_s" else ratio_of(theirs, ours)


def fastest(row: Row, results: Results, peer: str) -> str | None:
    """Return the faster contender of a peer, with one thread or with more; None where none was measured."""
    medians = {
        shape: statistics.median(one[row.figure] for one in found)
        for shape, found in results.items()
        if shape.removesuffix(ONE) == peer
    }
    if not medians:
        return None
    best = max if row.figure == "steps_per_s" else min
    return best(medians, key=lambda shape: medians[shape])


def lines_of(row: Row, results: Results) -> list[Line]:
    """Return the lines of the contenders that were measured, in the order of the row."""
    values = {shape: [one[row.figure] for one in found] for shape, found in results.items()}
    ours = values.get(row.ours)
    held = {fastest(row, results, peer): wanted for peer, wanted in row.goals.items()}
    lines = []
    for shape in (shape for shape in row.shapes if shape in results):
        ratio = times_as_fast(row, ours, values[shape]) if ours and shape != row.ours else None
        goal, met = "", None
        if shape == row.ours and row.limit is not None:
            goal = f"<= {value_text(row, row.limit)} {UNITS[row.figure]}"
            met = statistics.median(values[shape]) <= row.limit
        elif shape in held and ratio is not None:
            goal, met = f">= {held[shape]:.3g} x {shape}", ratio.median >= held[shape]
        first, compiled = results[shape][0], [one["compile_s"] for one in results[shape] if "compile_s" in one]
        lines.append(
            Line(
                *(shape, spread_of(values[shape]), ratio, goal, met),
                statistics.median(compiled) if compiled else None,
                first.get("weights"),
                first.get("versions", {}),
            )
        )
    return lines


def other_weights(row: Row, lines: Sequence[Line], expected: int) -> list[str]:
    """Return an error for each contender that does not train as many weights as hive."""
    return [
        f"{row.name}: {line.shape} trains {line.weights:,} weights, hive {expected:,}"
        for line in lines
        if line.weights is not None and line.weights != expected
    ]


# --- report


def digits_of(row: Row) -> int:
    return 0 if row.figure == "steps_per_s" else 3 if row.figure == "runtime_cpu_share" else 2


def value_text(row: Row, value: float) -> str:
    return number(value, digits_of(row))


def table(row: Row, lines: Sequence[Line], results: Results) -> list[str]:
    """Return the table of one row of the league."""
    head = ("", UNITS[row.figure], "least..most", "hive / it", "compiling, s")
    cells = [
        (
            f"  {line.shape}",
            *spread_cells([one[row.figure] for one in results[line.shape]], digits_of(row)),
            NOTHING if line.ratio is None else spread_text(line.ratio),
            number(line.compile_s, 1),
        )
        for line in lines
    ]
    return ["", f"{row.name}: {row.title}", *aligned(head, cells)]


def checks_of(row: Row, lines: Sequence[Line]) -> list[Check]:
    """Return the goals of a row that were measured, met or not."""
    return [
        Check(
            f"{row.name}: {row.ours} {line.goal}",
            value_text(row, line.value.median) if line.ratio is None else spread_text(line.ratio),
            line.met,
        )
        for line in lines
        if line.goal
    ]


COLUMNS = (
    *("date", "commit", "machine", "row", "contender", "unit", "repetitions", "median", "least", "most"),
    *("compile_s", "weights", "ratio", "ratio_least", "ratio_most", "goal", "met", "load", "versions", "settings"),
)
OUR_VERSIONS = ("hive", "torch", "numpy", "gymnasium")  # keys of `machine_facts`


def csv_rows(
    row: Row, lines: Sequence[Line], repetitions: int, weights: int, machine: Mapping[str, Any]
) -> list[dict[str, object]]:
    """Return the rows of the CSV file. machine: from `machine_facts`."""
    shared = {
        "date": str(machine["date"]).partition(" ")[0],
        "commit": machine["commit"] or "",
        "machine": f"{machine['cpu']}, {machine['cores']} cores",
        "row": row.name,
        "unit": UNITS[row.figure],
        "repetitions": repetitions,
        "load": machine["load_before"][0],
    }
    ours = {name: str(machine[name]) for name in OUR_VERSIONS}
    return [
        {
            **shared,
            "contender": line.shape,
            **_spread_columns(line.value, ("median", "least", "most")),
            "compile_s": "" if line.compile_s is None else f"{line.compile_s:.1f}",
            "weights": weights if line.shape in row.hive else line.weights or "",
            **(_spread_columns(line.ratio, ("ratio", "ratio_least", "ratio_most")) if line.ratio else {}),
            "goal": line.goal,
            "met": "" if line.met is None else "yes" if line.met else "no",
            "versions": " ".join(f"{name}={text}" for name, text in (line.versions or ours).items()),
            "settings": _settings(row, line.shape),
        }
        for line in lines
    ]


def _spread_columns(spread: Spread, names: Sequence[str]) -> dict[str, str]:
    values = (spread.median, spread.least, spread.most)
    return {name: f"{value:.5g}" for name, value in zip(names, values, strict=True)}


def _settings(row: Row, shape: str) -> str:
    is_hive = shape in row.hive or shape == EARLIER_HIVE
    return json.dumps({"keys": row.keys(shape)} if is_hive else {"work": row.given(shape)})


def listed() -> list[str]:
    return [line for row in ROWS.values() for line in (row.name, f"    {row.title}", f"    {' '.join(row.shapes)}")]


HEAD = (
    "hive / it: how many times as fast hive is, below 1 where it loses. Medians (and ranges) of {} interleaved",
    "repetitions (A B B A) of {:g} s, or of the whole budget where seconds are compared; compilation does not count.",
)


def measure(options: argparse.Namespace, machine: Mapping[str, object]) -> Report:
    if options.list:
        return Report(listed())
    if options.csv is not None:
        check_csv(options.csv, COLUMNS)
    pythons = Pythons(cache=options.cache)
    rows = [ROWS[name] for name in options.rows or ROWS]
    chosen = {row.name: row.shapes if options.peers else tuple(row.hive) for row in rows}
    for python in {_python_of(shape) for shapes in chosen.values() for shape in shapes} - {None}:
        pythons.of(str(python))  # installed before the first measurement, which it would disturb
    text = [line.format(options.repetitions if "{}" in line else options.seconds) for line in HEAD]
    figures: dict[str, Any] = {}
    checks: list[Check] = []
    errors: list[str] = []
    for row in rows:
        results, failed = measure_row(row, chosen[row.name], options.repetitions, options.seconds, pythons)
        lines, weights = lines_of(row, results), weights_of_hive(row)
        text += table(row, lines, results)
        checks += checks_of(row, lines)
        errors += [f"{row.name}: {shape}: {error}" for shape, error in failed.items()]
        errors += other_weights(row, lines, weights)
        figures[row.name] = {"weights": weights, "contenders": results, "failed": failed}
        if options.csv is not None:  # row by row: an interrupted bench has written those that ended
            append_rows(options.csv, COLUMNS, csv_rows(row, lines, options.repetitions, weights, machine))
    return Report([*text, *_busy(figures)], {"rows": figures}, checks, errors)


def _python_of(shape: str) -> str | None:
    """Return the name of the environment that a contender needs, None for hive's own."""
    if shape == EARLIER_HIVE:
        return shape
    return PROGRAMS.get(shape.removesuffix(ONE), (None,))[0]


def _busy(figures: Mapping[str, Any]) -> list[str]:
    """Return the warning of a machine that did other work meanwhile."""
    found = [one for row in figures.values() for results in row["contenders"].values() for one in results]
    others = max((one["others_cores"] for one in found), default=0.0)
    return ["", f"Warning: meanwhile other programs used up to {others:.2f} cores."] if others > QUIET_CORES else []


def _row(name: str) -> str:
    if name not in ROWS:
        raise argparse.ArgumentTypeError(f"no row `{name}`; rows: {', '.join(ROWS)}")
    return name


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rows", nargs="*", type=_row, metavar="ROW", help="rows to measure (default: all)")
    parser.add_argument("--list", action="store_true", help="print the rows and their contenders, and measure nothing")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="neither install nor measure peers")
    add_repetitions(parser, 4, 10.0)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="append a line per contender to this CSV file")
    add_cache_option(parser)


BENCH = Bench(
    "league",
    "hive beside the fastest trainers that run on a CPU: SBX, RLtools and Stable-Baselines3",
    "example: scripts/bench league sac-pendulum dqn-cartpole --csv examples/results/league.csv",
    _options,
    measure,
)
