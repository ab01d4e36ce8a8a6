"""Prepares an ended run to be resumed: selects the checkpoint and goes back to it.

A run continues in its own directory, under its own name and in the same curves. Metrics of updates that will be
repeated are cut. Checkpoints later than the selected one are set aside, never deleted
(hive.records.checkpoints.set_aside); with `--exact` so are all lines and a best policy after it. A finished run needs a
new goal. A run of the built-in trainer that has nothing to go back to, because it ended before its first checkpoint,
begins again from its seed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from hive.config import Config, load_config, resolved
from hive.config.load import ConfigText
from hive.config.values import toml_text
from hive.errors import RecordError, UsageError
from hive.hash_seed import VARIABLE
from hive.launch.control import print_to_stderr
from hive.launch.references import keep_references, kept_as_before
from hive.launch.select_run import named_run
from hive.launch.suggest import listed
from hive.launch.tune import recorded_sets
from hive.native import check_native
from hive.paths import SESSION_FILE
from hive.records import (
    Checkpoint,
    RunDirectory,
    Summary,
    best_policy,
    list_checkpoints,
    read_jsonl,
    read_resume_point,
    run_state,
    wall_s_so_far,
    write_bytes,
    write_resume_point,
)
from hive.records.checkpoints.set_aside import Origin, finish_set_aside, set_aside
from hive.records.checkpoints.together import chosen_together, others_of, why_apart
from hive.records.jsonl import tail_jsonl
from hive.records.owner import give_up, own, owner_of, refusal
from hive.records.program import read_program
from hive.records.regular import read_regular
from hive.records.replaced import keep_replaced, restore_replaced
from hive.records.run_warnings import CALLBACK_FAILED, ENVIRONMENT_FAILED, METHOD_AGAIN, NOT_REPEATED
from hive.runtime.run.folders import check_socket_paths

# Events and warnings after which a run is not bit-identical to an undisturbed one -> why.
DISTURBING_EVENTS = {
    "died": "an actor was restarted",
    "scaled": "`hive scale` changed it",
    "set": "`hive set` changed it",
    ENVIRONMENT_FAILED: "an environment failed",
    NOT_REPEATED: "a round that was made again after a resume was not the same",
}
GOALS = ("run.stop_at_return", "run.stop_at_evaluation", "run.stop_after_evaluations", "run.stop_when_no_better")
# Keys and tables that do not affect learning, so a resumed run may change them and stay exact.
HARMLESS_KEYS = (
    *("record", "supervision", "evaluation", "checkpoint.keep", "checkpoint.autosave_s"),
    *(
        "run.name",
        "run.accept",
        *GOALS,
        "run.callback_limit_s",
        "run.init_from",
        "network.weights",
        "algorithm.replay_from",
    ),
)
GOAL_KEYS = ("run.steps", *GOALS, "run.callbacks", "custom")  # a finished run needs a new value of one of these
# Keys that determine the layout of weights and optimizer state. A resumed run cannot change them.
STATE_KEYS = (
    *("network", "env.id", "env.images", "env.scale_observations", "env.scale_actions"),
    *("run.scheme", "algorithm.name", "algorithm.optimizer", "algorithm.momentum"),
)
# Keys whose default has changed since some runs began. A config file that does not mention them keeps the run's values.
KEPT_KEYS = ("run.scheme", "checkpoint.every")


def prepare(
    text: str,
    *,
    exact: bool,
    sets: Sequence[str] = (),
    given: Path | None = None,
    source: str | None = None,
    report: Callable[[str], object] = print_to_stderr,
) -> RunDirectory:
    """Prepare to resume the run that `text` selects, which this process then owns, and return its directory.

    exact: resume from the last scheduled checkpoint, or the beginning before the first one.
    sets: changes to the run's config, as for `--set`.
    given: a config file that replaces the run's config.
    source: what replaces the run's session.py; the run is then not exact if they differ.
    report: is called with each line of what changes.

    Raises UsageError if another process owns the run, or it has reached its goal or has no checkpoint, or if its state
    or `exact` forbids a change. Raises ConfigError for an invalid config, and PlatformError if processes cannot run on
    this machine. After an error the directory is unchanged, except that an earlier command that was killed is completed
    first. A RecordError, as on a full disk, may leave newer state set aside, which the next `resume` completes.
    """
    check_native()
    check_socket_paths()
    directory = named_run(text)
    if run_state(directory) == "running":
        raise refusal(directory, owner_of(directory))
    own(directory, report)
    try:
        _prepare(directory, exact, sets, given, source, report)
    except BaseException:
        give_up(directory)
        raise
    return directory


def _prepare(
    directory: RunDirectory,
    exact: bool,
    sets: Sequence[str],
    given: Path | None,
    source: str | None,
    report: Callable[[str], object],
) -> None:
    """Prepare to resume a run that this process owns, as `prepare`."""
    state = run_state(directory)
    directory.refuse_others()
    for folder in finish_set_aside(directory):
        report(f"completed an interrupted `hive resume`: newer state lies in {folder}")
    others = others_of(directory)
    for one in others:
        one.refuse_others()
        finish_set_aside(one)
    if restore_replaced(directory, is_unused=False):
        report("undid the changes of a `hive resume` that was killed before it had made an update with them")
    chosen, beside = _chosen(directory, others, exact)
    before, after = configs(directory, sets, ConfigText(given) if given else None)
    changes, breaking = _change(directory, before, after, exact)
    program = read_program(directory)
    if program is not None and os.environ.get(VARIABLE, program.hash_seed) != program.hash_seed:
        breaking.append(VARIABLE)
    code = _new_code(directory, source)
    breaking += [SESSION_FILE] * (code is not None)
    with_rows = [one for one in (chosen, *beside.values()) if one is not None and one.has_replay]
    if with_rows:
        _check_replay(directory, with_rows[0], before, after)
    if state == "finished":
        _check_goal(directory, (chosen.state if chosen else {}).get("env_steps", 0), after, changes)
    why, changed = _why_inexact(directory, chosen, breaking)
    why = "; ".join(filter(None, (why, why_apart(chosen, beside))))
    kept = keep_references(directory, after, begins=chosen is None)
    # Everything has been read by now: from here on the directory changes. The config is written last: if this process
    # is killed before, the next `resume` still finds that the keys change, and marks the run as not exact.
    if changes:
        keep_replaced(directory)
    back = _go_back_to(directory, chosen, exact)
    for other in others:
        at = beside.get(other)
        _go_back_to(other, at, exact)
        write_resume_point(other, at.update if at else 0, why=why)
    if _kinds(directory) & {*DISTURBING_EVENTS, CALLBACK_FAILED}:
        shutil.rmtree(directory.rounds, ignore_errors=True)  # checksums of rounds that nobody makes again
    update = chosen.update if chosen else 0
    write_resume_point(directory, update, why=why, changed=changed, wall_s=wall_s_so_far(directory))
    if code is not None:
        write_bytes(directory.session_file, code)
    if changes or kept != after:
        write_bytes(directory.resolved_file, resolved(kept))
    report(f"continues {directory.name} {_where(chosen, exact, after)}")
    for key, change in changes.items():
        report(f"  {change}" + (" (no longer exact from here on)" if key in breaking else ""))
    if back:
        report(f"  {back}")


def _new_code(directory: RunDirectory, source: str | None) -> bytes | None:
    """Return the content of another session.py than the run has; None if there is none."""
    if source is None or not directory.session_file.exists():
        return None
    code = source.encode()
    return None if read_regular(directory.session_file) == code else code


def configs(directory: RunDirectory, sets: Sequence[str], given: ConfigText | None) -> tuple[Config, Config]:
    """Return the config of the run so far, and that with which it continues.

    given: what replaces the run's own config. Raises ConfigError, and CallbackFailed for callbacks that are objects of
    another program.
    """
    text = ConfigText(directory.resolved_file)
    before = text.config()
    text = given or text
    name = f"run.name={json.dumps(before.run.name)}"
    has = {entry.name for entry in before.entries()}
    kept = {key: before.value(key) for key in KEPT_KEYS if key in has}
    after = text.config([name, *sets], kept) if given or sets else before
    if after.automatic:  # measured once, when the run started
        measured = [f"{key}={toml_text(before.value(key))}" for key in after.automatic]
        after = text.config([*recorded_sets(directory), name, *sets, *measured], kept)
    after = kept_as_before(before, after)
    if after.run.callbacks:
        from hive.training.callbacks.caller import check_objects

        check_objects(after)
    return before, after


def _where(chosen: Checkpoint | None, exact: bool, config: Config) -> str:
    if chosen is None:
        return f"from its beginning: it has no {'scheduled ' * exact}checkpoint yet"
    steps = chosen.state.get("env_steps")  # a custom topology need not count them
    at = "" if steps is None or config.run.topology else f"at {steps:,} of {config.run.steps:,} steps, "
    where = "its last scheduled checkpoint" if chosen.scheduled else "its last saved state"
    return f"{at}from {where}, update {chosen.update:,}"


def _chosen(
    directory: RunDirectory, others: list[RunDirectory], exact: bool
) -> tuple[Checkpoint | None, dict[RunDirectory, Checkpoint]]:
    """Return the newest intact checkpoint, with `exact` of the scheduled ones; None for the beginning of the run.

    Also those of the policies in `others`. Raises UsageError if there is none, and the run cannot begin again.
    """
    refused: list[str] = []
    chosen, beside = chosen_together(directory, others, exact, refused.append)
    for cause in refused:
        _warn(cause)
    if chosen is not None or (not refused and _can_begin_again(directory, exact)):
        return chosen, beside
    hint = "[checkpoint] every determines how often one is written"
    if refused:
        best = best_policy(directory.best)
        start = f" --set run.init_from={best.path}" if best is not None else ""
        hint = f"none is intact: start a new run{' from its best policy' if best else ''}: "
        hint += f"hive up {directory.resolved_file}{start}"
    what = "scheduled " if exact else "intact " if refused else ""
    raise UsageError(f"{directory.name} has no {what}checkpoint to resume from", hint=hint)


def _can_begin_again(directory: RunDirectory, exact: bool) -> bool:
    """Whether the beginning is as good as a checkpoint; the actors of a custom topology may have a state elsewhere."""
    if not directory.resolved_file.exists():
        return False
    config = load_config(directory.resolved_file)
    return config.run.topology is None and (config.exact or not exact)


def _go_back_to(directory: RunDirectory, chosen: Checkpoint | None, exact: bool) -> str:
    """Cut the lines after a checkpoint, set newer checkpoints aside, and return how far that is and where they lie."""
    origin, last = Origin.of(chosen) if chosen else Origin(0, 0, 0), _newest(directory)
    folder = set_aside(directory, origin, best=exact or chosen is None)
    if folder is None:
        return ""
    back = [f"{last.updates - origin.updates:,} updates"] if last.updates > origin.updates else []
    if origin.env_steps is not None and last.env_steps is not None and last.env_steps > origin.env_steps:
        back.append(f"{last.env_steps - origin.env_steps:,} steps")
    return (
        f"it goes back{f' {listed(back)}' if back else ''}; its newer state lies in {folder}: "
        f"`hive eval {folder}` plays it, `hive prune --ahead` deletes it"
    )


def _newest(directory: RunDirectory) -> Origin:
    """Return how far the run has come, by its checkpoints and metrics."""
    reached = [Origin.of(saved) for saved in list_checkpoints(directory.checkpoints)[-1:]]
    for line in tail_jsonl(directory.metrics_file, 1):
        reached.append(Origin(0, int(line.get("updates", 0)), int(line.get("steps", 0))))
    updates, steps = [each.updates for each in reached], [each.env_steps or 0 for each in reached]
    return Origin(0, max(updates, default=0), max(steps, default=0))


def _check_goal(directory: RunDirectory, steps: int, after: Config, changes: Mapping[str, str]) -> None:
    """Raise UsageError if a finished run would finish again at once. steps: those that it has when it continues."""
    name = directory.name
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
    changes = change_texts(before, after)
    if bound := [key for key in changes if _is_of(key, STATE_KEYS) and key not in HARMLESS_KEYS]:
        raise UsageError(
            f"{directory.name} cannot continue with another {listed(bound)}: its weights depend on these keys",
            hint="start a new run with `hive up`",
        )
    # The end of the run is also the end of its schedules except points, so only without any is run.steps harmless.
    harmless = HARMLESS_KEYS if _has_falling_key(after) else (*HARMLESS_KEYS, "run.steps")
    breaking = [key for key in changes if not _is_of(key, harmless)]
    if exact and breaking:
        raise UsageError(
            f"{directory.name} would not be exact with another {listed(breaking)}",
            hint="without --exact it continues with them and is marked as not exact",
        )
    return changes, breaking


def change_texts(before: Config, after: Config) -> dict[str, str]:
    """Return `key: old -> new` for each key that differs."""
    return {key: _change_text(before, after, key) for key in before.differences(after)}


def _has_falling_key(config: Config) -> bool:
    tables = [one.algorithm for one in (config, *config.learners.values())]
    schedules = (getattr(one, key.name) for one in tables for key in fields(one) if key.name.endswith("_schedule"))
    return any(schedule in ("linear", "cosine") for schedule in schedules)


def _check_replay(directory: RunDirectory, chosen: Checkpoint, before: Config, after: Config) -> None:
    """Raise UsageError if the rows of the replay memory would have other collectors or environments."""
    mine, theirs = ((config.collectors, config.collection.envs) for config in (before, after))
    if mine == theirs:
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


def _change_text(before: Config, after: Config, key: str) -> str:
    """Return `key: old -> new`; of a policy's own table, only the keys that change."""
    old, new = _value(before, key), _value(after, key)
    if isinstance(old, Mapping) and isinstance(new, Mapping) and key.startswith("policies."):
        changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        return "; ".join(f"{key}.{name}: {_shown(old.get(name))} -> {_shown(new.get(name))}" for name in changed)
    return f"{key}: {_shown(old)} -> {_shown(new)}"


