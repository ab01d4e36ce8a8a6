"""Measurements of real objects, cut to milliseconds: every kind of config gives costs of the right size."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import gymnasium
import numpy as np
import pytest

from hive.config import load_config
from hive.tuning import Costs, measure

SLEEP_S = 2e-3


class Sleeper(gymnasium.Env[Any, Any]):
    """Sleeps in every step; its episodes are short."""

    all_steps = 0
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        time.sleep(SLEEP_S)
        Sleeper.all_steps += 1
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, self.steps == 3, False, {}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WARM_S", "COLLECT_S", "GRADIENTS_S", "UPDATES_S"):
        monkeypatch.setattr(measure, name, 0.01)


def measured(id: str, *sets: str) -> Costs:
    return measure.measure(load_config("run.toml", [f"env.id={id}", "network.middleware=[8]", *sets], text=""))


@pytest.mark.parametrize(
    ("sets", "gradients"),
    [
        ((), 1),
        (("run.scheme=ppo", "algorithm.epochs=3", "algorithm.minibatches=2"), 6),
        (("run.scheme=dqn", "collection.envs=2", "algorithm.updates_per_step=1/2"), 4),
        (("network.memory=lstm", "network.memory_size=8"), 1),
    ],
)
def test_every_kind_of_config_is_measured(sets: tuple[str, ...], gradients: int) -> None:
    found = measured("CartPole-v1", *sets)
    assert found.gradients == gradients
    assert found.gradient.at(1.0) > 0
    assert found.update.at(1) > 0
    assert found.environment.at(2) > 0
    assert 0 < found.at_hand <= 1
    assert 0 < found.busy <= 1
    assert (found.torch_gradient > 0) == ("network.memory=lstm" not in sets)
    assert Costs.of(asdict(found)) == found


def test_sleep_is_no_work_and_a_long_rollout_is_cut_short() -> None:
    Sleeper.all_steps = 0
    found = measured(f"{__name__}:Sleeper", "collection.envs=4", "collection.rollout=500", "env.vector=python")
    assert found.environment.at(4) >= 2 * SLEEP_S  # 4 without rounding and other work on the machine
    assert found.busy < 0.5
    assert 0 < Sleeper.all_steps < 4 * 500  # of one whole rollout
