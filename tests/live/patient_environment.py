"""An environment whose steps take as long as a test says, and that hangs in the process whose pid lies in `hangs`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np


class Patient(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, step_s: float = 0.0) -> None:
        self.step_s = step_s
        self.hangs = Path(os.environ["HIVE_HOME"]) / "hangs"
        self.count = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(self.step_s)
        while self.hangs.exists() and self.hangs.read_text() == str(os.getpid()):
            time.sleep(0.01)
        self.count += 1
        return np.zeros(3, np.float32), 1.0, self.count % 20 == 0, False, {}
