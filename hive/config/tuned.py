"""Tuned settings of known tasks, which `hive init` writes. To add a task, add an entry to TUNED.

Each entry names the source of its values. Most come from rl-baselines3-zoo (hyperparams/ppo.yml and a2c.yml), which
trains with Stable-Baselines3. Settings that it leaves out have the defaults of Stable-Baselines3. They are given here
too, so that no entry changes its meaning when a default of hive changes.

The zoo's n_envs and n_steps are `collection.envs` and `collection.rollout` with one collector, and its batch_size is
envs * rollout / minibatches. With a replay memory, its train_freq is `collection.rollout` and its gradient_steps are
the updates of a round. The entries do not use gSDE (`action_distribution = "gsde"`); the sources say where the zoo
does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["TUNED", "Tuned", "tuned"]

VERSION = re.compile(r"-v\d+$")  # the end of a Gymnasium id


@dataclass(frozen=True)
class Tuned:
    """Settings of one task and scheme: full name of a key -> its value, and the origin of the values in one line."""

    source: str
    keys: Mapping[str, Any]


def tuned(env_id: str) -> Mapping[str, Tuned]:
    """Return scheme -> tuned settings for an environment, the best scheme first; empty for an unknown environment.

    All versions of an environment (Hopper-v4, Hopper-v5) have the same settings, and so have all games of ale_py.
    """
    return ATARI if env_id.startswith("ALE/") else BY_NAME.get(VERSION.sub("", env_id), {})


def _shared(
    source: str, algorithm: Mapping[str, Any], network: Mapping[str, Any], normalize: bool, **run: Any
) -> Tuned:
    keys = {
        "run.steps": run["steps"],
        "collection.workers": 1,
        "collection.envs": run["envs"],
        "collection.rollout": run["rollout"],
        "gradients.workers": 0,
        **{f"algorithm.{name}": value for name, value in algorithm.items()},
        "network.middleware": (64, 64),
        "network.activation": "tanh",
        "network.initialization": "orthogonal",
        "network.action_deviation": "parameter",
        "network.initial_deviation": 1.0,
        "network.separate_networks": True,
        "network.normalize_observations": normalize,
        "network.normalize_rewards": normalize,
        **{f"network.{name}": value for name, value in network.items()},
    }
    return Tuned(source, keys)


def _ppo(
    source: str,
    *,
    steps: int = 1_000_000,
    envs: int = 1,
    rollout: int = 2048,
    batch: int = 64,
    normalize: bool = False,
    network: Mapping[str, Any] | None = None,
    **algorithm: Any,
) -> Tuned:
    """Return settings of the scheme ppo; those not given are the defaults of Stable-Baselines3's PPO.

    batch: steps of one minibatch. normalize: observations and rewards. algorithm: keys of [algorithm].
    """
    assert envs * rollout % batch == 0, "every minibatch has the same size"
    defaults = {
        "learning_rate": 3e-4,
        "learning_rate_schedule": "constant",
        "optimizer": "adam",
        "optimizer_epsilon": 1e-5,
        "discount": 0.99,
        "gae_lambda": 0.95,
        "epochs": 10,
        "minibatches": envs * rollout // batch,
        "normalize_advantages": True,
        "normalize_over": "minibatch",
        "clip_range": 0.2,
        "clip_range_schedule": "constant",
        "value_clip_range": 0.0,
        "entropy_weight": 0.0,
        "value_loss_weight": 0.5,
        "clip_gradients": 0.5,
    }
    return _shared(source, defaults | algorithm, network or {}, normalize, steps=steps, envs=envs, rollout=rollout)


def _a2c(
    source: str,
    *,
    steps: int = 1_000_000,
    envs: int = 1,
    rollout: int = 5,
    normalize: bool = False,
    network: Mapping[str, Any] | None = None,
    **algorithm: Any,
) -> Tuned:
    """Return settings of the scheme a2c; those not given are the defaults of Stable-Baselines3's A2C."""
    defaults = {
        "learning_rate": 7e-4,
        "learning_rate_schedule": "constant",
        "optimizer": "rmsprop",
        "rms_prop_optimizer_decay": 0.99,
        "optimizer_epsilon": 1e-5,
        "discount": 0.99,
        "gae_lambda": 1.0,
        "normalize_advantages": False,
        "entropy_weight": 0.0,
        "value_loss_weight": 0.5,
        "clip_gradients": 0.5,
    }
    return _shared(source, defaults | algorithm, network or {}, normalize, steps=steps, envs=envs, rollout=rollout)


