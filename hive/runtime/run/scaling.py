"""Continue a run with different numbers of workers, and change keys of a running run.

    hive scale -> check the new config -> drain, save -> build -> the next stage of the same run -> ...

A run consists of stages. Each stage has its own topology and supervisor, but all share one process, directory and axis
of metrics. A stage resumes from the checkpoint that the previous stage saved while it drained. Scaling is thus the end
of one run and the resumption of another, without the time for a new process and its imports, and custom actors need
nothing beyond what resuming needs. It costs a pause of the training and cuts open episodes, and the run is not exact.

Restarts and accounts of channels are summed over the stages of a run.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hive.config import Config, load_config, with_parameter
from hive.config.other_names import is_key, note_on
from hive.config.schema import HEAD
from hive.config.values import SHOWN_LENGTH
from hive.errors import UsageError
from hive.printable import printable
from hive.records import RunDirectory
from hive.records.checkpoints.together import others_of
from hive.runtime.supervise.accounting import sum_of_accounts
from hive.runtime.supervise.outcome import Outcome

SCALED = "scaled"  # state in which a stage ends if another stage follows

SCALABLE = ("collection.workers", "gradients.workers")  # keys that `hive scale` can change
DISCOUNT = "algorithm.discount"  # the only key of [algorithm] that collectors use, and that can be changed
SETTABLE = "algorithm."  # prefix of the keys that `hive set` can change
FREE_CHECKPOINTS = 3  # free disk space required for scaling, in sizes of the largest checkpoint


def changed_config(directory: RunDirectory, config: Config, sets: Sequence[str]) -> Config:
    """Return the config with the changes `sets` ("key=value"), for the next stage.

    Raises UsageError for other keys than SCALABLE, for values that are already set, for another number of collectors of
    a run whose checkpoints hold a replay memory, and for a disk that is too full; ConfigError for invalid values.
    """
    for text in sets:
        key = text.partition("=")[0].strip()
        if key not in SCALABLE:
            raise _refusal(key, f"these can be changed during a run: {', '.join(SCALABLE)}")
    changed = load_config(directory.resolved_file, sets)
    if changed.automatic:
        raise UsageError(
            f'{changed.automatic[0]} cannot become "auto" during a run: it is measured before a run starts',
            hint=f"hive check --tune {directory.resolved_file} measures it; then give the number",
        )
    if not config.differences(changed):
        raise UsageError(f"{directory.name} already has these values: {description(None, changed)}")
    if config.checkpoint.replay and _replay_shapes(config) != _replay_shapes(changed):
        raise UsageError(
            f"{directory.name} cannot have {changed.collectors} collectors instead of {config.collectors}: its replay "
            "memory has rows of each of them",
            hint="start a new run with this number; gradient workers can be changed where collectors have processes of "
            "their own",
        )
    saved = [folder.checkpoints for folder in (directory, *others_of(directory))]
    needed = FREE_CHECKPOINTS * sum(max(map(_size, folder.iterdir()), default=0) for folder in saved)
    free = shutil.disk_usage(directory.path).free
    if free < needed:
        raise UsageError(
            f"scaling saves a checkpoint and needs {needed / 2**20:.0f} MiB; the disk has {free / 2**20:.0f} MiB left",
            hint="make room, or lower checkpoint.keep",
        )
    return changed


def live_change(directory: RunDirectory, config: Config, sets: Sequence[str]) -> Config:
    """Return the config with the changes `sets` ("key=value"), which the run adopts at once, in the same stage.

    Raises UsageError for keys outside [algorithm], for values that are already set, for decentralized workers, and for
    policies with an [algorithm] of their own; ConfigError for invalid values.
    """
    for text in sets:
        key = text.partition("=")[0].strip()
        if not key.startswith(SETTABLE):
            scalable = key in SCALABLE
            free = f"keys of [{SETTABLE[:-1]}] can be changed during a run"
            raise _refusal(key, "`hive scale` changes numbers of workers" if scalable else free)
    changed = load_config(directory.resolved_file, sets)
    differing = changed_keys(config, changed)
    _check_reaches_all(directory, changed, differing, sets)
    algorithm = config.algorithm
    for key in differing:
        algorithm = with_parameter(algorithm, key, changed.value(key))
    if not differing:
        raise UsageError(f"{directory.name} already has these values: {', '.join(sets)}")
    again = f"hive down {directory.name}; hive resume {directory.name} " + " ".join(f"--set {text}" for text in sets)
    if DISCOUNT in differing and _sums_elsewhere(config):
        raise UsageError(f"collectors on other hosts would keep their `{DISCOUNT}`, and sum rewards by it", hint=again)
    if config.gradients.decentralized:
        raise UsageError(
            "decentralized workers each hold the learner's state, and would not change it at the same turn", hint=again
        )
    return changed


def _sums_elsewhere(config: Config) -> bool:
    """Return whether collectors on other hosts use the discount."""
    uses = config.network.normalize_rewards or getattr(config.algorithm, "initial_errors", False)
    return uses and any(host != HEAD for host in config.collection.hosts)


def changed_keys(before: Config, after: Config) -> list[str]:
    """Return the keys whose values differ and have an effect; last those that take no value until points are gone."""
    keys = [key for key in before.differences(after) if key not in after.unused]
    return sorted(keys, key=before.unused.__contains__)


def _check_reaches_all(directory: RunDirectory, changed: Config, keys: Sequence[str], sets: Sequence[str]) -> None:
    """Raise UsageError if one of several policies has another value of a key in a table of its own."""
    for name, row in changed.policies.items():
        own = changed.learner(name).algorithm
        for key in keys if row.learns else ():
            if getattr(own, key.removeprefix(SETTABLE), None) != changed.value(key):
                raise UsageError(
                    f"`{key}` would not reach the policy `{name}`, which has a value of its own",
                    hint=f"hive down {directory.name}; hive resume {directory.name} "
                    + " ".join(f"--set {text}" for text in sets)
                    + " changes it for the other policies",
                )


def _replay_shapes(config: Config) -> list[tuple[int, int] | None]:
    """Return the shapes of the replay memories of all policies."""
    learning = [name for name, row in config.policies.items() if row.learns]
    return [config.learner(name).replay_shape for name in learning] or [config.replay_shape]


def _refusal(key: str, hint: str) -> UsageError:
    """Return the error for a key that cannot be changed. For another trainer's name it names the key."""
    shown = printable(key, SHOWN_LENGTH)
    note = "" if is_key(key) else note_on(key.rpartition(".")[2])
    return UsageError(
        f"unknown key `{shown}`; {note}" if note else f"`{shown}` cannot be changed during a run", hint=hint
    )


def description(before: Config | None, after: Config) -> str:
    """Describe a change, `collection.workers 1 -> 4`; without `before`, the scalable keys of `after`."""
    if before is None:
        return ", ".join(f"{key} = {after.value(key)}" for key in SCALABLE)
    return ", ".join(f"{key} {before.value(key)} -> {after.value(key)}" for key in before.differences(after))


def combined_outcome(stages: Sequence[Outcome]) -> Outcome:
    """Return the outcome of a run: that of its last stage, with the restarts and accounts of all stages summed."""
    restarts: Counter[str] = Counter()
    accounts: dict[str, list[dict[str, Any]]] = {}
    for stage in stages:
        restarts.update(stage.restarts)
        for name, account in stage.channels.items():
            accounts.setdefault(name, []).append(account)
    channels = {name: sum_of_accounts(parts) for name, parts in accounts.items()}
    exact = len(stages) == 1 and stages[0].exact
    return replace(stages[-1], restarts=dict(restarts), channels=channels, exact=exact)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*") if file.is_file())
