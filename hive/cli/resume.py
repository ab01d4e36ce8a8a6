"""Preparing an ended run to go on: which checkpoint, and what of its records is taken back.

A run goes on in its own directory, under its own name, on the same axis: the metrics of updates that will be made again
are taken away, and so are checkpoints that come after the chosen one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hive.errors import UsageError
from hive.records import (
    RunDirectory,
    home_folder,
    list_checkpoints,
    newest_checkpoint,
    read_jsonl,
    remove_folder,
    resolve_run,
    run_state,
    write_bytes,
    write_json,
)

__all__ = ["prepare"]


def prepare(text: str, *, exact: bool) -> RunDirectory:
    """The directory of the run that `text` means, ready to go on. `exact`: from the last scheduled checkpoint.

    Raises UsageError for a run that lives, has finished, or has nothing to go on from.
    """
    directory = resolve_run(home_folder(), text)
    state = run_state(directory)
    if state == "running":
        raise UsageError(f"{directory.name} is running", hint=f"look at it: hive ps {directory.name}")
    if state == "finished":
        raise UsageError(f"{directory.name} has finished", hint="start another with `hive up`")
    chosen = newest_checkpoint(directory.checkpoints, scheduled_only=exact, refused=_warn)
    if chosen is None:
        raise UsageError(
            f"{directory.name} has no {'scheduled ' if exact else ''}checkpoint to go on from",
            hint="[checkpoint] every says how often one is written",
        )
    for later in list_checkpoints(directory.checkpoints):
        if later.update > chosen.update:
            remove_folder(later.path)  # what comes now is another story
    _keep_lines(directory.metrics_file, chosen.update)
    _keep_lines(directory.evaluations_file, chosen.update)
    unharmed = not any(event.get("kind") == "died" for event in read_jsonl(directory.events_file))
    write_json(directory.resume_file, {"update": chosen.update, "exact": chosen.scheduled and unharmed})
    where = "its last cut" if chosen.scheduled else "the state it was left in"
    print(f"resuming {directory.name} from {where}, update {chosen.update:,}", file=sys.stderr)
    return directory


def _warn(why: str) -> None:
    print(f"warning: {why}", file=sys.stderr)


def _keep_lines(path: Path, update: int) -> None:
    if path.exists():
        kept = [json.dumps(line) for line in read_jsonl(path) if line.get("updates", 0) <= update]
        write_bytes(path, "".join(f"{line}\n" for line in kept).encode())
