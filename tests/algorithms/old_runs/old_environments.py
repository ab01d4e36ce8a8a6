"""The environments of the old runs beside this file: one for each rule that has changed since they were made."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class _OneStep(gymnasium.Env[Any, Any]):
    """Episodes of one step, whose observation is a sample of the space that the environment's generator draws."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._look(), float(np.sum(action)) / 1000, True, False, {}

    def _look(self) -> Any:
        raise NotImplementedError


class SmallBytes(_OneStep):
    """Bytes from 0 to 2."""

    observation_space = spaces.Box(0, 2, (6,), np.uint8)
    action_space = spaces.Discrete(3)

    def _look(self) -> Any:
        return self.np_random.integers(0, 3, 6).astype(np.uint8)


class Planes(_OneStep):
    """Planes of a board, the last axis; with the old rule the first axis has the channels."""

    observation_space = spaces.Box(0, 1, (3, 3, 5), np.float32)
    action_space = spaces.Discrete(3)

    def _look(self) -> Any:
        return self.np_random.integers(0, 2, (3, 3, 5)).astype(np.float32)


class Far(_OneStep):
    """Actions of up to 1,000."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Box(0, 1000, (1,), np.float32)

    def _look(self) -> Any:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


class Goal(_OneStep):
    """Parts, one of which is called `observation`: the old network sees it alone."""

    observation_space = spaces.Dict(observation=spaces.Box(-1, 1, (2,), np.float32), goal=spaces.Discrete(4))
    action_space = spaces.Discrete(3)

    def _look(self) -> Any:
        return {"observation": self.np_random.uniform(-1, 1, 2).astype(np.float32), "goal": self.np_random.integers(4)}


class Words(_OneStep):
    """One of many states, which the old form stores as a one-hot vector."""

    observation_space = spaces.Discrete(1100)
    action_space = spaces.Discrete(3)

    def _look(self) -> Any:
        return self.np_random.integers(1100)
