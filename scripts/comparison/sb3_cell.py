"""One cell of Stable-Baselines3 or SB3-Contrib: trains a task with one seed, judges the policy, prints a JSON object.

    python sb3_cell.py SEED < settings.json

Run by the Python of an environment that has both; it knows nothing of hive.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from sb3_contrib import QRDQN, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecNormalize

from comparison.environments import made
from comparison.judge import Act, judge
from comparison.sb3_network import policy_of


class Curve(BaseCallback):  # type: ignore[misc,unused-ignore]  # untyped where it is not installed
    """Keeps (environment steps, seconds, return) of every training episode."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[tuple[int, float, float]] = []
        self.begun = time.perf_counter()

    def _on_training_start(self) -> None:
        self.begun = time.perf_counter()

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self.points.append((self.num_timesteps, time.perf_counter() - self.begun, float(info["episode"]["r"])))
        return True


def schedule(settings: dict[str, Any], name: str) -> Any:
    """A number, or a function from the remaining share of the budget (1 to 0) to a number."""
    value = float(settings[name])
    return (lambda left: left * value) if name in settings["linear"] else value


REPLAY = {"dqn": DQN, "qr-dqn": QRDQN, "sac": SAC, "td3": TD3}


def replay_model(settings: dict[str, Any], env: Any, seed: int) -> Any:
    """The model of a task with a replay memory."""
    shared = {
        "learning_rate": settings["learning_rate"],
        "buffer_size": settings["capacity"],
        "learning_starts": settings["learning_starts"],
        "batch_size": settings["batch"],
        "tau": settings["target_rate"],
        "gamma": settings["discount"],
        "train_freq": settings["rollout"],
        "gradient_steps": settings["updates"],
        "seed": seed,
        "device": "cpu",
    }
    policy: dict[str, Any] = {"net_arch": list(settings["layers"])}
    if settings["quantiles"]:
        policy["n_quantiles"] = settings["quantiles"]
    if settings["algorithm"] in ("dqn", "qr-dqn"):
        shared |= {
            "target_update_interval": settings["target_interval"],
            "exploration_fraction": settings["exploration_share"],
            "exploration_final_eps": settings["exploration_end"],
            "max_grad_norm": settings["clip_gradients"] or None,
        }
    if settings["action_noise"]:
        size = env.action_space.shape[0]
        shared["action_noise"] = NormalActionNoise(np.zeros(size), np.full(size, settings["action_noise"]))
    model = REPLAY[settings["algorithm"]]("MlpPolicy", env, policy_kwargs=policy, **shared)
    assert adam_epsilons(model) == {settings["optimizer_epsilon"]}, adam_epsilons(model)
    return model


def adam_epsilons(model: Any) -> set[float]:
    """The epsilons of all optimizers of a model."""
    owners = [model.policy, *(getattr(model, name, None) for name in ("actor", "critic"))]
    optimizers = [found for one in owners if (found := getattr(one, "optimizer", None)) is not None]
    return {group["eps"] for optimizer in optimizers for group in optimizer.param_groups}


def model_of(settings: dict[str, Any], env: Any, seed: int) -> Any:
    if "capacity" in settings:  # a ReplayTask
        return replay_model(settings, env, seed)
    shared = {
        "n_steps": settings["rollout"],
        "learning_rate": schedule(settings, "learning_rate"),
        "gamma": settings["discount"],
        "gae_lambda": settings["gae_lambda"],
        "ent_coef": settings["entropy_weight"],
        "vf_coef": settings["value_loss_weight"],
        "max_grad_norm": settings["clip_gradients"],
        "seed": seed,
        "device": "cpu",
    }
    if settings["algorithm"] == "a2c":
        return A2C("MlpPolicy", env, **shared)
    kind = RecurrentPPO if settings["memory"] else MaskablePPO if settings["masked"] else PPO
    policy, options = policy_of(settings, env.observation_space)
    return kind(
        policy,
        env,
        policy_kwargs=options,
        batch_size=settings["minibatch"],
        n_epochs=settings["epochs"],
        clip_range=schedule(settings, "clip_range"),
        **shared,
    )


def episode_of(model: Any, settings: dict[str, Any], seen: Callable[[Any], Any]) -> Act:
    """A function that plays one episode with the policy; `seen` normalizes an observation."""
    state, first = None, np.ones(1, bool)

    def act(observation: Any, info: dict[str, Any]) -> Any:
        nonlocal state, first
        given = {"action_masks": info["action_mask"]} if settings.get("masked") else {}
        if settings.get("memory"):
            given |= {"state": state, "episode_start": first}
        action, state = model.predict(seen(observation), deterministic=True, **given)
        first = np.zeros(1, bool)
        return action

    return act


def run(settings: dict[str, Any], seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    env: Any = make_vec_env(lambda: made(settings["env"]), n_envs=settings.get("envs", 1), seed=seed)
    normalized = settings.get("normalize", False)
    if normalized:
        env = VecNormalize(env, gamma=settings["discount"])
    model, curve = model_of(settings, env, seed), Curve()
    begun = time.perf_counter()
    model.learn(settings["steps"], callback=curve)
    seconds = time.perf_counter() - begun

    def seen(observation: Any) -> Any:
        return env.normalize_obs(observation) if normalized else observation

    packages = ("stable_baselines3", "sb3_contrib", "torch", "numpy", "gymnasium")
    return {
        "steps": model.num_timesteps,
        "seconds": seconds,
        "returns": judge(settings["env"], lambda: episode_of(model, settings, seen)),
        "curve": curve.points,
        "versions": {name: version(name) for name in packages},
    }


if __name__ == "__main__":
    print(json.dumps(run(json.load(sys.stdin), int(sys.argv[1]))))
