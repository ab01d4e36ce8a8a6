"""Which run a command is about: by name, or the one that must be meant.

    RUN given       a run in $HIVE_HOME by name, path, `latest` or the beginning of a name; else one that lives
                    elsewhere, by the same
    none given      to look: all that live, wherever they were started, else the newest in $HIVE_HOME
                    to steer or to end: the only one that lives in $HIVE_HOME; others are named, never touched

What lives elsewhere is known from the register of this user (hive.runtime.folders).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from hive.errors import HiveError, RecordError, UsageError
from hive.records import (
    RunDirectory,
    Summary,
    find_runs,
    home_folder,
    last_training_line,
    list_checkpoints,
    resolve_run,
    run_state,
)
from hive.records.directory import LATEST
from hive.runtime.folders import live_owners

__all__ = ["LIVE_RUN", "RUN", "chosen_run", "live_run", "live_runs", "name_from_here", "run_called", "say_swept"]

# What help says of RUN: where it has to be given, and where a command that steers can do without.
RUN = "name, beginning of a name, path or `latest`"
LIVE_RUN = f"{RUN}; default: the only live run"


def live_elsewhere() -> list[RunDirectory]:
    """The runs of this user that live outside of $HIVE_HOME."""
    home, found = home_folder().resolve(), []
    for path, _ in live_owners():
        try:
            if path.parent != home:
                found.append(RunDirectory.open(path))
        except RecordError:
            continue  # removed under its supervisor
    return found


def live_runs() -> list[RunDirectory]:
    """All that live: those in $HIVE_HOME first."""
    return [*(run for run in find_runs(home_folder()) if run_state(run) == "running"), *live_elsewhere()]


def run_called(text: str) -> RunDirectory:
    """The run that is called so. Raises UsageError."""
    return resolve_run(home_folder(), text, elsewhere=live_elsewhere())


def live_run(text: str | None) -> RunDirectory:
    """The live run that is meant: by name, or the only one that lives here. Raises UsageError."""
    if text is not None:
        directory = run_called(text)
        if run_state(directory) != "running":
            raise UsageError(f"{directory.name} is not running: it {_verb(run_state(directory))}")
        return directory
    runs = find_runs(home_folder())
    live = [run for run in runs if run_state(run) == "running"]
    if len(live) == 1:
        return live[0]
    if live:
        raise UsageError(f"several runs are live: {', '.join(run.name for run in live)}", hint="say which one")
    last = f" - last: {runs[-1].name} ({_end(runs[-1])})" if runs else ""
    others = ", ".join(f"{run.name} in {run.path.parent}" for run in live_elsewhere())
    raise UsageError(f"nothing is running{last}", hint=f"elsewhere there are: {others}" if others else "")


def say_swept(directories: Sequence[Path]) -> None:
    """That something was left of these runs, and is no more."""
    for path in sorted(set(directories)):
        try:
            run = RunDirectory.open(path)
            goes_on = run_state(run) in ("lost", "stopped") and list_checkpoints(run.checkpoints)
        except RecordError:
            continue  # it was removed, or cannot be read: no reason to end another command
        more = f" - go on with it: hive resume {name_from_here(run)}" if goes_on else ""
        print(f"cleaned up after {run.name} ({_end(run)}){more}", file=sys.stderr)


def name_from_here(run: RunDirectory) -> str:
    """What a command that is given here calls a run that has ended: by name only those in $HIVE_HOME are found."""
    return run.name if run.path.resolve().parent == home_folder().resolve() else str(run.path.resolve())


def _end(run: RunDirectory) -> str:
    """How, when and where a run ended: `lost 2 h ago at 18,400,000 steps`."""
    state = run_state(run)
    try:
        if state == "lost":
            line = last_training_line(run)
            ended, steps = line["t"], line["steps"]
        else:
            summary = Summary.read(run.summary_file)
            ended, steps = summary.started + summary.wall_s, summary.env_steps
    except (HiveError, LookupError):
        return state  # it never began
    return f"{state} {_age(time.time() - ended)} ago at {steps:,} steps"


def _age(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _verb(state: str) -> str:
    return {"lost": "was lost"}.get(state, state)


def chosen_run(text: str | None) -> RunDirectory:
    """For commands that also look at ended runs."""
    if text is not None:
        return run_called(text)
    live = live_runs()
    if len(live) == 1:
        return live[0]
    runs = find_runs(home_folder())
    return live[-1] if live and not runs else resolve_run(home_folder(), LATEST)
