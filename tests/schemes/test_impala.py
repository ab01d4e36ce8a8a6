"""The scheme `impala` in whole runs: whatever is ready, within the lags that are allowed; and in the exact modes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_runs import GRID, check_end, check_grid, modes, train
from small_trainer import config_of

from hive.config import load_config
from hive.experience import Rollout
from hive.records import list_checkpoints, read_jsonl
from hive.runtime import Slot, Topology
from hive.schemes import build
from hive.training import Blueprint, GradientWorkerActor
from hive.training.schedule import Claim

FREE = "asynchronous"
EXACT = pytest.mark.full(reason="modes in which ppo runs every day", rotates=True)
EVERY = [place if FREE in place.values else pytest.param(*place.values, marks=EXACT, id=place.id) for place in GRID]


@pytest.mark.rotates
@pytest.mark.parametrize(("collection", "gradients", "collectors", "workers"), EVERY)
def test_it_runs_in_every_mode(tmp_path: Path, collection: str, gradients: str, collectors: int, workers: int) -> None:
    check_grid(tmp_path, "impala", (collection, gradients, collectors, workers), run__steps=64)


def test_it_is_the_trainer_with_impala_in_it(tmp_path: Path) -> None:
    """Asynchronous in both: the gradient workers look at the policy's version too."""
    text = '[run]\nscheme = "impala"\n[env]\nid = "small_environments:Bandit"\n[gradients]\nworkers = 2\n'
    config = load_config("run.toml", text=text)
    assert (config.algorithm.name, config.collection.max_lag, config.gradients.max_lag) == ("impala", 4, 4)
    plan = build(config, tmp_path).plan()
    assert list(plan.processes) == ["collector-0", "gradient-worker-0", "gradient-worker-1", "learner-0", "recorder"]
    (behaviour,) = [channel for channel in plan.channels if channel.name == "behaviour"]
    assert {plan.actors[n].group for n in behaviour.consumers} == {"collectors", "gradient-workers"}


@pytest.mark.parametrize(
    "values",
    [
        modes(FREE, FREE, 2, 2),
        {**modes(FREE, FREE, 2, 2), "collection__max_lag": 1, "gradients__max_lag": 1},
        modes("pipelined", "synchronous", 1, 1),
    ],
    ids=["asynchronous", "with little lag", "pipelined"],
)
def test_it_learns_until_the_return_is_reached(tmp_path: Path, values: dict[str, Any]) -> None:
    """Guessing earns 0.5 of 1."""
    enough = {
        "run__steps": 20_000,
        "run__stop_at_return": 0.97,
        "collection__envs": 8,
        "algorithm__learning_rate": 0.02,
    }
    run = train(tmp_path, "impala", "Bandit", **enough, **values)
    assert run.outcome.reason.endswith(" >= 0.97")
    assert run.results["env_steps"] < 20_000


def test_where_nothing_lags_its_ratios_are_one(tmp_path: Path) -> None:
    """Rollouts hold the log probabilities of the very policy that learns from them."""
    run = train(tmp_path, "impala", **modes("synchronous", "synchronous", 2, 2))
    assert run.highest("learner/rho_mean") == pytest.approx(1.0, abs=1e-5)
    assert list(read_jsonl(run.directory.metrics_file))[-1]["learner/rho_mean"] == pytest.approx(1.0, abs=1e-5)
    late = train(tmp_path, "impala", **modes("pipelined", "synchronous", 2, 2))
    assert list(read_jsonl(late.directory.metrics_file))[-1]["learner/rho_mean"] < 0.999


# --- lags


class Picky(GradientWorkerActor):
    """Notes by how many versions the rollouts that it takes are behind."""

    def __init__(self, blueprint: Blueprint, directory: Path, seen: list[int]) -> None:
        super().__init__(blueprint, directory)
        self.seen = seen

    async def _claim(self, wanted: Claim) -> Slot:
        slot = await super()._claim(wanted)
        self.seen.append(self.behaviour.latest - Rollout(slot.arrays).version)
        return slot


