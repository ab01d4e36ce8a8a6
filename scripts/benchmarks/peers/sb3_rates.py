"""Measure the steps and updates per second of Stable-Baselines3, between two looks at the ends of rollouts.

    python sb3_rates.py SECONDS THREADS SETTINGS

It runs with the Python of an environment that has stable-baselines3, without hive. Environments are stepped in its own
process (DummyVecEnv).

    THREADS    number of threads of torch; 0 keeps its default, which is the number of cores
    SETTINGS   a JSON object: `work` of a setting (benchmarks.settings)

Policy and value networks share no layer, which is its default, except with games.
Atari: its own wrappers, with the options of hive's preset. Normalized tasks have its VecNormalize.
"""

from __future__ import annotations

import importlib
import json
import sys
from importlib.metadata import version
from typing import Any

import torch
from comparison import sb3_cell
from comparison.environments import made
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

from benchmarks.peers.sb3_looks import Looks

ENDLESS_STEPS = 10**12  # the callback ends the training, not the number of steps


def games(name: str, envs: int) -> VecFrameStack:
    """Return games whose steps are 4 frames, which make no actions sticky, with stacks of 4 observations."""
    importlib.import_module("ale_py")  # registers its games
    options = {"frameskip": 1, "repeat_action_probability": 0.0}
    wrappers = {"terminal_on_life_loss": False}
    return VecFrameStack(make_atari_env(name, n_envs=envs, seed=1, env_kwargs=options, wrapper_kwargs=wrappers), 4)


def a2c_model(settings: dict[str, Any]) -> Any:
    name, envs = settings["env"], settings["envs"]
    is_game = name.startswith("ALE/")
    return A2C(
        "CnnPolicy" if is_game else "MlpPolicy",
        games(name, envs) if is_game else make_vec_env(name, n_envs=envs, seed=1),
        n_steps=settings["rollout"],
        learning_rate=settings["learning_rate"],
        gamma=settings["discount"],
        gae_lambda=settings["gae_lambda"],
        vf_coef=settings["value_loss_weight"],
        ent_coef=settings["entropy_weight"],
        max_grad_norm=settings["clip_gradients"],
        use_rms_prop=False,
        policy_kwargs=None if is_game else {"net_arch": {"pi": settings["layers"], "vf": settings["layers"]}},
        seed=1,
        device="cpu",
    )


def model_of(settings: dict[str, Any]) -> Any:
    """Return the model of a setting's work, with its environments."""
    if settings["algorithm"] == "a2c":
        return a2c_model(settings)
    env: Any = make_vec_env(lambda: made(settings["env"]), n_envs=settings.get("envs", 1), seed=1)
    if settings.get("normalize"):
        env = VecNormalize(env, gamma=settings["discount"])
    return sb3_cell.model_of(settings, env, 1)


def weights_of(model: Any) -> int:
    """Return the number of trained weights, without target networks."""
    groups = [model.policy]
    if getattr(model, "actor", None) is not None:
        groups = [model.actor, model.critic]
    elif hasattr(model, "q_net"):
        groups = [model.q_net]
    learned = getattr(model, "log_ent_coef", None)
    found: int = sum(one.numel() for group in groups for one in group.parameters() if one.requires_grad)
    return found + (0 if learned is None else int(learned.numel()))


def run(seconds: float, threads: int, settings: dict[str, Any]) -> dict[str, Any]:
    if threads:
        torch.set_num_threads(threads)
    samples = settings.get("envs", 1) * settings["rollout"]
    minibatches = samples // settings["minibatch"] if settings["algorithm"] == "ppo" else 1
    model, callback = model_of(settings), Looks(seconds, minibatches)
    model.learn(ENDLESS_STEPS, callback=callback)
    versions = {name: version(name) for name in ("stable_baselines3", "torch", "numpy", "gymnasium")}
    rates = callback.looks.rates
    return {**rates, "threads": torch.get_num_threads(), "weights": weights_of(model), "versions": versions}


if __name__ == "__main__":
    print(json.dumps(run(float(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))))