def _nstep_q(source: str, *, steps: int, envs: int, rollout: int, **algorithm: Any) -> Tuned:
    """Return settings of the scheme nstep-q; there is no other trainer whose defaults they could have."""
    return _shared(source, {"target_rate": 1.0, **algorithm}, {}, False, steps=steps, envs=envs, rollout=rollout)


def _replay(
    source: str,
    *,
    steps: int,
    rollout: int = 1,
    layers: tuple[int, ...] = (256, 256),
    **algorithm: Any,
) -> Tuned:
    """Return settings of a scheme with a replay memory; those not given are the defaults of Stable-Baselines3."""
    defaults = {
        "learning_rate_schedule": "constant",
        "optimizer": "adam",
        "optimizer_epsilon": 1e-8,
        "discount": 0.99,
        "n_step": 1,
        "priority_exponent": 0.0,
    }
    keys = {
        "run.steps": steps,
        "collection.workers": 1,
        "collection.envs": 1,
        "collection.rollout": rollout,
        "gradients.workers": 0,
        **{f"algorithm.{name}": value for name, value in (defaults | algorithm).items()},
        "network.middleware": layers,
        "network.activation": "relu",
        "network.initialization": "uniform",
    }
    return Tuned(source, keys)


def _dqn(source: str, **settings: Any) -> Tuned:
    """Return settings of the scheme dqn. target_interval: in updates, of which the zoo's series have several."""
    defaults = {"target_rate": 1.0, "exploration_start": 1.0, "double": False, "huber_loss": True, "dueling": 0}
    return _replay(source, **{**defaults, "clip_gradients": 10.0, **settings})


def _agent(source: str, **settings: Any) -> Tuned:
    """Return settings of the schemes sac and td3."""
    each_step = {"updates_per_step": "1", "batch_size": 256, "target_interval": 1, "target_rate": 0.005}
    return _replay(source, **{**each_step, "clip_gradients": 0.0, **settings})


def _zoo(task: str, note: str = "") -> str:
    """Return the source line of PPO settings from rl-baselines3-zoo."""
    return f"rl-baselines3-zoo, ppo.yml, {task}{note and f', {note}'}"


def _zoo_a2c(task: str) -> str:
    """Return the source line of A2C settings from rl-baselines3-zoo."""
    return f"rl-baselines3-zoo, a2c.yml, {task}"


WIDE: Mapping[str, Any] = {
    "middleware": (256, 256),
    "activation": "relu",
    "initialization": "uniform",
    "initial_deviation": 0.1353,  # exp(-2)
}
"""The networks of the zoo's MuJoCo tasks: log_std_init=-2, ortho_init=False."""

LUNAR: Mapping[str, Any] = {
    "envs": 16,
    "rollout": 1024,
    "discount": 0.999,
    "gae_lambda": 0.98,
    "epochs": 4,
    "entropy_weight": 0.01,
}

