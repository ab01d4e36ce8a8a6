"""Writes crash reports: crash/<actor>-<n>.txt, for people.

    collector-3 failed: EnvironmentFailed: ALE/Pong-v5 returned ...      the cause in one line, for `head -1`

    doing   traceback   stack   transition history   events   stacks     sections, without empty ones

The error of a failed start, `failure.json`, is for the command that has started the run.

The terminal output about a crash comes from the callers, not from this module.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hive.errors import HiveError
from hive.records.atomic import write_json
from hive.records.directory import RunDirectory
from hive.records.documents import failure
from hive.records.regular import write_new

# Maximum reports of one actor. After that many they hardly differ, so the last one is overwritten.
REPORTS = 100

# Maximum characters of a section. The stacks of all threads and tasks take tens of thousands.
SECTION_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class StartFailure:
    """The content of failure.json: the error of a supervisor that could not start the run."""

    error: str
    hint: str
    exit_code: int
    traceback: str  # of a failed build of the topology, else ""


def write_failure(directory: RunDirectory, error: HiveError, traceback: str = "") -> None:
    """Write failure.json. Raises RecordError."""
    found = StartFailure(str(error), error.hint, error.exit_code, traceback)
    write_json(directory.failure_file, dataclasses.asdict(found))


def write_crash(
    directory: RunDirectory,
    actor: str,
    *,
    error: str,
    traceback: str = "",
    doing: str = "",
    stack: str = "",
    story: Iterable[str] = (),
    events: Iterable[str] = (),
    stacks: str = "",
) -> Path:
    """Write a report and return its path. Raises RecordError if it cannot be written.

    error: the cause; line breaks are removed.
    traceback: the traceback of the error.
    doing: the activity of the actor and its duration.
    stack: the stack of an actor that was stuck.
    story: the transition history of the actor, oldest first.
    events: the last events of the run, oldest first.
    stacks: the stacks of other actors at that time.
    """
    sections = {
        "doing": doing,
        "traceback": traceback,
        "stack": stack,
        "transition history": "\n".join(story),
        "events": "\n".join(events),
        "stacks": stacks,
    }
    texts = [f"{actor} failed: {' '.join(error.split())}\n"]
    texts += [f"\n{name}\n{text.rstrip()[-SECTION_CHARACTERS:]}\n" for name, text in sections.items() if text]
    n = 1
    while True:
        path = directory.crash_file(actor, n)
        try:
            if n >= REPORTS:
                path.unlink(missing_ok=True)
            write_new(path, "".join(texts).encode(errors="backslashreplace"))
            return path
        except FileExistsError:
            n += 1
        except OSError as reason:
            raise failure("write", path, reason) from reason
