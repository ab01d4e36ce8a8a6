"""Trained policies are loaded, act and are exported as ever, whatever defaults of torch the host process has set."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hive
from hive.networks.build.convolutions import has_bfloat16_instructions

sys.path.append(str(Path(__file__).parents[1] / "networks"))

from host_settings import SETTINGS

POLICIES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "c51": ("c51", "vector", "discrete", {}),
    "an LSTM that sees frames": (
        "ppo",
        "vector",
        "discrete",
        {"env.frame_stack": 3, "network.memory": "lstm", "network.memory_size": 4, "algorithm.minibatches": 2},
    ),
    "gSDE, normalised": (
        "ppo",
        "discrete",
        "box",
        {"network.action_distribution": "gsde", "network.normalize_observations": True},
    ),
    "pictures": ("ppo", "picture", "discrete", {}),
    "pictures in bfloat16": ("ppo", "picture", "discrete", {"network.precision": "bfloat16"}),
    "parts": ("ppo", "parts", "parts", {}),
    "a custom network": ("a2c", "vector", "discrete", {"network.module": "any_environment:Net"}),
}
SHORT = {
    "collection.envs": 2,
    "collection.rollout": 8,
    "collection.workers": 0,
    "gradients.workers": 0,
    "run.steps": 32,
}
REPLAY = {"algorithm.replay_capacity": 100, "algorithm.learning_starts": 16, "algorithm.batch_size": 4}


def used(run: str, observation: Any, file: Path) -> tuple[str, bytes, bytes]:
    """Return what a loaded policy does and outputs, and its export."""
    policy = hive.load(run, own_code=True)
    state = policy.initial_state()
    actions = [policy(observation, state, noise=noise) for noise in (None, np.random.default_rng(0))]
    hive.export(run, file, own_code=True)
    data = file.read_bytes()
    file.unlink()
    return repr(actions), policy.outputs(observation, state)[0].tobytes(), data


FULL = pytest.mark.full(reason="policies of other kinds", rotates=True)


@pytest.mark.parametrize("name", [name if name == "c51" else pytest.param(name, marks=FULL) for name in POLICIES])
def test_settings_of_the_host_change_no_bits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from any_environment import OBSERVATIONS

    if "bfloat16" in name and not has_bfloat16_instructions():
        pytest.skip("this processor has no bfloat16 instructions, so training refuses the precision")
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    scheme, seen, action, keys = POLICIES[name]
    given = SHORT | keys | (REPLAY if scheme == "c51" else {})
    tables: dict[str, Any] = {
        "run": {"scheme": scheme},
        "env": {"id": "any_environment:AnyEnv", "options": {"observation": seen, "action": action}},
    }
    for key, value in given.items():
        table, _, own = key.partition(".")
        tables.setdefault(table, {})[own] = value
    run = str(hive.train(tables, inline=True, quiet=True).directory)
    observation = OBSERVATIONS[seen].sample()
    usual = used(run, observation, tmp_path / "policy.onnx")
    for setting, context in SETTINGS.items():
        with context():
            assert used(run, observation, tmp_path / "policy.onnx") == usual, setting
