"""The options of the commands `up` and `resume`, without what the commands do (hive.cli.up).

A shell that completes the name of a run after `hive resume` waits for this module only.
"""

from __future__ import annotations

import argparse
from typing import Any

from hive.cli.parts.arguments import add_config_file, add_run, add_start, add_topology


def add_up(commands: Any) -> None:
    up = commands.add_parser(
        "up",
        description="Start a run and show its progress. Leaving the view (key d) does not stop the run; Ctrl-C does, "
        "after saving its state.",
        epilog="example: hive up examples/cartpole-ppo.toml --set collection.workers=2",
    )
    add_config_file(up, nargs="?")
    up.add_argument("--resume", metavar="RUN", help="continue an ended run, as `hive resume RUN` does")
    add_start(up, exact="with --resume: as `hive resume --exact`")
    add_topology(up)
    up.add_argument("--seed", type=int, help="random seed; the same as --set run.seed=SEED")
    up.add_argument("--seeds", metavar="1..5", help="start one run after another with these seeds, and print a table")
    up.add_argument("-n", "--name", help="name of the run, to which a number is appended; as --set run.name=NAME")
    up.set_defaults(run=_run_up, owns_stdout=True)


def add_resume(commands: Any) -> None:
    resume = commands.add_parser(
        "resume",
        description="Continue a paused run, or an ended one from its newest checkpoint.",
        epilog="example: hive resume cartpole-ppo-1",
    )
    add_run(resume)
    add_start(
        resume,
        exact="start from the last scheduled checkpoint, or the beginning before the first one; results are then "
        "bit-identical to an uninterrupted run",
    )
    resume.set_defaults(run=_run_resume, owns_stdout=True)


def _run_up(options: argparse.Namespace) -> int:
    from hive.cli.up import run_up

    return run_up(options)


def _run_resume(options: argparse.Namespace) -> int:
    from hive.cli.up import run_resume

    return run_resume(options)
