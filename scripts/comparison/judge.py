"""How good a policy is: whole episodes with its most likely actions, the same ones for every trainer.

The programs of both trainers import it, so it needs Gymnasium and NumPy alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from comparison.environments import made

Act = Callable[[Any, dict[str, Any]], Any]
"""From one observation and its info to one action of the environment's action space."""

EPISODES = 30
FIRST_SEED = 1_000_000  # of the evaluation episodes: far from the seeds that training uses


def judge(env_id: str, begin: Callable[[], Act]) -> list[float]:
    """Plays EPISODES episodes with seeds FIRST_SEED, FIRST_SEED + 1, ...; returns their returns.

    begin: called at the beginning of each episode; returns a function that acts in it, with its own memory.
    """
    env = made(env_id)
    returns = []
    for episode in range(EPISODES):
        observation, info = env.reset(seed=FIRST_SEED + episode)
        act, total, over = begin(), 0.0, False
        while not over:
            action = act(observation, info)
            if isinstance(env.action_space, gymnasium.spaces.Box):
                action = np.clip(action, env.action_space.low, env.action_space.high)
            observation, reward, terminated, truncated, info = env.step(action)
            total += float(reward)
            over = terminated or truncated
        returns.append(total)
    env.close()
    return returns
