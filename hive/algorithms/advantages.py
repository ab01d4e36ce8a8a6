"""Generalised advantage estimation (Schulman et al. 2016) over all rollouts of a share, natively.

    delta_t = r_t + discount V(s_t+1) - V(s_t)        V(s_t+1) = 0 after a termination, that of the true last
    A_t     = delta_t + discount lambda A_t+1         observation after a truncation; the sum stops at both
    R_t     = A_t + V(s_t)

and their normalisation over everything that a round has, in however many parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hive import _native
from hive.algorithms.algorithm import Moments
from hive.algorithms.rows import flat, values_of
from hive.losses import Floats
from hive.storage import Rollout

__all__ = ["generalised_advantages", "merged", "moments_of", "normalized", "returns_by"]

EPSILON = 1e-8  # keeps the normalisation of constant advantages finite


def generalised_advantages(
    rollouts: Sequence[Rollout], values: Floats, discount: float, gae_lambda: float
) -> tuple[Floats, Floats]:
    """Advantages and lambda-returns of all acted rows, each [sum of T * B]. `values` [N] are those of all inputs."""
    return returns_by(_native.gae, rollouts, values, discount=discount, gae_lambda=gae_lambda)


def returns_by(
    kernel: Callable[..., None], rollouts: Sequence[Rollout], values: Floats, **options: float
) -> tuple[Floats, Floats]:
    """Advantages and returns of all acted rows as a native kernel makes them, each [sum of T * B]."""
    advantages, returns = [], []
    for rollout, mine, following in values_of(rollouts, values):
        a, r = np.empty_like(mine), np.empty_like(mine)
        steps = rollout.terminated, rollout.truncated, rollout.valid
        kernel(rollout.rewards, mine, following, *steps, a, r, **options)
        advantages.append(a)
        returns.append(r)
    return flat(advantages), flat(returns)


def moments_of(rollouts: Sequence[Rollout], advantages: Floats) -> Moments:
    """Count, sum and sum of squares of the valid ones of these advantages, in double precision."""
    kept = advantages[flat([rollout.valid for rollout in rollouts]).astype(bool)].astype(np.float64)
    return Moments(len(kept), float(kept.sum()), float((kept * kept).sum()))


def merged(parts: Sequence[Moments]) -> tuple[float, float]:
    """Mean and sample deviation (n - 1) of everything that the parts have counted, added up in their order.

    One value has no deviation: (0, 1) leaves it as it is, as for none.
    """
    count = sum(part.count for part in parts)
    if count < 2:
        return 0.0, 1.0
    mean = sum(part.total for part in parts) / count
    squares = sum(part.squares for part in parts) - count * mean * mean
    return mean, math.sqrt(max(squares, 0.0) / (count - 1))


def normalized(advantages: Floats, moments: tuple[float, float]) -> Floats:
    """Shifted by this mean and scaled by this deviation."""
    mean, deviation = moments
    return ((advantages - mean) / (deviation + EPSILON)).astype(np.float32)
