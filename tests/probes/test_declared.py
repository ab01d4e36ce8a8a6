"""What spaces declare is learned from by default settings: goals, small bytes, planes of a board, distant actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import hive
from hive.config import load_config
from hive.config.values import toml_text
from hive.records import RunDirectory
from hive.schemes import build
from hive.testing import run_inline

LIMIT_S = 60.0  # for a run of a second or two
ONE_HOT = np.eye(4)


class OneStep(gymnasium.Env[Any, Any]):
    """Episodes of one step, in which one of four spots is to be named."""

    action_space: Any = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.spot = int(self.np_random.integers(4))
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.seen(), self.reward(action), True, False, {}

    def seen(self) -> Any:
        raise NotImplementedError

    def reward(self, action: Any) -> float:
        return float(action == self.spot)


class Goal(OneStep):
    """The usual dictionary of goals; the spot is the one that is desired."""

    observation_space = spaces.Dict(
        observation=spaces.Box(-1, 1, (2,)), achieved_goal=spaces.Box(0, 1, (4,)), desired_goal=spaces.Box(0, 1, (4,))
    )

    def seen(self) -> Any:
        numbers = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"observation": numbers, "achieved_goal": np.zeros(4, np.float32), "desired_goal": self.desired()}

    def desired(self) -> Any:
        return ONE_HOT[self.spot].astype(np.float32)


class Reach(Goal):
    """A continuous action that is to be at the desired place, for algorithms with critics."""

    action_space = spaces.Box(-1, 1, (1,))

    def reward(self, action: Any) -> float:
        return 1.0 - abs(float(action[0]) - (self.spot / 2 - 0.75))


class SmallBytes(OneStep):
    """A board of bytes from 0 to 1."""

    observation_space = spaces.Box(0, 1, (2, 4), np.uint8)

    def seen(self) -> Any:
        return np.stack([ONE_HOT[self.spot], ONE_HOT[0]]).astype(np.uint8)


class Planes(OneStep):
    """Planes of a board, of which one is full."""

    observation_space = spaces.Box(0, 1, (3, 3, 4), np.int8)

    def seen(self) -> Any:
        planes = np.zeros((3, 3, 4), np.int8)
        planes[..., self.spot] = 1
        return planes


class Far(OneStep):
    """An action from 0 to 1,000, best at 700."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Box(0, 1000, (1,))

    def seen(self) -> Any:
        return np.ones(1, np.float32)

    def reward(self, action: Any) -> float:
        return 1.0 - abs(float(action[0]) - 700) / 300


ON_POLICY = {"collection.envs": 16, "collection.rollout": 16, "algorithm.learning_rate": 3e-3, "run.steps": 16_000}
BY_PPO = {
    **ON_POLICY,
    "algorithm.epochs": 4,
    "algorithm.minibatches": 4,
    "algorithm.entropy_weight": 0.01,
    "network.normalize_observations": False,
    "network.normalize_rewards": False,
}
FROM_REPLAY = {
    "collection.envs": 4,
    "collection.rollout": 4,
    "algorithm.learning_starts": 200,
    "algorithm.learning_rate": 3e-3,
    "algorithm.batch_size": 64,
    "run.steps": 3_000,
}
CASES: dict[str, tuple[str, str, dict[str, Any], float]] = {
    "a goal, PPO": ("Goal", "ppo", BY_PPO, 0.9),
    "a goal, DQN": ("Goal", "dqn", FROM_REPLAY, 0.9),
    "a goal, SAC": ("Reach", "sac", {**FROM_REPLAY, "network.middleware": [32, 32], "run.steps": 2_000}, 0.8),
    "small bytes": ("SmallBytes", "ppo", BY_PPO, 0.9),
    "planes": ("Planes", "ppo", {**BY_PPO, "run.steps": 6_000}, 0.9),
    "distant actions": ("Far", "ppo", {**BY_PPO, "algorithm.entropy_weight": 0.0, "run.steps": 40_000}, 0.6),
}
"""Environment, scheme, settings and the least mean reward of the likeliest actions; at random they have 0 to 0.5."""


FULL = pytest.mark.full(reason="other cases find what it finds, in less time", rotates=True)


@pytest.mark.rotates
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[FULL] if case in ("a goal, SAC", "planes") else []) for case in CASES]
)
def test_what_is_declared_is_learned(tmp_path: Path, case: str) -> None:
    name, scheme, settings, least = CASES[case]
    sets = [f"{key}={toml_text(value)}" for key, value in {**settings, "checkpoint.every": {}}.items()]
    config = load_config("probe.toml", [f"run.scheme={scheme}", f"env.id=test_declared:{name}", *sets], text="")
    directory = RunDirectory.create(tmp_path, "probe")
    assert run_inline(build(config, directory.path), seconds=LIMIT_S).state == "finished"
    policy, environment = hive.load(str(directory.path)), globals()[name]()
    rewards = []
    for seed in range(40):
        observation, _ = environment.reset(seed=seed)
        rewards.append(environment.step(policy(observation))[1])
    assert np.mean(rewards) >= least
