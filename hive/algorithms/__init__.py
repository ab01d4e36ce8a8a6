"""Algorithms, one file each."""

from __future__ import annotations

from hive.algorithms.a2c import A2C
from hive.algorithms.advantages import merged
from hive.algorithms.impala import IMPALA
from hive.algorithms.ppo import PPO
from hive.algorithms.steps import Algorithm, Evaluate, Loss, Moments, Step, Steps
from hive.config import A2CConfig, AlgorithmConfig, IMPALAConfig, PPOConfig
from hive.networks import ActionDistribution

__all__ = [
    "A2C",
    "IMPALA",
    "PPO",
    "Algorithm",
    "Evaluate",
    "Loss",
    "Moments",
    "Step",
    "Steps",
    "make_algorithm",
    "merged",
]


def make_algorithm(config: AlgorithmConfig, distribution: ActionDistribution, workers: int) -> Algorithm:
    """The algorithm that [algorithm] names, for a run with so many gradient workers."""
    match config:
        case A2CConfig():
            return A2C(config, distribution, workers)
        case PPOConfig():
            return PPO(config, distribution, workers)
        case IMPALAConfig():
            return IMPALA(config, distribution)
    raise TypeError(f"no algorithm for {type(config).__name__}")
