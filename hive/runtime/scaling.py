"""Scaling: a run goes on with other numbers of workers.

    hive scale -> the config that follows -> drain, save -> build -> the next stage of the same run -> ...

A run has stages. Each is a topology of its own under a supervisor of its own, in the same process and directory and on
the same axis; the next begins where the last one's drain has saved. So scaling is nothing new: it is the end of a run
and the resumption of another, without what costs time in between (a process, imports), and everything that holds for
those holds here, for actors of users too. What it costs is a pause, and that open episodes are cut; a run that was
scaled is not exact.

The stages of one run add up: restarts and the accounts of channels.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hive.config import Config, load_config, with_parameter
from hive.errors import UsageError
from hive.records import RunDirectory
from hive.runtime.accounting import sum_of_accounts
from hive.runtime.outcome import Outcome

__all__ = ["SCALED", "added_up", "changed_config", "description", "live_change"]

SCALED = "scaled"  # the state in which a stage ends that another one follows

KEYS = ("collection.workers", "gradients.workers")
LIVE = "algorithm."  # what keys begin with that `hive set` can change
ROOM = 3  # times the newest checkpoint must fit the disk: what scaling saves, beside what is there


def changed_config(directory: RunDirectory, config: Config, sets: Sequence[str]) -> Config:
    """The config with these keys changed. Raises UsageError or ConfigError for what cannot be."""
    for text in sets:
        key = text.partition("=")[0].strip()
        if key not in KEYS:
            raise UsageError(f"`{key}` cannot be changed while a run goes on", hint=f"these can: {', '.join(KEYS)}")
    changed = load_config(directory.resolved_file, sets)
    if not config.differences(changed):
        raise UsageError(f"{directory.name} has that already: {description(None, changed)}")
    needed = ROOM * max((_size(folder) for folder in directory.checkpoints.iterdir()), default=0)
    free = shutil.disk_usage(directory.path).free
    if free < needed:
        raise UsageError(
            f"scaling saves a checkpoint, and the disk has {free / 2**20:.0f} MiB left; it takes {needed / 2**20:.0f}",
            hint="make room, or lower checkpoint.keep",
        )
    return changed


def live_change(directory: RunDirectory, config: Config, sets: Sequence[str]) -> Config:
    """The config with these keys of [algorithm] changed, which the run goes on with at once, without another stage.

    Raises UsageError or ConfigError for what cannot be.
    """
    for text in sets:
        key = text.partition("=")[0].strip()
        if not key.startswith(LIVE):
            hint = "`hive scale` changes numbers of workers" if key in KEYS else f"those of [{LIVE[:-1]}] can"
            raise UsageError(f"`{key}` cannot be changed while a run goes on", hint=hint)
    changed = load_config(directory.resolved_file, sets)
    differing = config.differences(changed)
    for key in differing:
        with_parameter(config.algorithm, key, changed.value(key))
    if not differing:
        raise UsageError(f"{directory.name} has that already: {', '.join(sets)}")
    if config.gradients.decentralised:
        raise UsageError(
            "decentralised workers each keep the learner's state, and would not change it at the same turn",
            hint=f"hive down {directory.name}; hive resume {directory.name} "
            + " ".join(f"--set {text}" for text in sets),
        )
    return changed


def description(before: Config | None, after: Config) -> str:
    """`collection.workers 1 -> 4`."""
    if before is None:
        return ", ".join(f"{key} = {after.value(key)}" for key in KEYS)
    return ", ".join(f"{key} {before.value(key)} -> {after.value(key)}" for key in before.differences(after))


def added_up(stages: Sequence[Outcome]) -> Outcome:
    """The outcome of all of a run's stages: that of the last, with the restarts and accounts of all."""
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
