"""How good a policy is: whole episodes with its most likely actions, the same ones for every trainer.

    python judge.py SEED < settings.json    judges random allowed actions, prints one JSON object

The programs of both trainers import it, so it needs Gymnasium and NumPy alone.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
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


def judge_random(settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the cell of the random policy."""
    space = made(settings["env"]).action_space
    space.seed(seed)
    begun = time.perf_counter()

    def act(observation: Any, info: dict[str, Any]) -> Any:
        return space.sample(info["action_mask"].astype("int8")) if settings.get("masked") else space.sample()

    returns, versions = judge(settings["env"], lambda: act), {name: version(name) for name in ("numpy", "gymnasium")}
    seconds = time.perf_counter() - begun
    return {"steps": 0, "seconds": seconds, "returns": returns, "curve": [], "versions": versions}


if __name__ == "__main__":
    print(json.dumps(judge_random(json.load(sys.stdin), int(sys.argv[1]))))
