"""Synthetic Atari frames, 84 x 84 x 4 bytes, at no cost: what remains is the trainer's own work."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

FRAMES = 64  # different ones, so that no cache holds them all
STEPS = 1000  # of an episode


class Frames(gymnasium.Env[Any, Any]):
    """Shows random frames and pays for the action that the step's number names."""

    observation_space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = spaces.Discrete(6)

    def __init__(self) -> None:
        self._frames = np.random.default_rng(0).integers(0, 256, (FRAMES, 84, 84, 4), np.uint8)
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._step = 0
        return self._frames[0], {}

    def step(self, action: Any) -> Any:
        self._step += 1
        reward = float(action == self._step % 6)
        return self._frames[self._step % FRAMES], reward, False, self._step >= STEPS, {}
