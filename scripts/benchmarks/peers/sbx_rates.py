"""Measure the steps and updates per second of SBX, Stable-Baselines3's algorithms in JAX, between two looks.

    python sbx_rates.py SECONDS THREADS SETTINGS

It runs with the Python of an environment that has sbx-rl, without hive. SETTINGS is `work` of a row of the league
(benchmarks.league_rows) with a replay memory. THREADS is not used: JAX takes one thread for each core that it is
allowed. JAX compiles each function at its first call: `compile_s` is that time, before the first look. SBX's DQN does
not clip gradients, the other programs do.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from typing import Any

import jax
import numpy as np
from sbx import DQN, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise

from benchmarks.peers.sb3_looks import Looks

MODELS = {"dqn": DQN, "sac": SAC, "td3": TD3}
ENDLESS_STEPS = 10**12  # the callback ends the training, not the number of steps
COMPILING = "/jax/core/compile/"  # how the names of JAX's durations of tracing and compiling begin
LATE_SHARE = 0.01  # maximum share of a measurement in which JAX compiles
PACKAGES = ("sbx-rl", "stable_baselines3", "jax", "jaxlib", "flax", "optax", "torch", "numpy", "gymnasium")


class CompiledLooks(Looks):
    """Looks that keep the seconds of compilation until each of them."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.compiled_s = 0.0
        self.before_s: float | None = None  # at the first look
        jax.monitoring.register_event_duration_secs_listener(self._took)

    def _took(self, event: str, duration: float, **_: Any) -> None:
        if event.startswith(COMPILING):
            self.compiled_s += duration

    def _on_rollout_end(self) -> None:
        super()._on_rollout_end()
        if self.looks.first is not None and self.before_s is None:
            self.before_s = self.compiled_s

    @property
    def late_s(self) -> float:
        """Seconds of compilation between the looks."""
        return self.compiled_s - (self.before_s or 0.0)


def model_of(settings: dict[str, Any]) -> Any:
    """Return the model of a row's work, with its environment."""
    env: Any = make_vec_env(settings["env"], n_envs=1, seed=1)
    options = {
        "learning_rate": settings["learning_rate"],
        "buffer_size": settings["capacity"],
        "learning_starts": settings["learning_starts"],
        "batch_size": settings["batch"],
        "tau": settings["target_rate"],
        "gamma": settings["discount"],
        "train_freq": settings["rollout"],
        "gradient_steps": settings["updates"],
        "policy_kwargs": {"net_arch": list(settings["layers"])},
        "seed": 1,
    }
    if settings["algorithm"] == "dqn":
        options |= {
            "target_update_interval": settings["target_interval"],
            "exploration_fraction": settings["exploration_share"],
            "exploration_final_eps": settings["exploration_end"],
        }
    if settings["action_noise"]:
        size = env.action_space.shape[0]
        options["action_noise"] = NormalActionNoise(np.zeros(size), np.full(size, settings["action_noise"]))
    return MODELS[settings["algorithm"]]("MlpPolicy", env, **options)


def weights_of(model: Any) -> int:
    """Return the number of trained weights, without target networks."""
    states = [getattr(model.policy, name, None) for name in ("actor_state", "qf_state")]
    states.append(getattr(model, "ent_coef_state", None))
    leaves = [leaf for state in states if state is not None for leaf in jax.tree_util.tree_leaves(state.params)]
    return sum(int(leaf.size) for leaf in leaves)


def run(seconds: float, settings: dict[str, Any]) -> dict[str, Any]:
    model, callback = model_of(settings), CompiledLooks(seconds)
    model.learn(ENDLESS_STEPS, callback=callback)
    if callback.late_s > LATE_SHARE * seconds:
        sys.exit(f"JAX compiled for {callback.late_s:.2f} s between the looks")
    return {
        **callback.looks.rates,
        "compile_s": callback.before_s,
        "weights": weights_of(model),
        "versions": {name: version(name) for name in PACKAGES},
    }


if __name__ == "__main__":
    print(json.dumps(run(float(sys.argv[1]), json.loads(sys.argv[3]))))
