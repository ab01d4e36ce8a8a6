"""The command line of `scripts/parity`.

    scripts/parity run        runs the cells that have no row yet, two at a time, and shows how far they are
    scripts/parity report     tables on stdout, curves as SVG beside the rows
    scripts/parity agents     the same for environments of several agents (comparison.agents)

Exit codes: 0 done · 1 a cell failed, or the score is below its promise · 2 usage.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import commit_of_tree
from benchmarks.programs import MOST_AT_ONCE, run_all

from comparison import agents
from comparison.cells import (
    FOLDER,
    Cell,
    append_row,
    missing,
    read_rows,
    row_of,
    start,
)
from comparison.report import text_of, write_curves
from comparison.tasks import TASKS

VARIANTS: dict[str, list[str]] = {
    "": [],
    "native": ["network.backend=native"],
    "torch": ["network.backend=torch"],
    "half": ["half"],
    "synchronous": ["collection.communication=synchronous"],
    "asynchronous": ["collection.communication=asynchronous", "gradients.communication=asynchronous"],
}
"""Variant of hive -> its additional keys."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="parity", description="Compares what agents learn with hive and with peers.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run the cells that have no row yet")
    run.add_argument(
        "--trainer",
        action="append",
        default=[],
        help='"hive", "hive:VARIANT", "sb3" or "random" (repeat; default: hive, sb3, random)',
    )
    run.add_argument("--task", action="append", default=[], choices=list(TASKS), help="default: each of them")
    run.add_argument("--seeds", type=int, help="seeds 1..N of each task (default: as many as the task names)")
    run.add_argument("--at-once", type=int, default=MOST_AT_ONCE, help="cells side by side (default %(default)s)")
    run.add_argument("--minutes", type=float, default=float("inf"), help="start no cell after this time")
    run.set_defaults(run=run_cells)
    report = commands.add_parser("report", help="tables and curves of the rows that exist")
    report.add_argument("--trainer", default="hive", help='"hive" or "hive:VARIANT" (default %(default)s)')
    report.add_argument("--peer", default="sb3", help='"sb3" or a trainer to compare with; only "sb3" has plots')
    report.set_defaults(run=show_report)
    agents.add_options(commands.add_parser("agents", help="environments of several agents"))
    return top


def main(words: Sequence[str] | None = None) -> None:
    options = parser().parse_args(words)
    sys.exit(options.run(options))


def run_cells(options: argparse.Namespace) -> int:
    tasks, trainers = options.task or list(TASKS), options.trainer or ["random", "hive", "sb3"]
    waiting, commit = list(missing(trainers, tasks, options.seeds, read_rows())), commit_of_tree()

    def finish(cell: Cell, result: dict[str, Any], load: float) -> str:
        append_row(row_of(cell, result, load, str(commit), options.at_once), result["curve"])
        return f"mean return {np.mean(result['returns']):.1f}, {result['seconds']:.0f} s"

    return run_all(waiting, lambda cell: start(cell, VARIANTS), finish, options.at_once, options.minutes)


def show_report(options: argparse.Namespace) -> int:
    rows = read_rows()
    if options.peer != "sb3":
        print(text_of(rows, options.trainer, options.peer))
        return 0
    print(text_of(rows, options.trainer))
    for path in write_curves(rows, options.trainer, Path(os.path.relpath(FOLDER))):
        print(f"wrote {path}", file=sys.stderr)
    return 0
