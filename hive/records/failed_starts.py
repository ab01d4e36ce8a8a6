"""Frees the name of a run that failed before it had collected anything, so that no list of runs shows it.

    home/.failed/cartpole-ppo-1/     logs, crash reports and config of the last failed start of that name

The files stay there because the error of a start may need them. The next failed start of the same name replaces them,
and `hive prune` deletes them.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from hive.errors import RecordError, UsageError
from hive.records.atomic import remove_folder
from hive.records.checkpoints.folders import list_checkpoints
from hive.records.directory import RunDirectory
from hive.records.jsonl import read_jsonl
from hive.records.owner import only_owner
from hive.records.summary import Summary

FAILED_FOLDER = ".failed"  # hidden from `find_runs`, and on the same disk as the runs


def has_results(directory: RunDirectory) -> bool:
    """Return whether a run has produced metrics, steps, updates, or a message that one of its actors has sent.

    A topology without channels counts as soon as all its actors began, and so does a run that did not fail. A
    checkpoint of update 0 holds initial weights only: the recorder writes one even if a collector could not start.
    """
    if any(saved.update for saved in list_checkpoints(directory.checkpoints)) or size_of(directory.metrics_file):
        return True
    with contextlib.suppress(RecordError):
        summary = Summary.read(directory.summary_file) if directory.summary_file.exists() else None
        if summary is not None and (summary.env_steps or summary.updates):
            return True
        if summary is not None and summary.state == "failed" and summary.channels:
            return any(account["produced"] for account in summary.channels.values())
    return directory.events_file.exists() and any(e.get("kind") == "running" for e in read_jsonl(directory.events_file))


def size_of(path: Path) -> int:
    """Return the bytes of a file; 0 if it cannot be read."""
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def put_away(directory: RunDirectory) -> Path:
    """Move a run that never ran out of the folder of runs, and return where it lies; its own path if that fails."""
    place = directory.path.parent / FAILED_FOLDER / directory.name
    try:
        with only_owner(directory):
            place.parent.mkdir(exist_ok=True)
            if place.exists():
                remove_folder(place)
            directory.path.rename(place)
    except (OSError, RecordError, UsageError):
        return (
            directory.path
        )  # a full or read-only disk, or who resumes it by now, must not hide the error of the start
    directory.remove()  # only the link `latest` is left
    return place
