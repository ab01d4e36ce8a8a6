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
from hive.cli.tune import recorded_sets
from hive.config import Config, load_config, resolved
from hive.config.values import toml_text
from hive.errors import RecordError, UsageError
from hive.native import check_native
from hive.records import (
    Checkpoint,
    RunDirectory,
    Summary,
    best_policy,
    list_checkpoints,
    newest_checkpoint,
    read_jsonl,
    read_resume_point,
    remove_folder,
    run_state,
    write_bytes,
    write_resume_point,
)
from hive.records.jsonl import kept_lines
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
    directory.check()
    chosen = _chosen(directory, exact)
    before = load_config(directory.resolved_file)
    name = f"run.name={json.dumps(before.run.name)}"
    after = load_config(given or directory.resolved_file, [name, *sets]) if given or sets else before
    if after.automatic:
        after = _as_measured(directory, before, after, given, [name, *sets])
    changes, breaking = _change(directory, before, after, exact)
    if chosen.has_replay:
        _check_replay(directory, chosen, before, after)
    if state == "finished":
        _check_goal(directory, chosen, after, changes)
    same = chosen.scheduled and not breaking and _is_undisturbed(directory, chosen)
    lines = [path for path in (directory.metrics_file, directory.evaluations_file) if path.exists()]
    kept = {path: _lines_before(path, chosen) for path in lines}
    # Everything has been read by now: from here on the directory changes.
    if changes:
        write_bytes(directory.resolved_file, resolved(after))
    _go_back_to(directory, chosen, kept)
    write_resume_point(directory, chosen.update, exact=same)
    where = "its last scheduled checkpoint" if chosen.scheduled else "its last saved state"
    print(f"resuming {directory.name} from {where}, update {chosen.update:,}", file=sys.stderr)
    for key, change in changes.items():
        print(f"  {change}" + (" (no longer exact from here on)" if key in breaking else ""), file=sys.stderr)
    return directory


def _as_measured(
    directory: RunDirectory, before: Config, after: Config, given: Path | None, sets: Sequence[str]
) -> Config:
    """Return the config with what the run has in place of "auto": it is measured once, when a run starts.

    given, sets: what `after` was loaded from.
    """
    own = [f"{name}={toml_text(before.value(name))}" for name in after.automatic]
    return load_config(given or directory.resolved_file, [*recorded_sets(directory), *sets, *own])


def _chosen(directory: RunDirectory, exact: bool) -> Checkpoint:
    """Return the newest intact checkpoint, with `exact` of the scheduled ones. Raises UsageError if there is none."""
    refused: list[str] = []
    chosen = newest_checkpoint(directory.checkpoints, scheduled_only=exact, replay=True, refused=refused.append)
    for cause in refused:
        _warn(cause)
    if chosen is not None:
        return chosen
    hint = "[checkpoint] every determines how often one is written"
    if refused:
        best = best_policy(directory.best)
        start = f" --set run.init_from={best.path}" if best is not None else ""
        hint = f"none is intact: start a new run{' from its best policy' if best else ''}: "
        hint += f"hive up {directory.resolved_file}{start}"
    what = "scheduled " if exact else "intact " if refused else ""
    raise UsageError(f"{directory.name} has no {what}checkpoint to resume from", hint=hint)


def _go_back_to(directory: RunDirectory, chosen: Checkpoint, kept: Mapping[Path, bytes]) -> None:
    """Remove checkpoints after this one, and all lines that are not `kept`; the resumed run will write them again."""
    for later in list_checkpoints(directory.checkpoints):
        if later.update > chosen.update:
            remove_folder(later.path)
    for path, lines in kept.items():
        write_bytes(path, lines)


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


def _check_replay(directory: RunDirectory, chosen: Checkpoint, before: Config, after: Config) -> None:
    """Raise UsageError if the rows of the replay memory would have other collectors or environments."""
    if (mine := before.replay_shape) == (theirs := after.replay_shape) or mine is None or theirs is None:
        return
    changes = [
        f"{what} ({old} -> {new})"
        for old, new, what in zip(mine, theirs, ("collectors", "environments of each collector"), strict=True)
        if old != new
    ]
    raise UsageError(
        f"{directory.name} cannot continue with another number of {' and of '.join(changes)}: its replay memory has "
        "rows of each of them",
        hint="undo the change of collection.workers, collection.envs or gradients.workers, or start a new run from "
        f"these weights: -s run.init_from={chosen.path}",
    )


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
    try:
        before = read_resume_point(directory)
    except RecordError as error:
        _warn(f"{error}; the run is marked as not exact")
        return False
    broken = before is not None and not before.exact and before.update < chosen.update
    return not broken and not any(event.get("kind") in DISTURBING_EVENTS for event in read_jsonl(directory.events_file))


def _warn(why: str) -> None:
    print(f"warning: {why}", file=sys.stderr)


def _lines_before(path: Path, chosen: Checkpoint) -> bytes:
    """Return a file without lines that will be written again: of later updates, and of a round not complete."""
    updates, steps = chosen.state.get("updates", chosen.update), chosen.state.get("env_steps")
    return kept_lines(
        path, lambda line: line.get("updates", 0) <= updates and (steps is None or line.get("steps", 0) <= steps)
    )
