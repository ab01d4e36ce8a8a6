"""Selects the run that a command applies to: by name, or a default; and one of its policies.

    RUN given       a run in $HIVE_HOME by name, path, `latest` or a unique prefix of a name; otherwise a live run
                    outside of $HIVE_HOME, by the same rules
    no RUN given    the live run in $HIVE_HOME, otherwise the newest run there. If several are live: the newest of them,
                    and for commands that change a live run, an error. A run elsewhere is never taken, only named

The output of a command names the run; where it would not, `say_default` does. Live runs outside of $HIVE_HOME are found
in the register of this user (hive.runtime.run.folders).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hive.errors import HiveError, RecordError, UsageError
from hive.launch.suggest import did_you_mean, listed
from hive.printable import printable
from hive.records import (
    RunDirectory,
    Summary,
    find_runs,
    home_folder,
    last_training_line,
    list_checkpoints,
    policies_of,
    policy_directory,
    resolve_run,
    run_state,
)
from hive.records.directory import LATEST
from hive.runtime.run.folders import live_owners


def live_elsewhere() -> list[RunDirectory]:
    """Return the live runs of this user outside of $HIVE_HOME."""
    home, found = home_folder().resolve(), []
    for path, _ in live_owners():
        try:
            if path.parent != home:
                found.append(RunDirectory.open(path))
        except RecordError:
            continue  # the directory was removed while the run is live
    return found


def live_here() -> list[RunDirectory]:
    """Return the live runs in $HIVE_HOME, newest last."""
    return _live(find_runs(home_folder()))


def named_run(text: str) -> RunDirectory:
    """Return the run that `text` names, live or ended. Raises UsageError if there is none, or more than one."""
    return resolve_run(home_folder(), text, elsewhere=live_elsewhere())


def live_run(text: str | None) -> RunDirectory:
    """Return the live run that `text` names, or the only live run in $HIVE_HOME if it is None.

    Raises UsageError if the named run is not live, and if there is no live run or more than one.
    """
    if text is not None:
        directory = named_run(text)
        if (state := run_state(directory)) != "running":
            raise UsageError(f"{directory.name} is not running: it {'was lost' if state == 'lost' else state}")
        return directory
    runs = find_runs(home_folder())
    live = _live(runs)
    if len(live) == 1:
        return live[0]
    if live:
        raise UsageError(f"several runs are live: {', '.join(run.name for run in live)}", hint="add the name of one")
    last = f" - last: {runs[-1].name} ({_end(runs[-1])})" if runs else ""
    raise UsageError(f"no run is live{last}", hint=_elsewhere())


def chosen_run(text: str | None) -> RunDirectory:
    """Return the run for a command that also takes ended runs: the one that `text` names, or the default if it is None.

    The default is the newest live run in $HIVE_HOME, otherwise the newest run there. Raises UsageError if it has none.
    """
    if text is not None:
        return named_run(text)
    runs = find_runs(home_folder())
    if not runs and (others := _elsewhere()):
        raise UsageError(f"no run in `{home_folder()}` yet", hint=others)
    return (_live(runs) or [resolve_run(home_folder(), LATEST)])[-1]


def say_default(text: str | None, run: RunDirectory) -> None:
    """Print which run a command without RUN took, for commands whose output does not name it. `text`: the given RUN."""
    if text is None:
        print(f"run {run.name}, {run_state(run)}", file=sys.stderr)


def _live(runs: Sequence[RunDirectory]) -> list[RunDirectory]:
    return [run for run in runs if run_state(run) == "running"]


def _elsewhere() -> str:
    """Return a hint that names the live runs outside of $HIVE_HOME; "" if there are none."""
    others = ", ".join(f"{run.name} in {run.path.parent}" for run in live_elsewhere())
    return f"live elsewhere: {others}" if others else ""


def report_swept(directories: Sequence[Path]) -> None:
    """Print a line for each run whose leftover processes and sockets were removed."""
    for path in sorted(set(directories)):
        try:
            run = RunDirectory.open(path)
            resumable = run_state(run) in ("lost", "stopped") and list_checkpoints(run.checkpoints)
        except RecordError:
            continue  # the run was removed or cannot be read, which must not end an unrelated command
        more = f" - to continue it: hive resume {name_from_here(run)}" if resumable else ""
        print(f"cleaned up after {run.name} ({_end(run)}){more}", file=sys.stderr)


def name_from_here(run: RunDirectory) -> str:
    """Return the text that names an ended run in a command given here: its name in $HIVE_HOME, else its path."""
    return run.name if run.path.resolve().parent == home_folder().resolve() else str(run.path.resolve())


def _end(run: RunDirectory) -> str:
    """Return how and when a run ended: `lost 2 h ago at 18,400,000 steps`."""
    state = run_state(run)
    try:
        if state == "lost":
            line = last_training_line(run)
            ended, steps = line["t"], line["steps"]
        else:
            summary = Summary.read(run.summary_file)
            ended, steps = summary.ended, summary.env_steps
    except (HiveError, LookupError):
        return state  # the run never began
    return f"{state} {_age(time.time() - ended)} ago at {steps:,} steps"


def _age(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def chosen_actors(directory: RunDirectory, rows: list[Mapping[str, Any]], actor: str | None) -> list[Mapping[str, Any]]:
    """Return the row of `actor`, or all rows if it is None. Raises UsageError for an unknown actor."""
    found = [row for row in rows if actor in (None, row["name"])]
    if actor is not None and not found:
        raise unknown_actor(directory, actor, [row["name"] for row in rows])
    return found


def unknown_actor(directory: RunDirectory, actor: str, names: list[str]) -> UsageError:
    from hive.config.values import SHOWN_LENGTH

    return UsageError(
        f"{directory.name} has no actor `{printable(actor, SHOWN_LENGTH)}`{did_you_mean(actor, names)}",
        hint=f"its actors are: {listed(names)}" if names else "",
    )


def chosen_policy(run: RunDirectory, name: str | None) -> tuple[str, RunDirectory]:
    """Return the name and the folder of a policy, of which a run with one agent has none: "" and its own folder.

    name: as given; None: the first, which is printed if there are others. Raises UsageError for an unknown one.
    """
    if name is not None:
        return name, policy_directory(run, name)
    found = policies_of(run)
    if not found:
        return "", run
    first, *others = found
    if others:
        also = ", ".join(printable(other) for other in others)
        print(f"note: the policy {printable(first)} of {run.name}; it also has {also} (--policy)", file=sys.stderr)
    return first, found[first]
