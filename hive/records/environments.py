"""The environments of an actor that are stepped by processes: how each is doing, in one small file for each actor.

    environments/collector-0.json    {"environments": [{"index": 3, "pid": 1234, "incarnation": 1, "state": "running",
                                      "failures": 2, "steps": 10000, "median_step_s": 0.00012, "worst_step_s": 0.4,
                                      "last_failure": "killed by SIGSEGV while stepping"}, ...]}

The actor writes its file at most once a second; views and the recorder read it. The file is replaced atomically and not
synced to the disk: after a power cut it is of no use. Readers take what fits and leave out the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hive.records.atomic import Files, write_bytes
from hive.records.directory import RunDirectory
from hive.records.documents import failure, is_json_number, json_text, parse_object
from hive.records.regular import open_regular

RUNNING, STARTING, RESETTING, LEFT_OUT = "running", "starting", "resetting", "left out"

SUFFIX = ".json"
MOST_ENVIRONMENTS = 4096  # maximum rows of one actor that are read
MOST_BYTES = 4 << 20  # size of a file that is read: a kilobyte for each environment
MOST_TEXT = 300  # characters of the text of a failure that are kept
MOST_STATE = 20  # characters of a state that are kept

LARGEST = 2**53  # numbers are below it, as JavaScript has no larger ones
COUNTS = ("index", "pid", "incarnation", "failures", "steps")
TIMES = ("median_step_s", "worst_step_s")


@dataclass(frozen=True)
class EnvironmentRow:
    """One environment. Times in seconds are of about the last 1,000 steps of its process; None before the first.

    index: over all collectors of the run. pid: 0 without a process. incarnation: restarts so far. state: `RUNNING`,
    `STARTING`, `RESETTING` or `LEFT_OUT`. failures, steps: since the start of the run. last_failure: "" without one.
    """

    index: int
    pid: int
    incarnation: int
    state: str
    failures: int
    steps: int
    median_step_s: float | None = None
    worst_step_s: float | None = None
    last_failure: str = ""

    @property
    def down(self) -> bool:
        """Whether it takes no steps now and will do so again."""
        return self.state in (STARTING, RESETTING)

    @property
    def name(self) -> str:
        return f"env {self.index}"


def write_environments(directory: RunDirectory, actor: str, rows: Iterable[EnvironmentRow]) -> None:
    """Replace the file of an actor; it has one writer at a time. Raises RecordError if it cannot be written."""
    folder = directory.environments
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise failure("make", folder, error) from error
    text = json_text({"environments": [dataclasses.asdict(row) for row in rows]})
    write_bytes(folder / f"{actor}{SUFFIX}", text.encode(errors="replace"), _Unsynced())


def read_environments(directory: RunDirectory, actor: str) -> tuple[EnvironmentRow, ...]:
    """Return the environments of an actor, sorted by index. Empty without a file, or if it cannot be read."""
    try:
        with open_regular(directory.environments / f"{actor}{SUFFIX}") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError):  # ValueError: a name with a null character
        return ()
    document = parse_object(data) if len(data) <= MOST_BYTES else None
    listed = (document or {}).get("environments")
    if not isinstance(listed, list):
        return ()
    return tuple(sorted(_fitting(listed[:MOST_ENVIRONMENTS]), key=lambda row: row.index))


def environments_of(directory: RunDirectory) -> dict[str, tuple[EnvironmentRow, ...]]:
    """Return the environments of each actor that has a file with some."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(path.name.removesuffix(SUFFIX) for path in directory.environments.glob(f"[!.]*{SUFFIX}"))
    return {name: rows for name in names if (rows := read_environments(directory, name))}


def forget_environments(directory: RunDirectory) -> None:
    """Remove the files of an earlier start of the run, whose processes are gone. Raises RecordError."""
    folder: Path = directory.environments
    try:
        for path in [*folder.iterdir()] if folder.is_dir() else ():
            path.unlink(missing_ok=True)
    except OSError as error:
        raise failure("remove the files in", folder, error) from error


def without_processes(rows: Iterable[EnvironmentRow], state: str) -> tuple[EnvironmentRow, ...]:
    """Return the environments of an actor that has no process and is in this state: theirs are gone, too."""
    return tuple(dataclasses.replace(row, pid=0, state=row.state if row.state == LEFT_OUT else state) for row in rows)


def failure_counts(rows: Iterable[EnvironmentRow]) -> dict[str, float]:
    """Return metrics: the failures of all environments, and of each one that has failed. Empty without environments."""
    rows = [*rows]
    counts = {f"environments/{row.index}/failures": float(row.failures) for row in rows if row.failures}
    return {"environments/failures": float(sum(row.failures for row in rows)), **counts} if rows else {}


def median_step_s(rows: Iterable[EnvironmentRow]) -> float | None:
    """Return the median of the environments' medians, the lower one of an even number; None before the first step.

    For two environments, the mean of both would hide how slow one of them is.
    """
    known = [row.median_step_s for row in rows if row.median_step_s is not None]
    return statistics.median_low(known) if known else None


def worst_step_s(rows: Iterable[EnvironmentRow]) -> float | None:
    """Return the longest recent step of all environments; None before the first step."""
    return max((row.worst_step_s for row in rows if row.worst_step_s is not None), default=None)


def _fitting(listed: Sequence[Any]) -> Iterator[EnvironmentRow]:
    for item in listed:
        if isinstance(item, dict) and _fits(item):
            times: dict[str, Any] = {name: item.get(name) for name in TIMES}
            texts = {"state": item["state"][:MOST_STATE], "last_failure": item.get("last_failure", "")[:MOST_TEXT]}
            yield EnvironmentRow(**{name: item[name] for name in COUNTS}, **times, **texts)


def _fits(item: Mapping[str, Any]) -> bool:
    """Whether a row has the fields that it must have; `documents.misfit` would take 0.4 ms a row, each second."""
    return (
        all(type(count := item.get(name)) is int and 0 <= count < LARGEST for name in COUNTS)
        and all((seconds := item.get(name)) is None or (is_json_number(seconds) and seconds >= 0) for name in TIMES)
        and isinstance(item.get("state"), str)
        and isinstance(item.get("last_failure", ""), str)
    )


class _Unsynced(Files):
    """File operations that leave it to the operating system when data reaches the disk."""

    def sync(self, path: Path) -> None:
        pass
