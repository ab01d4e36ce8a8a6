"""`hive ls`: lists runs. `hive` without a command lists the live ones."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from hive.cli.parts.arguments import add_json
from hive.cli.parts.listing import in_seconds, status_of, trained
from hive.errors import HiveError
from hive.launch.control import print_to_stderr
from hive.launch.select_run import live_elsewhere, live_here
from hive.paths import short_reference
from hive.records import (
    RunDirectory,
    Summary,
    age_s,
    best_facts,
    earlier_wall_s,
    find_runs,
    home_folder,
    last_training_line,
    read_run_facts,
    run_state,
)
from hive.records.documents import json_text
from hive.records.return_text import return_text
from hive.records.standings import PolicyStanding, returns_text, standings
from hive.table import GAP, Column, Table, TableCell, lay_out, text_lines


def add_ls(commands: Any) -> None:
    ls = commands.add_parser(
        "ls",
        description="List the runs in $HIVE_HOME (default ./runs), oldest first. RETURN is the mean of the last 100 "
        "training episodes, BEST the highest such mean of a run without evaluations, EVALUATION the mean return of the "
        "best evaluation, WALL the seconds of all parts of a run, and STARTED when the last one began.",
        epilog="example: hive ls --json",
    )
    add_json(ls, "one JSON array")
    ls.set_defaults(run=run_ls)


def run_ls(options: argparse.Namespace) -> int:
    rows = [_run_row(run) for run in find_runs(home_folder(), lambda cause: print_to_stderr(f"note: {cause}"))]
    if options.json:
        print(json_text(rows, indent=2))
        return 0
    if not rows:
        print(f"no run in {home_folder()} yet")
        return 0
    _list_runs(rows)
    return 0


# Column of `ls` -> its cell of a row; those in OPTIONAL are left out where no run has a value.
LS_COLUMNS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "NAME": lambda row: row["name"],
    "ENV": lambda row: short_reference(row["env"] or "–"),
    "ALGORITHM": lambda row: _learner(row),
    "STATE": lambda row: row["state"],
    "STEPS": lambda row: f"{row['env_steps']:,}" if row["env_steps"] is not None else "–",
    "RETURN": lambda row: _returns(row),
    "BEST": lambda row: _best(row, evaluated=False),
    "EVALUATION": lambda row: _best(row, evaluated=True),
    "WALL": lambda row: in_seconds(row["wall_s"]),
    "STARTED": lambda row: _date(row["started"]),
    "IN": lambda row: str(Path(row["path"]).parent),
}

OPTIONAL = ("BEST", "EVALUATION")

MOST_CELL = 24  # characters of a cell in a narrow terminal, where a run of several policies has many returns

DROPPED = ("EVALUATION", "STARTED", "ENV", "ALGORITHM", "BEST", "WALL")
"""Columns that a narrow terminal leaves out, the last one first. Names begin with environment and algorithm."""


def _list_runs(rows: Sequence[Mapping[str, Any]], *, where: bool = False) -> None:
    """Print a table of runs that fits the terminal, or 80 columns; with `where`, include the folder of each."""
    cells = {name: cell for name, cell in LS_COLUMNS.items() if where or name != "IN"}
    shown = [name for name, cell in cells.items() if name not in OPTIONAL or {*map(cell, rows)} != {"–"}]
    width, by_key = shutil.get_terminal_size().columns, {str(n): row for n, row in enumerate(rows)}

    def table(short_dates: bool, most: int | None) -> Table:
        how = {**cells, "STARTED": _short_date} if short_dates else cells
        return lay_out([_column(name, how[name], most) for name in shown], by_key, most and most + GAP)

    whole = table(False, None)
    fits = sum(whole.widths) + GAP * (len(whole.widths) - 1) <= width
    print("\n".join(text_lines(whole if fits else table(True, width))))


def _column(name: str, cell: Callable[[Mapping[str, Any]], str], most: int | None) -> Column[Mapping[str, Any]]:
    """Return a column; `most`: of a narrow table, in which returns of many policies are cut."""
    rank = DROPPED.index(name) + 1 if name in DROPPED else 0

    def shown(row: Mapping[str, Any]) -> TableCell:
        text = cell(row)
        return TableCell(f"{text[: MOST_CELL - 1]}…" if most and len(text) > MOST_CELL and name != "NAME" else text)

    return Column(name, shown, rank, left=True)


def _learner(row: Mapping[str, Any]) -> str:
    """Return the algorithm of a run, or the custom topology that decides what is trained."""
    topology: str | None = row["topology"]
    return PurePath(topology.partition(":")[0]).name if topology else row["algorithm"] or "–"


def _returns(row: Mapping[str, Any]) -> str:
    """Return the mean return of a run; of one with several policies, that of each."""
    policies = [PolicyStanding(**policy) for policy in row.get("policies", ())]
    return returns_text(policies) or return_text(row["mean_return_100"])


def _best(row: Mapping[str, Any], *, evaluated: bool) -> str:
    best = row["best"]
    return return_text(best["mean_return"] if best and (best["by"] == "evaluation") is evaluated else None)


def _short_date(row: Mapping[str, Any]) -> str:
    """Return the time of today, the day of this year, or the date."""
    seconds = row["started"]
    if seconds is None:
        return "–"
    then, now = time.localtime(seconds), time.localtime()
    is_today = then.tm_yday == now.tm_yday
    form = "%Y-%m-%d" if then.tm_year != now.tm_year else "%H:%M" if is_today else "%m-%d"
    return time.strftime(form, then)


def _date(seconds: float | None) -> str:
    return "–" if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _run_row(run: RunDirectory) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": run.name,
        "state": run_state(run),
        "path": str(run.path.resolve()),
        **trained(run),
        "env_steps": None,
        "mean_return_100": None,
        "best": best_facts(run),
        "wall_s": None,
        "started": None,
    }
    policies = standings(run)
    try:
        facts = read_run_facts(run)
        row["started"] = facts.started
        if row["state"] == "running":
            row["wall_s"] = age_s(facts) + earlier_wall_s(run)
            from hive.monitor import snapshot_of

            now = snapshot_of(status_of(run))
            row |= {"state": now.state, "env_steps": now.env_steps, "mean_return_100": now.mean_return}
            policies = now.policies
        elif row["state"] == "lost":
            last = last_training_line(run)
            row |= {
                "env_steps": last["steps"],
                "mean_return_100": last.get("return/mean_100"),
                "wall_s": last["seconds"],
            }
        else:
            summary = Summary.read(run.summary_file)
            row |= {
                "env_steps": summary.env_steps,
                "mean_return_100": summary.mean_return_100,
                "wall_s": summary.wall_s,
            }
    except (HiveError, LookupError):
        pass  # the run never began, or is ending at this moment: the row keeps the values found so far
    return row | ({"policies": [policy.data for policy in policies]} if policies else {})


def run_without_command(parser: argparse.ArgumentParser) -> int:
    """Run `hive` without a command: list the live runs of this user, or print the help if there are none."""
    live = [*live_here(), *live_elsewhere()]
    if not live:
        parser.print_help()
        return 0
    home = home_folder().resolve()
    _list_runs([_run_row(run) for run in live], where=any(run.path.parent != home for run in live))
    print("hint: `hive ps RUN` lists the processes of one, `hive monitor RUN` shows a live view", file=sys.stderr)
    return 0
