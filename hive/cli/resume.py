"""Preparing an ended run to go on: which checkpoint, and what of its records is taken back.

A run goes on in its own directory, under its own name, on the same axis: the metrics of updates that will be made again
are taken away, and so are checkpoints that come after the chosen one. One that has finished needs another goal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from hive.cli.select_run import run_called
from hive.cli.suggest import listed
from hive.config import Config, load_config, render
from hive.config.values import toml_text
from hive.errors import UsageError
from hive.native import check_native
from hive.records import (
    Checkpoint,
    RunDirectory,
    Summary,
    list_checkpoints,
    newest_checkpoint,
    read_jsonl,
    read_object,
    remove_folder,
    run_state,
    write_bytes,
    write_json,
)

__all__ = ["prepare"]

HARM = ("died", "scaled", "set")  # events after which a run is not what it would have been
# Keys, or tables of them, that change nothing of what is learned; and those that weights and moments were made for.
FREE = (
    *("record", "supervision", "evaluation", "checkpoint.keep", "checkpoint.autosave_s"),
    *("run.name", "run.stop_at_return", "run.init_from"),
)
GOALS = ("run.steps", "run.stop_at_return", "custom")  # what a run that has finished can be given more of
STATE = ("network", "env.id", "run.scheme", "algorithm.name", "algorithm.optimizer", "algorithm.momentum")


def prepare(text: str, *, exact: bool, sets: Sequence[str] = (), given: Path | None = None) -> RunDirectory:
    """The directory of the run that `text` means, ready to go on. `exact`: from the last scheduled checkpoint.

    `sets` change keys of its config, as `--set` does; `given` is a config to go on with instead. Raises UsageError for
    a run that lives, has reached its goal, or has nothing to go on from, and for a change that its state or `exact`
    forbids; ConfigError for a config with problems; PlatformError where its processes could not begin. Nothing has
    changed then.
    """
    check_native()
    directory = run_called(text)
    state = run_state(directory)
    if state == "running":
        raise UsageError(f"{directory.name} is running", hint=f"look at it: hive ps {directory.name}")
    chosen = newest_checkpoint(directory.checkpoints, scheduled_only=exact, refused=_warn)
    if chosen is None:
        raise UsageError(
            f"{directory.name} has no {'scheduled ' if exact else ''}checkpoint to go on from",
            hint="[checkpoint] every says how often one is written",
        )
    before = load_config(directory.resolved_file)
    name = f"run.name={json.dumps(before.run.name)}"
    after = load_config(given or directory.resolved_file, [name, *sets]) if given or sets else before
    changes, breaking = _change(directory, before, after, exact)
    if state == "finished":
        _check_goal(directory, chosen, after, changes)
    if changes:
        write_bytes(directory.resolved_file, render(after).encode())
    unharmed = _unharmed(directory, chosen)
    for later in list_checkpoints(directory.checkpoints):
        if later.update > chosen.update:
            remove_folder(later.path)  # what comes now is another story
    _keep_lines(directory.metrics_file, chosen)
    _keep_lines(directory.evaluations_file, chosen)
    same = chosen.scheduled and unharmed and not breaking
    write_json(directory.resume_file, {"update": chosen.update, "exact": same})
    where = "its last cut" if chosen.scheduled else "the state it was left in"
    print(f"resuming {directory.name} from {where}, update {chosen.update:,}", file=sys.stderr)
    for key, change in changes.items():
        print(f"  {change}" + (" (not the same run from here on)" if key in breaking else ""), file=sys.stderr)
    return directory


def _check_goal(directory: RunDirectory, chosen: Checkpoint, after: Config, changes: Mapping[str, str]) -> None:
    """Raises UsageError where a run that has finished would finish again at once."""
    name, steps = directory.name, int(chosen.state.get("env_steps", 0))
    again = f"hive resume {name} --set run.steps={2 * steps or 1_000_000}"
    if not any(_is_of(key, GOALS) for key in changes):
        why = Summary.read(directory.summary_file).stop_reason
        raise UsageError(
            f"{name} has finished: {why}",
            hint=f"give it another goal: {again}; run.stop_at_return=none goes on whatever the return is",
        )
    if after.run.topology is None and after.run.steps <= steps:
        raise UsageError(f"{name} has {steps:,} steps, and run.steps = {after.run.steps:,} is no more", hint=again)


def _change(directory: RunDirectory, before: Config, after: Config, exact: bool) -> tuple[dict[str, str], list[str]]:
    """What differs in the config that the run goes on with, in words, and the keys that make it another run."""
    changes = {key: f"{key}: {_shown(before, key)} -> {_shown(after, key)}" for key in before.differences(after)}
    if bound := [key for key in changes if _is_of(key, STATE)]:
        raise UsageError(
            f"{directory.name} cannot go on with another {listed(bound)}: its weights were made with these",
            hint="start another run with `hive up`",
        )
    # The end of the run is also the end of its schedules, if it has any.
    schedules = [field.name for field in fields(after.algorithm) if field.name.endswith("_schedule")]
    constant = all(getattr(after.algorithm, key) == "constant" for key in schedules)
    free = (*FREE, "run.steps") if constant else FREE
    breaking = [key for key in changes if not _is_of(key, free)]
    if exact and breaking:
        raise UsageError(
            f"{directory.name} would not go on exactly with another {listed(breaking)}",
            hint="without --exact it goes on with them, and says that it is not the same run",
        )
    return changes, breaking


def _shown(config: Config, key: str) -> str:
    """Its value; a key of another algorithm has none here."""
    section, _, name = key.partition(".")
    value = getattr(getattr(config, section), name, None)
    return "none" if value is None else toml_text(value)


def _is_of(key: str, names: Sequence[str]) -> bool:
    """Whether it is one of these keys, or of these tables."""
    return key in names or key.partition(".")[0] in names


def _unharmed(directory: RunDirectory, chosen: Checkpoint) -> bool:
    """Whether all that led to this checkpoint is what an undisturbed run would have done."""
    before = read_object(directory.resume_file) if directory.resume_file.exists() else {"exact": True}
    broken = before.get("exact") is not True and int(before.get("update", 0)) < chosen.update
    return not broken and not any(event.get("kind") in HARM for event in read_jsonl(directory.events_file))


def _warn(why: str) -> None:
    print(f"warning: {why}", file=sys.stderr)


def _keep_lines(path: Path, chosen: Checkpoint) -> None:
    """Takes away the lines that will be written again: of later updates, and of a round that had only begun."""
    updates, steps = chosen.state.get("updates", chosen.update), chosen.state.get("env_steps")
    if path.exists():
        kept = [
            json.dumps(line)
            for line in read_jsonl(path)
            if line.get("updates", 0) <= updates and (steps is None or line.get("steps", 0) <= steps)
        ]
        write_bytes(path, "".join(f"{line}\n" for line in kept).encode())
