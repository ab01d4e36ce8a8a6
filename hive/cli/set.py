"""`hive set`: changes hyperparameters of a running run."""

from __future__ import annotations

import argparse
from typing import Any

from hive.cli.parts.arguments import add_run_and_settings, run_and_settings
from hive.launch.control import connected
from hive.launch.select_run import live_run


def add_set(commands: Any) -> None:
    set_ = commands.add_parser(
        "set",
        description="Change keys of [algorithm] of a running run, such as the learning rate, from the next update on.",
        epilog="example: hive set cartpole-ppo-1 algorithm.learning_rate=1e-4",
    )
    add_run_and_settings(set_, "KEY=VALUE", "a key of [algorithm] and its new value")
    set_.set_defaults(run=run_set)


def run_set(options: argparse.Namespace) -> int:
    name, settings = run_and_settings(options)
    directory = live_run(name)
    with connected(directory) as client:
        client.set(settings)
    print(f"{directory.name} continues with {' '.join(settings)}")
    return 0
