"""Writes and reads `resume.json`: the checkpoint that a run is resumed from.

    update     the number of the checkpoint
    exact      whether the run is so far what an undisturbed run would have done
    why        why it is not; "" if it is
    changed    the keys that were changed since the run began, so that it is never exact again
    wall_s     seconds that the earlier parts of the run have taken

The command that resumes a run writes it, and so does a run that is scaled. The topology is built from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field

from hive.errors import RecordError
from hive.records.atomic import write_json
from hive.records.directory import RunDirectory
from hive.records.documents import read_document
from hive.records.runs import last_training_line, read_run_facts
from hive.records.summary import Summary


@dataclass(frozen=True)
class ResumePoint:
    """The content of resume.json."""

    update: int
    exact: bool
    why: str = ""
    changed: list[str] = field(default_factory=list)
    wall_s: float = 0.0


def read_resume_point(directory: RunDirectory) -> ResumePoint | None:
    """Return the checkpoint that the run was last resumed from, or None. Raises RecordError for a damaged file."""
    path = directory.resume_file
    if not path.exists() and not path.is_symlink():
        return None
    try:
        return read_document(path, ResumePoint)
    except RecordError as error:
        error.hint = error.hint or f"`hive resume {directory.name}` selects a checkpoint again and replaces this file"
        raise


def write_resume_point(
    directory: RunDirectory, update: int, *, why: str = "", changed: Iterable[str] = (), wall_s: float = 0.0
) -> None:
    """Write resume.json. Raises RecordError.

    why: why the run is not exact, "" if it is. changed: all keys changed so far. wall_s: seconds of the earlier parts.
    """
    write_json(directory.resume_file, dataclasses.asdict(ResumePoint(update, not why, why, [*changed], wall_s)))


def earlier_wall_s(directory: RunDirectory) -> float:
    """Return the seconds of the parts of a run before it was last resumed; 0 if it was not, or the file is damaged."""
    try:
        point = read_resume_point(directory)
    except RecordError:
        return 0.0
    return 0.0 if point is None else point.wall_s


def wall_s_so_far(directory: RunDirectory) -> float:
    """Return the seconds that all parts of an ended run have taken.

    A part that was killed left no summary, and lasted until its last metrics or event, by the clock of the machine. It
    counts if it began after resume.json was written, which otherwise has counted it. All parts have taken at least the
    seconds of training in the metrics, to which nothing is done where that clock was set back.
    """
    try:
        return Summary.read(directory.summary_file).wall_s
    except RecordError:
        earlier = earlier_wall_s(directory)
    try:
        started, last = read_run_facts(directory).started, _last_write(directory)
        resumed = directory.resume_file.stat().st_mtime if directory.resume_file.exists() else 0.0
        trained = float(last_training_line(directory).get("seconds", 0.0))
    except (RecordError, OSError):
        return earlier
    return max(earlier + (max(last - started, 0.0) if started >= resumed else 0.0), trained)


def _last_write(directory: RunDirectory) -> float:
    files = (directory.metrics_file, directory.events_file)
    return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)
