"""An environment whose step sleeps, so that many collectors share few cores and the cores are not what limits them."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

EPISODE_STEPS = 100


class Sleeping(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Four observations that stay 0, two actions without effect, and a step that sleeps for `step_s` seconds."""

    def __init__(self, step_s: float = 0.02) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.step_s = step_s
        self.steps = 0
        self.observation = np.zeros(4, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation, {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        time.sleep(self.step_s)
        self.steps += 1
        return self.observation, 1.0, self.steps == EPISODE_STEPS, False, {}
