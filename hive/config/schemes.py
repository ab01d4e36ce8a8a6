"""The named schemes: what each is, the defaults that it sets, and the function that builds its topology.

A value in the file or in `--set` overrides the scheme's default, which overrides the default of the key. A custom
scheme (`package.module:function`) changes no default. All named schemes build the same topology, whose config differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["DEFAULT_SCHEME", "DEFINING", "SCHEMES", "Scheme"]

DEFAULT_SCHEME = "ppo"  # the safest first choice for a new environment

DEFINING = (
    *("algorithm.name", "collection.communication", "collection.ownership"),
    *("gradients.communication", "gradients.decentralised"),
)
"""The keys that make a scheme what it is. A value that one of them excludes is an error, which names the scheme; other
defaults of a scheme yield to the keys that a user gives (hive.config.formulas)."""


@dataclass(frozen=True)
class Scheme:
    """A named scheme.

    text: one line for users, with the source. defaults: full name of a key -> its default in this scheme. topology:
    "package.module:function", a function of (config, directory), as users name their own schemes.
    """

    text: str
    defaults: Mapping[str, Any]
    topology: str = "hive.schemes.trainer:trainer"


REPLAYING = {
    "collection.envs": 1,
    "collection.rollout": 4,
    "collection.communication": "pipelined",
    "gradients.communication": "synchronous",
    "network.activation": "relu",
}
"""The defaults of schemes that learn action values from a replay memory: an update after every 4 steps."""

OFF_POLICY = {
    "collection.envs": 1,
    "collection.rollout": 1,
    "collection.communication": "pipelined",
    "gradients.communication": "synchronous",
    "network.activation": "relu",
    "network.initialization": "uniform",
}
"""Defaults of agents of an actor and critics, those of Stable-Baselines3."""

SCHEMES: Mapping[str, Scheme] = {
    "a2c": Scheme(
        "A2C: parallel collectors and one synchronous gradient per round (Mnih et al. 2016)",
        {},
    ),
    "a3c": Scheme(
        "A3C: workers collect for themselves; gradients are applied as they arrive (Mnih et al. 2016)",
        {
            "collection.workers": 0,
            "collection.ownership": "gradient_worker",
            "collection.communication": "asynchronous",
            "collection.slots": 2,
            "gradients.workers": 2,
            "gradients.communication": "asynchronous",
        },
    ),
    "ppo": Scheme(
        "PPO: a clipped loss and several epochs of minibatches per round (Schulman et al. 2017)",
        {
            "collection.communication": "synchronous",
            "gradients.communication": "synchronous",
            "algorithm.name": "ppo",
        },
    ),
    # As in the paper: when 60 % of the collectors have finished a rollout, the others end theirs as soon as they have
    # 25 % of it.
    "dd-ppo": Scheme(
        "DD-PPO: workers collect for themselves and apply all gradients, without stragglers (Wijmans et al. 2020)",
        {
            "collection.workers": 0,
            "collection.ownership": "gradient_worker",
            "collection.communication": "synchronous",
            "collection.fraction_workers": 0.6,
            "collection.fraction_samples": 0.25,
            "gradients.workers": 3,
            "gradients.communication": "synchronous",
            "gradients.decentralised": True,
            "algorithm.name": "ppo",
        },
    ),
    "impala": Scheme(
        "IMPALA: asynchronous collectors and gradients, corrected by V-trace (Espeholt et al. 2018)",
        {
            "collection.communication": "asynchronous",
            "gradients.communication": "asynchronous",
            "algorithm.name": "impala",
        },
    ),
    "nstep-q": Scheme(
        "n-step Q-learning with a target network (Mnih et al. 2016)",
        {
            "collection.envs": 8,
            "collection.rollout": 16,
            "gradients.communication": "synchronous",
            "algorithm.name": "nstep-q",
            "network.activation": "relu",
            "network.layer_norm": True,
        },
    ),
    "pqn": Scheme(
        "PQN: Q(lambda) with LayerNorm, without a target network and a replay buffer (Gallici et al. 2025)",
        {
            "collection.envs": 8,
            "collection.rollout": 32,
            "gradients.communication": "synchronous",
            "algorithm.name": "pqn",
            "network.activation": "relu",
            "network.layer_norm": True,
        },
    ),
    "dqn": Scheme(
        "DQN: Q-learning from a replay memory, with a target network (Mnih et al. 2015)",
        {**REPLAYING, "algorithm.name": "dqn"},
    ),
    "c51": Scheme(
        "C51: as DQN, with the probabilities of 51 returns for each action (Bellemare et al. 2017)",
        {**REPLAYING, "algorithm.name": "c51"},
    ),
    "qr-dqn": Scheme(
        "QR-DQN: as DQN, with quantiles of the return of each action (Dabney et al. 2018)",
        {**REPLAYING, "algorithm.name": "qr-dqn"},
    ),
    # What is combined is as in the paper, the scale is that of small problems: Atari games have clipped rewards, and
    # there a rate of 6.25e-5, a target for 8,000 updates, 80,000 first steps and noise of 0.5.
    "rainbow": Scheme(
        "Rainbow: C51 with two streams, double, 3-step returns, priorities and noisy layers (Hessel et al. 2018)",
        {
            **REPLAYING,
            "algorithm.name": "c51",
            "algorithm.learning_rate": 5e-4,
            "algorithm.target_interval": 250,
            "algorithm.batch_size": 64,
            "algorithm.learning_starts": 1_000,
            "algorithm.v_min": -100.0,
            "algorithm.v_max": 100.0,
            "algorithm.double": True,
            "algorithm.dueling": 64,
            "algorithm.n_step": 3,
            "algorithm.priority_exponent": 0.5,
            "algorithm.exploration_start": 0.0,
            "algorithm.exploration_end": 0.0,
            "network.noisy_deviation": 0.1,
        },
    ),
    "apex": Scheme(
        "Ape-X: asynchronous collectors that explore differently, and DQN with priorities (Horgan et al. 2018)",
        {
            "collection.workers": 2,
            "collection.envs": 4,
            "collection.rollout": 16,
            "collection.communication": "asynchronous",
            "gradients.communication": "synchronous",
            "algorithm.name": "dqn",
            "algorithm.exploration_start": 0.4,
            "algorithm.exploration_end": 0.4,
            "algorithm.exploration_spread": 7.0,
            "algorithm.initial_errors": True,
            "algorithm.n_step": 3,
            "algorithm.priority_exponent": 0.6,
            "network.activation": "relu",
        },
    ),
    "sac": Scheme(
        "SAC: a stochastic actor and two critics, with an entropy bonus, from a replay memory (Haarnoja et al. 2018)",
        {"algorithm.name": "sac", "network.middleware": (256, 256), **OFF_POLICY},
    ),
    "td3": Scheme(
        "TD3: a deterministic actor and two critics, from a replay memory (Fujimoto et al. 2018)",
        {"algorithm.name": "td3", "network.middleware": (400, 300), **OFF_POLICY},
    ),
    "ddpg": Scheme(
        "DDPG: a deterministic actor and a critic, from a replay memory (Lillicrap et al. 2016)",
        {"algorithm.name": "ddpg", "network.middleware": (400, 300), **OFF_POLICY},
    ),
    "rapid": Scheme(
        "Rapid: asynchronous collectors, each owned by one of several synchronous PPO workers (OpenAI)",
        {
            "collection.workers": 4,
            "collection.ownership": "gradient_worker",
            "collection.communication": "asynchronous",
            "gradients.workers": 2,
            "gradients.communication": "synchronous",
            "algorithm.name": "ppo",
        },
    ),
    "single": Scheme(
        "A2C, or any other algorithm, in one training process",
        {
            "collection.workers": 0,
            "collection.communication": "synchronous",
            "gradients.workers": 0,
            "gradients.communication": "synchronous",
        },
    ),
}
"""Name of a scheme -> the scheme."""
