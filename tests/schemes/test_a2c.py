"""The scheme `a2c` learns in a whole run, with its default placement and communication, until a stop is requested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_trainer import LIMIT_S, config_of

from hive.records import RunDirectory, read_jsonl
from hive.runtime.supervise.supervisor import Outcome
from hive.schemes import build
from hive.testing import run_inline

ENOUGH = 0.97


def train(folder: Path, env: str = "Bandit", **values: Any) -> tuple[Outcome, RunDirectory]:
    small = {
        "run__steps": 20_000,
        "run__stop_at_return": ENOUGH,
        "collection__envs": 8,
        "algorithm__learning_rate": 0.01,
        **values,
    }
    directory = RunDirectory.create(folder, "test")
    config = config_of(f"small_environments:{env}", **small)
    return run_inline(build(config, directory.path), seconds=LIMIT_S), directory


@pytest.mark.rotates
@pytest.mark.parametrize("mode", ["synchronous", "pipelined"])
def test_it_learns_until_the_return_is_reached(tmp_path: Path, mode: str) -> None:
    """Guessing earns 0.5 of 1."""
    outcome, directory = train(tmp_path, collection__workers=2, collection__communication=f'"{mode}"')
    assert outcome.reason.endswith(" >= 0.97")
    assert outcome.results["mean_return_100"] >= ENOUGH
    assert outcome.results["env_steps"] < 20_000
    assert list(read_jsonl(directory.metrics_file))[-1]["return/mean_100"] >= ENOUGH


def test_gradients_of_old_weights_learn_too(tmp_path: Path) -> None:
    outcome, _ = train(
        tmp_path, gradients__communication='"pipelined"', gradients__max_lag=2, algorithm__learning_rate=0.02
    )
    assert outcome.results["mean_return_100"] >= ENOUGH


def test_rewards_that_come_later_are_learned(tmp_path: Path) -> None:
    outcome, _ = train(tmp_path, "Chain", algorithm__discount=0.9)
    assert outcome.results["mean_return_100"] >= ENOUGH


@pytest.mark.parametrize("optimizer", ["rmsprop", "sgd"])
def test_other_optimizers_learn_too(tmp_path: Path, optimizer: str) -> None:
    rate = 0.01 if optimizer == "rmsprop" else 0.5
    outcome, _ = train(tmp_path, algorithm__optimizer=f'"{optimizer}"', algorithm__learning_rate=rate)
    assert outcome.results["mean_return_100"] >= ENOUGH


def test_a_learning_rate_near_nothing_learns_nothing(tmp_path: Path) -> None:
    """So that the above says something: without learning the return is not reached by chance."""
    outcome, _ = train(tmp_path, run__steps=6400, algorithm__learning_rate=1e-9)
    assert outcome.reason == "6,400 steps"
    assert outcome.results["mean_return_100"] < 0.7


def test_it_is_the_trainer(tmp_path: Path) -> None:
    config = config_of("small_environments:Bandit", collection__workers=2)
    plan = build(config, tmp_path).plan()
    assert list(plan.processes) == ["collector-0", "collector-1", "learner-0", "recorder"]
