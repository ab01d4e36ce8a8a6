"""An environment whose renderer crashes its process, as OpenGL may."""

from __future__ import annotations

import os
import signal
from typing import Any

import gymnasium
import numpy as np


class Crashing(gymnasium.Env[Any, Any]):
    """Episodes of three steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    observation_space: Any = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space: Any = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.at = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.at = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.at += 1
        return np.zeros(1, np.float32), 1.0, self.at == 3, False, {}

    def render(self) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)
