"""`hive set`: changes hyperparameters of a running run."""

from __future__ import annotations

import argparse
from typing import Any

from hive.cli.parts.arguments import RUN
from hive.cli.parts.control import connected
from hive.cli.parts.select_run import live_run


def add_set(commands: Any) -> None:
    set_ = commands.add_parser(
        "set",
        description="Change keys of [algorithm] of a running run, such as the learning rate, from the next update on.",
        epilog="example: hive set cartpole-ppo-1 algorithm.learning_rate=1e-4",
    )
    set_.add_argument("run_name", metavar="RUN", help=RUN)
    set_.add_argument("sets", nargs="+", metavar="KEY=VALUE", help="a key of [algorithm] and its new value")
    set_.set_defaults(run=run_set)


def run_set(options: argparse.Namespace) -> int:
    directory = live_run(options.run_name)
    with connected(directory) as client:
        client.set(options.sets)
    print(f"{directory.name} continues with {' '.join(options.sets)}")
    return 0
