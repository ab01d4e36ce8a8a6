"""An environment that is slow in one process: in the first one that steps it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

SLEEP_S = 0.02


class Sleeping(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.claim = Path(os.environ["HIVE_HOME"]) / "who-sleeps"
        self.count = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.count:
            try:
                with self.claim.open("x") as file:
                    file.write(str(os.getpid()))
            except FileExistsError:
                pass
        self.count += 1
        if self.claim.read_text() == str(os.getpid()):
            time.sleep(SLEEP_S)
        return np.zeros(3, np.float32), 1.0, self.count % 5 == 0, False, {}
