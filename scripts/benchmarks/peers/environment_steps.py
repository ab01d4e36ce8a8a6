"""Measure the seconds that the environments of a work need alone, with random actions, on one core.

    python environment_steps.py SECONDS THREADS SETTINGS

It makes as many steps as `steps` of the work says, in one process, so no trainer with one collector can be faster.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import gymnasium


def seconds_of(settings: dict[str, Any]) -> float:
    env: gymnasium.Env[Any, Any] = gymnasium.make(settings["env"])
    env.action_space.seed(1)
    env.reset(seed=1)
    begun = time.perf_counter()
    for _ in range(settings["steps"]):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
    return time.perf_counter() - begun


if __name__ == "__main__":
    versions = {"gymnasium": gymnasium.__version__}
    print(json.dumps({"seconds": seconds_of(json.loads(sys.argv[3])), "versions": versions}))