def _value(config: Config, key: str) -> Any:
    """Return the value of a key; None for one that the config's algorithm or its policies do not have."""
    try:
        return config.value(key)
    except (AttributeError, KeyError):
        return None


def _shown(value: Any) -> str:
    return "none" if value is None else toml_text(value)


def _is_of(key: str, names: Sequence[str]) -> bool:
    """Whether the key or its table is among `names`."""
    return key in names or key.partition(".")[0] in names


def _kinds(directory: RunDirectory) -> set[Any]:
    """Return the kinds, warnings and facts of all events of a run."""
    return {event.get(name) for event in read_jsonl(directory.events_file) for name in ("kind", "warning", "fact")}


def _why_inexact(directory: RunDirectory, chosen: Checkpoint | None, breaking: Sequence[str]) -> tuple[str, list[str]]:
    """Return why the run from this checkpoint on is not what an undisturbed run would do, and all keys changed so far.

    The text is "" if it is; `breaking` are the keys that change now.
    """
    try:
        before = read_resume_point(directory)
    except RecordError as error:
        _warn(f"{error}; the run is marked as not exact")
        return str(error), [*breaking]
    changed = list(dict.fromkeys([*(before.changed if before else ()), *breaking]))
    if chosen is None:  # what was disturbed is undone, and only the config differs from that of the first start
        return (f"`hive resume` changed {listed(changed)}" if changed else ""), changed
    kinds = _kinds(directory)
    causes = [why for kind, why in DISTURBING_EVENTS.items() if kind in kinds]
    if changed:
        causes.insert(0, f"`hive resume` changed {listed(changed)}")
    if before is not None and not before.exact and before.update < chosen.update:
        causes.append(before.why or "it was resumed from a state that was not exact")
    if METHOD_AGAIN in kinds:
        causes.append("callbacks called a method of environments again and again, which a resumed run calls once")
    if not chosen.scheduled:
        causes.append(f"it was resumed from update {chosen.update:,}, which is no resume barrier")
    return "; ".join(dict.fromkeys(causes)), changed


def _warn(why: str) -> None:
    print(f"warning: {why}", file=sys.stderr)
