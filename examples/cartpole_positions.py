"""CartPole-v1 that shows only positions: the cart's place and the pole's angle, but no velocities.

One observation does not say where the pole is moving, so a policy needs a memory: see cartpole-memory.toml.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

SHOWN = [0, 2]  # columns of CartPole's observation: place, velocity, angle, angular velocity


class CartPolePositions(gymnasium.ObservationWrapper[NDArray[np.float32], Any, Any]):
    """Observations are float32 [2]."""

    def __init__(self, **options: Any) -> None:
        """options: those of CartPole-v1."""
        super().__init__(gymnasium.make("CartPole-v1", **options))
        seen = self.env.observation_space
        assert isinstance(seen, spaces.Box)
        self.observation_space = spaces.Box(seen.low[SHOWN], seen.high[SHOWN], dtype=np.float32)

    def observation(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        return observation[SHOWN]
