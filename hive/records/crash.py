"""Crash reports: crash/<actor>-<n>.txt, the cause on the first line.

    collector-3 failed: EnvironmentFailed: ALE/Pong-v5 returned ...      the whole truth, for `head -1`

    doing    traceback    stack    story    events    stacks             only those that are known

They are for people. What the terminal shows of a crash is said by who writes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hive.records.directory import RunDirectory
from hive.records.documents import failure

__all__ = ["write_crash"]

# Reports that one actor may leave. Each tells the same story by then: the last one is written over.
REPORTS = 100

# Of one section. Stacks of every thread and task take tens of thousands.
SECTION_CHARACTERS = 1_000_000


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
    """Writes a report and returns its path. `error` is the cause, `stack` where it was stuck.

    `story` holds its last transitions and `events` the run's last events, oldest first; `stacks` those of the others.

    Raises RecordError when it cannot be written.
    """
    sections = {
        "doing": doing,
        "traceback": traceback,
        "stack": stack,
        "story": "\n".join(story),
        "events": "\n".join(events),
        "stacks": stacks,
    }
    texts = [f"{actor} failed: {' '.join(error.split())}\n"]
    texts += [f"\n{name}\n{text.rstrip()[-SECTION_CHARACTERS:]}\n" for name, text in sections.items() if text]
    n = 1
    while True:
        path = directory.crash_file(actor, n)
        try:
            with path.open("x" if n < REPORTS else "w", encoding="utf-8", errors="backslashreplace") as file:
                file.writelines(texts)
            return path
        except FileExistsError:
            n += 1
        except OSError as reason:
            raise failure("write", path, reason) from reason
