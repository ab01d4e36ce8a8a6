"""Losses as typed objects in torch, which `Approximation.reinforce` accepts besides a plain torch scalar.

loss            the interface of a loss
actor_critic    losses of a policy and a value: A2C, PPO, IMPALA
q_learning      the loss of action values
return_distributions   the losses of distributions of returns
native          shared parts of the losses that hive._native computes
"""

from hive.losses.actor_critic import EPSILON, A2CLoss, PPOLoss, VTraceLoss, acted_log_probs
from hive.losses.agents import CriticLoss, CriticOfActions, DeterministicActorLoss, SoftActorLoss
from hive.losses.loss import VALUE_FIT, Floats, Loss, LossSlopes, LossValue, acted_rows, value_fit, weighted_mean
from hive.losses.q_learning import QLoss
from hive.losses.return_distributions import CategoricalQLoss, QuantileQLoss

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
    "VTraceLoss",
    "acted_log_probs",
    "acted_rows",
    "value_fit",
    "weighted_mean",
]
