"""Finds runs, selects one by a text, and determines the state of a run.

A run whose supervisor was killed is recognized as lost by its lock (hive.records.owner), without a request to any
process. `run.json` names the supervisor's process, for signals to it. A pid alone is not sufficient, because the system
reuses pids, but together with the start time of the process (field 22 of /proc/<pid>/stat) it identifies one process.

This module does not communicate with runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, TypedDict

from hive.errors import RecordError, UsageError
from hive.paths import user_path
from hive.records.atomic import write_json
from hive.records.directory import LATEST, NAME, POLICIES, NoRunError, RunDirectory
from hive.records.documents import MISSING, failure, misfit, read_document, read_object
from hive.records.jsonl import tail_jsonl
from hive.records.owner import boot_id, owner_of, pid_namespace
from hive.records.summary import Summary

# Maximum names in an error message: they fit in a line of a terminal.
NAMES_SHOWN = 5


@dataclass(frozen=True)
class RunFacts:
    """The content of run.json. `start_time` is in clock ticks since boot, `started` in seconds since 1970."""

    name: str
    pid: int  # pid of the supervisor
    start_time: int
    socket_folder: str
    started: float
    argv: list[str]
    hive: str  # versions of hive, Python and torch
    python: str
    torch: str | None = None
    protocol: int = 1  # version of the control protocol; a file without it has version 1
    host: str = ""
    boot: str = ""  # of the machine, and its pid namespace, in which `pid` is a number (hive.records.owner)
    namespace: int = 0


LINES_BACK = 50  # lines of metrics that are searched for the learner's last one, between lines of evaluations


def last_training_line(directory: RunDirectory) -> Mapping[str, Any]:
    """Return the learner's last line in metrics.jsonl; empty if there is none. Raises RecordError.

    Lines of evaluations are skipped: their steps are those of the evaluated version, which is older.
    """
    lines = tail_jsonl(directory.metrics_file, LINES_BACK)
    return next((line for line in reversed(lines) if "return/mean_100" in line), {})


def process_start_time(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None if it has exited or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # fields from 3 on; field 2 may contain blanks and brackets
    return None if fields[0] in "ZX" else int(fields[19])


def boot_s() -> float:
    """Return the seconds since this machine has booted, for durations: nobody sets this clock, and it runs in standby.

    It is the same in all processes, and that of `RunFacts.start_time`.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def age_s(facts: RunFacts) -> float:
    """Return the seconds since the supervisor of a live run was started, whatever was done to the clock since then."""
    return max(boot_s() - facts.start_time / os.sysconf("SC_CLK_TCK"), 0.0)


def is_alive(facts: RunFacts) -> bool:
    """Whether the process that wrote the facts is still running; False if it is of another machine or container."""
    if facts.boot and (facts.boot, facts.namespace) != (boot_id(), pid_namespace()):
        return False
    return process_start_time(facts.pid) == facts.start_time


def write_run_facts(directory: RunDirectory, facts: RunFacts) -> None:
    """Mark the run as running: write run.json and remove the summary of an earlier end. Raises RecordError."""
    write_json(directory.run_file, dataclasses.asdict(facts))
    try:
        directory.summary_file.unlink(missing_ok=True)
    except OSError as error:
        raise failure("remove", directory.summary_file, error) from error


def read_run_facts(directory: RunDirectory) -> RunFacts:
    """Read run.json. Raises RecordError if the run never started or the file is damaged."""
    return read_document(directory.run_file, RunFacts)


def run_state(directory: RunDirectory) -> str:
    """Return the state in the summary if there is one, "running" if a process owns the run, otherwise "lost".

    A run without a summary that has left the error of its start is not lost but "failed".
    For the detailed state of a running run (starting, paused, draining), request its status from the supervisor.
    """
    try:
        return Summary.read(directory.summary_file).state
    except RecordError:
        if is_live(directory):
            return "running"
        return "failed" if directory.failure_file.is_file() else "lost"


