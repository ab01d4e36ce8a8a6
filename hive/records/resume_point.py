"""Writes and reads `resume.json`: the checkpoint that a run is resumed from.

    update     the number of the checkpoint
    exact      whether the run is so far what an undisturbed run would have done
    why        why it is not; "" if it is
    changed    the keys that were changed since the run began, so that it is never exact again

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

__all__ = ["ResumePoint", "read_resume_point", "write_resume_point"]


@dataclass(frozen=True)
class ResumePoint:
    """The content of resume.json."""

    update: int
    exact: bool
    why: str = ""
    changed: list[str] = field(default_factory=list)


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


def write_resume_point(directory: RunDirectory, update: int, *, why: str = "", changed: Iterable[str] = ()) -> None:
    """Write resume.json. why: why the run is not exact, "" if it is. Raises RecordError."""
    write_json(directory.resume_file, dataclasses.asdict(ResumePoint(update, not why, why, [*changed])))
