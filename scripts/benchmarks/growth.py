"""`bench growth`: what one more collector, host, parameter or gradient worker costs.

    collectors           1..64, one sleeping environment each
    hosts                1..8, one collector each, which all join on this machine
    million parameters   0.3, 2 and 25, one collector
    gradient workers     1..8, eight collectors, 0.3 million parameters

Each size is a separate run of A2C, started by `hive up` and measured after its first updates (hive_run.py). The
environments sleep, so the cores are idle most of the time. A cost is CPU time, which hardly depends on what else the
machine does. Repetitions measure the sizes upwards and downwards in turn, and the medians count.

    cost = fixed + slope * units, by least squares; explained: the share of the costs' variance that the line explains

    learner       CPU milliseconds of the learner's process for one update, its gradients included unless there are
                  gradient workers
    link          those of the processes on the head that talk to hosts, for one update. Hosts' own are not counted.
    collectors, gradient workers    those of all their processes together, for one update
    runtime       those of supervisor, fork server and recorder, for one second: their work depends on the clock
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import (
    Bench,
    Report,
    add_repetitions,
    aligned,
    append_rows,
    check_csv,
    interleaved,
    number,
    percent,
    say,
)
from benchmarks.hive_run import RUNTIME_PROCESSES, measure_run
from hive.runtime.run.hosts_status import HOST

WARM_UPDATES = 10  # left out: more than a board has blocks, so that all memory has been touched
STEP_S = 0.02  # 64 collectors keep less than half a core busy
FAST_STEP_S = 0.001  # for few collectors with large networks, whose updates take longer than the steps
SMALL = (64, 64)
MIDDLEWARES = {0.3: (544, 544), 2.0: (1410, 1410), 25.0: (4096, 4096, 2048)}  # million parameters -> widths of layers
COLUMNS = ("axis", "units", "figure", "value", "repetition", "seconds", "load", "cores", "commit")


@dataclass(frozen=True)
class Axis:
    """What grows: its name, its sizes, the keys of each, and the figures that are shown."""

    name: str
    units: Sequence[float]
    keys: Callable[[float], list[str]]
    figures: Sequence[str]
    hosts: bool = False  # whether a unit is a host, which has to join


def _keys(middleware: Sequence[int] = SMALL, step_s: float = STEP_S, **numbers: float) -> list[str]:
    """Return the keys of a run of A2C. numbers: of collectors, gradient_workers and hosts."""
    hosts = [f"host{number}" for number in range(int(numbers.get("hosts", 0)))]
    return [
        *("run.scheme=a2c", "run.seed=1", "run.steps=1_000_000_000_000"),
        *("env.id=benchmarks.environments:Sleeping", f"env.options={{step_s={step_s}}}"),
        *(f"collection.workers={len(hosts) or int(numbers.get('collectors', 1))}", f"collection.hosts={hosts}"),
        *("collection.envs=1", "collection.rollout=8"),
        f"hosts.cores={{{', '.join(f'{host} = 1' for host in hosts)}}}",
        f"gradients.workers={int(numbers.get('gradient_workers', 0))}",
        *(f"network.middleware={list(middleware)}", "network.separate_networks=false"),
        *("network.normalize_observations=false", "network.normalize_rewards=false", "checkpoint.every={}"),
    ]


AXES = (
    Axis(
        "collectors",
        (1, 2, 4, 8, 16, 32, 64),
        lambda units: _keys(collectors=units),
        ("learner", "collectors", "runtime"),
    ),
    Axis("hosts", (1, 2, 4, 8), lambda units: _keys(hosts=units), ("learner", "link", "runtime"), hosts=True),
    Axis(
        "million parameters",
        tuple(MIDDLEWARES),
        lambda units: _keys(MIDDLEWARES[units], FAST_STEP_S),
        ("learner", "collectors", "runtime"),
    ),
    Axis(
        "gradient workers",
        (1, 2, 4, 8),
        lambda units: _keys(MIDDLEWARES[0.3], collectors=8, gradient_workers=units),
        ("learner", "gradient workers", "collectors", "runtime"),
    ),
)


@dataclass(frozen=True)
class Line:
    """cost = fixed + slope * units, and the share of the costs' variance that it explains."""

    fixed: float
    slope: float
    explained: float


def fit(units: Sequence[float], costs: Sequence[float]) -> Line:
    """Return the line through the costs by least squares. Raises ValueError for fewer than two different units."""
    if len(set(units)) < 2:
        raise ValueError("a line needs two different sizes")
    slope, fixed = statistics.linear_regression(units, costs)
    rest = sum((cost - fixed - slope * unit) ** 2 for unit, cost in zip(units, costs, strict=True))
    total = statistics.pvariance(costs) * len(costs)
    return Line(fixed, slope, 1.0 - rest / total if total else 1.0)