CLASSIC: Mapping[str, Mapping[str, Tuned]] = {
    "CartPole-v1": {
        "ppo": _ppo(
            _zoo("CartPole-v1"),
            steps=100_000,
            envs=8,
            rollout=32,
            batch=256,
            discount=0.98,
            gae_lambda=0.8,
            epochs=20,
            learning_rate=1e-3,
            learning_rate_schedule="linear",
            clip_range_schedule="linear",
        ),
        "a2c": _a2c(_zoo_a2c("CartPole-v1"), steps=500_000, envs=8),
        "dqn": _dqn(
            "rl-baselines3-zoo, dqn.yml, CartPole-v1",
            steps=50_000,
            rollout=256,
            learning_rate=2.3e-3,
            batch_size=64,
            updates_per_step="1/2",
            replay_capacity=100_000,
            learning_starts=1_000,
            target_interval=128,
            exploration_end=0.04,
            exploration_steps=8_000,
        ),
        "nstep-q": _nstep_q(
            "measured with hive",
            steps=600_000,
            envs=8,
            rollout=32,
            n_step=32,
            discount=0.98,
            learning_rate=3e-3,
            learning_rate_schedule="linear",
            target_interval=20,
            exploration_end=0.01,
            exploration_steps=300_000,
        ),
    },
    "Acrobot-v1": {
        "ppo": _ppo(_zoo("Acrobot-v1"), envs=16, rollout=256, normalize=True, gae_lambda=0.94, epochs=4),
        "a2c": _a2c(_zoo_a2c("Acrobot-v1"), steps=500_000, envs=16, normalize=True),
    },
    "MountainCar-v0": {
        "ppo": _ppo(_zoo("MountainCar-v0"), envs=16, rollout=16, normalize=True, gae_lambda=0.98, epochs=4),
        "a2c": _a2c(_zoo_a2c("MountainCar-v0"), envs=16, normalize=True),
    },
    "MountainCarContinuous-v0": {
        "ppo": _ppo(
            "rl-baselines-zoo, ppo2.yml, MountainCarContinuous-v0 (its successor uses gSDE)",
            envs=16,
            rollout=256,
            batch=512,
            normalize=True,
            gae_lambda=0.94,
            epochs=4,
            learning_rate=2.5e-4,
            value_clip_range=0.2,
        ),
    },
    "Pendulum-v1": {
        "ppo": _ppo(
            _zoo("Pendulum-v1", "without its gSDE"),
            steps=100_000,
            envs=4,
            rollout=1024,
            discount=0.9,
            learning_rate=1e-3,
        ),
        "sac": _agent(
            "rl-baselines3-zoo, sac.yml, Pendulum-v1",
            steps=20_000,
            learning_rate=1e-3,
            replay_capacity=1_000_000,
            learning_starts=100,
            temperature=1.0,
            learn_temperature=True,
            target_entropy=-1.0,
        ),
        "td3": _agent(
            "rl-baselines3-zoo, td3.yml, Pendulum-v1",
            steps=20_000,
            layers=(400, 300),
            learning_rate=1e-3,
            discount=0.98,
            replay_capacity=200_000,
            learning_starts=10_000,
            exploration_noise=0.1,
            policy_delay=2,
            target_noise=0.2,
            target_noise_clip=0.5,
        ),
    },
}

BOX2D: Mapping[str, Mapping[str, Tuned]] = {
    "LunarLander-v3": {
        "ppo": _ppo(_zoo("LunarLander-v3"), **LUNAR),
        "a2c": _a2c(
            _zoo_a2c("LunarLander-v3"),
            steps=200_000,
            envs=8,
            discount=0.995,
            learning_rate=8.3e-4,
            learning_rate_schedule="linear",
            entropy_weight=1e-5,
        ),
        "dqn": _dqn(
            "rl-baselines3-zoo, dqn.yml, LunarLander-v3",
            steps=100_000,
            rollout=4,
            learning_rate=6.3e-4,
            batch_size=128,
            updates_per_step="1",
            replay_capacity=50_000,
            learning_starts=0,
            target_interval=250,
            exploration_end=0.1,
            exploration_steps=12_000,
        ),
    },
    "LunarLanderContinuous-v3": {"ppo": _ppo(_zoo("LunarLanderContinuous-v3"), **LUNAR)},
    "BipedalWalker-v3": {
        "ppo": _ppo(
            _zoo("BipedalWalker-v3"), steps=5_000_000, envs=32, normalize=True, discount=0.999, clip_range=0.18
        ),
    },
    "BipedalWalkerHardcore-v3": {
        "ppo": _ppo(
            _zoo("BipedalWalkerHardcore-v3"),
            steps=100_000_000,
            envs=16,
            normalize=True,
            learning_rate=2.5e-4,
            learning_rate_schedule="linear",
            clip_range_schedule="linear",
            entropy_weight=0.001,
        ),
    },
}

