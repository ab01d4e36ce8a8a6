"""`hive resume`: continues a paused run, or an ended one from its newest checkpoint (hive.launch.resuming)."""

from __future__ import annotations

import argparse
from typing import Any

from hive.cli.parts.arguments import add_run, add_start, check_start
from hive.errors import UsageError


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
    resume.set_defaults(run=run_resume)


def run_resume(options: argparse.Namespace) -> int:
    from hive.launch.control import connected
    from hive.launch.foreground import launch
    from hive.launch.resuming import prepare
    from hive.launch.select_run import chosen_run
    from hive.records import run_state

    check_start(options)
    directory = chosen_run(options.run_name)
    if run_state(directory) == "running":
        with connected(directory) as client:
            if client.status()["pausing"] is not None:
                if options.exact or options.set:
                    raise UsageError(
                        f"{directory.name} is paused and can only continue unchanged",
                        hint=f"to change it: hive down {directory.name}, then resume it with --exact or --set",
                    )
                client.resume()
                print(f"{directory.name} running")
                return 0
    directory = prepare(str(directory.path.resolve()), exact=options.exact, sets=options.set)
    return launch(directory, inline=options.inline, detach=options.detach, json=options.json)
