"""`hive eval`: how good the policies of runs are, by whole episodes in this process, without their noise.

    RUN         CHECKPOINT  STEPS    EPISODES  RETURN        DEVIATION  MIN    MAX    LENGTH
    cartpole-1  001563      200,064  100       498.2 ± 1.3   6.8        441.0  500.0  498.2

The interval contains the mean with 95 %, by the central limit theorem. All begin their episodes in the same states,
which follow from `--seed`. Runs are only read: one that lives goes on, and is judged by what it has saved.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hive.cli.select_run import RUN, chosen_run
from hive.cli.suggest import listed
from hive.cli.tables import print_table
from hive.config import load_config
from hive.errors import UsageError
from hive.records import Checkpoint, RunDirectory, best_first, list_checkpoints

if TYPE_CHECKING:
    from hive.workers import Evaluation

__all__ = ["add_eval"]

EPISODES = 100
HEAD = ("RUN", "CHECKPOINT", "STEPS", "EPISODES", "RETURN", "DEVIATION", "MIN", "MAX", "LENGTH")


def add_eval(commands: Any) -> None:
    evaluate = commands.add_parser(
        "eval",
        description="Plays whole episodes with the policies of runs, and says how good they are.",
        epilog="example: hive eval cartpole-1 --checkpoint all --episodes 20",
    )
    evaluate.add_argument("runs", nargs="*", metavar="RUN", help=f"{RUN}; default: as for ps")
    evaluate.add_argument(
        "--checkpoint",
        default="newest",
        metavar="WHICH",
        help="newest (default), best (of training returns), all, or a number as `hive ps` and the folder say it",
    )
    evaluate.add_argument(
        "--episodes", type=_number("number of episodes", 1), default=EPISODES, help=f"default {EPISODES}"
    )
    evaluate.add_argument("--seed", type=_number("seed", 0), default=0, help="of the episodes (default 0)")
    evaluate.add_argument("--sample", action="store_true", help="draw actions as in training, not the most likely ones")
    evaluate.add_argument(
        "-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="env.options.NAME=... (repeat)"
    )
    evaluate.add_argument("--json", action="store_true", help="one JSON array")
    evaluate.set_defaults(run=run_eval)


def _number(what: str, least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or int(text) < least:
            raise argparse.ArgumentTypeError(f"`{text}` is no {what}: a whole number from {least} on")
        return int(text)

    return read


def run_eval(options: argparse.Namespace) -> int:
    """Everything is chosen before anything is played: a slip of the finger costs no minutes."""
    runs = [chosen_run(text) for text in options.runs or [None]]
    chosen = [(run, checkpoint) for run in runs for checkpoint in checkpoints_of(run, options.checkpoint)]
    found = [(run, checkpoint, _play(run, checkpoint, options)) for run, checkpoint in chosen]
    if options.json:
        print(json.dumps([_as_data(*one, options) for one in found], indent=2))
    else:
        print_table(HEAD, [_cells(*one) for one in found])
    return 0


def checkpoints_of(run: RunDirectory, which: str) -> list[Checkpoint]:
    """Those of a run that `which` means, by update. Raises UsageError where there is none."""
    there = list_checkpoints(run.checkpoints, verify=True)
    if not there:
        raise UsageError(f"{run.name} has no checkpoint", hint="`hive save` writes one of a run that lives")
    if which == "all":
        return there
    if which == "newest":
        return there[-1:]
    if which == "best":
        if rated := best_first(there):
            return rated[:1]
        raise UsageError(f"no checkpoint of {run.name} knows a training return", hint="--checkpoint newest")
    if named := [checkpoint for checkpoint in there if checkpoint.path.name == which.zfill(6)]:
        return named
    names = listed(checkpoint.path.name for checkpoint in there)
    raise UsageError(f"{run.name} has no checkpoint `{which}`", hint=f"newest, best, all, or one of {names}")


def _play(run: RunDirectory, checkpoint: Checkpoint, options: argparse.Namespace) -> Evaluation:
    from hive.algorithms import load
    from hive.workers import evaluate

    config = load_config(run.resolved_file, options.set)
    policy = load(str(checkpoint.path), own_code=True)  # whoever resumes the run calls that code too
    name = f"{run.name} {checkpoint.path.name}"
    try:
        return evaluate(
            policy,
            config,
            episodes=options.episodes,
            seed=options.seed,
            sample=options.sample,
            progress=_progress(name, options.episodes),
        )
    finally:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")


def _progress(name: str, episodes: int) -> Callable[[int], None]:
    """Says in a terminal how far it is, whenever another episode has ended."""
    last = -1

    def tell(done: int) -> None:
        nonlocal last
        if done != last and sys.stderr.isatty():
            last = done
            sys.stderr.write(f"\r\x1b[K{name}: {done} of {episodes} episodes")
            sys.stderr.flush()

    return tell


def _cells(run: RunDirectory, checkpoint: Checkpoint, played: Evaluation) -> list[str]:
    interval = "" if math.isnan(played.interval) else f" ± {played.interval:.1f}"
    return [
        run.name,
        checkpoint.path.name,
        f"{played.env_steps:,}",
        str(played.episodes),
        f"{played.mean_return:.1f}{interval}",
        *(f"{value:.1f}" for value in (played.deviation, played.min, played.max, played.mean_length)),
    ]


def _as_data(
    run: RunDirectory, checkpoint: Checkpoint, played: Evaluation, options: argparse.Namespace
) -> dict[str, Any]:
    numbers = dataclasses.asdict(played)
    del numbers["turn"], numbers["seconds"]  # of evaluations within a run
    return {
        "run": run.name,
        "checkpoint": str(checkpoint.path),
        **numbers,
        "interval_95": None if math.isnan(played.interval) else played.interval,
        "seed": options.seed,
        "sampled": options.sample,
    }
