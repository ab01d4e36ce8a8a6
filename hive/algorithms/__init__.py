"""Algorithms, one file each."""

from __future__ import annotations

from hive.algorithms.a2c import A2C
from hive.algorithms.advantages import merged
from hive.algorithms.impala import IMPALA
from hive.algorithms.parameters import Configured, update_parameter
from hive.algorithms.policy import Policy, describe_policy, load
from hive.algorithms.ppo import PPO
from hive.algorithms.steps import Algorithm, Evaluate, Loss, Moments, Step, Steps
from hive.config import A2CConfig, AlgorithmConfig, IMPALAConfig, PPOConfig, is_reference, load_reference
from hive.errors import TopologyError
from hive.networks import ActionDistribution

__all__ = [
    "A2C",
    "IMPALA",
    "PPO",
    "Algorithm",
    "Configured",
    "Evaluate",
    "Loss",
    "Moments",
    "Policy",
    "Step",
    "Steps",
    "describe_policy",
    "load",
    "make_algorithm",
    "merged",
    "update_parameter",
]


MEMBERS = ("distribution", "statistics", "gradients_per_round", "asks_for_moments", "behaviour_log_probs", "steps")


def make_algorithm(config: AlgorithmConfig, distribution: ActionDistribution, workers: int) -> Algorithm:
    """The algorithm that [algorithm] names, for a run with so many gradient workers.

    One of a user's own is called with (config, distribution, workers, **config.options). Raises TopologyError where it
    cannot be loaded, or lacks what an `Algorithm` has.
    """
    if is_reference(config.name):
        algorithm: Algorithm = load_reference(config.name)(config, distribution, workers, **config.options)
        missing = [name for name in MEMBERS if not hasattr(algorithm, name)]
        if missing:
            raise TopologyError(
                f"the algorithm `{config.name}` has no {', '.join(missing)}",
                hint="hive.algorithms.Algorithm says what an algorithm is",
            )
        return algorithm
    match config:
        case A2CConfig():
            return A2C(config, distribution, workers)
        case PPOConfig():
            return PPO(config, distribution, workers)
        case IMPALAConfig():
            return IMPALA(config, distribution)
    raise TypeError(f"no algorithm for {type(config).__name__}")