PLACES = [("ppo", 2, 1), ("impala", 2, 1), ("impala", 1, 2), ("impala", 2, 2), ("impala", 2, 4), ("impala", 4, 4)]


@pytest.mark.rotates
@pytest.mark.parametrize(("scheme", "collectors", "workers"), PLACES)
def test_lags_stay_within_max_lag(tmp_path: Path, scheme: str, collectors: int, workers: int) -> None:
    """Older rollouts are dropped and counted. An update may come between the claims of a rollout and its gradient."""
    seen: list[int] = []

    def watch(topology: Topology) -> None:
        topology["gradient-workers"].cls = Picky
        topology["gradient-workers"].parameters["seen"] = seen

    lags = {"collection__max_lag": 1, "gradients__max_lag": 1}
    run = train(tmp_path, scheme, run__steps=256, change=watch, **modes(FREE, FREE, collectors, workers), **lags)
    check_end(run)
    assert set(seen) <= {0, 1}
    assert run.highest("lag/gradient_max") <= 1
    assert run.highest("lag/policy_max") <= 1 + 1 + 1
    accounts = run.outcome.channels
    assert accounts["rollouts"]["consumed"] <= len(seen) <= accounts["rollouts"]["produced"]


def test_stale_rollouts_are_dropped_and_counted(tmp_path: Path) -> None:
    """One worker for three collectors: two of three rollouts are too old when their turn comes."""
    run = train(tmp_path, "impala", run__steps=320, **modes(FREE, FREE, 3, 1), collection__max_lag=1)
    check_end(run)
    assert run.dropped("rollouts")["stale"] > 0
    generous = train(tmp_path, "impala", run__steps=320, **modes(FREE, FREE, 3, 1), collection__max_lag=50)
    assert "stale" not in generous.dropped("rollouts")


@pytest.mark.rotates
@pytest.mark.parametrize("stale", ["drop", "scale", "accept"])
def test_stale_gradients(tmp_path: Path, stale: str) -> None:
    """Four workers at once: their gradients are of the same weights, and all but the first ones are too old."""
    crowd = {**modes(FREE, FREE, 4, 4), "gradients__max_lag": 1, "gradients__stale": f'"{stale}"'}
    run = train(tmp_path, "impala", run__steps=256, **crowd)
    check_end(run)
    assert (run.dropped("gradients").get("stale", 0) > 0) == (stale == "drop")
    assert (run.highest("lag/gradient_max") <= 1) == (stale == "drop")
    assert run.outcome.channels["gradients"]["consumed"] == run.results["updates"]


def test_an_update_of_several_gradients_takes_the_first_of_any_worker(tmp_path: Path) -> None:
    run = train(tmp_path, "impala", run__steps=192, **modes(FREE, FREE, 2, 2), gradients__bootstrap_rounds=3)
    check_end(run)
    assert run.outcome.channels["gradients"]["consumed"] == 3 * run.results["updates"]
    assert run.results["env_steps"] == 48 * run.results["updates"]


def test_collectors_that_belong_to_a_gradient_worker(tmp_path: Path) -> None:
    """Asynchronous, yet each worker takes from its own only."""
    config = config_of(
        "small_environments:Drift",
        run__scheme='"impala"',
        **modes(FREE, FREE, 4, 2),
        collection__ownership='"gradient_worker"',
    )
    (rollouts,) = [c for c in build(config, tmp_path).plan().channels if c.name == "rollouts"]
    assert rollouts.options["by_share"]
    run = train(tmp_path, "impala", **modes(FREE, FREE, 4, 2), collection__ownership='"gradient_worker"')
    check_end(run)


def test_a_checkpoint_ends_no_episode(tmp_path: Path) -> None:
    """Only deterministic modes reset environments for a save; an asynchronous run is unchanged."""
    runs = [train(tmp_path, "impala", run__steps=640, checkpoint__every=every) for every in ("{}", "{updates=1}")]
    assert runs[0].results["episodes"] == runs[1].results["episodes"] > 20
    assert len(list_checkpoints(runs[1].directory.checkpoints)) > 1
