"""`hive eval`: measures the policies of runs by playing whole episodes in this process, without exploration noise.

    RUN         CHECKPOINT  STEPS    EPISODES  RETURN        DEVIATION  MIN    MAX    LENGTH
    cartpole-1  001563      200,064  100       498.2 ± 1.3   6.8        441.0  500.0  498.2

`±` is a 95 % confidence interval of the mean return, by the central limit theorem. All policies play from the same
initial states, which `--seed` determines. Runs are only read: a live run continues, and its checkpoints are measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hive.cli.arguments import add_overrides
from hive.cli.select_run import RUN, chosen_run
from hive.cli.suggest import listed
from hive.cli.tables import print_table
from hive.config import load_config
from hive.errors import UsageError
from hive.printable import obeyed, printable
from hive.records import Checkpoint, RunDirectory, best_of, list_checkpoints

if TYPE_CHECKING:
    from hive.workers import Evaluation

__all__ = ["add_eval"]

EPISODES = 100
HEAD = ("RUN", "CHECKPOINT", "STEPS", "EPISODES", "RETURN", "DEVIATION", "MIN", "MAX", "LENGTH")


def add_eval(commands: Any) -> None:
    evaluate = commands.add_parser(
        "eval",
        description="Play whole episodes with the policies of runs and print statistics of their returns. All policies "
        "play from the same initial states.",
        epilog="example: hive eval cartpole-1 --which best --episodes 20",
    )
    evaluate.add_argument("runs", nargs="*", metavar="RUN", help=f"{RUN}; default: the live run, else the newest")
    evaluate.add_argument(
        "--which",
        default="latest",
        help="latest (default): the newest checkpoint; best: the best policy by evaluation or training return; all: "
        "every checkpoint; or the number of an update, as in checkpoints/",
    )
    evaluate.add_argument(
        "--episodes",
        type=_number("number of episodes", 1),
        default=EPISODES,
        help=f"number of episodes (default {EPISODES})",
    )
    evaluate.add_argument("--seed", type=_number("seed", 0), default=0, help="seed of the episodes (default 0)")
    evaluate.add_argument(
        "--sample", action="store_true", help="sample actions as in training instead of taking the most likely ones"
    )
    add_overrides(evaluate, "override a key of the run's config, such as env.options.NAME (repeatable)")
    evaluate.add_argument("--json", action="store_true", help="print one JSON array")
    evaluate.set_defaults(run=run_eval)


def _number(what: str, least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or int(text) < least:
            raise argparse.ArgumentTypeError(f"invalid {what} `{text}`: expected a whole number >= {least}")
        return int(text)

    return read


def run_eval(options: argparse.Namespace) -> int:
    """Run `hive eval`; return the exit code."""
    # All checkpoints are found before the first episode, so that a typing error costs no minutes.
    runs = [chosen_run(text) for text in options.runs or [None]]
    chosen = [(run, checkpoint) for run in runs for checkpoint in checkpoints_of(run, options.which)]
    found = [(run, checkpoint, _play(run, checkpoint, options)) for run, checkpoint in chosen]
    if options.json:
        print(json.dumps([_as_data(*one, options) for one in found], indent=2))
    else:
        infos = list(dict.fromkeys(name for _, _, played in found for name in played.info))
        rows = [[*_cells(*one), *(_share(one[2].info.get(name)) for name in infos)] for one in found]
        print_table([*HEAD, *(name.upper() for name in infos)], rows)
    return 0


def checkpoints_of(run: RunDirectory, which: str) -> list[Checkpoint]:
    """Return a run's checkpoints that `which` selects ("latest", "best", "all" or a number), sorted by update.

    Raises RecordError if there is no best policy, and UsageError if there is no such checkpoint.
    """
    if which == "best":
        return [best_of(run)]
    there = list_checkpoints(run.checkpoints, verify=True)
    if not there:
        raise UsageError(f"{run.name} has no checkpoint", hint="`hive save` writes one while the run is live")
    if which == "all":
        return there
    if which == "latest":
        return there[-1:]
    if named := [checkpoint for checkpoint in there if checkpoint.path.name == which.zfill(6)]:
        return named
    names = listed(checkpoint.path.name for checkpoint in there)
    raise UsageError(f"{run.name} has no checkpoint `{which}`", hint=f"use latest, best, all, or one of {names}")


def _play(run: RunDirectory, checkpoint: Checkpoint, options: argparse.Namespace) -> Evaluation:
    from hive.algorithms import load
    from hive.workers import evaluate

    config = load_config(run.resolved_file, options.set)
    policy = load(str(checkpoint.path), own_code=True)  # executes the config's user code, as `hive resume` does
    name = f"{run.name} {_name(run, checkpoint)}"
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
            obeyed(sys.stderr).write("\r\x1b[K")


def _progress(name: str, episodes: int) -> Callable[[int], None]:
    """Return a function that shows the number of completed episodes on a terminal."""
    last = -1

    def show(done: int) -> None:
        nonlocal last
        if done != last and sys.stderr.isatty():
            last = done
            obeyed(sys.stderr).write(f"\r\x1b[K{printable(name)}: {done} of {episodes} episodes")
            sys.stderr.flush()

    return show


def _name(run: RunDirectory, checkpoint: Checkpoint) -> str:
    """Return the name of a checkpoint: "001563", or "best/001563" for the best policy."""
    return f"best/{checkpoint.path.name}" if checkpoint.path.parent == run.best else checkpoint.path.name


def _cells(run: RunDirectory, checkpoint: Checkpoint, played: Evaluation) -> list[str]:
    interval = "" if math.isnan(played.interval) else f" ± {played.interval:.1f}"
    return [
        run.name,
        _name(run, checkpoint),
        f"{played.env_steps:,}",
        str(played.episodes),
        f"{played.mean_return:.1f}{interval}",
        *(f"{value:.1f}" for value in (played.deviation, played.min, played.max, played.mean_length)),
    ]


def _share(mean: float | None) -> str:
    """Return the mean of a value of `info`; most are shares."""
    return "" if mean is None else f"{mean:.3g}"


def _as_data(
    run: RunDirectory, checkpoint: Checkpoint, played: Evaluation, options: argparse.Namespace
) -> dict[str, Any]:
    numbers = dataclasses.asdict(played)
    del numbers["turn"], numbers["seconds"]  # only meaningful for evaluations during a run
    return {
        "run": run.name,
        "checkpoint": str(checkpoint.path),
        **numbers,
        "interval_95": None if math.isnan(played.interval) else played.interval,
        "seed": options.seed,
        "sampled": options.sample,
    }
