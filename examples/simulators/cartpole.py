"""CartPole as a program of its own: the physics of Gymnasium's CartPole-v1 without Gymnasium, NumPy or hive.

hive up examples/simulators/cartpole-python.toml
"""

from __future__ import annotations

import math
import random
from typing import Any

from hive_client import box, discrete, serve


class CartPole:
    """A cart with a pole that is to be kept upright."""

    observation = box([4])
    action = discrete(2)
    name = "CartPole"
    max_episode_steps = 500
    deterministic = True

    def __init__(self, index: int, options: Any) -> None:
        self.random = random.Random(index)
        self.force = options.get("force", 10.0)

    def reset(self, seed: int | None, options: Any) -> list[float]:
        """Begin an episode near the upright position; return position, speed, angle and its speed."""
        if seed is not None:
            self.random.seed(seed)
        self.state = [self.random.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state

    def step(self, action: int) -> tuple[list[float], float, bool, bool]:
        """Push left (0) or right (1) for 0.02 s; return observation, reward, terminated, truncated."""
        x, speed, angle, turning = self.state
        force = self.force if action == 1 else -self.force
        sine, cosine = math.sin(angle), math.cos(angle)
        # Mass of the pole 0.1, of pole and cart 1.1; half the length of the pole 0.5.
        push = (force + 0.05 * turning * turning * sine) / 1.1
        turn = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1))
        pull = push - 0.05 * turn * cosine / 1.1
        self.state = [x + 0.02 * speed, speed + 0.02 * pull, angle + 0.02 * turning, turning + 0.02 * turn]
        fallen = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 12 * math.pi / 180
        return self.state, 1.0, fallen, False


if __name__ == "__main__":
    serve(CartPole)
