"""The command `monitor`: a live view on a run, or on one that has ended. Leaving it never stops the run.

On a terminal it is the terminal UI (hive.monitor.terminal, which alone needs textual and is imported only then);
`--once` prints what its first screen shows, `--json` the whole Snapshot, and both need no terminal.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from hive.cli.select_run import LIVE_RUN, chosen_run
from hive.errors import UsageError
from hive.records.documents import json_text

__all__ = ["add_monitor"]

NICE = 10  # a view waits for the run, never the run for a view
SIZE = (100, 40)  # columns and lines at most, of what is printed once


def add_monitor(commands: Any) -> None:
    monitor = commands.add_parser(
        "monitor",
        description="Shows a run live. Leaving it never stops the run.",
        epilog="example: hive monitor cartpole-1",
    )
    monitor.add_argument(
        "run_name",
        nargs="?",
        metavar="RUN",
        help=f"{LIVE_RUN}, else the newest",
    )
    monitor.add_argument("--once", action="store_true", help="print the first screen, and leave")
    monitor.add_argument("--json", action="store_true", help="print one snapshot as one JSON object, and leave")
    monitor.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")
    monitor.add_argument("--readonly", action="store_true", help="no restart and no kill of actors")
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
        from hive.monitor.overview_screen import overview
        from hive.monitor.poller import poll_once

        print(plain(overview(poll_once(run), *SIZE), ascii_only=options.ascii))
        return 0
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("`monitor` needs a terminal", hint="`hive monitor --once` or `--json` needs none")
    from hive.monitor.terminal import watch

    watch(run, ascii_only=options.ascii, readonly=options.readonly)
    return 0
