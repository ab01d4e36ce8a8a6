"""Typed losses in torch, each with its native slopes beside it, which `Approximation.reinforce` accepts.

actor_critic    losses of a policy and a value: A2C and IMPALA, PPO
q_learning      losses of action values and of distributions of returns
agents          losses of an actor and of critics: SAC, TD3, DDPG
"""

from hive.algorithms.losses.actor_critic import A2CLoss, PPOLoss, acted_log_probs, acted_rows
from hive.algorithms.losses.agents import (
    CriticLoss,
    CriticOfActions,
    DeterministicActorLoss,
    SoftActorLoss,
    SoftChoiceLoss,
)
from hive.algorithms.losses.q_learning import CategoricalQLoss, QLoss, QuantileQLoss

__all__ = [
    "A2CLoss",
    "CategoricalQLoss",
    "CriticLoss",
    "CriticOfActions",
    "DeterministicActorLoss",
    "PPOLoss",
    "QLoss",
    "QuantileQLoss",
    "SoftActorLoss",
    "SoftChoiceLoss",
    "acted_log_probs",
    "acted_rows",
]
