"""Train with Stable-Baselines3 until the mean of the last 100 training returns reaches a target.

    python sb3_goal.py BEGUN LIMIT TARGET SEED THREADS SETTINGS

    BEGUN      time at which the command began, in seconds since 1970; LIMIT counts from it, in seconds
    THREADS    number of threads of torch; 0 keeps its default
    SETTINGS   a JSON object: the settings of a `scripts/parity` task

It prints {"reached_s": seconds since BEGUN or null, "steps": environment steps}.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from typing import Any

import torch
from comparison.sb3_cell import model_of
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

EPISODES = 100  # training episodes in the mean, as in hive


class Goal(BaseCallback):  # type: ignore[misc,unused-ignore]  # untyped where it is not installed
    """Ends the training at the target, or at a time in seconds since 1970."""

    def __init__(self, target: float, end: float) -> None:
        super().__init__()
        self.target, self.end = target, end
        self.returns: deque[float] = deque(maxlen=EPISODES)  # the model's own lack the newest at this time
        self.reached: float | None = None

    def _on_step(self) -> bool:
        ended = [float(info["episode"]["r"]) for info in self.locals["infos"] if "episode" in info]
        self.returns.extend(ended)
        if ended and len(self.returns) == EPISODES and sum(self.returns) / EPISODES >= self.target:
            self.reached = time.time()
        return self.reached is None and time.time() < self.end


def run(begun: float, limit: float, target: float, seed: int, threads: int, settings: dict[str, Any]) -> dict[str, Any]:
    if threads:
        torch.set_num_threads(threads)
    model = model_of(settings, make_vec_env(settings["env"], n_envs=settings["envs"], seed=seed), seed)
    goal = Goal(target, begun + limit)
    model.learn(settings["steps"], callback=goal)
    reached = None if goal.reached is None else goal.reached - begun
    return {"reached_s": reached, "steps": model.num_timesteps}


if __name__ == "__main__":
    begun, limit, target = map(float, sys.argv[1:4])
    print(json.dumps(run(begun, limit, target, int(sys.argv[4]), int(sys.argv[5]), json.loads(sys.argv[6]))))
