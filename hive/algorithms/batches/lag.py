"""Corrects rollouts of an older policy: the decoupled objective (Hilton, Cobbe, Schulman 2022, arXiv:2110.00641).

    acting policy      made the rollout, some rounds ago
    proximal policy    has the weights of the round's first gradient; PPO clips around it
    importance weight  min(importance_clip, pi_proximal(a|s) / pi_acting(a|s)), a constant factor of the advantage

Without lag both policies are the same one, every weight is 1, and the plain objective is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hive.algorithms.batches.rows import flat, sizes
from hive.algorithms.losses.actor_critic import EPSILON, acted_log_probs
from hive.experience import Rollout
from hive.learning.loss import Floats
from hive.networks.act.distributions import ActionDistribution

__all__ = ["IMPORTANCE", "described", "importance_of", "is_lagged", "proximal", "weighted"]

IMPORTANCE = ("importance_mean", "importance_max", "importance_clipped")
"""Names of what is reported of the weights: their mean and maximum, and the share that was clipped."""


def is_lagged(rollouts: Sequence[Rollout]) -> bool:
    """Return whether an older policy made one of these rollouts."""
    return any(rollout.lagged for rollout in rollouts)


def proximal(rollouts: Sequence[Rollout], distribution: ActionDistribution, outputs: Floats) -> tuple[Floats, Floats]:
    """Return log pi_proximal and log pi_proximal - log pi_acting of all acted rows, float32 [sum of T * B] each.

    outputs: the policy's, float32 [N, W], of all input rows. Rollouts without lag keep the log-probabilities that they
    store, with a difference of 0; so do rows that are not valid.
    """
    stored = flat([rollout.log_probs for rollout in rollouts])
    actions = torch.from_numpy(flat([rollout.actions for rollout in rollouts]))
    own = acted_log_probs(distribution, outputs, actions, sizes(rollouts))
    older = flat([(rollout.valid != 0) & rollout.lagged for rollout in rollouts])
    log_probs = np.where(older, own, stored)
    return log_probs, np.where(older, log_probs - stored, np.float32(0.0))


def described(log_ratios: Floats, weights: Floats, clip: float) -> tuple[float, float, float]:
    """Return the values of IMPORTANCE for log ratios [M], of which each counts by its weight [M], with the sum 1."""
    if not len(log_ratios):
        return 1.0, 1.0, 0.0
    kept = importance_of(log_ratios, clip)
    return float(kept @ weights), float(kept.max()), float((kept >= clip) @ weights)


def importance_of(log_ratios: Floats, clip: float) -> Floats:
    """Return the importance weights of log ratios, float32 [M]."""
    with np.errstate(over="ignore"):
        return np.minimum(np.exp(log_ratios), np.float32(clip))


def weighted(advantages: Tensor, importance: Tensor, rows: Tensor | None, normalizes: bool) -> Tensor:
    """Return advantages [N] of which those of `rows` are normalised, if asked, and have their importance weights [N].

    rows: int64 [M]; None: all. The others are undefined.
    """
    some = advantages if rows is None else advantages.index_select(0, rows)
    if normalizes and len(some) > 1:
        some = (some - some.mean()) / (some.std() + EPSILON)
    some = some * (importance if rows is None else importance.index_select(0, rows))
    return some if rows is None else torch.empty_like(advantages).index_copy_(0, rows, some)
