"""Which run a command is about: by name, or the one that must be meant.

    RUN given       a run in $HIVE_HOME by name, path, `latest` or the beginning of a name; else one that lives
                    elsewhere, by the same
    none given      to look: all that live, wherever they were started, else the newest in $HIVE_HOME
                    to steer or to end: the only one that lives in $HIVE_HOME; others are named, never touched

What lives elsewhere is known from the register of this user (hive.runtime.folders).
"""

from __future__ import annotations

from hive.errors import RecordError, UsageError
from hive.records import RunDirectory, find_runs, home_folder, resolve_run, run_state
from hive.records.directory import LATEST
from hive.runtime.folders import live_owners

__all__ = ["LIVE_RUN", "RUN", "chosen_run", "live_run", "live_runs", "run_called"]

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
    last = f" - last: {runs[-1].name} ({run_state(runs[-1])})" if runs else ""
    others = ", ".join(f"{run.name} in {run.path.parent}" for run in live_elsewhere())
    raise UsageError(f"nothing is running{last}", hint=f"elsewhere there are: {others}" if others else "")


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
