"""An environment whose step keeps a core busy for 0.1 ms, in Gymnasium's form and without randomness."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

STEP_S = 1e-4
STEPS = 200  # of an episode


class Busy(gymnasium.Env[Any, Any]):
    observation_space = spaces.Box(-1.0, 1.0, (8,), np.float32)
    action_space = spaces.Discrete(4)

    def __init__(self) -> None:
        self._seen = np.zeros(8, np.float32)
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._step = 0
        return self._seen, {}

    def step(self, action: Any) -> Any:
        end = time.perf_counter() + STEP_S
        self._step += 1
        while time.perf_counter() < end:
            pass
        return self._seen, float(action == 0), False, self._step >= STEPS, {}
