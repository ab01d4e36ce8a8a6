"""One cell of Stable-Baselines3 with SuperSuit, as in PettingZoo's tutorials: trains, judges, prints one JSON object.

    python agents_sb3_cell.py TASK SEED [bootstrap]

SuperSuit copies one environment with its random generator, so that all copies would have the same episodes: here each
copy is seeded by itself. SuperSuit does not say that an episode was cut by a time limit, so the value of the last state
counts as 0. With `bootstrap` it is said, and this value is added, as hive does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import supersuit
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecEnvWrapper

from comparison.agents_judge import judge, result, versions
from comparison.agents_tasks import TASKS, AgentsTask, made


class Truncated(VecEnvWrapper):  # type: ignore[misc,unused-ignore]  # untyped where it is not installed
    """Says of every end that it is one by the time limit: the environments here have no other."""

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        observations, rewards, dones, infos = self.venv.step_wait()
        return (
            observations,
            rewards,
            dones,
            [{**info, "TimeLimit.truncated": bool(dones[i])} for i, info in enumerate(infos)],
        )


def run(task: AgentsTask, seed: int, *, bootstrap: bool) -> dict[str, Any]:
    torch.set_num_threads(1)
    rows = supersuit.pettingzoo_env_to_vec_env_v1(made(task))
    copies = supersuit.concat_vec_envs_v1(rows, task.envs, num_cpus=0, base_class="stable_baselines3")
    copies.venv.reset(seed=1000 * seed)
    set_random_seed(seed)  # not an argument of PPO, which would seed the environments by a method that they lack
    model = PPO(
        "MlpPolicy",
        Truncated(copies) if bootstrap else copies,
        n_steps=task.rollout,
        batch_size=task.minibatch,
        n_epochs=task.epochs,
        learning_rate=task.learning_rate,
        gamma=task.discount,
        gae_lambda=task.gae_lambda,
        clip_range=task.clip_range,
        ent_coef=task.entropy_weight,
        vf_coef=task.value_loss_weight,
        max_grad_norm=task.clip_gradients,
        device="cpu",
    )
    begun = time.perf_counter()
    model.learn(task.steps * task.agents)
    seconds = time.perf_counter() - begun

    def most_likely(observations: Mapping[str, Any]) -> Mapping[str, Any]:
        return dict(zip(observations, predict(observations, deterministic=True), strict=True))

    def sampled(observations: Mapping[str, Any]) -> Mapping[str, Any]:
        return dict(zip(observations, predict(observations, deterministic=False), strict=True))

    def predict(observations: Mapping[str, Any], *, deterministic: bool) -> Any:
        return model.predict(np.stack([*observations.values()]), deterministic=deterministic)[0]

    torch.manual_seed(seed)
    steps = model.num_timesteps // task.agents
    found = result(steps, seconds, steps / seconds, judge(task, most_likely), judge(task, sampled))
    return {**found, "versions": {**found["versions"], **versions("stable_baselines3")}}


if __name__ == "__main__":
    print(json.dumps(run(TASKS[sys.argv[1]], int(sys.argv[2]), bootstrap="bootstrap" in sys.argv[3:])))
