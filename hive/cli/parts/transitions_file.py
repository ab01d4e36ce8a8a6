"""The file that `hive save --replay` and `hive record` write: a check of its name, and a line on it."""

from __future__ import annotations

from pathlib import Path

from hive.errors import UsageError
from hive.records.directory import TRANSITIONS_SUFFIX, is_transitions_file


def checked_file(file: Path) -> Path:
    """Return the file to write. Raises UsageError for another suffix and for a folder that does not exist."""
    if not is_transitions_file(str(file)):
        raise UsageError(
            f"`{file}` does not end with {TRANSITIONS_SUFFIX}", hint="transitions are written as arrays of NumPy"
        )
    if not file.parent.is_dir():
        raise UsageError(f"`{file.parent}` is no folder")
    return file


def written_text(file: Path, count: int) -> str:
    """Return one line on a file of `count` transitions."""
    return f"{file}: {count:,} transitions, {file.stat().st_size / 1e6:,.1f} MB"
