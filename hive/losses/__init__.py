"""Losses as typed objects, by torch: what `Approximation.reinforce` takes beside a plain torch scalar.

loss            what a loss is
actor_critic    of a policy and a value: A2C, PPO, IMPALA
q_learning      of action values
"""

from hive.losses.actor_critic import A2CLoss, PPOLoss, VTraceLoss
from hive.losses.loss import Floats, Loss, LossValue, acted_rows, weighted_mean
from hive.losses.q_learning import QLoss

__all__ = [
    "A2CLoss",
    "Floats",
    "Loss",
    "LossValue",
    "PPOLoss",
    "QLoss",
    "VTraceLoss",
    "acted_rows",
    "weighted_mean",
]
