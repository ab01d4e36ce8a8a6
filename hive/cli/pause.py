"""`hive pause`: pauses a run and keeps its state in memory. Ctrl-C ends the command, not the request."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from hive.cli.parts.arguments import ONLY_LIVE_RUN, add_run
from hive.errors import UsageError
from hive.launch.control import WaitReporter, connected
from hive.launch.select_run import live_run
from hive.launch.suggest import listed


def add_pause(commands: Any) -> None:
    pause = commands.add_parser(
        "pause",
        description="Pause a run and keep its state in memory. `hive resume` continues it; results stay bit-identical "
        "to those of a run that was not paused.",
        epilog="example: hive pause cartpole-ppo-1",
    )
    add_run(pause, ONLY_LIVE_RUN)
    pause.set_defaults(run=run_pause)


def run_pause(options: argparse.Namespace) -> int:
    directory, waits = live_run(options.run_name), WaitReporter()
    with connected(directory) as client:
        client.pause()
        while (status := client.status())["state"] != "paused":
            if status["state"] != "running":
                raise UsageError(f"{directory.name} did not pause: it is {status['state']} ({status.get('reason')})")
            if status["pausing"] is None:
                raise UsageError(f"{directory.name} did not pause: another command resumed it")
            waits.wait(lambda status=status: listed(status["pausing"]) or "the last messages")  # type: ignore[misc]
    print(f"{directory.name} paused at {_steps(status):,} steps")
    print(f"hint: hive resume {directory.name}", file=sys.stderr)
    return 0


def _steps(status: Mapping[str, Any]) -> int:
    return int(status["results"].get("env_steps", 0))
