"""Workers and sets of a small config, the run of the same config, and what of the machine they have in use."""

from __future__ import annotations

import gc
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import small_environments
from small_trainer import LIMIT_S, config_of

from hive.compat.pytorchrl import CWorkerSet, GWorker, GWorkerSet, Snapshot
from hive.records import RunDirectory
from hive.runtime.supervise.outcome import Outcome
from hive.schemes.trainer import assemble
from hive.testing import run_inline
from hive.training import Blueprint

SAMPLES = 16  # samples of a rollout: two environments, eight steps

CENTRAL, PARALLEL = (0, "Central"), (2, "Parallel")
MODES = [(*how, communication) for communication in ("synchronous", "asynchronous") for how in (CENTRAL, PARALLEL)]

LEARN = {"env": "Bandit", "collection__envs": 8, "algorithm__learning_rate": 0.01}


class Counted(small_environments.Drift):
    """Counts the environments that are open."""

    open = 0

    def __init__(self, when: int = 0) -> None:
        super().__init__()
        self.when = when
        Counted.open += 1

    def reward(self, action: Any) -> float:
        if self.at == self.when:
            raise RuntimeError("the motor is stuck")
        return super().reward(action)

    def terminated(self) -> bool:
        return False

    def close(self) -> None:
        Counted.open -= 1


def blueprint_of(env: str = "Drift", **values: Any) -> Blueprint:
    """`env`: a class of small_environments or one of this file."""
    module = "small_environments" if hasattr(small_environments, env) else "small_workers"
    return Blueprint(config_of(f"{module}:{env}", **values))


def worker_of(
    workers: int = 0,
    execution: str = "Central",
    communication: str = "synchronous",
    env: str = "Drift",
    fraction_samples: float = 0.0,
    index: int = 0,
    **values: Any,
) -> GWorker:
    """`algorithm__name=...` is a value of the config, any other name an option of GWorker."""
    options = {name: values.pop(name) for name in list(values) if "__" not in name}
    factory = CWorkerSet.create_factory(blueprint_of(env, **values), workers, fraction_samples)
    return GWorker(index, factory, communication, col_execution=execution, **options)


def set_of(
    workers: int,
    env: str = "Drift",
    collectors: int = 0,
    *,
    parent: int = 0,
    communication: str = "synchronous",
    compress: bool | str = False,
    initial: Any = None,
    fraction_workers: float = 1.0,
    **values: Any,
) -> GWorkerSet:
    factory = CWorkerSet.create_factory(blueprint_of(env, **values), collectors)
    execution = "Parallel" if collectors else "Central"
    return GWorkerSet(
        workers, parent, "cpu", execution, communication, factory, fraction_workers, {}, compress, initial
    )


def sha256(weights: Snapshot) -> str:
    return hashlib.sha256(weights.block).hexdigest()


def run_of(folder: Path, env: str = "Drift", **values: Any) -> Outcome:
    """The run of a config; `digest` is the sha256 of its weights."""
    directory = RunDirectory.create(folder, "test").path
    outcome = run_inline(assemble(blueprint_of(env, **values), directory), seconds=LIMIT_S)
    assert outcome.state == "finished"
    return outcome


def in_use() -> tuple[int, int, int]:
    """Threads, file descriptors (those of shared memory among them) and environments."""
    gc.collect()
    return threading.active_count(), len(os.listdir("/proc/self/fd")), Counted.open
