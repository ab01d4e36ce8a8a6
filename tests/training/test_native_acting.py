"""Rollouts in native calls have the bytes of those whose actions Python samples, one step at a time."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from small_trainer import Arrays, Page, allocate, collector_of, config_of, copies, same_bytes, weights_of

from hive.envs import include_folder
from hive.envs.vectors.compiled_vector import CompiledVector
from hive.errors import EnvironmentFailed
from hive.runtime.memory.status import BUSY
from hive.training import Blueprint, Collector

PPO = {"run__scheme": '"ppo"'}
REPLAY = {"collection__envs": 2, "algorithm__learning_starts": 32, "algorithm__replay_capacity": 64}
ERRORS = {"algorithm__priority_exponent": 0.6, "algorithm__initial_errors": "true"}
BOX = {"env__options": '{actions="box"}'}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "choices": ("CartPole-v1", PPO),
    "Python environments": ("CartPole-v1", {**PPO, "env__vector": '"python"'}),
    "no log probabilities": ("CartPole-v1", {}),
    "two networks": ("CartPole-v1", {**PPO, "network__separate_networks": "true"}),
    "box actions": ("Pendulum-v1", PPO),
    "bounds of several elements": ("small_environments:Drift", {**PPO, **BOX}),
    "normalized": ("Pendulum-v1", {**PPO, "network__normalize_observations": "true"}),
    "parts": ("small_environments:Mixed", {**PPO, **BOX}),
    "normalized parts": ("small_environments:Mixed", {**PPO, "network__normalize_observations": "true"}),
    "parts, greedy": (
        "small_environments:Mixed",
        {"run__scheme": '"dqn"', **REPLAY, "algorithm__exploration_start": 0.5},
    ),
    "one choice": ("small_environments:Cell", PPO),
    "masks": ("small_environments:Parts", PPO),
    "masks, greedy": (
        "small_environments:Parts",
        {"run__scheme": '"dqn"', **REPLAY, "algorithm__exploration_start": 0.5},
    ),
    "squashed": ("Pendulum-v1", {"run__scheme": '"sac"', **REPLAY}),
    "noisy": ("Pendulum-v1", {"run__scheme": '"td3"', **REPLAY}),
    "greedy": ("CartPole-v1", {"run__scheme": '"dqn"', **REPLAY, "algorithm__exploration_start": 0.5}),
    "greedy, each its own": ("CartPole-v1", {"run__scheme": '"dqn"', **REPLAY, "algorithm__exploration_spread": 7.0}),
    "errors": ("CartPole-v1", {"run__scheme": '"dqn"', **REPLAY, **ERRORS}),
    "errors of normalized rewards": (
        "CartPole-v1",
        {"run__scheme": '"dqn"', **REPLAY, **ERRORS, "network__normalize_rewards": "true"},
    ),
}


def drawn_weights(blueprint: Blueprint) -> NDArray[np.uint8]:
    """Weights that make actions differ, with drawn statistics."""
    weights = weights_of(blueprint)
    for field in blueprint.flat.buffers:
        if field.name.endswith("normalizer.seen"):
            weights[field.offset : field.offset + field.nbytes].view(np.float64)[:] = 7.0
        if field.name.endswith(("normalizer.shift", "normalizer.scale")):
            numbers = weights[field.offset : field.offset + field.nbytes].view(np.float32)
            numbers[:] = np.random.default_rng(2).uniform(0.2, 2.0, numbers.shape)
    floats = weights[: blueprint.flat.parameter_bytes].view(np.float32)
    floats[:] += np.random.default_rng(1).normal(0.0, 0.3, floats.shape).astype(np.float32)
    return weights


def rollouts_of(blueprint: Blueprint, collector: Collector, **options: Any) -> list[Arrays]:
    """Rollouts after any uniform actions."""
    collector.bind(weights := drawn_weights(blueprint))
    found = []
    for number in range(90, 94):
        rollout = allocate(blueprint.rollout_layout)
        for array in rollout.values():
            array[...] = 0  # what no step writes must not differ
        collector.collect(rollout, sequence=number, version=0, **options)
        found.append(copies(rollout))
    assert weights.size
    return found


def collector_for(blueprint: Blueprint) -> Collector:
    collector = collector_of(blueprint, log_probs=blueprint.behaviour_log_probs, discount=0.9, n_step=1)
    assert collector.acting.native is not None
    return collector


@pytest.mark.parametrize("name", CONFIGS)
def test_rollouts_have_the_bytes_of_those_through_python(name: str) -> None:
    env, keys = CONFIGS[name]
    blueprint = Blueprint(config_of(env, **keys))
    through_python = collector_for(blueprint)
    through_python.acting.native = None
    expected, native = (rollouts_of(blueprint, c) for c in (through_python, collector_for(blueprint)))
    assert all(same_bytes(a, b) for a, b in zip(expected, native, strict=True))
    assert any(np.ptp(rollout["actions"]) > 0 for rollout in native)


@pytest.mark.parametrize("env", ["CartPole-v1", "small_environments:Mixed"])
def test_a_layer_that_a_user_calls_dense_is_no_native_network(env: str) -> None:
    blueprint = Blueprint(config_of(env, **PPO, network__module='"small_environments:Named"'))
    collector = collector_of(blueprint, log_probs=True)
    assert collector.acting.native is None
    assert rollouts_of(blueprint, collector)


def test_compiled_environments_of_bytes_take_native_actions(tmp_path: Path) -> None:
    source, library = tmp_path / "environments.c", tmp_path / "environments.so"
    text = (Path(__file__).parents[1] / "envs" / "environments.c").read_text()
    text = text.replace("observation_dimensions = 2", "observation_dimensions = 1")  # of two it is a picture
    source.write_text(text.replace("observation_shape[0] = 2", "observation_shape[0] = 6"))
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{include_folder()}", source, "-o", library, "-lm"], check=True)
    blueprint = Blueprint(config_of(f"{library}:Echo", **PPO))
    whole = rollouts_of(blueprint, collector_for(blueprint))
    by_steps = rollouts_of(blueprint, collector_for(blueprint), enough=lambda steps: False)
    assert all(same_bytes(a, b) for a, b in zip(by_steps, whole, strict=True))


def test_a_rollout_of_compiled_environments_has_the_bytes_of_its_steps() -> None:
    blueprint = Blueprint(config_of("CartPole-v1", collection__rollout=64, **PPO))
    whole = rollouts_of(blueprint, collector_for(blueprint))
    by_steps = rollouts_of(blueprint, collector_for(blueprint), enough=lambda steps: False)
    assert whole[-1]["episode_lengths"].max() > 0
    assert all(same_bytes(a, b) for a, b in zip(by_steps, whole, strict=True))


def test_phases_of_a_native_rollout_are_those_of_its_steps() -> None:
    page = Page()
    blueprint = Blueprint(config_of("CartPole-v1", **PPO))
    collector = collector_of(blueprint, log_probs=True, status=page.status)
    assert isinstance(collector.vector, CompiledVector)
    rollouts_of(blueprint, collector)
    spent_ns = page.read().spent_ns
    assert all(spent_ns[phase][0] == BUSY and spent_ns[phase][1] > 0 for phase in ("policy", "env"))


def test_an_environment_that_fails_in_a_native_rollout_is_named_with_its_step() -> None:
    blueprint = Blueprint(config_of("Pendulum-v1", **PPO))
    collector = collector_for(blueprint)
    assert isinstance(collector.vector, CompiledVector)
    weights = drawn_weights(blueprint)
    weights[: blueprint.flat.parameter_bytes].view(np.float32)[:] = np.nan
    collector.bind(weights)
    with pytest.raises(EnvironmentFailed, match="step 1"):
        collector.collect(allocate(blueprint.rollout_layout), sequence=0, version=0)
