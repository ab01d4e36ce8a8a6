"""Keeps the config that `hive resume` replaces, until an update was made with the new one.

    replaced/resume.json      the checkpoint that the run was resumed from before; none if it never was
    replaced/resolved.toml    the config before; written last

A change that the run refuses at its start, or fails with at once, is thus undone, and the run can be resumed as before.
The command that resumes a run keeps the files, and the run removes them or puts them back. If it is killed, the next
command puts the config back.
"""

from __future__ import annotations

from hive.records.atomic import remove_folder, write_bytes
from hive.records.directory import RunDirectory
from hive.records.documents import failure
from hive.records.regular import read_regular


def keep_replaced(directory: RunDirectory) -> None:
    """Copy what is about to be replaced. Raises RecordError."""
    try:
        directory.replaced.mkdir(exist_ok=True)
        for path in (directory.resume_file, directory.resolved_file):
            if path.exists():
                write_bytes(directory.replaced / path.name, read_regular(path))
    except OSError as error:
        raise failure("write", directory.replaced, error) from error


def forget_replaced(directory: RunDirectory) -> None:
    """Remove what was kept, as an update was made with the new config. Raises RecordError."""
    if directory.replaced.exists():
        remove_folder(directory.replaced)


def restore_replaced(directory: RunDirectory, *, is_unused: bool) -> bool:
    """Put the config back that was kept; return whether there was one. Raises RecordError; the next call completes it.

    is_unused: whether no update was made with the new one, so that the change is undone as if it had never been. After
    a kill this is not known, and the run stays marked by it.
    """
    kept, had_config = directory.replaced, False
    if not kept.exists():
        return False
    point, config = kept / directory.resume_file.name, kept / directory.resolved_file.name
    try:
        had_config = config.exists()
        if had_config and is_unused:
            if point.exists():
                write_bytes(directory.resume_file, read_regular(point))
            else:
                directory.resume_file.unlink(missing_ok=True)
        if had_config:
            config.replace(directory.resolved_file)
    except OSError as error:
        raise failure("read", kept, error) from error
    remove_folder(kept)
    return had_config
