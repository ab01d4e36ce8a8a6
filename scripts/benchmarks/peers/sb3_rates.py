"""Measure the steps and updates per second of Stable-Baselines3, from its first update to its last.

    python sb3_rates.py SECONDS THREADS SETTINGS

It runs with the Python of an environment that has stable-baselines3, without hive. Environments are stepped in its own
process (DummyVecEnv).

    THREADS    number of threads of torch; 0 keeps its default, which is the number of cores
    SETTINGS   a JSON object: the settings of a `scripts/parity` task with a replay memory, or
               {"env", "envs", "rollout"} for A2C

A2C has the rollout, Adam, learning rate, losses and discount of the other contenders.
CartPole: its policy and value networks share no layer, which is its default. One thread and DummyVecEnv are faster for
an environment as cheap as this than more threads and SubprocVecEnv.
Atari: its own wrappers, with the options of hive's preset.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from importlib.metadata import version
from typing import Any

import torch
from comparison.sb3_cell import replay_model
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack

ENDLESS_STEPS = 10**12  # the callback ends the training, not the number of steps


class Clock(BaseCallback):  # type: ignore[misc,unused-ignore]  # untyped where it is not installed
    """Ends the training after `seconds`, counted from the end of the first rollout that follows an update.

    Updates follow a rollout, so that every rollout between two ends comes with its updates.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.first: tuple[float, int, int] | None = None  # time, steps, updates
        self.last = (0.0, 0, 0)

    def _on_rollout_end(self) -> None:
        if updates := self.model._n_updates:
            self.last = (time.perf_counter(), self.num_timesteps, updates)
            self.first = self.first or self.last

    def _on_step(self) -> bool:
        return self.first is None or time.perf_counter() - self.first[0] < self.seconds

    @property
    def rates(self) -> dict[str, float]:
        assert self.first is not None
        seconds, steps, updates = (last - first for last, first in zip(self.last, self.first, strict=True))
        return {"steps_per_s": steps / seconds, "updates_per_s": updates / seconds} if seconds else {"steps_per_s": 0.0}


def games(name: str, envs: int) -> VecFrameStack:
    """Return games whose steps are 4 frames, which make no actions sticky, with stacks of 4 observations."""
    importlib.import_module("ale_py")  # registers its games
    options = {"frameskip": 1, "repeat_action_probability": 0.0}
    wrappers = {"terminal_on_life_loss": False}
    return VecFrameStack(make_atari_env(name, n_envs=envs, seed=1, env_kwargs=options, wrapper_kwargs=wrappers), 4)


def a2c_model(environment: str, envs: int, rollout: int) -> Any:
    is_game = environment.startswith("ALE/")
    return A2C(
        "CnnPolicy" if is_game else "MlpPolicy",
        games(environment, envs) if is_game else make_vec_env(environment, n_envs=envs, seed=1),
        n_steps=rollout,
        learning_rate=1e-3,
        gamma=0.99,
        gae_lambda=1.0,
        vf_coef=0.5,
        ent_coef=0.01,
        max_grad_norm=0.5,
        use_rms_prop=False,
        seed=1,
        device="cpu",
    )


def run(seconds: float, threads: int, settings: dict[str, Any]) -> dict[str, Any]:
    if threads:
        torch.set_num_threads(threads)
    if "capacity" in settings:
        model = replay_model(settings, make_vec_env(settings["env"], n_envs=1, seed=1), 1)
    else:
        model = a2c_model(settings["env"], settings["envs"], settings["rollout"])
    clock = Clock(seconds)
    model.learn(ENDLESS_STEPS, callback=clock)
    versions = {name: version(name) for name in ("stable_baselines3", "torch", "numpy", "gymnasium")}
    return {**clock.rates, "threads": torch.get_num_threads(), "versions": versions}


if __name__ == "__main__":
    print(json.dumps(run(float(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))))
