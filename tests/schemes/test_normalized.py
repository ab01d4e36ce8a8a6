"""Runs with normalised observations: every step is in the statistics once, and they are a part of every exactness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_runs import STEPS, Run, modes, train
from small_trainer import LIMIT_S, config_of

import hive
from hive.networks.rows.normalization import NormalizedNetwork
from hive.records import RunDirectory, list_checkpoints, read_jsonl, remove_folder, write_json
from hive.schemes import build
from hive.testing import run_inline

NORMALISED = {
    "network__normalize_observations": "true",
    "network__normalize_rewards": "true",
    "network__separate_networks": "true",
}
TWO = modes("pipelined", "pipelined", 2, 2)
REPLAY = {
    "algorithm__learning_starts": 40,
    "algorithm__batch_size": 16,
    "algorithm__replay_capacity": 64,
    "algorithm__updates_per_step": '"1/8"',
    "algorithm__n_step": 2,
}
PRIORITIES = {"algorithm__initial_errors": "true", "algorithm__priority_exponent": 0.6}
BOX = {"env__options": "{actions='box'}"}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "single": ("single", {}),
    "a2c": ("a2c", modes("synchronous", "synchronous", 1, 1)),
    "a2c 2 x 2": ("a2c", TWO),
    "a2c 2 x 2, advantages normalised": ("a2c", {**TWO, "algorithm__normalize_advantages": "true"}),
    "a2c, two rounds a turn": ("a2c", {**modes("synchronous", "synchronous", 1, 2), "gradients__bootstrap_rounds": 2}),
    "ppo 2 x 2": ("ppo", {**modes("pipelined", "synchronous", 2, 2), "algorithm__epochs": 2}),
    "dd-ppo": ("dd-ppo", {**modes("synchronous", "synchronous", 2, 2), "algorithm__epochs": 2}),
    "impala": ("impala", modes("asynchronous", "asynchronous", 2, 2)),
    "a3c": ("a3c", modes("asynchronous", "asynchronous", 2, 2)),
    "rapid": ("rapid", modes("asynchronous", "synchronous", 2, 2)),
    "dqn 2 x 2": ("dqn", {**TWO, **REPLAY, **PRIORITIES}),
    "c51": ("c51", {**modes("synchronous", "synchronous", 1, 1), **REPLAY, **PRIORITIES}),
    "qr-dqn": ("qr-dqn", {**modes("pipelined", "synchronous", 1, 2), **REPLAY, **PRIORITIES}),
    "apex": ("apex", {**modes("asynchronous", "pipelined", 2, 1), **REPLAY}),
    "sac": ("sac", {**modes("synchronous", "synchronous", 1, 0), **REPLAY, **BOX}),
    "td3 2 x 2": ("td3", {**TWO, **REPLAY, **BOX, "algorithm__critic_first": "true"}),
    "ddpg": ("ddpg", {**modes("pipelined", "pipelined", 2, 1), **REPLAY, **BOX}),
}

REPLAYED = {"dqn", "c51", "qr-dqn", "apex", "sac", "td3", "ddpg"}


def normalised(folder: Path, scheme: str, **values: Any) -> Run:
    return train(folder, scheme, **{"run__steps": 4 * STEPS, **NORMALISED, **values})


def network_of(run: Run) -> NormalizedNetwork:
    network = hive.load(str(run.directory.path)).network
    assert isinstance(network, NormalizedNetwork)
    return network


RARE = ("c51", "qr-dqn", "td3 2 x 2", "ddpg")
FULL = pytest.mark.full(reason="what it shows, another algorithm of the memory shows, too", rotates=True)


@pytest.mark.rotates
@pytest.mark.parametrize("name", [pytest.param(name, marks=FULL if name in RARE else ()) for name in RUNS])
def test_every_step_that_was_applied_is_counted_once(tmp_path: Path, name: str) -> None:
    scheme, values = RUNS[name]
    accepts = {} if scheme in REPLAYED else {"gradients__stale": '"accept"'}
    run = normalised(tmp_path, scheme, **accepts, **values)
    network = network_of(run)
    normalizer, steps = network.normalizer, run.results["env_steps"]
    assert int(normalizer.seen[0]) == int(network.reward_normalizer.seen[0]) == steps >= 4 * STEPS
    assert (normalizer.scale != 1).all()
    assert (normalizer.shift != 0).all()


def test_the_statistics_are_those_of_the_observations(tmp_path: Path) -> None:
    """In `Launch` the first state is seen once an episode, at its start: a one-hot's means are shares."""
    run = train(tmp_path, "a2c", "Launch", run__steps=STEPS, env__options="{truncates=4}", **NORMALISED)
    mean = network_of(run).normalizer.shift
    assert mean.tolist() == pytest.approx([0.25, 0.75])


