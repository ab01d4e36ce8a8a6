"""`hive scale`: changes the number of workers of a running run."""

from __future__ import annotations

import argparse
import time
from typing import Any

from hive.cli.parts.arguments import add_run_and_settings, run_and_settings
from hive.errors import UsageError
from hive.launch.control import POLL_S, connected
from hive.launch.select_run import live_run


def add_scale(commands: Any) -> None:
    scale = commands.add_parser(
        "scale",
        description="Change the number of workers of a running run. The run saves its state, restarts its processes "
        "and continues from there.",
        epilog="example: hive scale cartpole-ppo-1 collection.workers=4 gradients.workers=2",
    )
    add_run_and_settings(scale, "KEY=COUNT", "collection.workers=N or gradients.workers=N")
    scale.set_defaults(run=run_scale)


def run_scale(options: argparse.Namespace) -> int:
    """Run `hive scale`. Raises UsageError if the new topology cannot be built; the run then continues unchanged."""
    name, settings = run_and_settings(options)
    directory = live_run(name)
    with connected(directory) as client:
        before, begun = client.status(), time.monotonic()
        client.scale(settings)
        while (status := client.status())["stage"] == before["stage"] or status["state"] in ("starting", "draining"):
            time.sleep(POLL_S)
    if status["refused"] != before["refused"]:
        raise UsageError(f"{directory.name} continues unchanged: {status['refused']}")
    counts = " ".join(settings)
    print(f"{directory.name} {status['state']} with {counts} after {time.monotonic() - begun:.1f} s")
    return 0
