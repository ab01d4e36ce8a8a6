"""The algorithms A2C, PPO, IMPALA, n-step Q-learning and PQN, and the trained policies that `hive.load` returns."""

from __future__ import annotations

from hive.algorithms.a2c import A2C
from hive.algorithms.advantages import merged
from hive.algorithms.algorithm import Algorithm, AnyOptimizer, Gradients, Moments
from hive.algorithms.impala import IMPALA
from hive.algorithms.novelty import SeeksNovelty
from hive.algorithms.nstep_q import NStepQ
from hive.algorithms.parameters import Configured, update_parameter
from hive.algorithms.policy import Policy, describe_policy, load
from hive.algorithms.ppo import PPO
from hive.algorithms.pqn import PQN
from hive.config import (
    A2CConfig,
    AlgorithmConfig,
    IMPALAConfig,
    NStepQConfig,
    PPOConfig,
    PQNConfig,
    is_reference,
    load_reference,
)
from hive.errors import TopologyError
from hive.networks.distributions import ActionDistribution

__all__ = [
    "A2C",
    "IMPALA",
    "PPO",
    "PQN",
    "Algorithm",
    "AnyOptimizer",
    "Configured",
    "Gradients",
    "Moments",
    "NStepQ",
    "Policy",
    "SeeksNovelty",
    "describe_policy",
    "heads_of_algorithm",
    "load",
    "make_algorithm",
    "merged",
    "update_parameter",
]


MEMBERS = (
    *("distribution", "statistics", "gradients_per_round", "asks_for_moments", "behaviour_log_probs"),
    *("connect", "gradients"),
)
HEADS = ("policy", "value")  # heads of the network, unless the algorithm names others


def make_algorithm(
    config: AlgorithmConfig, distribution: ActionDistribution, workers: int, round_steps: int = 1
) -> Algorithm:
    """Make the algorithm that [algorithm] names, not yet connected to a network.

    distribution: that of the environment's actions. workers: gradient workers that share a round. round_steps:
    environment steps in a round of the whole run. A user-defined algorithm is called with (config, distribution,
    workers, **config.options). Raises TopologyError if it cannot be loaded or is no `Algorithm`.
    """
    if is_reference(config.name):
        algorithm: Algorithm = load_reference(config.name)(config, distribution, workers, **config.options)
        missing = [name for name in MEMBERS if not hasattr(algorithm, name)]
        if missing:
            raise TopologyError(
                f"the algorithm `{config.name}` has no {', '.join(missing)}",
                hint="hive.algorithms.Algorithm documents the interface of an algorithm",
            )
        return algorithm
    match config:
        case A2CConfig():
            return A2C(config, distribution, workers)
        case PPOConfig():
            return PPO(config, distribution, workers)
        case IMPALAConfig():
            return IMPALA(config, distribution)
        case NStepQConfig():
            return NStepQ(config, distribution, workers, round_steps)
        case PQNConfig():
            return PQN(config, distribution, workers, round_steps)
    raise TypeError(f"no algorithm for {type(config).__name__}")


def heads_of_algorithm(algorithm: Algorithm) -> tuple[str, ...]:
    """Return the names of the heads that the algorithm's network ends in."""
    return tuple(getattr(algorithm, "heads", HEADS))
