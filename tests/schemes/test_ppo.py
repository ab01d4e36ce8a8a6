"""The scheme `ppo` in whole runs: wherever its actors live and however they wait for each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from small_runs import COMMUNICATIONS, GRID, OUTPUTS, PARTS, check_end, check_grid, modes, train
from small_trainer import config_of

from hive.records import read_jsonl
from hive.runtime import Topology
from hive.schemes import build
from hive.training import Blueprint, LearnerActor

FEW = {"algorithm__epochs": 2, "algorithm__minibatches": 2}
PARALLEL = {"collection__workers": 2, "gradients__workers": 2}

LEARN = {"run__steps": 20_000, "run__stop_at_return": 0.97, "collection__envs": 8, "algorithm__learning_rate": 0.02}


@pytest.mark.rotates
@pytest.mark.parametrize(("collection", "gradients", "collectors", "workers"), GRID)
def test_it_runs_in_every_mode(tmp_path: Path, collection: str, gradients: str, collectors: int, workers: int) -> None:
    few = {"algorithm__epochs": 1, "algorithm__minibatches": 2}
    check_grid(tmp_path, "ppo", (collection, gradients, collectors, workers), run__steps=64, **few)


def test_it_is_the_trainer_with_ppo_in_it(tmp_path: Path) -> None:
    config = config_of("small_environments:Bandit", run__scheme='"ppo"', **PARALLEL)
    assert (config.algorithm.name, config.gradients.communication) == ("ppo", "synchronous")
    plan = build(config, tmp_path).plan()
    assert list(plan.processes) == [
        "collector-0",
        "collector-1",
        "gradient-worker-0",
        "gradient-worker-1",
        "learner-0",
        "recorder",
    ]


@pytest.mark.rotates
@pytest.mark.parametrize(
    "values",
    [
        {},
        PARALLEL,
        {**modes("pipelined", "pipelined", 2, 2)},
        {**modes("asynchronous", "synchronous", 2, 1)},
    ],
    ids=["one worker", "two workers", "pipelined", "asynchronous collection"],
)
def test_it_learns_until_the_return_is_reached(tmp_path: Path, values: dict[str, Any]) -> None:
    """Guessing earns 0.5 of 1."""
    run = train(tmp_path, "ppo", "Bandit", **{**LEARN, **values})
    assert run.outcome.reason.endswith(" >= 0.97")
    assert run.results["env_steps"] < 20_000


def test_a_learning_rate_near_nothing_learns_nothing(tmp_path: Path) -> None:
    """So that the above says something."""
    run = train(tmp_path, "ppo", "Bandit", **{**LEARN, "run__steps": 1000, "algorithm__learning_rate": 1e-9})
    assert run.outcome.reason == "1,000 steps"
    assert run.results["mean_return_100"] < 0.7


@pytest.mark.rotates
@pytest.mark.parametrize(
    "policy",
    [
        pytest.param({}, id="discrete"),
        pytest.param(OUTPUTS, id="deviations are outputs"),
        pytest.param(PARTS, id="dictionary", marks=pytest.mark.full(reason="another distribution", rotates=True)),
    ],
)
@pytest.mark.parametrize("mode", ["synchronous", "pipelined"])
def test_placement_changes_no_byte(tmp_path: Path, mode: str, policy: dict[str, Any]) -> None:
    """A collector in the gradient worker's process, or a gradient worker in the learner's, computes the same."""
    counts = [(1, 1), (0, 1), (1, 0), (0, 0)]
    runs = [train(tmp_path, "ppo", **FEW, **policy, **modes(mode, mode, *count)) for count in counts]
    assert len({run.outcome.digest for run in runs}) == 1


def test_modes_and_numbers_of_workers_are_different_runs(tmp_path: Path) -> None:
    """So that the equality above says something: lags and orders of samples are seen in the weights."""
    places = [
        modes(c, g, 2, w) for c in ("synchronous", "pipelined") for g in ("synchronous", "pipelined") for w in (1, 2)
    ]
    digests = {train(tmp_path, "ppo", **FEW, **place).outcome.digest for place in places}
    assert len(digests) == len(places)


@pytest.mark.parametrize("scheme", ["ppo", "a2c"])
@pytest.mark.parametrize("collection", COMMUNICATIONS)
def test_asynchronous_gradients_wait_for_no_moments(tmp_path: Path, collection: str, scheme: str) -> None:
    """Asynchronous workers share no round, so each normalises its own advantages."""
    values = {**modes(collection, "asynchronous", 2, 2), "algorithm__normalize_advantages": "true"}
    run = train(tmp_path, scheme, run__steps=320, **values, **(FEW if scheme == "ppo" else {}))
    check_end(run)


def test_lags_are_those_that_were_asked_for(tmp_path: Path) -> None:
    run = train(tmp_path, "ppo", **FEW, **modes("pipelined", "pipelined", 2, 2), gradients__max_lag=3)
    assert run.highest("lag/gradient_max") == 3
    assert run.highest("lag/policy_max") == 1
    run = train(tmp_path, "ppo", **FEW, **modes("synchronous", "synchronous", 2, 2))
    assert run.highest("lag/gradient_max") == run.highest("lag/policy_max") == 0


def test_more_slices_than_samples(tmp_path: Path) -> None:
    """The surplus turns have nothing to apply."""
    run = train(tmp_path, "ppo", **PARALLEL, algorithm__epochs=1, algorithm__minibatches=20)
    check_end(run)
    rounds = run.results["env_steps"] // 32
    assert 16 * (rounds - 1) <= run.results["updates"] <= 16 * rounds


def test_the_metrics_are_its_own(tmp_path: Path) -> None:
    last = list(read_jsonl(train(tmp_path, "ppo", **FEW).directory.metrics_file))[-1]
    assert {f"learner/{name}" for name in ("policy_loss", "value_loss", "entropy", "kl", "clipped")} <= set(last)
    assert 0 <= last["learner/clipped"] <= 1


class Keeping(LearnerActor):
    """Leaves its parameters behind."""

    def __init__(self, blueprint: Blueprint, left: list[NDArray[np.float32]]) -> None:
        super().__init__(blueprint)
        self.left = left

    async def teardown(self) -> None:
        block = self.weights.board.read(self.turn)
        self.left.append(block[: self.blueprint.flat.parameter_bytes].view(np.float32).copy())
        await super().teardown()


def trained(folder: Path, scheme: str, **values: Any) -> tuple[int, NDArray[np.float32]]:
    """The number of updates, and the parameters after them."""
    left: list[NDArray[np.float32]] = []

    def keep(topology: Topology) -> None:
        topology["learner"].cls = Keeping
        topology["learner"].parameters["left"] = left

    run = train(folder, scheme, change=keep, **values)
    check_end(run)
    return int(run.results["updates"]), left[0]


@pytest.mark.rotates
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "a2c normalised", "impala"])
def test_several_gradient_workers_are_one(tmp_path: Path, algorithm: str, workers: int) -> None:
    """After the same number of updates of whole rounds their weights are the same, but for rounding.

    Also where one of them has no rollouts. Advantages are normalised over the round: their moments went to the learner
    and back.
    """
    whole: dict[str, Any] = {
        "ppo": {
            "algorithm__epochs": 1,
            "algorithm__minibatches": 1,
            "algorithm__normalize_over": '"round"',
        },
        "a2c": {},
        "a2c normalised": {"algorithm__normalize_advantages": "true"},
        "impala": {"gradients__communication": '"synchronous"'},
    }[algorithm]
    options = {**whole, "collection__workers": 2, "algorithm__optimizer": '"sgd"', "algorithm__learning_rate": 0.3}
    scheme = algorithm.split()[0]
    updates, several = trained(tmp_path, scheme, **options, gradients__workers=workers, run__steps=128)
    assert updates >= 3
    same, one = trained(tmp_path, scheme, **options, run__steps=32 * updates)
    fewer, before = trained(tmp_path, scheme, **options, run__steps=32 * (updates - 1))
    assert (same, fewer) == (updates, updates - 1)
    np.testing.assert_allclose(several, one, rtol=1e-4, atol=1e-5)
    assert np.abs(one - before).max() > 1e-3
