"""The options of the commands `up` and `resume`, without what the commands do (hive.cli.up).

A shell that completes the name of a run after `hive resume` waits for this module only.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hive.cli.arguments import add_overrides
from hive.cli.select_run import RUN

__all__ = ["add_resume", "add_up"]


def add_up(commands: Any) -> None:
    up = commands.add_parser(
        "up",
        description="Start a run and show its progress. Leaving the view (key d) does not stop the run; Ctrl-C does, "
        "after saving its state.",
        epilog="example: hive up examples/cartpole.toml --set collection.workers=2",
    )
    up.add_argument("config", type=Path, nargs="?", help="a TOML file; `hive init ENV` writes one")
    up.add_argument("--resume", metavar="RUN", help="continue an ended run, as `hive resume RUN` does")
    up.add_argument("--exact", action="store_true", help="with --resume: start from the last scheduled checkpoint")
    up.add_argument("-d", "--detach", action="store_true", help="return as soon as the run is running")
    add_overrides(up)
    up.add_argument(
        "--topology", metavar="FILE.py[:FUNCTION]", help="a custom topology; the same as --set run.topology=..."
    )
    up.add_argument("--seed", type=int, help="random seed; the same as --set run.seed=SEED")
    up.add_argument("--seeds", metavar="1..5", help="start one run after another with these seeds, and print a table")
    up.add_argument("-n", "--name", help="name of the run, to which a number is appended; as --set run.name=NAME")
    up.add_argument(
        "--inline",
        action="store_true",
        help="run everything in this process, for debugging: breakpoints work, actors are not restarted",
    )
    _add_json(up)
    up.set_defaults(run=_run_up, owns_stdout=True)


def add_resume(commands: Any) -> None:
    resume = commands.add_parser(
        "resume",
        description="Continue a paused run, or an ended one from its newest checkpoint.",
        epilog="example: hive resume cartpole-1",
    )
    resume.add_argument("run_name", metavar="RUN", help=RUN)
    resume.add_argument(
        "--exact",
        action="store_true",
        help="start from the last scheduled checkpoint; results are then bit-identical to an uninterrupted run",
    )
    resume.add_argument("-d", "--detach", action="store_true", help="return as soon as the run is running")
    resume.add_argument("--inline", action="store_true", help="run everything in this process, for debugging")
    add_overrides(resume, "change a key of the config (repeatable)")
    _add_json(resume)
    resume.set_defaults(run=_run_resume, owns_stdout=True)


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print a snapshot every 5 s as one JSON object a line")


def _run_up(options: argparse.Namespace) -> int:
    from hive.cli.up import run_up

    return run_up(options)


def _run_resume(options: argparse.Namespace) -> int:
    from hive.cli.up import run_resume

    return run_resume(options)
