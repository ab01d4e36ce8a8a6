"""Keeps the checkpoints that a run was given in its own folder, whatever becomes of the runs that have made them.

    given/<run>/checkpoints/<update>/               or best/<update>/, or policies/<policy>/checkpoints/<update>/
    given/<run>/session.py, policies.json           what its description of a policy refers to
    given/<run>/origin.json                         the folder of the run at that time
    given/FILE.safetensors                          an exported policy

A reference to a run means its newest checkpoint at the time when another run begins with it. Without this, a policy
that must not change would be another one after each restart of a process, and a checkpoint that a run still needs could
be removed. The files of a checkpoint never change, so they are linked; a file system without hard links gets copies.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

from hive.errors import RecordError
from hive.records.atomic import DONE, FILES, FileFacts, Files, atomic_folder, read_listing, write_bytes
from hive.records.checkpoints.folders import MOST_FINDS, Checkpoint, checkpoint_at, warn
from hive.records.directory import REPLAY_FOLDER, RunDirectory
from hive.records.documents import failure, json_text, read_object
from hive.records.regular import read_regular
from hive.records.runs import folder_of_run

ORIGIN = "origin.json"


def keep_given(
    run: RunDirectory,
    place: str,
    *,
    replay: bool = False,
    warn: Callable[[str], object] = warn,
    files: Files = FILES,
) -> Path:
    """Return the folder or file in the directory of `run` that now holds the checkpoint `place`, of `checkpoint_at`.

    replay: whether the rows of its replay memory are kept, too. warn: as for `checkpoint_at`. Raises RecordError, and
    UsageError for an unknown run.
    """
    for left in reversed(range(MOST_FINDS)):
        checkpoint = checkpoint_at(place, warn=warn)
        if checkpoint.path.is_relative_to(run.given):
            return checkpoint.path
        try:
            return (_kept_file if checkpoint.exported else _kept_folder)(run.given, checkpoint, replay, files)
        except (OSError, RecordError) as error:
            if left and not (checkpoint.path / DONE).exists():
                continue  # its run has removed it meanwhile
            raise error if isinstance(error, RecordError) else failure("read", checkpoint.path, error) from error
    raise AssertionError("unreachable")


def origin_of(folder: Path) -> Path:
    """Return the folder of a run, or that which the folder `given/<run>` was made of. Raises RecordError."""
    if not (folder / ORIGIN).is_file():
        return folder
    path = read_object(folder / ORIGIN).get("path")
    if not isinstance(path, str):
        raise RecordError(f"`{folder / ORIGIN}` names no path")
    return Path(path)


def _kept_file(given: Path, checkpoint: Checkpoint, _: bool, files: Files) -> Path:
    content = read_regular(checkpoint.path)
    for name in _names(checkpoint.path.stem):
        target = given / f"{name}{checkpoint.path.suffix}"
        if not target.exists():
            given.mkdir(exist_ok=True)
            write_bytes(target, content, files)
        if read_regular(target) == content:
            return target
    raise AssertionError("unreachable")


def _kept_folder(given: Path, checkpoint: Checkpoint, replay: bool, files: Files) -> Path:
    origin = folder_of_run(checkpoint.path.parents[1])
    listing = read_listing(checkpoint.path)
    known = {name: listing[name] for name in _files_of(checkpoint.path, replay) if name in listing}
    beside = (RunDirectory(origin).session_file.name, RunDirectory(origin).policies_file.name)
    described = {name: read_regular(origin / name) for name in beside if (origin / name).is_file()}
    described[ORIGIN] = json_text({"path": str(origin_of(origin))}).encode()
    for name in _names(origin.name):
        root = given / name
        target = root / checkpoint.path.relative_to(origin)
        if target.exists():
            if read_listing(target).items() >= known.items() and _has(root, described):
                return target
        elif not root.exists() or _has(root, described):
            target.parent.mkdir(parents=True, exist_ok=True)
            for file, content in described.items():
                write_bytes(root / file, content, files)
            _link(checkpoint.path, target, known, files)
            return target
    raise AssertionError("unreachable")


def _files_of(checkpoint: Path, replay: bool) -> list[str]:
    """Return the names of its files that are kept. Those in DONE may lead anywhere."""
    found = [path for path in sorted(checkpoint.rglob("*")) if path.is_file() and not path.is_symlink()]
    names = [str(path.relative_to(checkpoint)) for path in found]
    return [name for name in names if replay or not name.startswith(f"{REPLAY_FOLDER}/")]


def _names(name: str) -> Iterator[str]:
    """Yield names for what has this one: runs of two homes may have the same."""
    return itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))


def _has(root: Path, described: dict[str, bytes]) -> bool:
    return all((root / file).is_file() and read_regular(root / file) == text for file, text in described.items())


def _link(source: Path, target: Path, known: dict[str, FileFacts], files: Files) -> None:
    with atomic_folder(target, files, known) as temporary:
        for name in known:
            copy = temporary / name
            if not copy.parent.exists():
                files.make_folder(copy.parent)
            try:
                files.link(source / name, copy)
            except OSError:
                files.write(copy, read_regular(source / name))
                files.sync(copy)
