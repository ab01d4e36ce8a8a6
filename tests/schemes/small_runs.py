"""Whole runs of a few hundred steps, inline, in every combination of modes and numbers of workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from small_trainer import LIMIT_S, config_of

from hive.config import Config
from hive.records import RunDirectory, read_jsonl
from hive.runtime import Topology
from hive.runtime.supervise.accounting import holds
from hive.runtime.supervise.supervisor import Outcome
from hive.schemes import build
from hive.testing import run_inline

SAMPLES_A_ROLLOUT = 16  # two environments, eight steps
STEPS = 96

COMMUNICATIONS = ("synchronous", "pipelined", "asynchronous")

GRID = [
    pytest.param(*modes, *counts, id=f"{modes[0]}-{modes[1]}-{counts[0]}-{counts[1]}")
    for modes in product(COMMUNICATIONS, COMMUNICATIONS)
    for counts in product((1, 2), (0, 1, 2))
]
"""Communication of collection, of gradients, collectors, gradient workers."""


OUTPUTS = {"env__options": "{actions='box'}", "network__action_deviation": '"output"'}
"""Keys of a Gaussian policy whose deviations depend on the observation."""

PARTS = {
    "env__options": "{actions='dict'}",
    "network__action_distribution": '"gsde"',
    "network__noise_steps": 3,
}
"""Keys of a policy with a dictionary of actions, whose continuous ones have noise that depends on the state."""


@dataclass
class Run:
    """The files and results of a finished run."""

    config: Config
    directory: RunDirectory
    outcome: Outcome

    @property
    def results(self) -> dict[str, float]:
        return self.outcome.results

    def dropped(self, channel: str) -> dict[str, int]:
        found: dict[str, int] = self.outcome.channels[channel]["dropped"]
        return found

    def highest(self, metric: str) -> float:
        """Return this metric of all lines."""
        return max(line[metric] for line in read_jsonl(self.directory.metrics_file))


def train(
    folder: Path, scheme: str, env: str = "Drift", change: Callable[[Topology], None] | None = None, **values: Any
) -> Run:
    """Trains by the scheme; `change` may replace parts of the topology."""
    small = {"run__scheme": f'"{scheme}"', "run__steps": STEPS, "algorithm__learning_rate": 0.05, **values}
    config = config_of(env if ":" in env else f"small_environments:{env}", **small)
    directory = RunDirectory.create(folder, "test")
    topology = build(config, directory.path)
    if change is not None:
        change(topology)
    return Run(config, directory, run_inline(topology, seconds=LIMIT_S))


def modes(collection: str, gradients: str, collectors: int, workers: int) -> dict[str, Any]:
    """One of GRID as keys of the config."""
    return {
        "collection__communication": f'"{collection}"',
        "collection__workers": collectors,
        "gradients__communication": f'"{gradients}"',
        "gradients__workers": workers,
    }


def check_end(run: Run) -> None:
    """The run ended at its steps, no actor was restarted, and every message is accounted for."""
    outcome, steps = run.outcome, run.config.run.steps
    round_of = SAMPLES_A_ROLLOUT * run.config.collection.workers
    assert (outcome.state, outcome.reason, outcome.error) == ("finished", f"{steps} steps", "")
    assert set(outcome.restarts.values()) == {0}
    assert steps <= run.results["env_steps"] < steps + round_of
    assert (run.results["skipped"], run.results["updates"] > 0) == (0, True)
    assert all(holds(account) and account["in_flight"] == 0 for account in outcome.channels.values())


def check_grid(folder: Path, scheme: str, place: tuple[str, str, int, int], **values: Any) -> None:
    """A run of it ends. Where several wait for each other, it is the same run every time; with another seed another."""
    options = {**modes(*place), **values}
    run = train(folder, scheme, **options)
    check_end(run)
    if "asynchronous" in place or place[3] < 2:
        return
    again = train(folder, scheme, **options)
    assert again.outcome.digest == run.outcome.digest
    assert again.results["mean_return_100"] == run.results["mean_return_100"]
    assert train(folder, scheme, run__seed=2, **options).outcome.digest != run.outcome.digest
