"""The scheme `dd-ppo` in whole runs: every worker applies all gradients itself, and no worker waits for stragglers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_runs import train

from hive.config import load_config
from hive.schemes import build

FEW: dict[str, Any] = {"algorithm__epochs": 2, "algorithm__minibatches": 2}
LEARN: dict[str, Any] = {
    "run__steps": 20_000,
    "run__stop_at_return": 0.97,
    "collection__envs": 8,
    "algorithm__learning_rate": 0.02,
    "gradients__workers": 2,
}


def test_workers_read_each_others_gradients(tmp_path: Path) -> None:
    text = '[run]\nscheme = "dd-ppo"\n[env]\nid = "small_environments:Bandit"\n'
    plan = build(load_config("run.toml", text=text), tmp_path).plan()
    workers = [f"gradient-worker-{w}" for w in range(3)]
    assert list(plan.processes) == [*workers, "learner-0", "recorder"]
    channels = {channel.name: channel for channel in plan.channels}
    assert channels["gradients"].options["shared"]
    assert channels["rollouts"].options["by_share"]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_it_runs_to_its_end(tmp_path: Path, workers: int) -> None:
    run = train(tmp_path, "dd-ppo", run__steps=128, gradients__workers=workers, **FEW)
    outcome = run.outcome
    assert (outcome.state, outcome.reason, outcome.error) == ("finished", "128 steps", "")
    assert run.highest("lag/gradient_max") == run.highest("lag/policy_max") == 0


def test_stragglers_are_stopped_once_they_have_their_quota(tmp_path: Path) -> None:
    """In one process they go one after the other: three of four are whole, the last keeps two of its eight steps."""
    run = train(tmp_path, "dd-ppo", run__steps=256, gradients__workers=4, **FEW)
    rounds = run.results["updates"] / 4
    assert run.results["env_steps"] == rounds * (3 * 16 + 4)
    whole = train(tmp_path, "dd-ppo", run__steps=256, gradients__workers=4, collection__fraction_workers=1.0, **FEW)
    assert whole.results["env_steps"] == 256


def test_it_learns_until_the_return_is_reached(tmp_path: Path) -> None:
    """Guessing earns 0.5 of 1."""
    run = train(tmp_path, "dd-ppo", "Bandit", **LEARN)
    assert run.outcome.reason.endswith(" >= 0.97")


def test_a_learning_rate_near_nothing_learns_nothing(tmp_path: Path) -> None:
    """So that the above says something."""
    run = train(tmp_path, "dd-ppo", "Bandit", **{**LEARN, "run__steps": 1000, "algorithm__learning_rate": 1e-9})
    assert run.outcome.reason == "1,000 steps"
    assert run.results["mean_return_100"] < 0.7


def test_decentralized_updates_are_those_of_the_learner(tmp_path: Path) -> None:
    """Byte for byte, where rounds are whole."""
    whole = {"collection__fraction_workers": 1.0, "gradients__workers": 2, **FEW}
    runs = [train(tmp_path, "dd-ppo", gradients__decentralized=word, **whole) for word in ("true", "false")]
    assert runs[0].outcome.digest == runs[1].outcome.digest
