"""Advantages and returns of all rollouts of a share, in native code, and their corrections.

Generalized advantage estimation (Schulman et al. 2016):

    delta_t = r_t + discount V(s_t+1) - V(s_t)        V(s_t+1) = 0 after a termination, that of the true last
    A_t     = delta_t + discount lambda A_t+1         observation after a truncation; the sum stops at both
    R_t     = A_t + V(s_t)

Advantages are normalized over a whole round, whose moments are merged from any number of parts. Rollouts of an older
policy are corrected by the decoupled objective (Hilton, Cobbe, Schulman 2022, arXiv:2110.00641):

    acting policy      made the rollout, some rounds ago
    proximal policy    has the weights of the round's first gradient; PPO clips around it
    importance weight  min(importance_clip, pi_proximal(a|s) / pi_acting(a|s)), a constant factor of the advantage

Without lag both policies are the same one, every weight is 1, and the plain objective is computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from hive import _native
from hive.algorithms.algorithm import Moments
from hive.algorithms.batches.rows import flat, row_counts, unflat, values_of
from hive.algorithms.losses.actor_critic import EPSILON, acted_log_probs
from hive.experience import Rollout
from hive.learning.loss import Floats
from hive.networks.act.distributions import ActionDistribution

IMPORTANCE = ("importance_mean", "importance_max", "importance_clipped")
"""Names of what is reported of the weights: their mean and maximum, and the share that was clipped."""


def generalized_advantages(
    rollouts: Sequence[Rollout],
    values: Floats,
    discount: float,
    gae_lambda: float,
    log_ratios: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Return advantages and lambda-returns of all acted rows, float32 [sum of T * B] each.

    values: float32 [N], those of all input rows (hive.algorithms.batches.rows). log_ratios: as for `vtrace_advantages`,
    which computes both if they are given.
    """
    if log_ratios is not None:
        return vtrace_advantages(rollouts, values, discount, gae_lambda, log_ratios)
    return returns_by(_native.gae, rollouts, values, discount=discount, gae_lambda=gae_lambda)


def vtrace_advantages(
    rollouts: Sequence[Rollout], values: Floats, discount: float, gae_lambda: float, log_ratios: Floats
) -> tuple[Floats, Floats]:
    """Return the same, with the steps after each one corrected by V-trace (Espeholt et al. 2018, both clips 1).

    log_ratios: float32 [sum of T * B], log pi_proximal - log pi_acting of each step's action.

        c_t      = min(1, e^log_ratio_t)
        excess_t = c_t (delta_t + discount lambda excess_t+1)
        R_t      = V(s_t) + excess_t
        A_t      = delta_t + discount lambda excess_t+1

    A_t lacks the factor c_t: the loss weights each advantage by the importance of its own step.
    """
    advantages, returns = [], []
    vtrace = partial(_native.vtrace, discount=discount, gae_lambda=gae_lambda, rho_clip=1.0, c_clip=1.0)
    parts = zip(values_of(rollouts, values), unflat(rollouts, log_ratios), strict=True)
    for (rollout, current, following), ratios in parts:
        ends = rollout.terminated, rollout.truncated, rollout.valid
        unused, targets = np.empty_like(current), np.empty_like(current)
        vtrace(rollout.rewards, current, following, ratios, *ends, unused, targets)
        later = np.zeros_like(current)
        later[:-1] = (targets - current)[1:]
        later[(rollout.terminated | rollout.truncated) > 0] = 0.0
        delta = rollout.rewards - current + np.float32(discount) * np.where(rollout.terminated > 0, 0, following)
        corrected = delta + np.float32(discount * gae_lambda) * later
        advantages.append(np.where(rollout.valid > 0, corrected, np.float32(0.0)))
        returns.append(targets)
    return flat(advantages), flat(returns)


def returns_by(
    kernel: Callable[..., None], rollouts: Sequence[Rollout], values: Floats, **options: float
) -> tuple[Floats, Floats]:
    """Return advantages and returns of all acted rows, computed by a native kernel, float32 [sum of T * B] each."""
    advantages, returns = [], []
    for rollout, current, following in values_of(rollouts, values):
        a, r = np.empty_like(current), np.empty_like(current)
        steps = rollout.terminated, rollout.truncated, rollout.valid
        kernel(rollout.rewards, current, following, *steps, a, r, **options)
        advantages.append(a)
        returns.append(r)
    return flat(advantages), flat(returns)


def advantage_moments(rollouts: Sequence[Rollout], advantages: Floats) -> Moments:
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


def is_corrected(rollouts: Sequence[Rollout], importance_clip: float) -> bool:
    """Return whether advantages have importance weights: an older policy made one of the rollouts. clip 0: never."""
    return importance_clip > 0 and any(rollout.lagged for rollout in rollouts)


def proximal(rollouts: Sequence[Rollout], distribution: ActionDistribution, outputs: Floats) -> tuple[Floats, Floats]:
    """Return log pi_proximal and log pi_proximal - log pi_acting of all acted rows, float32 [sum of T * B] each.

    outputs: the policy's, float32 [N, W], of all input rows. Rollouts without lag keep the log-probabilities that they
    store, with a difference of 0; so do rows that are not valid.
    """
    stored = flat([rollout.log_probs for rollout in rollouts])
    actions = torch.from_numpy(flat([rollout.actions for rollout in rollouts]))
    own = acted_log_probs(distribution, outputs, actions, row_counts(rollouts))
    older = flat([(rollout.valid != 0) & rollout.lagged for rollout in rollouts])
    log_probs = np.where(older, own, stored)
    return log_probs, np.where(older, log_probs - stored, np.float32(0.0))


def importance_statistics(log_ratios: Floats | None, weights: Floats, clip: float) -> tuple[float, float, float]:
    """Return mean, maximum and clipped share of the importance weights of M steps, as IMPORTANCE names them.

    log_ratios: float32 [M]; None without lag, where all are 0. weights: float32 [M] with the sum 1, the share of each
    step in the mean. clip: the greatest importance weight; 0 for no limit.
    """
    if not len(weights):
        return 1.0, 1.0, 0.0
    limit = clip or math.inf
    kept = importance_of(np.zeros_like(weights) if log_ratios is None else log_ratios, limit)
    return float(kept @ weights), float(kept.max()), float((kept >= limit) @ weights)


def importance_of(log_ratios: Floats, clip: float) -> Floats:
    """Return the importance weights of log ratios, float32 [M]."""
    with np.errstate(over="ignore"):
        return np.minimum(np.exp(log_ratios), np.float32(clip))


def weighted(advantages: Tensor, importance: Tensor, rows: Tensor | None, normalizes: bool) -> Tensor:
    """Return advantages [N] of which those of `rows` are normalized, if asked, and have their importance weights [N].

    rows: int64 [M]; None: all. The others are undefined.
    """
    some = advantages if rows is None else advantages.index_select(0, rows)
    if normalizes and len(some) > 1:
        some = (some - some.mean()) / (some.std() + EPSILON)
    some = some * (importance if rows is None else importance.index_select(0, rows))
    return some if rows is None else torch.empty_like(advantages).index_copy_(0, rows, some)
