"""A script without a guard, as one writes it first: an environment, a network, a hook and a training."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch

import hive

LENGTH = 20


class Coin(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(-1.0, 1.0, (3,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._shown(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        reward = float((self.shown[0] > 0) == action)
        return self._shown(), reward, self.steps >= LENGTH, False, {}

    def _shown(self) -> Any:
        self.shown = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return self.shown


class Network(torch.nn.Module):
    def __init__(self, spaces: Any) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 32), torch.nn.Tanh())
        self.policy, self.value = torch.nn.Linear(32, 2), torch.nn.Linear(32, 1)

    def forward(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.layers(observations)
        return self.policy(features), self.value(features).squeeze(-1)


result = hive.train(
    "a2c",
    env=lambda: Coin(),
    network={"module": Network},
    steps=4_000,
    learning_rate=3e-3,
    update_hook=lambda update: {"double": 2.0 * update.number},
    name="coin",
    quiet=True,
)
print(result.env_steps, result.metrics()["double"].max() == 2 * result.updates)
print(result.resume(steps=6_000, quiet=True).env_steps)
