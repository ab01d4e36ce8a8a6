"""Cells of the comparison: one trainer, one task, one seed each. They run once, and their rows are kept in CSV files.

    examples/results/parity.csv          one row per cell that has ended
    examples/results/parity_curves.csv   at most CURVE_POINTS points per cell: steps, seconds, mean of 100 episodes
    examples/results/q_learning.csv, q_learning_curves.csv     the same of the tasks that only hive trains

A cell that was interrupted leaves no row and runs again. Rows of a task whose settings have changed since are ignored,
because they carry the digest of their settings.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from benchmarks.peer_environments import cache_folder, peer_python
from benchmarks.programs import BenchError, tail

from comparison.tasks import TASKS, SchemeTask

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "results"
CURVE_POINTS = 100  # per cell: a curve in a plot has no more
MOST_AT_ONCE = 2  # programs side by side: each takes about one core
LOOK_S = 0.5  # between two looks at the running programs
EPISODES_OF_A_MEAN = 100  # training episodes in one point of a curve, as hive reports them

Job = TypeVar("Job")


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
    """The result of one cell. mean_return: over the evaluation episodes. load: of the machine when the cell began."""

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


def files_of(task: str, folder: Path = FOLDER) -> tuple[Path, Path]:
    """The files of the rows and of the curves of a task."""
    stem = "q_learning" if isinstance(TASKS[task], SchemeTask) else "parity"
    return folder / f"{stem}.csv", folder / f"{stem}_curves.csv"


def read_rows(folder: Path = FOLDER) -> list[Row]:
    """All rows of the present settings."""
    rows = []
    for path in sorted({files_of(task, folder)[0] for task in TASKS}):
        if path.exists():
            with path.open(newline="") as file:
                rows += [
                    Row(**{field.name: value_of(field.type, record[field.name]) for field in fields(Row)})
                    for record in csv.DictReader(file)
                ]
    return [row for row in rows if row.task in TASKS and row.settings == TASKS[row.task].digest]


def value_of(kind: Any, text: str) -> Any:
    """The text of a CSV cell as the type that a field of Row is annotated with."""
    return {"int": int, "float": float}.get(str(kind), str)(text)


MOST_SEEDS = 10  # seeds of a task: a comparison that these leave undecided remains undecided


def missing(trainers: Sequence[str], tasks: Sequence[str], seeds: int | None, rows: Sequence[Row]) -> Iterator[Cell]:
    """The cells that have no row yet: one seed of every task first, then the next seed.

    seeds: 1..N of each task; None: as many as the task names. Only hive trains a SchemeTask.
    """
    ended = {(row.trainer, row.task, row.seed) for row in rows}
    for seed in range(1, (seeds or MOST_SEEDS) + 1):
        for task in tasks:
            for trainer in trainers:
                if isinstance(TASKS[task], SchemeTask) and trainer.partition(":")[0] != "hive":
                    continue
                most = 1 if trainer == "random" else seeds or TASKS[task].seeds
                if seed <= most and (trainer, task, seed) not in ended:
                    yield Cell(trainer, task, seed)


def command_of(cell: Cell, variants: dict[str, list[str]]) -> list[str]:
    """The program of a cell; it reads the settings of its task from stdin and prints one JSON object."""
    folder = Path(__file__).parent
    if cell.trainer == "sb3":
        return [str(peer_python("sb3", cache_folder())), str(folder / "sb3_cell.py"), str(cell.seed)]
    if cell.trainer == "random":
        return [sys.executable, "-P", str(folder / "random_cell.py"), str(cell.seed)]
    keys = variants.get(cell.trainer.partition(":")[2], [])
    return [sys.executable, "-P", str(folder / "hive_cell.py"), str(cell.seed), *keys]


def environment_of(cell: Cell) -> dict[str, str]:
    paths = [str(ROOT / "scripts"), str(ROOT / "examples")]
    inherited = [] if cell.trainer == "sb3" else os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [*paths, *inherited]))}


@dataclass
class Running:
    """A program that trains. Its output goes to files: a pipe that is not read would stop it."""

    name: str
    process: subprocess.Popen[bytes]
    out: IO[bytes]
    err: IO[bytes]
    load: float  # of the machine when it began

    def result(self) -> dict[str, Any]:
        """Return the object that an ended program printed last. Raises BenchError if it failed."""
        self.out.seek(0)
        self.err.seek(0)
        with self.out, self.err:
            if self.process.returncode != 0:
                text = tail(self.err.read().decode(errors="replace"))
                raise BenchError(f"{self.name} failed with code {self.process.returncode}\n{text}")
            found: dict[str, Any] = json.loads(self.out.read().decode().strip().rpartition("\n")[2])
            return found


def launched(name: str, command: Sequence[str], environment: Mapping[str, str], given: str = "") -> Running:
    """Start a program. given: its stdin."""
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  # `result` closes them
    with tempfile.TemporaryFile() as stdin:
        stdin.write(given.encode())
        stdin.seek(0)
        load = os.getloadavg()[0]
        process = subprocess.Popen(command, env=environment, stdin=stdin, stdout=out, stderr=err)
    return Running(name, process, out, err, load)


def start(cell: Cell, variants: dict[str, list[str]]) -> Running:
    settings = json.dumps(TASKS[cell.task].settings)
    return launched(cell.name, command_of(cell, variants), environment_of(cell), settings)


def run_all(
    jobs: Sequence[Job],
    launch: Callable[[Job], Running],
    finish: Callable[[Job, dict[str, Any], float], str],
    at_once: int = MOST_AT_ONCE,
    minutes: float = float("inf"),
) -> int:
    """Run jobs side by side, and none that would begin after `minutes`; return the exit code, 1 if one failed.

    finish: writes the row of a job, given its result and the load when it began, and returns what to print about it.
    """
    waiting, running, failed, begun = list(jobs), list[tuple[Job, Running]](), 0, time.monotonic()
    while running or (waiting and time.monotonic() - begun < minutes * 60):
        while waiting and len(running) < at_once and time.monotonic() - begun < minutes * 60:
            running.append((waiting[0], launch(waiting.pop(0))))
        for job, program in [entry for entry in running if entry[1].process.poll() is not None]:
            running.remove((job, program))
            try:
                text = finish(job, program.result(), program.load)
            except BenchError as error:
                failed, text = failed + 1, str(error)
            done = f"{len(jobs) - len(waiting) - len(running)}/{len(jobs)}"
            spent = (time.monotonic() - begun) / 60
            print(f"{program.name}: {text} · {done} · {spent:.1f} min", file=sys.stderr)
        time.sleep(LOOK_S)
    return 1 if failed else 0


def commit_of_tree() -> str:
    """The commit that is checked out, with "+" if the tree differs from it."""
    words = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def row_of(cell: Cell, found: dict[str, Any], load: float, commit: str) -> Row:
    task = TASKS[cell.task]
    versions = " ".join(f"{name}={number}" for name, number in sorted(found["versions"].items()))
    mean = float(np.mean(found["returns"]))
    head = (cell.trainer, cell.task, cell.seed, task.digest)
    return Row(*head, int(found["steps"]), round(found["seconds"], 2), mean, round(load, 2), commit, versions)


def append_row(row: Row, curve: Sequence[Sequence[float]], folder: Path = FOLDER) -> None:
    """Writes the row last: a cell whose row is there is complete."""
    results, curves = files_of(row.task, folder)
    points = averaged(curve) if row.trainer == "sb3" else [tuple(point) for point in curve]
    count = min(CURVE_POINTS, len(points))
    chosen: list[int] = np.unique(np.linspace(0, len(points) - 1, count).astype(int)).tolist() if count else []
    head = {"trainer": row.trainer, "task": row.task, "seed": row.seed, "settings": row.settings}
    append(
        curves,
        [
            {**head, "steps": int(points[i][0]), "seconds": round(points[i][1], 2), "return": round(points[i][2], 3)}
            for i in chosen
        ],
    )
    append(results, [asdict(row)])


def averaged(episodes: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
    """Single episodes (steps, seconds, return) as means of the last EPISODES_OF_A_MEAN."""
    returns = [point[2] for point in episodes]
    return [
        (point[0], point[1], float(np.mean(returns[max(index - EPISODES_OF_A_MEAN + 1, 0) : index + 1])))
        for index, point in enumerate(episodes)
    ]


def append(path: Path, records: Sequence[dict[str, Any]]) -> None:
    if not records:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(records[0]))
        if new:
            writer.writeheader()
        writer.writerows(records)
