"""The scheme `a3c` in whole runs: each worker collects for itself, and its gradients wait for no other worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_runs import check_end, train
from small_trainer import config_of

from hive.config import load_config
from hive.schemes import build

LEARN = {"run__steps": 20_000, "run__stop_at_return": 0.97, "collection__envs": 8, "algorithm__learning_rate": 0.02}
FREE: dict[str, Any] = {"collection__communication": '"asynchronous"'}  # small_trainer's default is another


def test_each_worker_and_its_collector_are_one_process(tmp_path: Path) -> None:
    text = '[run]\nscheme = "a3c"\n[env]\nid = "small_environments:Bandit"\n[gradients]\nworkers = 3\n'
    plan = build(load_config("run.toml", text=text), tmp_path).plan()
    names = [actor.name for actor in plan.actors]
    assert {process: tuple(names[n] for n in actors) for process, actors in plan.processes.items()} == {
        **{f"gradient-worker-{w}": (f"collector-{w}", f"gradient-worker-{w}") for w in range(3)},
        "learner-0": ("learner-0",),
        "recorder": ("recorder",),
    }
    (rollouts,) = [channel for channel in plan.channels if channel.name == "rollouts"]
    assert rollouts.options["by_share"]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_it_runs_to_its_end(tmp_path: Path, workers: int) -> None:
    run = train(tmp_path, "a3c", run__steps=192, gradients__workers=workers, **FREE)
    outcome = run.outcome
    assert (outcome.state, outcome.reason, outcome.error) == ("finished", "192 steps", "")
    assert outcome.channels["gradients"]["consumed"] == run.results["updates"]


@pytest.mark.rotates
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_it_learns_until_the_return_is_reached(tmp_path: Path, workers: int) -> None:
    """Guessing earns 0.5 of 1."""
    run = train(tmp_path, "a3c", "Bandit", gradients__workers=workers, **LEARN, **FREE)
    assert run.outcome.reason.endswith(" >= 0.97")
    assert run.results["env_steps"] < 20_000


def test_a_learning_rate_near_nothing_learns_nothing(tmp_path: Path) -> None:
    """So that the above says something."""
    values = {**LEARN, "run__steps": 2000, "algorithm__learning_rate": 1e-9}
    run = train(tmp_path, "a3c", "Bandit", **values, **FREE)
    assert run.outcome.reason == "2,000 steps"
    assert run.results["mean_return_100"] < 0.7


def test_in_step_it_is_a2c_in_parallel(tmp_path: Path) -> None:
    """A scheme only sets defaults: with both modes synchronous it is the same run every time."""
    step = {"collection__communication": '"synchronous"', "gradients__communication": '"synchronous"'}
    assert config_of("small_environments:Drift", run__scheme='"a3c"', **step).exact
    run, again = (train(tmp_path, "a3c", collection__workers=2, **step) for _ in range(2))
    check_end(run)
    assert run.outcome.digest == again.outcome.digest
