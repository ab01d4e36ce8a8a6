"""Runs as a command line sees them: which there are, which one is meant, and how each is.

`run.json` says which process drives a run. A pid alone proves nothing, since pids come again; with the time
the process started (field 22 of /proc/<pid>/stat) it names one process for good. So a run whose supervisor
was killed is seen to be lost without asking anybody.

Nothing here talks to a run or ends one.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from hive.errors import RecordError, UsageError
from hive.records.atomic import write_json
from hive.records.directory import LATEST, RunDirectory
from hive.records.documents import failure, read_document
from hive.records.jsonl import tail_jsonl
from hive.records.summary import Summary

__all__ = [
    "RunFacts",
    "find_runs",
    "is_alive",
    "last_training_line",
    "process_start_time",
    "read_run_facts",
    "resolve_run",
    "run_state",
    "write_run_facts",
]

# Names that an error message lists: a line of a terminal.
NAMES_SHOWN = 5


@dataclass(frozen=True)
class RunFacts:
    """run.json. `start_time` is in clock ticks since boot, `started` in seconds since 1970."""

    name: str
    pid: int  # of the supervisor
    start_time: int
    socket_folder: str
    started: float
    argv: list[str]
    hive: str  # versions
    python: str
    torch: str | None = None
    protocol: int = 1  # of the control socket; the first did not say


LINES_BACK = 50  # of metrics, to find the learner's own: evaluations write some in between


def last_training_line(directory: RunDirectory) -> Mapping[str, Any]:
    """What the learner wrote last into metrics.jsonl; empty where there is nothing. Raises RecordError.

    The lines of evaluations are of earlier moments: the steps of the version that was evaluated.
    """
    lines = tail_jsonl(directory.metrics_file, LINES_BACK)
    return next((line for line in reversed(lines) if "return/mean_100" in line), {})


def process_start_time(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # from field 3 on; field 2 may hold blanks and brackets
    return None if fields[0] in "ZX" else int(fields[19])


def is_alive(facts: RunFacts) -> bool:
    """Whether the very process that wrote the facts still runs."""
    return process_start_time(facts.pid) == facts.start_time


def write_run_facts(directory: RunDirectory, facts: RunFacts) -> None:
    """From here on the run is running: writes run.json and takes away the summary of an earlier ending.

    Raises RecordError.
    """
    write_json(directory.run_file, dataclasses.asdict(facts))
    try:
        directory.summary_file.unlink(missing_ok=True)
    except OSError as error:
        raise failure("remove", directory.summary_file, error) from error


def read_run_facts(directory: RunDirectory) -> RunFacts:
    """Raises RecordError when the run never started or the file is damaged."""
    return read_document(directory.run_file, RunFacts)


def run_state(directory: RunDirectory) -> str:
    """The summary's state once it is written, else "running" while the supervisor lives, else "lost".

    A running run knows better what it does (starting, paused, draining): ask it.
    """
    try:
        return Summary.read(directory.summary_file).state
    except RecordError:
        return "running" if _alive(directory) else "lost"


def find_runs(home: Path) -> list[RunDirectory]:
    """All runs in `home`, the newest last: by when they were started, or made if they never were."""
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
        except (RecordError, OSError):
            continue  # something else, or pruned while we looked
    return [directory for _, directory in sorted(found, key=itemgetter(0))]


def resolve_run(home: Path, text: str, elsewhere: Sequence[RunDirectory] = ()) -> RunDirectory:
    """The run that `text` means: its name, its path, the beginning of one name only, or "latest".

    `elsewhere` are runs outside of `home` that are known by their names too; a name in `home` goes before.
    Raises UsageError.
    """
    runs = find_runs(home)
    if text == LATEST:
        if not runs:
            raise UsageError(f"no run in `{home}` yet", hint="start one: `hive up config.toml`")
        return runs[-1]
    runs = [*elsewhere, *runs]
    for run in reversed(runs):
        if run.name == text:
            return run
    try:
        return RunDirectory.open(Path(text))
    except RecordError:
        pass  # not a path either: the beginning of a name
    matches = [run for run in runs if run.name.startswith(text)]
    if len(matches) > 1:
        raise UsageError(f"`{text}` matches {_list(matches, ' and ')}")
    if not matches:
        live = [run for run in runs if _alive(run)]
        near = difflib.get_close_matches(text, [run.name for run in runs], n=1)
        known = f"; live: {_list(live)}" if live else f"; newest: {_list(runs)}" if runs else ""
        raise UsageError(f"no run matches `{text}`{known}", hint=f"did you mean `{near[0]}`?" if near else "")
    return matches[0]


def _alive(directory: RunDirectory) -> bool:
    try:
        return is_alive(read_run_facts(directory))
    except RecordError:
        return False


def _age(directory: RunDirectory) -> tuple[float, int, str]:
    """What runs are sorted by: time, and within a moment the number. Raises OSError."""
    try:
        started = read_run_facts(directory).started
    except RecordError:
        started = directory.path.stat().st_mtime
    number = directory.name.rpartition("-")[2]
    return started, int(number) if number.isdecimal() else 0, directory.name


def _list(runs: Sequence[RunDirectory], last: str = ", ") -> str:
    """The newest few names: "a, b and c" with `last` = " and "."""
    names = [run.name for run in reversed(runs)]
    if len(names) > NAMES_SHOWN:
        return f"{', '.join(names[:NAMES_SHOWN])} and {len(names) - NAMES_SHOWN} more"
    return last.join(filter(None, [", ".join(names[:-1]), names[-1]]))
