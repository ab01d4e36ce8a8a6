"""Writes files and folders that appear completely or not at all, whenever the process is killed or the machine fails.

    file     .name.hive-tmp   write  sync                             rename -> name      sync parent
    folder   .name.hive-tmp/  write each  sync each, sync folders
                              write DONE, sync it, sync folder        rename -> name/     sync parent

A rename is atomic, and a file or folder is renamed only after all of its content is on the disk. `DONE` is written last
and lists every file with its size and SHA-256. `check_folder` compares them, so that an error names the file in a
truncated copy or on a faulty disk. A writer that has already synced and hashed a file of the folder, or linked one from
a complete folder, passes its facts, and the file is not read again.

`remove_folder` works in the opposite order: it renames the folder to its temporary name, then removes the content.

All operations go through `Files`; tests replace it by one that fails, or exits, at the n-th operation. A file or folder
has one writer at a time. Leftovers of killed writers have the suffix `.hive-tmp`: the next writer of the same name
replaces them, and `remove_unfinished` removes all of them from a folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from hive.errors import RecordError
from hive.records.documents import JSON, failure, json_text, read_object
from hive.records.regular import checked_size, open_regular, write_new

DONE = "DONE"
UNFINISHED = ".hive-tmp"

FileFacts: TypeAlias = dict[str, JSON]
"""`size` and `sha256` of a file."""


class Files:
    """The file operations of this module. All raise OSError."""

    def make_folder(self, path: Path) -> None:
        path.mkdir()

    def write(self, path: Path, data: bytes | memoryview) -> None:
        """Write a new file in the place of anything that has its name."""
        Files.remove(self, path)
        write_new(path, data)

    def sync(self, path: Path) -> None:
        """Force a file's content, or a folder's entries, onto the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name."""
        os.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with its content. Do nothing if it does not exist."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


FILES = Files()


def write_bytes(path: Path, data: bytes, files: Files = FILES) -> None:
    """Write a file atomically: readers see either the old content or the new. Raises RecordError."""
    with _renamed_at_end(path, files) as temporary:
        files.write(temporary, data)
        files.sync(temporary)


def write_json(path: Path, value: JSON, files: Files = FILES) -> None:
    """Write indented JSON atomically; NaN and infinities become null. Raises RecordError."""
    write_bytes(path, (json_text(value, indent=1) + "\n").encode(), files)


def write_mark(folder: Path, name: str, files: Files = FILES) -> None:
    """Write an empty file into a complete folder. Raises RecordError."""
    try:
        files.write(folder / name, b"")
        files.sync(folder)
    except OSError as error:
        raise failure("write", folder / name, error) from error


@contextmanager
def atomic_file(path: Path, files: Files = FILES) -> Iterator[Path]:
    """Yield a temporary name, for a writer that needs a file on disk rather than bytes.

    The file becomes `path` when the block ends, replacing an earlier one, and is removed when the block raises. Raises
    RecordError if it cannot be written.
    """
    with _renamed_at_end(path, files) as temporary:
        files.write(temporary, b"")  # so that it is no link when the other writer opens it
        yield temporary
        files.sync(temporary)


@contextmanager
def atomic_folder(final: Path, files: Files = FILES, known: Mapping[str, FileFacts] | None = None) -> Iterator[Path]:
    """Yield a temporary folder, which becomes `final` when the block ends and is removed when the block raises.

    known: facts of files by their names in the folder, complete when the block ends. Their content is on the disk.

    Raises RecordError if `final` exists or if something cannot be written.
    """
    if final.exists():
        raise RecordError(f"`{final}` already exists")
    with _renamed_at_end(final, files) as temporary:
        files.remove(temporary)
        files.make_folder(temporary)
        yield temporary
        _complete(temporary, files, known or {})


@contextmanager
def _renamed_at_end(final: Path, files: Files) -> Iterator[Path]:
    """Yield a temporary name. What the block made there becomes `final`, or is removed when the block raises.

    The block syncs what it made. Raises RecordError for an OSError.
    """
    temporary = _unfinished(final)
    try:
        yield temporary
        files.rename(temporary, final)
        files.sync(final.parent)
    except OSError as error:
        _try_to_remove(temporary, files)
        raise failure("write", final, error) from error
    except BaseException:
        _try_to_remove(temporary, files)
        raise


def read_listing(path: Path) -> dict[str, FileFacts]:
    """Return the facts of all files of a folder by name, as in `DONE`. Raises RecordError."""
    listing = read_object(path / DONE).get("files")
    if not isinstance(listing, dict):
        raise RecordError(f"`{path / DONE}` lists no files")
    return listing


def check_folder(path: Path, *, checksums: bool = True, unread: str = "") -> None:
    """Compare a folder with its `DONE`. Raises RecordError with the name of the first missing or changed file.

    Without `checksums` only sizes are compared, and only the file `DONE` is read. Files whose names end in `unread` are
    compared by size in any case.
    """
    listing = read_listing(path)
    try:
        present = _files_in(path)  # names in DONE are looked up here and never opened, so they cannot leave the folder
        for name, expected in listing.items():
            if name not in present:
                raise RecordError(f"`{path}`: {name!r} is missing")
            facts = _facts(present[name], checksums and not (unread and name.endswith(unread)))
            if not isinstance(expected, dict) or not facts.items() <= expected.items():
                raise RecordError(f"`{present[name]}` is damaged: its size or checksum has changed")
    except OSError as error:
        raise failure("read", path, error) from error


def remove_folder(path: Path, files: Files = FILES) -> None:
    """Remove a folder atomically: its name refers to the complete folder or does not exist. Raises RecordError."""
    temporary = _unfinished(path)
    try:
        files.remove(temporary)
        files.rename(path, temporary)
        files.sync(path.parent)  # otherwise a power cut could restore the name with a part of the content
        files.remove(temporary)
    except OSError as error:
        raise failure("remove", path, error) from error


def remove_unfinished(parent: Path) -> None:
    """Remove leftovers of killed processes from `parent`. Only the writer of `parent` may call it, before it writes."""
    for path in unfinished_in(parent):
        _try_to_remove(path, FILES)


def unfinished_in(parent: Path) -> list[Path]:
    """Return the leftovers of killed writers in `parent`, and what writers that still run are writing."""
    return sorted(parent.glob(f".*{UNFINISHED}"))


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}{UNFINISHED}")


def _try_to_remove(path: Path, files: Files) -> None:
    try:
        files.remove(path)
    except OSError:
        pass  # the leftover keeps its temporary name, which no reader opens


def _complete(folder: Path, files: Files, known: Mapping[str, FileFacts]) -> None:
    """Sync all files to the disk, then write `DONE`, then sync `DONE`: it must not exist before the files do."""
    listing: dict[str, JSON] = {}
    for name, file in _files_in(folder).items():
        if name not in known:
            files.sync(file)
        listing[name] = known.get(name) or _facts(file)
    for sub, _, _ in os.walk(folder, topdown=False):
        files.sync(Path(sub))
    files.write(folder / DONE, json_text({"files": listing}, indent=1).encode())
    files.sync(folder / DONE)
    files.sync(folder)


def _files_in(folder: Path) -> dict[str, Path]:
    """Return relative name -> path of every regular file under `folder`, sorted by name, without `DONE`."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    names = {str(path.relative_to(folder)): path for path in sorted(found)}
    names.pop(DONE, None)
    return names


def _facts(file: Path, checksum: bool = True) -> FileFacts:
    if not checksum:
        return {"size": file.stat().st_size}
    with open_regular(file) as content:
        size = checked_size(content, file)
        return {"size": size, "sha256": hashlib.file_digest(content, "sha256").hexdigest()}
