"""Measure RLtools through its Python door: SAC for some seconds, PPO for its budget of steps.

    python rltools_rates.py SECONDS THREADS SETTINGS

It runs with the Python of an environment that has rltools, without hive, and needs a C++ compiler: RLtools compiles its
training loop for these settings. `compile_s` is that time; nothing else is compiled later. THREADS is not used: RLtools
gives MKL one thread. SETTINGS is `work` of a row of the league (benchmarks.league_rows); with `compiled` its
environment is RLtools' own Pendulum in C++, otherwise Gymnasium's class. It prints steps_per_s and updates_per_s
between two looks for SAC, and for PPO the `seconds` of all its rounds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import RescaleAction
from rltools import PPO, SAC

from benchmarks.counting import TwoLooks

SEED = 1
ENDLESS_STEPS = 10**12  # the looks or the budget end the training, not RLtools' limit of steps
PPO_EPSILON = 1e-5  # of Adam: hive's and Stable-Baselines3's default with PPO
PACKAGES = ("rltools", "pybind11", "mkl", "numpy", "gymnasium")

PENDULUM = """#include <rl_tools/rl/environments/pendulum/operations_generic.h>

template <typename T, typename TI>
using ENVIRONMENT_FACTORY =
    rl_tools::rl::environments::Pendulum<rl_tools::rl::environments::pendulum::Specification<T, TI>>;
"""
"""The C++ file that gives RLtools' training loop its environment; the physics is in RLtools' own headers."""


def environment_of(settings: dict[str, Any], folder: Path) -> Any:
    """Return what RLtools' algorithms take as an environment: a function, or the folder of a C++ file."""
    if settings["compiled"]:
        (folder / "environment.h").write_text(PENDULUM)
        return {"path": str(folder), "observation_dim": 3, "action_dim": 1}

    def made() -> gymnasium.Env[Any, Any]:
        env: gymnasium.Env[Any, Any] = RescaleAction(gymnasium.make(settings["env"]), np.float32(-1), np.float32(1))
        env.reset(seed=SEED)
        return env

    return made


def options_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the options that both algorithms have. RLtools counts the output among the layers."""
    (width,) = set(settings["layers"])
    sizes = {"HIDDEN_DIM": width, "NUM_LAYERS": len(settings["layers"]) + 1}
    return {
        **{f"{network}_{name}": size for network in ("ACTOR", "CRITIC") for name, size in sizes.items()},
        "GAMMA": settings["discount"],
        "OPTIMIZER_ALPHA": settings["learning_rate"],
        "OPTIMIZER_EPSILON": settings.get("optimizer_epsilon", PPO_EPSILON),
        "STEP_LIMIT": ENDLESS_STEPS,
        "enable_evaluation": False,
    }


def sac_of(settings: dict[str, Any], environment: Any) -> Any:
    """Compile SAC's training loop. One step of it is one step of the environment and, after the first, one update."""
    return SAC(
        environment,
        ACTOR_BATCH_SIZE=settings["batch"],
        CRITIC_BATCH_SIZE=settings["batch"],
        ACTOR_POLYAK=1.0 - settings["target_rate"],
        CRITIC_POLYAK=1.0 - settings["target_rate"],
        N_WARMUP_STEPS=settings["learning_starts"],
        REPLAY_BUFFER_CAP=settings["capacity"],
        ALPHA=1.0,  # the initial temperature of the other programs
        **options_of(settings),
    )


def ppo_of(settings: dict[str, Any], environment: Any) -> Any:
    """Compile PPO's training loop. One step of it is one round."""
    return PPO(
        environment,
        N_ENVIRONMENTS=settings["envs"],
        ON_POLICY_RUNNER_STEPS_PER_ENV=settings["rollout"],
        BATCH_SIZE=settings["minibatch"],
        N_EPOCHS=settings["epochs"],
        LAMBDA=settings["gae_lambda"],
        EPSILON_CLIP=settings["clip_range"],
        INITIAL_ACTION_STD=1.0,  # that of the other programs
        ACTION_ENTROPY_COEFFICIENT=settings["entropy_weight"],
        **options_of(settings),
    )


def rates_of(step: Callable[[], bool], seconds: float, learning_starts: int) -> dict[str, float]:
    looks, steps = TwoLooks(seconds), 0
    while not looks.round_ended(steps, max(steps - learning_starts, 0)):
        step()
        steps += 1
    return looks.rates


def seconds_of(step: Callable[[], bool], settings: dict[str, Any]) -> dict[str, float]:
    rounds = -(-settings["steps"] // (settings["envs"] * settings["rollout"]))
    begun = time.perf_counter()
    for _ in range(rounds):
        step()
    return {"seconds": time.perf_counter() - begun}


def run(seconds: float, settings: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        environment = environment_of(settings, Path(folder))
        is_ppo = settings["algorithm"] == "ppo"
        begun = time.perf_counter()
        loop = (ppo_of if is_ppo else sac_of)(settings, environment)
        compile_s = time.perf_counter() - begun
    step = loop.State(SEED).step
    figures = seconds_of(step, settings) if is_ppo else rates_of(step, seconds, settings["learning_starts"])
    return {**figures, "compile_s": compile_s, "versions": versions()}


def versions() -> dict[str, str]:
    """Return the versions of the compiler and of the packages that are installed."""
    compiler = os.environ.get("RL_TOOLS_COMPILER", "g++")
    found = {compiler: subprocess.run([compiler, "-dumpversion"], capture_output=True, text=True).stdout.strip()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue  # mkl, on machines that it is not built for
    return found


if __name__ == "__main__":
    print(json.dumps(run(float(sys.argv[1]), json.loads(sys.argv[3]))))
