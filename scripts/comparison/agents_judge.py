"""How good policies of several agents are: the mean return of an agent in whole episodes, the same for every trainer.

    python agents_judge.py TASK SEED     judges random actions, prints one JSON object

It needs PettingZoo and NumPy alone.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from comparison.agents_tasks import TASKS, AgentsTask, made

Act = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""From the observation of each agent to its action."""

FIRST_SEED = 1_000_000  # of the evaluation episodes: far from the seeds that training uses
PACKAGES = ("pettingzoo", "supersuit", "mpe2", "torch", "numpy", "gymnasium")


def judge(task: AgentsTask, act: Act) -> float:
    """Plays the task's episodes with seeds FIRST_SEED, ...; returns the mean over episodes and agents of the return."""
    environment, returns = made(task), []
    for episode in range(task.episodes):
        observations, _ = environment.reset(seed=FIRST_SEED + episode)
        total, agents = 0.0, len(environment.possible_agents)
        while environment.agents:
            observations, rewards, *_ = environment.step(dict(act(observations)))
            total += sum(map(float, rewards.values()))
        returns.append(total / agents)
    environment.close()
    return float(np.mean(returns))


def random_result(task: AgentsTask, seed: int) -> dict[str, Any]:
    """Return the cell of random actions, with the steps per second that the environment alone allows one process."""
    environment = made(task)
    spaces = {agent: environment.action_space(agent) for agent in environment.possible_agents}
    for number, space in enumerate(spaces.values()):
        space.seed(seed + number)
    steps, begun = 0, time.perf_counter()

    def act(observations: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal steps
        steps += 1
        return {agent: spaces[agent].sample() for agent in observations}

    mean, seconds = judge(task, act), time.perf_counter() - begun
    return result(0, seconds, steps / seconds, mean, mean)


def result(steps: int, seconds: float, rate: float, most_likely: float, sampled: float) -> dict[str, Any]:
    """Return what a cell prints. most_likely, sampled: mean returns with actions that are chosen so."""
    numbers = {"steps": steps, "seconds": round(seconds, 2), "steps_per_s": round(rate, 1)}
    return {**numbers, "mean_return": most_likely, "sampled_return": sampled, "versions": versions(*PACKAGES)}


def versions(*names: str) -> dict[str, str]:
    return {name: version(name) for name in names}


if __name__ == "__main__":
    print(json.dumps(random_result(TASKS[sys.argv[1]], int(sys.argv[2]))))
