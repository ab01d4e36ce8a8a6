"""Small runs of the scheme in one process, for tests of the trainer's actors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from small_trainer import LIMIT_S, config_of

from hive.config import Config
from hive.networks import aligned_block
from hive.records import RunDirectory, read_jsonl
from hive.records.checkpoints.weights import load_weights
from hive.runtime import Topology
from hive.runtime.memory.status import read_status
from hive.runtime.supervise.accounting import holds
from hive.runtime.supervise.supervisor import Journal, Outcome, Supervisor
from hive.schemes import build
from hive.testing import run_inline
from hive.training import Blueprint


@dataclass
class Run:
    """The files and results of a finished run."""

    config: Config
    directory: RunDirectory
    outcome: Outcome
    supervisor: Supervisor
    events: list[tuple[str, str, dict[str, Any]]]

    @property
    def results(self) -> dict[str, float]:
        return self.outcome.results

    def checkpoint(self) -> Path:
        (folder,) = self.directory.checkpoints.iterdir()
        return folder

    def saved_sha256(self) -> str:
        """Return the digest of the checkpoint's parameters and buffers, laid out as in memory."""
        flat, (weights, _) = Blueprint(self.config).flat, load_weights(self.checkpoint())
        block = aligned_block(flat.block_bytes)
        for name, array in flat.arrays(block).items():
            array[...] = weights.pop(name)
        assert not weights
        return hashlib.sha256(block).hexdigest()

    def evaluations(self) -> list[dict[str, Any]]:
        return list(read_jsonl(self.directory.evaluations_file))

    def counters(self, name: str) -> dict[str, float]:
        number = next(n for n, actor in enumerate(self.supervisor.state.plan.actors) if actor.name == name)
        return dict(read_status(self.supervisor.memory.pages, number).counters)


def train(
    folder: Path,
    env: str = "Drift",
    *,
    change: Callable[[Topology], None] = lambda topology: None,
    watch: Callable[[Supervisor], None] = lambda supervisor: None,
    **values: Any,
) -> Run:
    """Train 256 steps in 16 turns. `change` may replace parts of the topology, `watch` sees the supervisor first."""
    small = {"run__steps": 256, "algorithm__learning_rate": 0.05, **values}
    config = config_of(env if ":" in env else f"small_environments:{env}", **small)
    directory = RunDirectory.create(folder, "test")
    topology = build(config, directory.path)
    change(topology)
    seen: list[Supervisor] = []
    events: list[tuple[str, str, dict[str, Any]]] = []

    def look(supervisor: Supervisor) -> None:
        supervisor.effects.journal = Journal(lambda *event: events.append(event), lambda *report: "")
        seen.append(supervisor)
        watch(supervisor)

    outcome = run_inline(topology, watch=look, seconds=LIMIT_S)
    assert all(holds(account) and account["in_flight"] == 0 for account in outcome.channels.values())
    return Run(config, directory, outcome, seen[0], events)