MUJOCO: Mapping[str, Mapping[str, Tuned]] = {
    "Ant-v5": {
        "ppo": _ppo(_zoo("Ant-v4"), normalize=True),
        "a2c": _a2c(_zoo_a2c("Ant-v4"), normalize=True),
    },
    "HalfCheetah-v5": {
        "ppo": _ppo(
            _zoo("HalfCheetah-v4"),
            rollout=512,
            normalize=True,
            network=WIDE,
            discount=0.98,
            gae_lambda=0.92,
            epochs=20,
            learning_rate=2.0633e-5,
            clip_range=0.1,
            entropy_weight=0.000401762,
            value_loss_weight=0.58096,
            clip_gradients=0.8,
        ),
        "a2c": _a2c(_zoo_a2c("HalfCheetah-v4"), normalize=True),
    },
    "Hopper-v5": {
        "ppo": _ppo(
            _zoo("Hopper-v4"),
            rollout=512,
            batch=32,
            normalize=True,
            network=WIDE,
            discount=0.999,
            gae_lambda=0.99,
            epochs=5,
            learning_rate=9.80828e-5,
            entropy_weight=0.00229519,
            value_loss_weight=0.835671,
            clip_gradients=0.7,
        ),
        "a2c": _a2c(_zoo_a2c("Hopper-v4"), normalize=True),
    },
    "Walker2d-v5": {
        "ppo": _ppo(
            _zoo("Walker2d-v4"),
            rollout=512,
            batch=32,
            normalize=True,
            epochs=20,
            learning_rate=5.05041e-5,
            clip_range=0.1,
            entropy_weight=0.000585045,
            value_loss_weight=0.871923,
            clip_gradients=1.0,
        ),
        "a2c": _a2c(_zoo_a2c("Walker2d-v4"), normalize=True),
    },
    "Humanoid-v5": {
        "ppo": _ppo(
            _zoo("Humanoid-v4"),
            steps=10_000_000,
            rollout=512,
            batch=256,
            normalize=True,
            network=WIDE,
            discount=0.95,
            gae_lambda=0.9,
            epochs=5,
            learning_rate=3.56987e-5,
            clip_range=0.3,
            entropy_weight=0.00238306,
            value_loss_weight=0.431892,
            clip_gradients=2.0,
        ),
        "a2c": _a2c(_zoo_a2c("Humanoid-v4"), steps=2_000_000, normalize=True),
    },
    "HumanoidStandup-v5": {
        "ppo": _ppo(
            _zoo("HumanoidStandup-v2"),
            steps=10_000_000,
            rollout=512,
            batch=32,
            normalize=True,
            network=WIDE,
            gae_lambda=0.9,
            epochs=20,
            learning_rate=2.55673e-5,
            clip_range=0.3,
            entropy_weight=3.62109e-6,
            value_loss_weight=0.430793,
            clip_gradients=0.7,
        ),
    },
    "Swimmer-v5": {
        "ppo": _ppo(
            _zoo("Swimmer-v4"),
            envs=4,
            rollout=1024,
            batch=256,
            normalize=True,
            discount=0.9999,
            gae_lambda=0.98,
            learning_rate=6e-4,
        ),
        "a2c": _a2c(_zoo_a2c("Swimmer-v4"), normalize=True, discount=0.9999),
    },
    "Reacher-v5": {
        "ppo": _ppo(
            _zoo("Reacher-v2"),
            rollout=512,
            batch=32,
            normalize=True,
            discount=0.9,
            gae_lambda=1.0,
            epochs=5,
            learning_rate=0.000104019,
            clip_range=0.3,
            entropy_weight=7.52585e-8,
            value_loss_weight=0.950368,
            clip_gradients=0.9,
        ),
    },
    "InvertedPendulum-v5": {
        "ppo": _ppo(
            _zoo("InvertedPendulum-v2"),
            rollout=32,
            batch=32,
            normalize=True,
            discount=0.999,
            gae_lambda=0.9,
            epochs=5,
            learning_rate=0.000222425,
            clip_range=0.4,
            entropy_weight=1.37976e-7,
            value_loss_weight=0.19816,
            clip_gradients=0.3,
        ),
    },
    "InvertedDoublePendulum-v5": {
        "ppo": _ppo(
            _zoo("InvertedDoublePendulum-v2"),
            rollout=128,
            batch=128,
            normalize=True,
            discount=0.98,
            gae_lambda=0.8,
            learning_rate=0.000155454,
            clip_range=0.4,
            entropy_weight=1.05057e-6,
            value_loss_weight=0.695929,
        ),
    },
    "Pusher-v5": {
        "ppo": _ppo(
            "CleanRL, ppo_continuous_action.py (benchmark of Pusher-v4)",
            normalize=True,
            learning_rate_schedule="linear",
            value_clip_range=0.2,
        ),
    },
}

