"""Prepares an ended run to be resumed: selects the checkpoint and removes records of updates after it.

A run continues in its own directory, under its own name and in the same curves. Metrics of updates that will be
repeated are removed, and so are checkpoints later than the selected one. A finished run needs a new goal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from hive.cli.select_run import named_run
from hive.cli.suggest import listed
from hive.config import Config, load_config, resolved
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
from hive.runtime.run.folders import check_socket_paths

__all__ = ["prepare"]

DISTURBING_EVENTS = ("died", "scaled", "set")  # events after which a run is not bit-identical to an undisturbed one
# Keys and tables that do not affect learning, so a resumed run may change them and stay exact.
HARMLESS_KEYS = (
    *("record", "supervision", "evaluation", "checkpoint.keep", "checkpoint.autosave_s"),
    *("run.name", "run.stop_at_return", "run.init_from"),
)
GOAL_KEYS = ("run.steps", "run.stop_at_return", "custom")  # a finished run needs a new value of one of these
# Keys that determine the layout of weights and optimizer state. A resumed run cannot change them.
STATE_KEYS = ("network", "env.id", "run.scheme", "algorithm.name", "algorithm.optimizer", "algorithm.momentum")


def prepare(text: str, *, exact: bool, sets: Sequence[str] = (), given: Path | None = None) -> RunDirectory:
    """Prepare to resume the run that `text` selects, and return its directory.

    exact: resume from the last scheduled checkpoint.
    sets: changes to the run's config, as for `--set`.
    given: a config file that replaces the run's config.

    Raises UsageError if the run is live, has reached its goal or has no checkpoint, or if its state or `exact` forbids
    a change. Raises ConfigError for an invalid config, and PlatformError if processes cannot run on this machine.
    After an error the directory is unchanged.
    """
    check_native()
    check_socket_paths()
    directory = named_run(text)
    state = run_state(directory)
    if state == "running":
        raise UsageError(f"{directory.name} is running", hint=f"inspect it: hive ps {directory.name}")
    chosen = newest_checkpoint(directory.checkpoints, scheduled_only=exact, refused=_warn)
    if chosen is None:
        raise UsageError(
            f"{directory.name} has no {'scheduled ' if exact else ''}checkpoint to resume from",
            hint="[checkpoint] every determines how often one is written",
        )
    before = load_config(directory.resolved_file)
    name = f"run.name={json.dumps(before.run.name)}"
    after = load_config(given or directory.resolved_file, [name, *sets]) if given or sets else before
    changes, breaking = _change(directory, before, after, exact)
    if state == "finished":
        _check_goal(directory, chosen, after, changes)
    if changes:
        write_bytes(directory.resolved_file, resolved(after))
    unharmed = _is_undisturbed(directory, chosen)
    _go_back_to(directory, chosen)
    same = chosen.scheduled and unharmed and not breaking
    write_json(directory.resume_file, {"update": chosen.update, "exact": same})
    where = "its last scheduled checkpoint" if chosen.scheduled else "its last saved state"
    print(f"resuming {directory.name} from {where}, update {chosen.update:,}", file=sys.stderr)
    for key, change in changes.items():
        print(f"  {change}" + (" (no longer exact from here on)" if key in breaking else ""), file=sys.stderr)
    return directory


def _go_back_to(directory: RunDirectory, chosen: Checkpoint) -> None:
    """Remove the files and lines written after the checkpoint, because the resumed run will write them again."""
    for later in list_checkpoints(directory.checkpoints):
        if later.update > chosen.update:
            remove_folder(later.path)
    _keep_lines(directory.metrics_file, chosen)
    _keep_lines(directory.evaluations_file, chosen)


def _check_goal(directory: RunDirectory, chosen: Checkpoint, after: Config, changes: Mapping[str, str]) -> None:
    """Raise UsageError if a finished run would finish again at once."""
    name, steps = directory.name, int(chosen.state.get("env_steps", 0))
    again = f"hive resume {name} --set run.steps={2 * steps or 1_000_000}"
    if not any(_is_of(key, GOAL_KEYS) for key in changes):
        why = Summary.read(directory.summary_file).stop_reason
        raise UsageError(
            f"{name} has finished: {why}",
            hint=f"set a new goal: {again}; run.stop_at_return=none continues whatever the return is",
        )
    if after.run.topology is None and after.run.steps <= steps:
        raise UsageError(f"{name} already has {steps:,} steps, and run.steps is {after.run.steps:,}", hint=again)


def _change(directory: RunDirectory, before: Config, after: Config, exact: bool) -> tuple[dict[str, str], list[str]]:
    """Return the changes to the config as key -> text, and the keys whose change makes the run inexact.

    Raises UsageError for changes that the run's state or `exact` forbids.
    """
    changes = {key: f"{key}: {_shown(before, key)} -> {_shown(after, key)}" for key in before.differences(after)}
    if bound := [key for key in changes if _is_of(key, STATE_KEYS)]:
        raise UsageError(
            f"{directory.name} cannot continue with another {listed(bound)}: its weights depend on these keys",
            hint="start a new run with `hive up`",
        )
    # The end of the run is also the end of its schedules, so only without any is run.steps harmless.
    schedules = [field.name for field in fields(after.algorithm) if field.name.endswith("_schedule")]
    constant = all(getattr(after.algorithm, key) == "constant" for key in schedules)
    free = (*HARMLESS_KEYS, "run.steps") if constant else HARMLESS_KEYS
    breaking = [key for key in changes if not _is_of(key, free)]
    if exact and breaking:
        raise UsageError(
            f"{directory.name} would not be exact with another {listed(breaking)}",
            hint="without --exact it continues with them and is marked as not exact",
        )
    return changes, breaking


def _shown(config: Config, key: str) -> str:
    """Return the value of a key as text; "none" for a key that the config's algorithm does not have."""
    section, _, name = key.partition(".")
    value = getattr(getattr(config, section), name, None)
    return "none" if value is None else toml_text(value)


def _is_of(key: str, names: Sequence[str]) -> bool:
    """Whether the key or its table is among `names`."""
    return key in names or key.partition(".")[0] in names


def _is_undisturbed(directory: RunDirectory, chosen: Checkpoint) -> bool:
    """Whether the run up to this checkpoint is what an undisturbed run would have done."""
    before = read_object(directory.resume_file) if directory.resume_file.exists() else {"exact": True}
    broken = before.get("exact") is not True and int(before.get("update", 0)) < chosen.update
    return not broken and not any(event.get("kind") in DISTURBING_EVENTS for event in read_jsonl(directory.events_file))


def _warn(why: str) -> None:
    print(f"warning: {why}", file=sys.stderr)


def _keep_lines(path: Path, chosen: Checkpoint) -> None:
    """Remove lines that will be written again: those of later updates, and of a round that was not complete."""
    updates, steps = chosen.state.get("updates", chosen.update), chosen.state.get("env_steps")
    if path.exists():
        kept = [
            json.dumps(line)
            for line in read_jsonl(path)
            if line.get("updates", 0) <= updates and (steps is None or line.get("steps", 0) <= steps)
        ]
        write_bytes(path, "".join(f"{line}\n" for line in kept).encode())