def measure_growth(axes: Sequence[Axis], repetitions: int, seconds: float) -> list[dict[str, Any]]:
    """Measure every size of these axes; return a row of the CSV file for each figure. Raises BenchError."""
    rows: list[dict[str, Any]] = []
    sizes = {f"{units:g} {axis.name}": (axis, units) for axis in axes for units in axis.units}

    def add_costs(name: str, repetition: int) -> None:
        axis, units = sizes[name]
        say(f"{repetition + 1} of {repetitions}: {name}")
        hosts = int(units) if axis.hosts else 0
        costs = costs_of(measure_run(seconds, axis.keys(units), WARM_UPDATES, hosts))
        shared = {"repetition": repetition, "seconds": seconds, "load": round(os.getloadavg()[0], 2)}
        for figure in (*axis.figures, "updates_per_s"):
            value = round(costs[figure], 4)
            rows.append({"axis": axis.name, "units": units, "figure": figure, "value": value, **shared})

    interleaved(list(sizes), repetitions, add_costs)
    return rows


def costs_of(figures: Mapping[str, Any]) -> dict[str, float]:
    """Return the costs of a run from its figures: CPU ms of an update, of a second for the runtime."""
    per_second = dict.fromkeys(("learner", "collectors", "gradient workers", "link", "runtime"), 0.0)
    for name, used in figures["cpu_cores_of"].items():
        if "/" not in name:  # else a process of a host
            per_second[_group(name)] += 1e3 * used
    updates = figures["updates_per_s"]
    costs = {name: ms if name == "runtime" else ms / updates for name, ms in per_second.items()}
    return {**costs, "updates_per_s": updates}


def _group(process: str) -> str:
    """Return the figure that a process counts for, from the names of its actors joined by " + "."""
    if "learner" in process:
        return "learner"
    if HOST in process:
        return "link"
    first = process.partition(" + ")[0]
    return "runtime" if first in RUNTIME_PROCESSES else f"{first.rpartition('-')[0].replace('-', ' ')}s"


def lines_of(axes: Sequence[Axis], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table of the medians for each axis, with the line through each figure below it."""
    return [line for axis in axes for line in ("", *_table(axis, rows))][1:]


def _table(axis: Axis, found: Sequence[Mapping[str, Any]]) -> list[str]:
    def median(figure: str, units: float) -> float:
        place = (axis.name, units, figure)
        return statistics.median(
            float(row["value"]) for row in found if (row["axis"], row["units"], row["figure"]) == place
        )

    figures = (*axis.figures, "updates_per_s")
    medians = {figure: [median(figure, units) for units in axis.units] for figure in figures}
    lines = {figure: fit(axis.units, medians[figure]) for figure in axis.figures}
    rows = [
        (
            f"{units:g}",
            number(medians["updates_per_s"][place], 1),
            *(number(medians[figure][place], 2) for figure in axis.figures),
        )
        for place, units in enumerate(axis.units)
    ]
    rows += [
        ("fixed", "", *(number(lines[figure].fixed, 2) for figure in axis.figures)),
        ("slope per unit", "", *(number(lines[figure].slope, 3) for figure in axis.figures)),
        ("explained", "", *(percent(lines[figure].explained) for figure in axis.figures)),
    ]
    return aligned((axis.name, "updates/s", *(f"{figure}, CPU ms" for figure in axis.figures)), rows)


def measure(options: argparse.Namespace, machine: Mapping[str, object]) -> Report:
    axes = [axis for axis in AXES if axis.name in options.only or not options.only]
    if options.csv is not None:
        check_csv(options.csv, COLUMNS)
    measured = measure_growth(axes, options.repetitions, options.seconds)
    rows = [{**row, "cores": machine["cores"], "commit": machine["commit"]} for row in measured]
    if options.csv is not None:
        append_rows(options.csv, COLUMNS, rows)
    return Report(lines_of(axes, rows), {"rows": rows})


def _options(parser: argparse.ArgumentParser) -> None:
    names = [axis.name for axis in AXES]
    parser.add_argument("--only", action="append", choices=names, default=[], help="default: each of them")
    add_repetitions(parser, 3, 5.0)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="append all measurements to this file")


BENCH = Bench(
    "growth",
    "CPU time of one more collector, host, parameter or gradient worker, with sleeping environments",
    "example: scripts/bench growth --only collectors --repetitions 1",
    _options,
    measure,
)
