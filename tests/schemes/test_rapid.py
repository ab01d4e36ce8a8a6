"""The scheme `rapid` in whole runs: asynchronous collectors in equal shares, gradient workers in step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_runs import train

from hive.config import load_config
from hive.schemes import build

FREE: dict[str, Any] = {"collection__communication": '"asynchronous"'}  # small_trainer's default is another
FEW: dict[str, Any] = {"algorithm__epochs": 2, "algorithm__minibatches": 2, **FREE}
LEARN: dict[str, Any] = {
    "run__steps": 20_000,
    "run__stop_at_return": 0.97,
    "collection__envs": 8,
    "algorithm__learning_rate": 0.02,
    **FREE,
}


def test_it_has_two_levels(tmp_path: Path) -> None:
    text = '[run]\nscheme = "rapid"\n[env]\nid = "small_environments:Bandit"\n'
    plan = build(load_config("run.toml", text=text), tmp_path).plan()
    collectors = [f"collector-{c}" for c in range(4)]
    assert list(plan.processes) == [*collectors, "gradient-worker-0", "gradient-worker-1", "learner-0", "recorder"]
    (rollouts,) = [channel for channel in plan.channels if channel.name == "rollouts"]
    assert rollouts.options["by_share"]


@pytest.mark.parametrize(("collectors", "workers"), [(1, 1), (2, 2), (4, 2), (6, 3)])
def test_it_runs_to_its_end_in_step(tmp_path: Path, collectors: int, workers: int) -> None:
    values = {"collection__workers": collectors, "gradients__workers": workers, **FEW}
    run = train(tmp_path, "rapid", run__steps=192, **values)
    outcome = run.outcome
    assert (outcome.state, outcome.reason, outcome.error) == ("finished", "192 steps", "")
    assert run.highest("lag/gradient_max") == 0
    assert run.results["env_steps"] == 192  # each gradient worker's rollout is in each round


def test_it_learns_until_the_return_is_reached(tmp_path: Path) -> None:
    """Guessing earns 0.5 of 1."""
    run = train(tmp_path, "rapid", "Bandit", **LEARN)
    assert run.outcome.reason.endswith(" >= 0.97")


def test_a_learning_rate_near_nothing_learns_nothing(tmp_path: Path) -> None:
    """So that the above says something."""
    run = train(tmp_path, "rapid", "Bandit", **{**LEARN, "run__steps": 1000, "algorithm__learning_rate": 1e-9})
    assert run.results["mean_return_100"] < 0.7
