"""Finds files of ended runs that can be deleted, and how much disk space that frees.

    leftover      a file or folder that a killed process was writing (`.hive-tmp`)
    failed start  what is kept of starts that failed (hive.records.failed_starts)
    never began   a whole run that failed before its first metrics, without checkpoints, best policy or videos
    video         of an evaluation (evaluation.videos): all but the newest ones
    checkpoint    all but the newest ones, which stay, as does the newest scheduled one, for `hive resume --exact`
    newer state   that `hive resume --exact` has set aside (hive.records.checkpoints.set_aside)

Live runs and best policies are never among them; in a run without a best policy, the checkpoint with the highest mean
return stays. A file with several names (rows of replay memories, which checkpoints share) frees its space only with
the last of them, so sizes count disk blocks of files all of whose names are deleted.
"""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from hive.errors import RecordError, UsageError
from hive.records.atomic import remove_folder, unfinished_in
from hive.records.checkpoints.folders import best_policy, list_checkpoints, surplus
from hive.records.checkpoints.set_aside import is_cut, sets_aside
from hive.records.checkpoints.together import others_of
from hive.records.directory import RunDirectory
from hive.records.documents import failure
from hive.records.failed_starts import FAILED_FOLDER, size_of
from hive.records.owner import only_owner
from hive.records.regular import BLOCK
from hive.records.runs import find_runs, run_state
from hive.records.sinks.drawing_marks import marks_in
from hive.records.sinks.videos import surplus_videos

LAST_WRITE = ("summary.json", "metrics.jsonl", "events.jsonl", "failure.json", "run.json")
STARTING_S = 3600.0  # a run without any trace of a process may just be starting, or being measured, for this long


@dataclass(frozen=True)
class Item:
    """Something to delete: a file or folder of a run, or the whole run. `what` says which kind, for people."""

    run: RunDirectory
    what: str
    path: Path


def prunable(
    runs: Iterable[RunDirectory],
    keep: int | None,
    older_s: float = 0.0,
    keep_videos: int | None = None,
    *,
    ahead: bool = False,
) -> Iterator[Item]:
    """Yield what can be deleted of runs that are not live.

    keep: number of newest checkpoints that stay, at least 1; None: all. keep_videos: the same for videos of
    evaluations, at least 0; those of `hive play` stay. older_s: only of runs whose last write is at least this number
    of seconds old. ahead: also what `hive resume --exact` has set aside. Raises RecordError if a folder cannot be read.
    """
    for run in runs:
        state, age_s = run_state(run), time.time() - ended_at(run)
        if state == "running" or age_s < older_s:
            continue
        if (state == "failed" or age_s >= STARTING_S) and _never_began(run):
            yield Item(run, "run that never began", run.path)
        else:
            yield from (Item(run, what, path) for what, path in _surplus(run, keep, keep_videos, ahead))


def _surplus(run: RunDirectory, keep: int | None, keep_videos: int | None, ahead: bool) -> Iterator[tuple[str, Path]]:
    """Yield what can be deleted of a run that stays: its kind and its path; of each of its policies."""
    yield from _surplus_in(run, keep, keep_videos, ahead)
    for policy in others_of(run):
        if policy.path.is_dir():
            for what, path in _surplus_in(policy, keep, keep_videos, ahead):
                yield f"{what} of the policy {policy.name}", path


def _surplus_in(
    run: RunDirectory, keep: int | None, keep_videos: int | None, ahead: bool
) -> Iterator[tuple[str, Path]]:
    """Yield what can be deleted in the folder of a run or of one of its policies."""
    folders = (run.path, run.checkpoints, run.best, run.nan_dumps, run.videos, run.environments)
    for path in (*marks_in(run.videos), *chain.from_iterable(map(unfinished_in, folders))):
        yield "leftover of a killed writer", path
    if keep is not None:
        keep_best = 0 if best_policy(run.best, verify=False) else 1
        for checkpoint in surplus(run.checkpoints, keep, keep_best):
            yield f"checkpoint of update {checkpoint.update:,}", checkpoint.path
    for folder in filter(is_cut, sets_aside(run) if ahead else ()):  # without CUT its originals are still there
        yield "newer state set aside", folder
    if keep_videos is not None:
        yield from (("video of an evaluation", path) for path in surplus_videos(run.videos, keep_videos))


def failed_starts(home: Path, older_s: float = 0.0) -> Iterator[Item]:
    """Yield what is kept of the failed starts in the folder of runs `home`."""
    for run in find_runs(home / FAILED_FOLDER):
        if time.time() - ended_at(run) >= older_s:
            yield Item(run, "failed start", run.path)


def ended_at(run: RunDirectory) -> float:
    """Return the time of the last write to a run, in seconds since 1970."""
    times = [_mtime(run.path / name) for name in LAST_WRITE]
    return max(times) or _mtime(run.path)


def freed_bytes(items: Sequence[Item]) -> list[int]:
    """Return the bytes of disk space that deleting the items in this order frees, for each item."""
    deleted: Counter[tuple[int, int]] = Counter()
    freed = []
    for item in items:
        size = 0
        for facts in _entries(item.path):
            inode = (facts.st_dev, facts.st_ino)
            deleted[inode] += 1
            folder = facts.st_nlink > 1 and stat.S_ISDIR(facts.st_mode)
            if folder or deleted[inode] == facts.st_nlink:
                size += facts.st_blocks * BLOCK
        freed.append(size)
    return freed


def delete(item: Item) -> None:
    """Delete an item. Raises RecordError if another process owns the run by now, or the item cannot be deleted."""
    if run_state(item.run) == "running" or run_state(RunDirectory(item.path)) == "running":
        raise RecordError(f"{item.run.name} is running: nothing of it is deleted")
    try:
        with only_owner(item.run):
            _delete(item)
    except UsageError as refused:
        raise RecordError(f"{refused}: nothing of it is deleted") from refused


def _delete(item: Item) -> None:
    if item.path == item.run.path:
        item.run.remove()
        if item.path.exists():
            raise RecordError(f"`{item.path}` could not be removed completely")
    elif item.path.is_dir() and not item.path.is_symlink():
        remove_folder(item.path)
    else:
        try:
            item.path.unlink(missing_ok=True)
        except OSError as error:
            raise failure("remove", item.path, error) from error


def _never_began(run: RunDirectory) -> bool:
    """Whether a run has nothing that a user could miss: no metrics, weights or videos."""
    if size_of(run.metrics_file) or (run.videos.exists() and any(path.name[0] != "." for path in run.videos.iterdir())):
        return False
    damaged = run.checkpoints.exists() and any(path.name[0] != "." for path in run.checkpoints.iterdir())
    return not damaged and not list_checkpoints(run.checkpoints) and best_policy(run.best, verify=False) is None


def _entries(path: Path) -> Iterator[os.stat_result]:
    """Yield the facts of a file, or of a folder and everything in it. Files that disappear meanwhile are left out."""
    try:
        yield path.lstat()
        if path.is_symlink() or not path.is_dir():
            return
        for folder, subfolders, files in os.walk(path):
            for name in (*subfolders, *files):
                yield (Path(folder) / name).lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise failure("read", path, error) from error


def _mtime(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0
