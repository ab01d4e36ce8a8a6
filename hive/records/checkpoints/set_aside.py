"""Sets aside what a run has beyond a checkpoint, before it goes back to that checkpoint: nothing newer is deleted.

    ahead-20261126-134500/         made completely or not at all (`atomic_folder`)
      from.json                    the checkpoint: `update`, `updates` and `env_steps`
      checkpoints/<update>/        hard links to the newer checkpoints
      best/<update>/               hard links to a best policy that is newer
      metrics.jsonl, ...           copies of the lines after the checkpoint
      resolved.toml, log/, ...     what makes it the directory of a run, for `hive eval` and `hive export`
      DONE                         size and SHA-256 of each of these files
      CUT                          written last: the originals are removed and the lines are cut

Only when the folder is complete are the originals removed. Both steps can be repeated. `finish_set_aside` repeats the
second for a folder without `CUT`, which a killed process has left; until then the run must not continue.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hive.errors import RecordError
from hive.records.atomic import (
    DONE,
    FILES,
    FileFacts,
    Files,
    atomic_file,
    atomic_folder,
    read_listing,
    remove_folder,
    unfinished_in,
    write_bytes,
    write_mark,
)
from hive.records.checkpoints.folders import Checkpoint, checkpoint_folders
from hive.records.directory import RunDirectory
from hive.records.documents import json_text, read_document
from hive.records.jsonl import Split, split_lines
from hive.records.regular import open_regular, read_regular

PREFIX = "ahead-"
ORIGIN = "from.json"
CUT = "CUT"


@dataclass(frozen=True)
class Origin:
    """The checkpoint that a run goes back to: its number, updates and environment steps (None: not counted)."""

    update: int
    updates: int
    env_steps: int | None = None

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Origin:
        updates, steps = checkpoint.state.get("updates", checkpoint.update), checkpoint.state.get("env_steps")
        return cls(checkpoint.update, int(updates), None if steps is None else int(steps))

    def keeps(self, line: Mapping[str, Any]) -> bool:
        """Whether a line was written before the checkpoint; one of a round that was not complete is written again."""
        steps = self.env_steps
        return line.get("updates", 0) <= self.updates and (steps is None or line.get("steps", 0) <= steps)


def sets_aside(run: RunDirectory) -> list[Path]:
    """Return the complete folders of a run that hold what was set aside, oldest first."""
    found = [path for path in run.path.glob(f"{PREFIX}*") if not path.is_symlink() and (path / ORIGIN).is_file()]
    return sorted(found)


def is_cut(folder: Path) -> bool:
    """Whether the originals of what was set aside are removed, so that `folder` alone has it."""
    return (folder / CUT).exists()


def set_aside(
    run: RunDirectory, origin: Origin, *, best: bool, wall: Callable[[], float] = time.time, files: Files = FILES
) -> Path | None:
    """Move the state of a run that is newer than `origin` into a new folder, and return it; None if nothing is newer.

    best: whether a newer best policy is moved too. Lines alone are moved only then: a run that was killed repeats the
    updates after its newest checkpoint, and their lines are cut without a copy.

    Raises RecordError. Either nothing has changed then, or the folder is complete and `finish_set_aside` continues.
    """
    for leftover in unfinished_in(run.path):
        if leftover.name.startswith(f".{PREFIX}"):
            files.remove(leftover)
    newer = {folder.name: _newer(folder, origin) for folder in (run.checkpoints, *([run.best] if best else ()))}
    splits = {path: split_lines(path, origin.keeps) for path in _line_files(run)}
    rest = {path.name: split.rest for path, split in splits.items() if split.rest}
    if not any(newer.values()) and not (best and rest):
        for path, split in splits.items():
            _keep_lines(path, split, files)
        return None
    folder = _free(run, wall())
    _copy(run, folder, origin, newer, rest, files)
    _cut(run, folder, origin, files)
    return folder


def _copy(
    run: RunDirectory,
    folder: Path,
    origin: Origin,
    newer: Mapping[str, list[Path]],
    lines_of: Mapping[str, bytes],
    files: Files,
) -> None:
    """Make `folder` with newer checkpoints by folder, newer lines by file, and the files of the run."""
    known: dict[str, FileFacts] = {}
    with atomic_folder(folder, files, known) as temporary:
        files.write(temporary / ORIGIN, json_text(dataclasses.asdict(origin)).encode())
        for path in (run.config_file, run.resolved_file, run.session_file, run.summary_file):
            if path.exists():
                files.write(temporary / path.name, read_regular(path))
        for name, lines in lines_of.items():
            files.write(temporary / name, lines)
        files.make_folder(temporary / run.logs.name)
        for name, folders in newer.items():
            files.make_folder(temporary / name)
            for original in folders:
                known |= _link(original, temporary / name / original.name, f"{name}/{original.name}", files)


def finish_set_aside(run: RunDirectory, files: Files = FILES) -> list[Path]:
    """Remove the originals that a killed process has left after it had set them aside; return the folders finished.

    Raises RecordError.
    """
    unfinished = [folder for folder in sets_aside(run) if not is_cut(folder)]
    for folder in unfinished:
        _cut(run, folder, read_document(folder / ORIGIN, Origin), files)
    return unfinished


def _cut(run: RunDirectory, folder: Path, origin: Origin, files: Files) -> None:
    """Cut the lines after `origin` and remove the originals of what `folder` holds."""
    for path in _line_files(run):
        _keep_lines(path, split_lines(path, origin.keeps), files)
    for root in (run.checkpoints, run.best):
        for copy in reversed(_checkpoints_in(folder / root.name)):
            original = root / copy.name
            if original.is_dir() and _listing(original) == _listing(copy):  # otherwise it is another one
                remove_folder(original, files)
    write_mark(folder, CUT, files)


def _keep_lines(path: Path, split: Split, files: Files) -> None:
    """Remove the `rest` of a file of lines, atomically; its start may have gigabytes. Raises RecordError."""
    if not split.rest:
        return
    if split.start == 0:
        write_bytes(path, split.kept, files)
        return
    with atomic_file(path, files) as temporary, open_regular(path) as source, temporary.open("wb") as target:
        left = split.start
        while left and (copied := os.sendfile(target.fileno(), source.fileno(), split.start - left, left)):
            left -= copied
        target.seek(0, os.SEEK_END)
        target.write(split.kept)


def _line_files(run: RunDirectory) -> list[Path]:
    return [path for path in (run.metrics_file, run.evaluations_file, run.episodes_file) if path.exists()]


def _newer(root: Path, origin: Origin) -> list[Path]:
    """Return the folders of checkpoints in `root` after `origin`, valid or not."""
    return [folder for folder in _checkpoints_in(root) if int(folder.name) > origin.update]


def _checkpoints_in(root: Path) -> list[Path]:
    return checkpoint_folders(root) if root.is_dir() else []


def _free(run: RunDirectory, wall_s: float) -> Path:
    """Return a new name for a folder: the local time, with a number if it is taken."""
    name = PREFIX + time.strftime("%Y%m%d-%H%M%S", time.localtime(wall_s))
    path, n = run.path / name, 1
    while path.exists():
        n += 1
        path = run.path / f"{name}-{n}"
    return path


def _link(source: Path, target: Path, name: str, files: Files) -> dict[str, FileFacts]:
    """Link all files of a checkpoint into a new folder; return the facts that it lists by names below `name`.

    A file system without hard links gets copies.
    """
    files.make_folder(target)
    for path in sorted(source.rglob("*")):
        copy = target / path.relative_to(source)
        if path.is_dir() and not path.is_symlink():
            files.make_folder(copy)
        elif path.is_file() and not path.is_symlink():
            try:
                files.link(path, copy)
            except OSError:
                files.write(copy, read_regular(path))
    try:
        return {f"{name}/{file}": facts for file, facts in read_listing(target).items() if (target / file).is_file()}
    except RecordError:
        return {}  # of a damaged checkpoint every file is read again


def _listing(folder: Path) -> bytes | None:
    try:
        return read_regular(folder / DONE)
    except OSError:
        return None
