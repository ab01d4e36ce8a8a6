"""The command line of `scripts/parity`.

    scripts/parity run        runs the cells that have no row yet, two at a time, and shows how far they are
    scripts/parity report     tables on stdout, curves as SVG beside the rows

Exit codes: 0 done · 1 a cell failed, or the score is below its promise · 2 usage.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from benchmarks.programs import BenchError

from comparison.cells import FOLDER, ROOT, Running, append_row, missing, read_rows, row_of, start
from comparison.report import lag_text, text_of, write_curves
from comparison.tasks import TASKS

MOST_AT_ONCE = 2  # cells: each takes about one core
LOOK_S = 0.5  # between two looks at the running cells
VARIANTS: dict[str, list[str]] = {
    "": [],
    "native": ["network.backend=native"],
    "torch": ["network.backend=torch"],
    "half": ["half"],
    "synchronous": ["collection.communication=synchronous"],
    "asynchronous": ["collection.communication=asynchronous", "gradients.communication=asynchronous"],
    "defaults": ["defaults"],
    "defaults-32": ["defaults", "collection.rollout=32", "algorithm.minibatches=4"],
    "defaults-64": ["defaults", "collection.rollout=64", "algorithm.minibatches=8"],
    "defaults-128": ["defaults", "collection.rollout=128", "algorithm.minibatches=16"],
    "defaults-128-64": ["defaults", "collection.rollout=128", "algorithm.minibatches=32"],
    "defaults-128-10": [
        *("defaults", "collection.rollout=128", "algorithm.minibatches=32"),
        *("algorithm.epochs=10", "algorithm.entropy_weight=0"),
    ],
    "defaults-128-0": [
        *("defaults", "collection.rollout=128", "algorithm.minibatches=32", "algorithm.entropy_weight=0"),
    ],
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
    return top


def main(words: Sequence[str] | None = None) -> None:
    options = parser().parse_args(words)
    sys.exit(options.run(options))


def run_cells(options: argparse.Namespace) -> int:
    tasks, trainers = options.task or list(TASKS), options.trainer or ["random", "hive", "sb3"]
    waiting = list(missing(trainers, tasks, options.seeds, read_rows()))
    total, failed, begun = len(waiting), 0, time.monotonic()
    running: list[Running] = []
    commit = commit_of_tree()
    while running or (waiting and time.monotonic() - begun < options.minutes * 60):
        while waiting and len(running) < options.at_once and time.monotonic() - begun < options.minutes * 60:
            running.append(start(waiting.pop(0), VARIANTS))
        for ended in [one for one in running if one.process.poll() is not None]:
            running.remove(ended)
            try:
                found = ended.result()
                append_row(row_of(ended.cell, found, ended.load, commit), found["curve"])
                text = f"mean return {np.mean(found['returns']):.1f}, {found['seconds']:.0f} s"
            except BenchError as error:
                failed, text = failed + 1, str(error)
            minutes = (time.monotonic() - begun) / 60
            print(
                f"{ended.cell.name}: {text} · {total - len(waiting) - len(running)}/{total} · {minutes:.1f} min",
                file=sys.stderr,
            )
        time.sleep(LOOK_S)
    return 1 if failed else 0


def commit_of_tree() -> str:
    """The commit that is checked out, with "+" if the tree differs from it."""
    words = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def show_report(options: argparse.Namespace) -> int:
    rows = read_rows()
    if options.peer != "sb3":
        print(text_of(rows, options.trainer, options.peer))
        return 0
    print(text_of(rows, options.trainer), lag_text(rows), sep="\n\n")
    for path in write_curves(rows, options.trainer, Path(os.path.relpath(FOLDER))):
        print(f"wrote {path}", file=sys.stderr)
    return 0
