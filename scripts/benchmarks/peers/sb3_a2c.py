"""Measure the steps per second of Stable-Baselines3's A2C, from its first update to its last.

    python sb3_a2c.py ENVIRONMENT ENVS ROLLOUT SECONDS

It runs with the Python of an environment that has stable-baselines3, without hive. Rollout, Adam, learning rate, losses
and discount are those of the other contenders. Environments are stepped in its own process (DummyVecEnv).

CartPole: its policy and value networks share no layer, which is its default. torch has one thread: for an environment
as cheap as this, that is faster than more threads, and DummyVecEnv than SubprocVecEnv.
Atari: its own wrappers, with the options of hive's preset. torch has as many threads as there are cores, its default.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from importlib.metadata import version

import torch
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack

ENDLESS_STEPS = 10**12  # the callback ends the training, not the number of steps


class Clock(BaseCallback):  # type: ignore[misc,unused-ignore]  # untyped where it is not installed
    """Ends the training after `seconds`, counted from the end of the first rollout."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.first: tuple[float, int] | None = None  # time, steps
        self.last = (0.0, 0)

    def _on_rollout_end(self) -> None:
        self.last = (time.perf_counter(), self.num_timesteps)
        self.first = self.first or self.last

    def _on_step(self) -> bool:
        return self.first is None or time.perf_counter() - self.first[0] < self.seconds

    @property
    def steps_per_s(self) -> float:
        assert self.first is not None
        return (self.last[1] - self.first[1]) / (self.last[0] - self.first[0])


def games(name: str, envs: int) -> VecFrameStack:
    """Return games whose steps are 4 frames, which make no actions sticky, with stacks of 4 observations."""
    importlib.import_module("ale_py")  # registers its games
    options = {"frameskip": 1, "repeat_action_probability": 0.0}
    wrappers = {"terminal_on_life_loss": False}
    return VecFrameStack(make_atari_env(name, n_envs=envs, seed=1, env_kwargs=options, wrapper_kwargs=wrappers), 4)


def run(environment: str, envs: int, rollout: int, seconds: float) -> dict[str, object]:
    is_game = environment.startswith("ALE/")
    if not is_game:
        torch.set_num_threads(1)
    model = A2C(
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
    clock = Clock(seconds)
    model.learn(ENDLESS_STEPS, callback=clock)
    versions = {name: version(name) for name in ("stable_baselines3", "torch", "numpy", "gymnasium")}
    return {"steps_per_s": clock.steps_per_s, "versions": versions}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))))
