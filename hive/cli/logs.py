"""`hive logs`: shows the logs of a run's actors, merged by time."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hive.cli.parts.arguments import add_json, add_run
from hive.errors import UsageError
from hive.launch.select_run import chosen_run, say_default
from hive.launch.suggest import did_you_mean, listed
from hive.records import (
    RunDirectory,
    merge_logs,
    run_state,
)
from hive.records.documents import json_text

FOLLOW_S = 0.2  # interval between two reads of `logs -f`

MOST_LINES = 1_000_000_000  # `hive logs -n`: more than the logs of a run have, and a length that Python allows

FOLLOW_LINES = 1000  # lines per read: more than are logged in one interval


def add_logs(commands: Any) -> None:
    logs = commands.add_parser(
        "logs",
        description="Show the logs of a run's actors, merged by time.",
        epilog="example: hive logs cartpole-ppo-1 learner-0 -n 20",
    )
    add_run(logs)
    logs.add_argument("actors", nargs="*", metavar="ACTOR", help="only these actors (default: all)")
    logs.add_argument("-n", "--tail", type=_count, default=100, metavar="N", help="show the last N lines (default 100)")
    logs.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="also show new lines until the run ends; Ctrl-C does not stop the run",
    )
    add_json(logs, "one JSON array of lines")
    logs.set_defaults(run=run_logs)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"expected a number of lines from 0 on, got `{text}`")
    digits = text.lstrip("0")
    return int(digits or 0) if len(digits) < len(str(MOST_LINES)) else MOST_LINES


def run_logs(options: argparse.Namespace) -> int:
    run = chosen_run(options.run_name)
    say_default(options.run_name, run)
    _check_logs(run, options.actors)
    lines = _lines(run, options.actors, max(options.tail, FOLLOW_LINES))
    shown = lines[max(len(lines) - options.tail, 0) :]
    if options.json:
        print(json_text(shown, indent=2))
        return 0
    for line in shown:
        print(line, flush=options.follow)
    while options.follow:
        alive = run_state(run) == "running"  # must be read before the lines, or the last lines could be missed
        seen = Counter(map(_unpadded, lines))
        lines = _lines(run, options.actors, FOLLOW_LINES)
        for line in lines:
            if seen[_unpadded(line)] > 0:
                seen[_unpadded(line)] -= 1
            else:
                print(line, flush=True)
        if not alive:
            break
        time.sleep(FOLLOW_S)
    _report_output(run, options.actors)
    return 0


def _report_output(run: RunDirectory, actors: Sequence[str]) -> None:
    """Name the files with printed output of environments and libraries, which is in no log because it has no times."""
    # The supervisor is left out because it executes no code of users.
    users = [path for path in sorted(run.logs.glob("*.out")) if path.stem != "supervisor"]
    printed = [path for path in users if not actors or path.stem in actors]
    if names := [str(path) for path in printed if path.is_file() and path.stat().st_size]:
        print(f"printed output is in: {listed(names)}", file=sys.stderr)


def _check_logs(run: RunDirectory, actors: Sequence[str]) -> None:
    """Raise UsageError for an actor without a log. Every actor has one from its start."""
    from hive.config.values import SHOWN_LENGTH
    from hive.printable import printable

    known = sorted(path.stem for path in run.logs.glob("*.log"))
    for actor in actors:
        if actor not in known:
            none = "" if known else ", and no other logs"
            raise UsageError(
                f"{run.name} has no log of `{printable(actor, SHOWN_LENGTH)}`{did_you_mean(actor, known)}{none}",
                hint=f"its logs are: {listed(known)}" if known else "",
            )


def _lines(run: RunDirectory, actors: Sequence[str], tail: int) -> list[str]:
    return list(merge_logs(sorted(run.logs.glob("*.log")), tail=tail, actors=actors))


def _unpadded(line: str) -> tuple[str, str]:
    """Split a line into actor and text, without the padding, which grows when an actor with a longer name logs."""
    actor, _, text = line.partition(" | ")
    return actor.rstrip(), text