PIXELS: Mapping[str, Any] = {"middleware": (), "activation": "relu", "separate_networks": False}
"""Policy and value share the convolutions of Mnih et al. 2015 and their dense layer of 512."""


def _game(settings: Tuned) -> Tuned:
    """Return settings of the scheme for every game of ale_py: the preset, and the last four frames."""
    return Tuned(settings.source, {"env.preset": "atari", "env.frame_stack": 4, **settings.keys})


ATARI: Mapping[str, Tuned] = {
    "ppo": _game(
        _ppo(
            _zoo("atari"),
            steps=10_000_000,
            envs=8,
            rollout=128,
            batch=256,
            network=PIXELS,
            epochs=4,
            learning_rate=2.5e-4,
            learning_rate_schedule="linear",
            clip_range=0.1,
            clip_range_schedule="linear",
            entropy_weight=0.01,
        )
    ),
    "a2c": _game(
        _a2c(
            _zoo_a2c("atari"),
            steps=10_000_000,
            envs=16,
            network=PIXELS,
            entropy_weight=0.01,
            value_loss_weight=0.25,
        )
    ),
    "impala": _game(
        _shared(
            "Espeholt et al. 2018 (IMPALA), table G.1: rate, rollouts, batches, entropy, clipping; but Adam",
            {
                "learning_rate": 6e-4,
                "learning_rate_schedule": "linear",
                "discount": 0.99,
                "entropy_weight": 0.01,
                "value_loss_weight": 0.5,
                "clip_gradients": 40.0,
            },
            PIXELS,
            False,
            steps=10_000_000,
            envs=32,
            rollout=20,
        )
    ),
}
"""Scheme -> settings of every id that begins with `ALE/`."""

IN_THEIR_UNITS = ("Pendulum-v1", "Humanoid-v5", "HumanoidStandup-v5", "InvertedPendulum-v5", "Pusher-v5")
"""Environments with other bounds than -1 and 1. The Gaussian policies of the sources do not act in their scale."""


def _with_scale(env_id: str, schemes: Mapping[str, Tuned]) -> Mapping[str, Tuned]:
    keys = {"env.scale_actions": env_id not in IN_THEIR_UNITS}
    return {
        name: Tuned(one.source, {**one.keys, **keys}) if name in ("ppo", "a2c") else one
        for name, one in schemes.items()
    }


GIVEN: Mapping[str, Mapping[str, Tuned]] = {**CLASSIC, **BOX2D, **MUJOCO}

TUNED: Mapping[str, Mapping[str, Tuned]] = {env_id: _with_scale(env_id, schemes) for env_id, schemes in GIVEN.items()}
"""Newest id of an environment -> scheme -> its tuned settings. `hive init` takes the first scheme."""

BY_NAME = {VERSION.sub("", env_id): schemes for env_id, schemes in TUNED.items()}
