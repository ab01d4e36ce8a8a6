"""CartPole that kills its run's supervisor after a number of steps, so that a kill never comes after the run's end.

The folder HIVE_HOME may hold a file `kill_after` with a number of steps: those of all environments of one process,
since its start. At that step the environment waits for a file `kill_now` and for a checkpoint, and kills.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeLimit

from hive.records import RunDirectory, read_run_facts

MAX_STEPS = 500  # as in CartPole-v1
POLL_S = 0.002
CUT = 0.1  # probability that a step cuts an episode of `Drawing` short

steps = 0  # of all environments of this process


class Killing(CartPoleEnv):
    """Kills a run, and not the look before it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.of_run = bool(os.environ["HIVE_ENV_RUN"])

    def step(self, action: Any) -> Any:
        global steps
        steps += 1
        home = os.environ.get("HIVE_HOME", "")
        wanted = Path(home, "kill_after")
        if self.of_run and home and wanted.exists() and steps >= int(wanted.read_text()):
            kill(Path(home))
        return super().step(action)


class Changes:
    """A callback that draws a force and a learning rate, and remembers what it has seen."""

    def __init__(self) -> None:
        self.seen = {"episodes": 0, "steps": 0}
        self.generator = np.random.default_rng(5)

    def on_episode(self, event: Any) -> None:
        self.seen["episodes"] += 1
        self.seen["steps"] += event.length

    def on_round(self, event: Any) -> None:
        if event.number % 4 == 0:
            event.env.set("force_mag", 8.0 + self.seen["episodes"] % 5 + self.generator.random())
        if event.number % 7 == 0:
            event.set("learning_rate", float(1e-4 + 1e-3 * random.random()))

    def on_evaluation(self, event: Any) -> None:
        event.env.set("length", 0.4 + 0.001 * (event.mean_return % 100))


def kill(home: Path) -> None:
    """Kills the supervisor of the only run in `home`, which takes this process with it."""
    directory = RunDirectory(home / "part-1")
    while not (home / "kill_now").exists() or not any(directory.checkpoints.glob("0*/DONE")):
        time.sleep(POLL_S)
    os.kill(read_run_facts(directory).pid, signal.SIGKILL)
    while True:
        time.sleep(POLL_S)


class InParts(gymnasium.ObservationWrapper[dict[str, Any], Any, Any]):
    """A dictionary of numbers, an image of one row, and a mask that forbids pushing a fast cart further."""

    def __init__(self, environment: gymnasium.Env[Any, Any]) -> None:
        super().__init__(environment)
        numbers = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        image, mask = spaces.Box(0, 255, (1, 8, 1), np.uint8), spaces.MultiBinary(2)
        self.observation_space = spaces.Dict({"numbers": numbers, "image": image, "action_mask": mask})

    def observation(self, observation: Any) -> dict[str, Any]:
        image = np.zeros((1, 8, 1), np.uint8)
        image[0, int(np.clip(observation[2] * 16 + 4, 0, 7))] = 255
        speed = observation[1]
        return {"numbers": observation, "image": image, "action_mask": np.array([speed > -1, speed < 1], np.int8)}


class Drawing(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Draws from all global generators where environments do: when built, reset and stepped. It cuts episodes short."""

    def __init__(self, environment: gymnasium.Env[Any, Any]) -> None:
        super().__init__(environment)
        self.gain = 1.0 + 0.1 * np.random.rand()  # noqa: NPY002

    def reset(self, **given: Any) -> Any:
        self.bias = random.random() + float(torch.rand(()))
        return super().reset(**given)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        reward = self.gain * float(reward) + self.bias + np.random.normal() + float(torch.randn(()))  # noqa: NPY002
        return observation, reward, terminated, random.random() < CUT, info


def environment(render_mode: str | None = None) -> TimeLimit[Any, Any, Any, Any]:
    return TimeLimit(Killing(render_mode=render_mode), MAX_STEPS)
