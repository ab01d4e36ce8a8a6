"""Cells of the comparison: one trainer, one task, one seed each. They run once, and their rows are kept in CSV files.

    examples/results/parity.csv          one row per cell that has ended
    examples/results/parity_curves.csv   at most CURVE_POINTS points per cell: steps, seconds, mean of 100 episodes
    examples/results/q_learning.csv, q_learning_curves.csv     the same of the tasks that only hive trains
    examples/results/init.csv, init_curves.csv                 the same of `hive init` against no settings
    examples/results/defaults.json       the defaults of hive that these rows were measured with (comparison.defaults)

A cell that was interrupted leaves no row and runs again. Rows of a task whose settings have changed since are ignored,
because they carry the digest of their settings.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from benchmarks.harness import append_rows
from benchmarks.machine import cores, cpu_model
from benchmarks.peer_environments import cache_folder, peer_python
from benchmarks.programs import Running, importing, launched

from comparison import defaults
from comparison.tasks import INIT_TRAINERS, TASKS, InitTask, SchemeTask

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "results"
CURVE_POINTS = 100  # per cell: a curve in a plot has no more
EPISODES_OF_A_MEAN = 100  # training episodes in one point of a curve, as hive reports them

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Cell:
    """One training run of one trainer. `trainer`: "sb3", "hive", "hive:<variant>" or "random"."""

    trainer: str
    task: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.trainer}/{self.task}/{self.seed}"


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one cell.

    mean_return: over the evaluation episodes; of an InitTask, over the last 100 training episodes. load: of the machine
    when the cell began. machine: processor and cores. at_once: cells side by side, so 1 means that the cell had the
    machine alone; 0: not known. defaults: digest of hive's defaults, "" for a peer.
    """

    trainer: str
    task: str
    seed: int
    settings: str
    steps: int
    seconds: float
    mean_return: float
    load: float
    commit: str
    versions: str
    machine: str = ""
    at_once: int = 0
    defaults: str = ""


def files_of(task: str, folder: Path = FOLDER) -> tuple[Path, Path]:
    """The files of the rows and of the curves of a task."""
    kinds = {SchemeTask: "q_learning", InitTask: "init"}
    stem = kinds.get(type(TASKS[task]), "parity")
    return folder / f"{stem}.csv", folder / f"{stem}_curves.csv"


def read_rows(folder: Path = FOLDER) -> list[Row]:
    """Return all rows of the present settings."""
    paths = sorted({files_of(task, folder)[0] for task in TASKS})
    rows = [row for path in paths for row in records_of(path, Row)]
    return [row for row in rows if row.task in TASKS and row.settings == TASKS[row.task].digest]


def records_of(path: Path, kind: type[Record]) -> list[Record]:
    """Return the rows of a CSV file as dataclasses whose fields are int, float or str; [] without a file."""
    if not path.exists():
        return []
    types = {field.name: {"int": int, "float": float}.get(str(field.type), str) for field in fields(kind)}  # type: ignore[arg-type]
    with path.open(newline="") as file:
        return [kind(**{name: convert(row[name]) for name, convert in types.items()}) for row in csv.DictReader(file)]


MOST_SEEDS = 10  # seeds of a task: a comparison that these leave undecided remains undecided


def missing(trainers: Sequence[str], tasks: Sequence[str], seeds: int | None, rows: Sequence[Row]) -> Iterator[Cell]:
    """The cells that have no row yet: one seed of every task first, then the next seed.

    seeds: 1..N of each task; None: as many as the task names.
    """
    ended = {(row.trainer, row.task, row.seed) for row in rows}
    for seed in range(1, (seeds or MOST_SEEDS) + 1):
        for task in tasks:
            for trainer in trainers:
                if not trains(trainer, task):
                    continue
                most = 1 if trainer == "random" else seeds or TASKS[task].seeds
                if seed <= most and (trainer, task, seed) not in ended:
                    yield Cell(trainer, task, seed)


def trains(trainer: str, task: str) -> bool:
    """Return whether a trainer has cells of a task: only hive trains the tasks that have none of a peer's settings."""
    match TASKS[task]:
        case InitTask():
            return trainer in INIT_TRAINERS
        case SchemeTask():
            return trainer.partition(":")[0] == "hive"
    return trainer not in INIT_TRAINERS


def command_of(cell: Cell, variants: dict[str, list[str]]) -> list[str]:
    """The program of a cell; it reads the settings of its task from stdin and prints one JSON object."""
    folder = Path(__file__).parent
    if cell.trainer == "sb3":
        return [str(peer_python("sb3", cache_folder())), str(folder / "sb3_cell.py"), str(cell.seed)]
    if cell.trainer == "random":
        return [sys.executable, "-P", str(folder / "judge.py"), str(cell.seed)]
    if cell.trainer in INIT_TRAINERS:
        return [sys.executable, "-P", str(folder / "init_cell.py"), str(cell.seed), cell.trainer.partition(":")[2]]
    keys = variants.get(cell.trainer.partition(":")[2], [])
    return [sys.executable, "-P", str(folder / "hive_cell.py"), str(cell.seed), *keys]


def environment_of(cell: Cell) -> dict[str, str]:
    """Return what is added to the environment of a cell. That of a peer has packages of its own alone."""
    alone = os.pathsep.join([str(ROOT / "scripts"), str(ROOT / "examples")])
    return {"PYTHONPATH": alone} if cell.trainer == "sb3" else importing(ROOT / "examples")


def start(cell: Cell, variants: dict[str, list[str]]) -> Running:
    settings = json.dumps(TASKS[cell.task].settings)
    return launched(cell.name, command_of(cell, variants), environment_of(cell), settings)


def row_of(cell: Cell, found: dict[str, Any], load: float, commit: str, at_once: int) -> Row:
    task = TASKS[cell.task]
    known = defaults.remember(found["defaults"]) if found.get("defaults") else ""
    versions = " ".join(f"{name}={number}" for name, number in sorted(found["versions"].items()))
    mean = float(np.mean(found["returns"]))
    head = (cell.trainer, cell.task, cell.seed, task.digest)
    tail = (round(load, 2), commit, versions, f"{cpu_model(Path('/proc/cpuinfo').read_text())}, {cores()} cores")
    return Row(*head, int(found["steps"]), round(found["seconds"], 2), mean, *tail, at_once, known)


def append_row(row: Row, curve: Sequence[Sequence[float]], folder: Path = FOLDER) -> None:
    """Writes the row last: a cell whose row is there is complete."""
    results, curves = files_of(row.task, folder)
    points = averaged(curve) if row.trainer == "sb3" else [tuple(point) for point in curve]
    count = min(CURVE_POINTS, len(points))
    chosen: list[int] = np.unique(np.linspace(0, len(points) - 1, count).astype(int)).tolist() if count else []
    head = {"trainer": row.trainer, "task": row.task, "seed": row.seed, "settings": row.settings}
    records = [
        {**head, "steps": int(points[i][0]), "seconds": round(points[i][1], 2), "return": round(points[i][2], 3)}
        for i in chosen
    ]
    append_rows(curves, [*head, "steps", "seconds", "return"], records)
    append_rows(results, [field.name for field in fields(Row)], [asdict(row)])


def averaged(episodes: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
    """Single episodes (steps, seconds, return) as means of the last EPISODES_OF_A_MEAN."""
    returns = [point[2] for point in episodes]
    return [
        (point[0], point[1], float(np.mean(returns[max(index - EPISODES_OF_A_MEAN + 1, 0) : index + 1])))
        for index, point in enumerate(episodes)
    ]
