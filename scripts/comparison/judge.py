"""How good a policy is: whole episodes with its most likely actions, the same ones for every trainer.

Imported by programs of both trainers' Pythons, so it needs gymnasium and NumPy alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

__all__ = ["EPISODES", "FIRST_SEED", "judge"]

EPISODES = 30
FIRST_SEED = 1_000_000  # of the evaluation episodes: far from the seeds that training uses


def judge(env_id: str, act: Callable[[Any], Any]) -> list[float]:
    """Plays EPISODES episodes with seeds FIRST_SEED, FIRST_SEED + 1, ...; returns their returns.

    act: from one observation to one action of the environment's action space.
    """
    env = gymnasium.make(env_id)
    returns = []
    for episode in range(EPISODES):
        observation, _ = env.reset(seed=FIRST_SEED + episode)
        total, over = 0.0, False
        while not over:
            action = act(observation)
            if isinstance(env.action_space, gymnasium.spaces.Box):
                action = np.clip(action, env.action_space.low, env.action_space.high)
            observation, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            over = terminated or truncated
        returns.append(total)
    env.close()
    return returns