def test_a_replica_has_the_same_statistics(tmp_path: Path) -> None:
    """Workers that apply all gradients themselves and workers that wait for the learner are bit-identical."""
    ends = [
        normalised(tmp_path, "a2c", **TWO, gradients__decentralized=decentralized).outcome.digest
        for decentralized in ("true", "false")
    ]
    assert ends[0] == ends[1]
    assert ends[0] != normalised(tmp_path, "a2c", **TWO, run__seed=2).outcome.digest


@pytest.mark.rotates
@pytest.mark.parametrize(
    "name", ["a2c 2 x 2", "dqn 2 x 2", *(pytest.param(name, marks=FULL) for name in ("ppo 2 x 2", "sac", "td3 2 x 2"))]
)
def test_a_resumed_run_is_the_run_that_went_on(tmp_path: Path, name: str) -> None:
    scheme, values = RUNS[name]
    options = {"run__scheme": f'"{scheme}"', "run__steps": 8 * STEPS, **NORMALISED, **values}
    config = config_of("small_environments:Drift", **options, checkpoint__every="{updates=8}", checkpoint__keep=1000)
    directory = RunDirectory.create(tmp_path, "test")
    whole = run_inline(build(config, directory.path), seconds=LIMIT_S)
    first, *later = [found for found in list_checkpoints(directory.checkpoints) if found.scheduled]
    assert later
    for checkpoint in list_checkpoints(directory.checkpoints):
        if checkpoint.update > first.update:
            remove_folder(checkpoint.path)
    write_json(directory.resume_file, {"update": first.update, "exact": True})
    resumed = run_inline(build(config, directory.path), seconds=LIMIT_S)
    assert resumed.digest == whole.digest != ""


@pytest.mark.parametrize(
    ("name", "replay"), [("apex", "true"), pytest.param("apex", "false", marks=FULL), ("dqn 2 x 2", "false")]
)
def test_a_run_that_is_resumed_at_any_turn_counts_every_step_once(tmp_path: Path, name: str, replay: str) -> None:
    """An asynchronous memory has rounds that no turn has counted yet; a memory that is not saved loses them."""
    scheme, values = RUNS[name]
    options = {"run__scheme": f'"{scheme}"', "run__steps": 8 * STEPS, **NORMALISED, **values}
    config = config_of(
        "small_environments:Drift", **options, checkpoint__replay=replay, checkpoint__every="{updates=5}"
    )
    directory = RunDirectory.create(tmp_path, "test")
    run_inline(build(config, directory.path), seconds=LIMIT_S)
    found = list_checkpoints(directory.checkpoints)
    middle = found[len(found) // 2]
    for checkpoint in found:
        if checkpoint.update > middle.update:
            remove_folder(checkpoint.path)
    write_json(directory.resume_file, {"update": middle.update, "exact": False})
    resumed = run_inline(build(config, directory.path), seconds=LIMIT_S)
    network = hive.load(str(directory.path)).network
    assert int(network.normalizer.seen[0]) == resumed.results["env_steps"] >= 8 * STEPS > middle.state["env_steps"] > 0


def test_distant_rewards_are_learned(tmp_path: Path) -> None:
    """Two contexts, 100 and 100.1. Guessing earns 0.5 of 1."""
    learned = {}
    for normalise in ("true", "false"):
        run = train(
            tmp_path,
            "a2c",
            "FarBandit",
            run__steps=12_000,
            run__stop_at_return=0.97,
            collection__envs=8,
            algorithm__learning_rate=0.01,
            network__normalize_observations=normalise,
        )
        learned[normalise] = list(read_jsonl(run.directory.metrics_file))[-1]["return/mean_100"]
    assert learned["true"] >= 0.97
    assert learned["false"] < 0.8
