"""The command `monitor`: a live view of a run, also of an ended one. Leaving it never stops the run.

On a terminal it starts the terminal UI (hive.monitor.terminal, which is imported only then, because it needs textual).
`--once` prints the first screen and `--json` the whole Snapshot; neither needs a terminal.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from hive.cli.parts.arguments import add_json, add_run
from hive.errors import UsageError
from hive.launch.select_run import chosen_run
from hive.records.documents import json_text

NICE = 10  # niceness of this process: the view must not take CPU time from the run
WIDTH = 100  # maximum columns that `--once` prints


def add_monitor(commands: Any) -> None:
    monitor = commands.add_parser(
        "monitor",
        description="Show a live view of a run: pipeline, actors, learning and logs. Leaving it never stops the run.",
        epilog="example: hive monitor cartpole-ppo-1",
    )
    add_run(monitor)
    monitor.add_argument("--once", action="store_true", help="print the first screen and exit")
    add_json(monitor, "one snapshot as one JSON object and exit")
    monitor.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")
    monitor.add_argument("--readonly", action="store_true", help="offer no actions that change the run")
    monitor.set_defaults(run=run_monitor)


def run_monitor(options: argparse.Namespace) -> int:
    run = chosen_run(options.run_name)
    os.nice(max(NICE - os.nice(0), 0))
    if options.json:
        from hive.monitor import as_data
        from hive.monitor.poller import poll_once

        print(json_text(as_data(poll_once(run)), indent=2))
        return 0
    if options.once:
        from hive.monitor.drawing import plain
        from hive.monitor.overview import overview
        from hive.monitor.poller import poll_once

        print(plain(overview(poll_once(run), WIDTH), ascii_only=options.ascii))
        return 0
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("`monitor` needs a terminal", hint="without one, use `hive monitor --once` or `--json`")
    from hive.monitor.terminal.app import watch

    watch(run, ascii_only=options.ascii, readonly=options.readonly)
    return 0
