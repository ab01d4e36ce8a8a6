"""Generalised advantage estimation (Schulman et al. 2016) over all rollouts of a share, in native code.

    delta_t = r_t + discount V(s_t+1) - V(s_t)        V(s_t+1) = 0 after a termination, that of the true last
    A_t     = delta_t + discount lambda A_t+1         observation after a truncation; the sum stops at both
    R_t     = A_t + V(s_t)

and their normalisation over a whole round, whose moments are merged from any number of parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from hive import _native
from hive.algorithms.algorithm import Moments
from hive.algorithms.batches.rows import flat, unflat, values_of
from hive.algorithms.losses.actor_critic import EPSILON
from hive.experience import Rollout
from hive.learning.loss import Floats

__all__ = ["corrected_advantages", "generalised_advantages", "merged", "moments_of", "normalized", "returns_by"]


def generalised_advantages(
    rollouts: Sequence[Rollout], values: Floats, discount: float, gae_lambda: float
) -> tuple[Floats, Floats]:
    """Return advantages and lambda-returns of all acted rows, float32 [sum of T * B] each.

    values: float32 [N], those of all input rows (hive.algorithms.batches.rows).
    """
    return returns_by(_native.gae, rollouts, values, discount=discount, gae_lambda=gae_lambda)


def corrected_advantages(
    rollouts: Sequence[Rollout], values: Floats, log_ratios: Floats, discount: float, gae_lambda: float
) -> tuple[Floats, Floats]:
    """Return advantages and returns as of `generalised_advantages`, of which V-trace corrects what follows a step.

        c_t      = min(1, e^log_ratio_t)                      of the step's action (Espeholt et al. 2018, both clips 1)
        excess_t = c_t (delta_t + discount lambda excess_t+1)        R_t = V(s_t) + excess_t
        A_t      = delta_t + discount lambda excess_t+1              its own ratio is the caller's importance weight

    log_ratios: float32 [sum of T * B], of the proximal to the acting policy.
    """
    advantages, returns = [], []
    parts = zip(values_of(rollouts, values), unflat(rollouts, log_ratios), strict=True)
    for (rollout, mine, following), ratios in parts:
        ends = rollout.terminated, rollout.truncated, rollout.valid
        unused, targets = np.empty_like(mine), np.empty_like(mine)
        vtrace = partial(_native.vtrace, discount=discount, gae_lambda=gae_lambda, rho_clip=1.0, c_clip=1.0)
        vtrace(rollout.rewards, mine, following, ratios, *ends, unused, targets)
        later = np.zeros_like(mine)
        later[:-1] = (targets - mine)[1:]
        later[(rollout.terminated | rollout.truncated) > 0] = 0.0
        delta = rollout.rewards - mine + np.float32(discount) * np.where(rollout.terminated > 0, 0, following)
        advantages.append((delta + np.float32(discount * gae_lambda) * later) * (rollout.valid > 0))
        returns.append(targets)
    return flat(advantages), flat(returns)


def returns_by(
    kernel: Callable[..., None], rollouts: Sequence[Rollout], values: Floats, **options: float
) -> tuple[Floats, Floats]:
    """Return advantages and returns of all acted rows, computed by a native kernel, float32 [sum of T * B] each."""
    advantages, returns = [], []
    for rollout, mine, following in values_of(rollouts, values):
        a, r = np.empty_like(mine), np.empty_like(mine)
        steps = rollout.terminated, rollout.truncated, rollout.valid
        kernel(rollout.rewards, mine, following, *steps, a, r, **options)
        advantages.append(a)
        returns.append(r)
    return flat(advantages), flat(returns)


def moments_of(rollouts: Sequence[Rollout], advantages: Floats) -> Moments:
    """Return count, sum and sum of squares of the advantages of valid steps, accumulated in float64."""
    kept = advantages[flat([rollout.valid for rollout in rollouts]).astype(bool)].astype(np.float64)
    return Moments(len(kept), float(kept.sum()), float((kept * kept).sum()))


def merged(parts: Sequence[Moments]) -> tuple[float, float]:
    """Return mean and sample deviation (n - 1) of all parts, summed in their order; (0, 1) below two values."""
    count = sum(part.count for part in parts)
    if count < 2:
        return 0.0, 1.0
    mean = sum(part.total for part in parts) / count
    squares = sum(part.squares for part in parts) - count * mean * mean
    return mean, math.sqrt(max(squares, 0.0) / (count - 1))


def normalized(advantages: Floats, moments: tuple[float, float]) -> Floats:
    """Return the advantages shifted and scaled by (mean, standard deviation), float32."""
    mean, deviation = moments
    return ((advantages - mean) / (deviation + EPSILON)).astype(np.float32)