def find_runs(home: Path, refused: Callable[[str], object] = lambda cause: None) -> list[RunDirectory]:
    """Return all runs in `home`, newest last, sorted by their start; by their creation if they never started.

    refused: is called with the cause for each run that is left out because a link is in it. Raises RecordError if
    `home` exists and cannot be read.
    """
    found = []
    try:
        paths = [path for path in home.iterdir() if path.name != LATEST and not path.name.startswith(".")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise failure("read", home, error) from error
    for path in paths:
        try:
            directory = RunDirectory.open(path)
            found.append((_age(directory), directory))
        except (NoRunError, OSError):
            continue  # not a run, or removed in the meantime
        except RecordError as error:
            refused(str(error))
    return [directory for _, directory in sorted(found, key=itemgetter(0))]


def resolve_run(home: Path, text: str, elsewhere: Sequence[RunDirectory] = ()) -> RunDirectory:
    """Return the run that `text` names: a name, a path, a unique prefix of a name, or "latest".

    `elsewhere` are runs outside of `home` that can be selected by name too; those in `home` have precedence.
    Raises UsageError if no run matches, or more than one, and RecordError for a run with a link in it.
    """
    runs = find_runs(home)
    if text == LATEST:
        if not runs:
            raise UsageError(f"no run in `{home}` yet", hint="start one: `hive up config.toml`")
        return runs[-1]
    named = {run.name: run for run in (*elsewhere, *runs)}
    if text in named:
        return named[text]
    for path in (user_path(text), home / text):  # the second is a run that `find_runs` has left out
        with contextlib.suppress(NoRunError):
            return RunDirectory.open(path)
    matches = [run for run in runs if run.name.startswith(text)]
    matches = matches or [run for run in elsewhere if run.name.startswith(text)]
    if len(matches) > 1:
        raise UsageError(f"`{text}` matches {_list(matches, ' and ')}", hint="write a whole name")
    if not matches:
        raise _no_match(text, runs, elsewhere)
    return matches[0]


def _no_match(text: str, runs: Sequence[RunDirectory], elsewhere: Sequence[RunDirectory]) -> UsageError:
    """Return the error for a text that names no run. It names the runs that the user may have meant."""
    live = [run for run in runs if is_live(run)]
    ended = [run for run in runs if run not in live]
    lists = {"live": live, "ended": ended, "live elsewhere": elsewhere}
    known = "".join(f"; {what}: {_list(some)}" for what, some in lists.items() if some)
    # A name that differs only in its number is no typing error.
    names = [run.name for run in (*elsewhere, *runs) if run.name.rpartition("-")[0] != text.rpartition("-")[0]]
    near = difflib.get_close_matches(text, names, n=1)
    return UsageError(f"no run matches `{text}`{known}", hint=f"did you mean `{near[0]}`?" if near else "")


def is_live(directory: RunDirectory) -> bool:
    """Whether a process owns the run; of a copy without `run.lock`, whether its supervisor is alive."""
    if directory.lock_file.exists():
        return owner_of(directory) is not None
    try:
        return is_alive(read_run_facts(directory))
    except RecordError:
        return False


def _age(directory: RunDirectory) -> tuple[float, int, str]:
    """Return the sort key of a run: time, then the number in its name, for runs of the same time. Raises OSError."""
    try:
        started = read_run_facts(directory).started
    except RecordError:
        started = directory.path.stat().st_mtime
    number = directory.name.rpartition("-")[2]
    return started, int(number) if number.isdecimal() else 0, directory.name


def _list(runs: Sequence[RunDirectory], last: str = ", ") -> str:
    """Return the newest names as text; `last` is the last separator: "a, b and c" with `last` = " and "."""
    names = [run.name for run in reversed(runs)]
    if len(names) > NAMES_SHOWN:
        return f"{', '.join(names[:NAMES_SHOWN])} and {len(names) - NAMES_SHOWN} more"
    return last.join(filter(None, [", ".join(names[:-1]), names[-1]]))


class PolicyRow(TypedDict):
    """A row of policies.json. folder: "" for the first policy, whose files are the run's, and policies/NAME."""

    name: str
    agents: list[str]
    algorithm: str
    folder: str


def policy_rows(run: RunDirectory) -> list[PolicyRow]:
    """Return the rows of policies.json; [] for a run whose environment has one agent.

    Raises RecordError for a damaged file, which includes any folder that hive does not write: what is in it may be
    deleted.
    """
    file = run.policies_file
    if not file.exists() and not file.is_symlink():
        return []
    rows: list[PolicyRow] = read_object(file).get("policies", MISSING)
    wrong = misfit(rows, list[PolicyRow], "policies")
    for number, row in enumerate(() if wrong else rows):
        if not NAME.fullmatch(row["name"]) or row["folder"] != (f"{POLICIES}/{row['name']}" if number else ""):
            wrong = f"`policies.{number}` has another folder than its name: {row['folder']!r}"
    if not wrong and len({row["name"] for row in rows}) < len(rows):
        wrong = "two policies have one name"
    if wrong:
        raise RecordError(f"`{file}` is damaged: {wrong}")
    return rows


def policies_of(run: RunDirectory) -> dict[str, RunDirectory]:
    """Return the folder of each policy that a run trains, by name; {} for a run whose environment has one agent.

    Raises RecordError for a damaged file and for a folder that is a link.
    """
    folders = {row["name"]: RunDirectory(run.path / row["folder"]) for row in policy_rows(run)}
    for folder in folders.values():
        folder.refuse_links(*(() if folder == run else (folder.path.parent, folder.path)))
    return folders


def folder_of_run(folder: Path) -> Path:
    """Return the folder of the run with which a policy is recorded in `folder`: the same one for its first policy."""
    run = folder.parent.parent
    return run if folder.parent.name == POLICIES and RunDirectory(run).policies_file.exists() else folder


def policy_directory(run: RunDirectory, policy: str) -> RunDirectory:
    """Return the folder of a policy of a run. Raises UsageError for an unknown one."""
    known = policies_of(run)
    if policy in known:
        return known[policy]
    names = ", ".join(f"`{name}`" for name in known)
    raise UsageError(
        f"{run.name} has no policy `{policy}`",
        hint=f"its policies are {names}" if names else "its environment has one agent: leave the policy out",
    )
