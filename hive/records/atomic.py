"""Files and folders that are there whole or not at all, whenever the process or the machine dies.

    file     .name.hive-tmp   write  sync                             rename -> name      sync parent
    folder   .name.hive-tmp/  write each  sync each, sync folders
                              write DONE, sync it, sync folder        rename -> name/     sync parent

A rename is atomic, and nothing is renamed before everything in it is on the disk. `DONE` is written last
and lists every file with its size and SHA-256; `check_folder` reads it back, so that a copy that was cut
short, or a disk that lies, is refused by name.

A folder goes the way it came: `remove_folder` gives it its temporary name, then takes it apart.

Everything they do goes through `Files`; tests put one in its place that fails, or dies, at the n-th
operation. A file or folder has one writer at a time. What a killed writer left is found by its name
(`*.hive-tmp`): the next writer of the same name replaces it, `remove_unfinished` clears a whole folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hive.errors import RecordError
from hive.records.documents import JSON, failure, json_text, read_object

__all__ = [
    "DONE",
    "FILES",
    "Files",
    "atomic_folder",
    "check_folder",
    "remove_folder",
    "remove_unfinished",
    "write_bytes",
    "write_json",
]

DONE = "DONE"
UNFINISHED = ".hive-tmp"


class Files:
    """The operations that writing needs. All raise OSError."""

    def make_folder(self, path: Path) -> None:
        path.mkdir()

    def write(self, path: Path, data: bytes | memoryview) -> None:
        path.write_bytes(data)

    def sync(self, path: Path) -> None:
        """Forces a file's content, or a folder's entries, onto the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def remove(self, path: Path) -> None:
        """A file or a folder with all it holds; nothing when it is not there."""
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


FILES = Files()


def write_bytes(path: Path, data: bytes, files: Files = FILES) -> None:
    """Replaces the file at once: readers see the old content or the new. Raises RecordError."""
    temporary = _unfinished(path)
    try:
        files.write(temporary, data)
        files.sync(temporary)
        files.rename(temporary, path)
        files.sync(path.parent)
    except OSError as error:
        _try_to_remove(temporary, files)
        raise failure("write", path, error) from error


def write_json(path: Path, value: JSON, files: Files = FILES) -> None:
    """`write_bytes` of indented JSON; NaN and infinities become null."""
    write_bytes(path, (json_text(value, indent=1) + "\n").encode(), files)


@contextmanager
def atomic_folder(final: Path, files: Files = FILES) -> Iterator[Path]:
    """Yields a folder to fill; it becomes `final` when the block ends, and vanishes when the block raises.

    Raises RecordError when `final` exists or anything cannot be written.
    """
    if final.exists():
        raise RecordError(f"`{final}` exists already")
    temporary = _unfinished(final)
    try:
        files.remove(temporary)
        files.make_folder(temporary)
        yield temporary
        _complete(temporary, files)
        files.rename(temporary, final)
        files.sync(final.parent)
    except OSError as error:
        _try_to_remove(temporary, files)
        raise failure("write", final, error) from error
    except BaseException:
        _try_to_remove(temporary, files)
        raise


def check_folder(path: Path, *, checksums: bool = True) -> None:
    """Compares a folder with its `DONE`. Raises RecordError naming the first file missing or changed.

    Without `checksums` only sizes are compared and no file but `DONE` is read.
    """
    listing = read_object(path / DONE).get("files")
    if not isinstance(listing, dict):
        raise RecordError(f"`{path / DONE}` lists no files")
    try:
        present = _files_in(path)  # names are looked up here, not opened: a listing cannot lead elsewhere
        for name, expected in listing.items():
            if name not in present:
                raise RecordError(f"`{path}`: {name!r} is missing")
            facts = _facts(present[name], checksums)
            if not isinstance(expected, dict) or not facts.items() <= expected.items():
                raise RecordError(f"`{present[name]}` is not what was written: its size or checksum differs")
    except OSError as error:
        raise failure("read", path, error) from error


def remove_folder(path: Path, files: Files = FILES) -> None:
    """Removes a folder at once: under its name is all of it or nothing. Raises RecordError."""
    temporary = _unfinished(path)
    try:
        files.remove(temporary)
        files.rename(path, temporary)
        files.sync(path.parent)  # or a power cut could bring the name back with half of the content
        files.remove(temporary)
    except OSError as error:
        raise failure("remove", path, error) from error


def remove_unfinished(parent: Path) -> None:
    """Clears what killed writers and removers left in `parent`. For its one writer, before it begins."""
    for path in parent.glob(f".*{UNFINISHED}"):
        _try_to_remove(path, FILES)


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}{UNFINISHED}")


def _try_to_remove(path: Path, files: Files) -> None:
    try:
        files.remove(path)
    except OSError:
        pass  # it stays under its temporary name, which nobody reads


def _complete(folder: Path, files: Files) -> None:
    """Everything onto the disk, then `DONE`, then that."""
    listing: dict[str, JSON] = {}
    for name, file in _files_in(folder).items():
        files.sync(file)
        listing[name] = _facts(file)
    for sub, _, _ in os.walk(folder, topdown=False):
        files.sync(Path(sub))
    files.write(folder / DONE, json_text({"files": listing}, indent=1).encode())
    files.sync(folder / DONE)
    files.sync(folder)


def _files_in(folder: Path) -> dict[str, Path]:
    """Relative name -> path of every regular file under `folder`, in the order of names, without `DONE`."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    names = {str(path.relative_to(folder)): path for path in sorted(found)}
    names.pop(DONE, None)
    return names


def _facts(file: Path, checksum: bool = True) -> dict[str, JSON]:
    facts: dict[str, JSON] = {"size": file.stat().st_size}
    if checksum:
        with file.open("rb") as content:
            facts["sha256"] = hashlib.file_digest(content, "sha256").hexdigest()
    return facts
