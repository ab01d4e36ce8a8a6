"""Typed losses in torch with their slopes beside them, which `Approximation.reinforce` accepts besides a scalar.

loss            the interface of a loss
actor_critic    losses of a policy and a value: A2C and IMPALA, PPO
q_learning      losses of action values and of distributions of returns
agents          losses of an actor and of critics: SAC, TD3, DDPG
"""

from hive.losses.actor_critic import (
    EPSILON,
    VALUE_FIT,
    A2CLoss,
    PPOLoss,
    acted_log_probs,
    acted_rows,
    is_native,
    value_fit,
)
from hive.losses.agents import CriticLoss, CriticOfActions, DeterministicActorLoss, SoftActorLoss
from hive.losses.loss import Floats, Loss, LossSlopes, LossValue, weighted_mean
from hive.losses.q_learning import CategoricalQLoss, QLoss, QuantileQLoss

__all__ = [
    "EPSILON",
    "VALUE_FIT",
    "A2CLoss",
    "CategoricalQLoss",
    "CriticLoss",
    "CriticOfActions",
    "DeterministicActorLoss",
    "Floats",
    "Loss",
    "LossSlopes",
    "LossValue",
    "PPOLoss",
    "QLoss",
    "QuantileQLoss",
    "SoftActorLoss",
    "acted_log_probs",
    "acted_rows",
    "is_native",
    "value_fit",
    "weighted_mean",
]
