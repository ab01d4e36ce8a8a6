"""`hive save`: writes a checkpoint of a running run now."""

from __future__ import annotations

import argparse
from typing import Any

from hive.cli.parts.arguments import ONLY_LIVE_RUN, add_run
from hive.cli.parts.control import WaitReporter, connected
from hive.cli.parts.select_run import live_run
from hive.errors import UsageError
from hive.records import (
    run_state,
)
from hive.records.jsonl import parse_line
from hive.records.tail import Tail


def add_save(commands: Any) -> None:
    save = commands.add_parser(
        "save",
        description="Write a checkpoint of a running run now, and print its path. The run continues.",
        epilog="example: hive save cartpole-ppo-1",
    )
    add_run(save, ONLY_LIVE_RUN)
    save.set_defaults(run=run_save)


def run_save(options: argparse.Namespace) -> int:
    directory, waits = live_run(options.run_name), WaitReporter()
    event_log = Tail(directory.events_file, 0)
    event_log.skip()
    with connected(directory) as client:
        client.save()
    while True:
        alive = run_state(directory) == "running"  # must be read before the events, or the last events could be missed
        for event in filter(None, map(parse_line, event_log.lines())):
            if event.get("kind") == "saved":
                print(event.get("path", ""))
                return 0
            if event.get("kind") in ("not saved", "not done"):
                raise UsageError(f"{directory.name} was not saved: {event.get('text')}")
        if not alive:
            raise UsageError(f"{directory.name} ended before it was saved")
        waits.wait(lambda: "the recorder")
