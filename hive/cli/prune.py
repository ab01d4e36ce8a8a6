"""The command `prune`: lists what can be deleted of ended runs with its size, and deletes it if that is confirmed."""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

from hive.cli.parts.arguments import add_json, add_runs
from hive.errors import RecordError, UsageError
from hive.launch.select_run import named_run
from hive.records import RunDirectory, find_runs, home_folder, run_state
from hive.records.documents import json_text
from hive.records.pruning import Item, delete, failed_starts, freed_bytes, prunable
from hive.table import table_text

DAY_S = 86_400.0
UNITS = ("B", "kB", "MB", "GB", "TB")


def add_prune(commands: Any) -> None:
    prune = commands.add_parser(
        "prune",
        description="Free disk space: list what can be deleted of ended runs, and delete it with --yes, or after a "
        "question in a terminal. Without options these are leftovers of killed writers, and whole runs that failed "
        "before their first metrics. Live runs and best policies are never touched. To delete a whole run that has "
        "ended, delete its folder.",
        epilog="example: hive prune --keep 1 --older-than 30",
    )
    add_runs(prune, "all runs in $HIVE_HOME")
    prune.add_argument(
        "--keep", type=_keep, metavar="N", help="also delete checkpoints, except for the N newest of each run"
    )
    prune.add_argument(
        "--keep-videos",
        type=_keep_videos,
        metavar="N",
        help="also delete videos of evaluations (evaluation.videos), except for the N newest of each run",
    )
    prune.add_argument(
        "--older-than", type=_days, default=0.0, metavar="DAYS", help="only of runs that ended so many days ago"
    )
    prune.add_argument(
        "--ahead", action="store_true", help="also delete newer state that `hive resume --exact` has set aside"
    )
    prune.add_argument("--yes", action="store_true", help="delete without a question")
    add_json(prune, "one JSON array of what is listed")
    prune.set_defaults(run=run_prune)


def run_prune(options: argparse.Namespace) -> int:
    runs, older_s = _named(options.runs) if options.runs else find_runs(home_folder()), options.older_than * DAY_S
    items: list[Item] = []
    for run in runs:
        try:
            items += list(prunable([run], options.keep, older_s, options.keep_videos, ahead=options.ahead))
        except RecordError as error:  # a damaged run keeps no other from being pruned
            if options.runs:
                raise
            print(f"warning: nothing of {run.name} is deleted: {error}", file=sys.stderr)
    if not options.runs:
        items += failed_starts(home_folder(), older_s)
    sizes = freed_bytes(items)
    if options.json:
        rows = zip(items, sizes, strict=True)
        keys = [{"run": i.run.name, "what": i.what, "path": str(i.path), "bytes": size} for i, size in rows]
        print(json_text(keys, indent=2))
    elif items:
        print(
            table_text(
                ("RUN", "WHAT", "FREES"),
                [(item.run.name, item.what, _size(size)) for item, size in zip(items, sizes, strict=True)],
            )
        )
    if not items:
        print("nothing to delete", file=sys.stderr)
        return 0
    if not options.yes and not _confirmed(sum(sizes), len(items), ask=not options.json):
        return 0
    return _delete(items, sizes)


def _named(texts: list[str]) -> list[RunDirectory]:
    """Return the named runs, each once. Raises UsageError for one that is live."""
    runs = {run.path: run for run in map(named_run, texts)}
    for run in runs.values():
        if run_state(run) == "running":
            raise UsageError(f"{run.name} is running: nothing of it can be deleted", hint=f"hive down {run.name}")
    return list(runs.values())


def _confirmed(size: int, items: int, *, ask: bool) -> bool:
    """Ask in a terminal; elsewhere print how to delete."""
    what = f"{items:,} item{'s' if items != 1 else ''}, {_size(size)}"
    if ask and sys.stdin.isatty() and sys.stdout.isatty():
        print(f"delete {what}? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    print(f"{what} can be deleted; nothing was. To delete: add --yes", file=sys.stderr)
    return False


def _delete(items: list[Item], sizes: list[int]) -> int:
    """Delete the items; an error is reported, and the others are deleted all the same. Return the exit code."""
    freed, failed = 0, 0
    for item, size in zip(items, sizes, strict=True):
        try:
            delete(item)
            freed += size
        except RecordError as error:
            failed += 1
            print(f"warning: {error}", file=sys.stderr)
    print(f"deleted {len(items) - failed:,} of {len(items):,}, {_size(freed)} freed", file=sys.stderr)
    return 1 if failed else 0


def _keep(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"invalid number of checkpoints {text!r}: expected 1 or more")
    return int(text)


def _keep_videos(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"invalid number of videos {text!r}: expected 0 or more")
    return int(text)


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = math.nan
    if not 0 <= days < math.inf:
        raise argparse.ArgumentTypeError(f"invalid days {text!r}: expected a number from 0 on")
    return days


def _size(size: int) -> str:
    """Return a number of bytes with a unit, such as `12.3 MB`."""
    value, unit = float(size), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} {UNITS[unit]}" if unit == 0 or value >= 99.95 else f"{value:.1f} {UNITS[unit]}"
