"""The named schemes: what each is, the defaults that it sets, and the function that builds its topology.

A value in the file or in `--set` overrides the scheme's default. This overrides the default of the algorithm, which
overrides that of the key. A scheme is how processes work together, so `scheme = "single"` with an algorithm learns as
the algorithm's own scheme does. A custom scheme (`package.module:function`) changes no default. All named schemes build
the same topology, whose config differs.

The algorithms' defaults are meant for unknown environments. `hive init` writes none of them, only what a known
environment or its spaces need besides. examples/results/bare.csv has what they reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEFAULT_SCHEME = "ppo"  # the safest first choice for a new environment

DEFINING = (
    *("algorithm.name", "collection.communication", "collection.ownership"),
    *("gradients.communication", "gradients.decentralized"),
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


NORMALIZED = {"network.normalize_observations": True, "network.normalize_rewards": True}
"""For algorithms that learn from each round once: the scales of an unknown environment do not matter."""

ACTION_VALUES = {
    "collection.envs": 8,
    "network.activation": "relu",
    "network.layer_norm": True,
}
"""For action values without a replay memory: LayerNorm keeps them from diverging (Gallici et al. 2025)."""

REPLAYING = {
    "collection.envs": 1,
    "collection.rollout": 16,
    "network.middleware": (256, 256),
    "network.activation": "relu",
}
"""For action values from a replay memory: 8 updates after every 16 steps, which take fewer handovers than 1 after 2."""

OFF_POLICY = {
    "collection.envs": 1,
    "collection.rollout": 1,
    "network.activation": "relu",
    "network.initialization": "uniform",
}
"""For agents of an actor and critics, as in Stable-Baselines3."""

AHEAD = {"collection.communication": "pipelined"}
"""With actors and critics, whose rounds have few steps, most steps of a replay memory are of older policies anyway."""

NEWEST = {"collection.communication": "synchronous"}
"""The greedy action changes with each update, and a round of DQN may have a hundred of them: with a round of lag two of
seven seeds of LunarLander ended below a random policy, without it none (examples/guide/learning.md)."""

ALGORITHM_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "a2c": {"collection.envs": 8, "collection.rollout": 8, **NORMALIZED},
    "ppo": {"collection.rollout": 128, **NORMALIZED},
    "impala": {**NORMALIZED},
    "nstep-q": {**ACTION_VALUES, "collection.rollout": 8, **NORMALIZED},
    "pqn": {**ACTION_VALUES, "collection.rollout": 32, **NORMALIZED},
    "dqn": REPLAYING,
    "c51": REPLAYING,
    "qr-dqn": REPLAYING,
    "sac": {**OFF_POLICY, "network.middleware": (256, 256)},
    "td3": {**OFF_POLICY, "network.middleware": (400, 300)},
    "ddpg": {**OFF_POLICY, "network.middleware": (400, 300)},
    "bc": {"run.steps": 10_000, "collection.envs": 4, "collection.rollout": 32, **NORMALIZED},
}
"""Name of an algorithm -> its defaults outside of [algorithm]: full name of a key -> value."""

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
        {"collection.communication": "synchronous", "algorithm.name": "ppo"},
    ),
    # As in the paper: when 60 % of the collectors have finished a rollout, the others end theirs as soon as they have
    # 25 % of it.
    "dd-ppo": Scheme(
        "DD-PPO: workers collect for themselves and apply all gradients, without stragglers (Wijmans et al. 2020)",
        {
            "collection.workers": 0,
            "collection.rollout": 32,
            "collection.ownership": "gradient_worker",
            "collection.communication": "synchronous",
            "collection.fraction_workers": 0.6,
            "collection.fraction_samples": 0.25,
            "gradients.workers": 3,
            "gradients.communication": "synchronous",
            "gradients.decentralized": True,
            "algorithm.name": "ppo",
        },
    ),
    "ippo": Scheme(
        "IPPO: PPO for several agents, which know their own number and learn independently (de Witt et al. 2020)",
        {
            "collection.communication": "synchronous",
            "algorithm.name": "ppo",
            "env.agent_index": True,
        },
    ),
    "mappo": Scheme(
        "MAPPO: as IPPO, with critics that see the state of the environment (Yu et al. 2022)",
        {
            "collection.communication": "synchronous",
            "algorithm.name": "ppo",
            "env.agent_index": True,
            "env.state": True,
            "network.critic_parts": ("state",),
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
        {"algorithm.name": "nstep-q"},
    ),
    "pqn": Scheme(
        "PQN: Q(lambda) with LayerNorm, without a target network and a replay buffer (Gallici et al. 2025)",
        {"algorithm.name": "pqn"},
    ),
    "dqn": Scheme(
        "DQN: Q-learning from a replay memory, with a target network (Mnih et al. 2015)",
        {**NEWEST, "algorithm.name": "dqn"},
    ),
    "c51": Scheme(
        "C51: as DQN, with the probabilities of 51 returns for each action (Bellemare et al. 2017)",
        {**NEWEST, "algorithm.name": "c51"},
    ),
    "qr-dqn": Scheme(
        "QR-DQN: as DQN, with quantiles of the return of each action (Dabney et al. 2018)",
        {**NEWEST, "algorithm.name": "qr-dqn"},
    ),
    # What is combined is as in the paper, the scale is that of small problems: Atari games have clipped rewards, and
    # there a rate of 6.25e-5, a target for 8,000 updates, 80,000 first steps and noise of 0.5.
    "rainbow": Scheme(
        "Rainbow: C51 with two streams, double, 3-step returns, priorities and noisy layers (Hessel et al. 2018)",
        {
            **NEWEST,
            "algorithm.name": "c51",
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
            "algorithm.updates_per_step": "1/4",
        },
    ),
    "sac": Scheme(
        "SAC: a stochastic actor and two critics, with an entropy bonus, from a replay memory (Haarnoja et al. 2018)",
        {**AHEAD, "algorithm.name": "sac"},
    ),
    "td3": Scheme(
        "TD3: a deterministic actor and two critics, from a replay memory (Fujimoto et al. 2018)",
        {**AHEAD, "algorithm.name": "td3"},
    ),
    "ddpg": Scheme(
        "DDPG: a deterministic actor and a critic, from a replay memory (Lillicrap et al. 2016)",
        {**AHEAD, "algorithm.name": "ddpg"},
    ),
    "bc": Scheme(
        "BC: behaviour cloning, a policy that learns the actions of given transitions (Pomerleau 1988)",
        {**AHEAD, "algorithm.name": "bc"},
    ),
    "rapid": Scheme(
        "Rapid: asynchronous collectors, each owned by one of several synchronous PPO workers (OpenAI)",
        {
            "collection.workers": 4,
            "collection.rollout": 32,
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
