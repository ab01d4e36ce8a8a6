"""`scripts/parity agents`: what hive learns in environments of several agents, beside Stable-Baselines3 with SuperSuit.

The rows are in examples/results/agents.csv, one per cell that has ended. A cell that was interrupted runs again. The
Python that runs this program needs PettingZoo, SuperSuit and mpe2; that of Stable-Baselines3 is installed at first use.

Columns: trainer "random", "hive", "sb3", or "sb3:bootstrap" (`comparison.agents_sb3_cell`) · steps of environments, not
of agents · steps_per_s of training, or of random actions in one process · mean_return of an agent, with the most likely
actions, and sampled_return, with sampled ones · load of the machine when the cell began.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.harness import append_rows
from benchmarks.machine import commit_of_tree
from benchmarks.peer_environments import cache_folder, peer_python
from benchmarks.programs import Running, importing, launched, run_all

from comparison.agents_tasks import TASKS
from comparison.cells import FOLDER, Cell, records_of
from comparison.report import difference, spread

FILE = FOLDER / "agents.csv"


@dataclass(frozen=True, slots=True)
class AgentsRow:
    """The result of one cell; the columns of the file."""

    trainer: str
    task: str
    seed: int
    settings: str
    steps: int
    seconds: float
    steps_per_s: float
    mean_return: float
    sampled_return: float
    load: float
    commit: str
    versions: str


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.add_argument("--task", action="append", default=[], choices=list(TASKS), help="default: each of them")
    command.add_argument("--trainer", action="append", default=[], help="default: each that can train the task")
    command.add_argument("--seeds", type=int, help="seeds 0..N-1 of each task (default: as many as the task names)")
    command.add_argument("--minutes", type=float, default=float("inf"), help="start no cell after this time")
    command.add_argument("--peer-python", type=Path, help="a Python that has Stable-Baselines3 and SuperSuit")
    command.add_argument("--report", action="store_true", help="run nothing, print the table of the rows")
    command.set_defaults(run=run_agents)


def run_agents(options: argparse.Namespace) -> int:
    """Run the cells without a row, one at a time, or print the table."""
    if options.report:
        print(text_of(rows_of()))
        return 0
    commit = str(commit_of_tree())

    def start(cell: Cell) -> Running:
        return launched(cell.name, _command(cell, options.peer_python), importing())

    def finish(cell: Cell, found: dict[str, Any], load: float) -> str:
        versions = " ".join(f"{name}={number}" for name, number in sorted(found.pop("versions").items()))
        head = (cell.trainer, cell.task, cell.seed, TASKS[cell.task].digest)
        row = AgentsRow(*head, **found, load=round(load, 2), commit=commit, versions=versions)
        append_rows(FILE, [field.name for field in fields(AgentsRow)], [asdict(row)])
        return f"mean return {row.mean_return:.2f}, {row.seconds:.0f} s"

    waiting = [*_missing(options.task or list(TASKS), options.trainer, options.seeds)]
    return run_all(waiting, start, finish, 1, options.minutes)


def rows_of(path: Path = FILE) -> list[AgentsRow]:
    """Return the rows of the present settings."""
    rows = records_of(path, AgentsRow)
    return [row for row in rows if row.task in TASKS and row.settings == TASKS[row.task].digest]


def _missing(tasks: Sequence[str], trainers: Sequence[str], seeds: int | None) -> Iterator[Cell]:
    """The cells without a row: one seed of every task first, then the next seed."""
    ended = {(row.trainer, row.task, row.seed) for row in rows_of()}
    for seed in range(max(seeds or TASKS[task].seeds for task in tasks)):
        for task in tasks:
            for trainer in TASKS[task].trainers:
                most = 1 if trainer == "random" else seeds or TASKS[task].seeds
                if trainer in (trainers or [trainer]) and seed < most and (trainer, task, seed) not in ended:
                    yield Cell(trainer, task, seed)


def _command(cell: Cell, peer: Path | None) -> list[str]:
    """The program of a cell, which prints one JSON object."""
    trainer, _, variant = cell.trainer.partition(":")
    python = peer or peer_python("agents", cache_folder()) if trainer == "sb3" else sys.executable
    module = {"random": "agents_judge", "sb3": "agents_sb3_cell", "hive": "agents_hive_cell"}[trainer]
    return [str(python), "-P", "-m", f"comparison.{module}", cell.task, str(cell.seed), *filter(None, [variant])]


def text_of(rows: Sequence[AgentsRow]) -> str:
    """Return the rows as a table of Markdown, with the difference between hive and each peer."""
    lines = [
        "| task | steps | trainer | mean return (range; seeds) | sampled actions | steps/s | hive minus it, 90 % |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, task in TASKS.items():
        of = {trainer: [row for row in rows if (row.task, row.trainer) == (name, trainer)] for trainer in task.trainers}
        for trainer, found in of.items():
            if not found:
                continue
            cells = [spread([row.mean_return for row in found]), spread([row.sampled_return for row in found])]
            rates, compared = sorted(row.steps_per_s for row in found), ""
            if trainer.startswith("sb3") and of["hive"] and of["random"]:
                low = of["random"][0]
                shares = [
                    difference(
                        [getattr(row, key) for row in of["hive"]],
                        [getattr(row, key) for row in found],
                        getattr(low, key),
                    )
                    for key in ("mean_return", "sampled_return")
                ]
                compared = "; ".join(
                    f"{one.share.value:+.3f} ({one.share.low:+.3f} to {one.share.high:+.3f}), {one.verdict}"
                    for one in shares
                )
            steps = f"{found[0].steps:,}"
            lines.append(
                f"| {name} | {steps} | {trainer} | {' | '.join(cells)} | {rates[len(rates) // 2]:,.0f} | {compared} |"
            )
    return "\n".join(lines)
