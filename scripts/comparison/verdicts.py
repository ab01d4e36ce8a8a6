"""Statistics of cells: interquartile means, bootstrap intervals, probability of improvement, and the verdict.

The protocol is that of rliable (Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical
precipice"): scores per task and seed, aggregated by the interquartile mean, with stratified bootstrap intervals, which
draw seeds with replacement within each task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Difference", "Interval", "difference", "improvement", "interquartile_mean", "overall"]

RESAMPLES = 10_000  # of a bootstrap: the ends of a 95 % interval then move by about 1 % of its width
TOLERANCE = 0.1  # share of (peer - random policy) by which hive may lie below the peer
LEAST_SEEDS = 2  # fewer have no spread to resample

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Difference:
    """hive minus peer in one task, in shares of (peer - random policy), with its 90 % interval.

    verdict: "not worse" where the interval lies above -TOLERANCE, "worse" where it lies below, else "undecided".
    """

    share: Interval
    verdict: str


def interquartile_mean(scores: Floats) -> float:
    """The mean of the middle half of all scores [N]; with N not divisible by 4, its ends count in part."""
    ordered = np.sort(np.asarray(scores, np.float64).ravel())
    count = len(ordered)
    edges = np.arange(count + 1) / count
    inside = np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25)
    weights = np.clip(inside, 0.0, None)
    return float(ordered @ weights / weights.sum())


def bootstrap(
    estimate: Callable[[list[Floats]], float], groups: Sequence[Floats], level: float, generator: np.random.Generator
) -> Interval:
    """The percentile interval of an estimate of several groups, each resampled on its own."""
    found = np.empty(RESAMPLES)
    for index in range(RESAMPLES):
        found[index] = estimate([group[generator.integers(0, len(group), len(group))] for group in groups])
    low, high = np.quantile(found, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(estimate(list(groups)), float(low), float(high))


def difference(hive: Sequence[float], peer: Sequence[float], random_policy: float) -> Difference:
    """Mean return per seed of both trainers, compared as the project's rule says: see Difference."""
    ours, theirs = np.asarray(hive, np.float64), np.asarray(peer, np.float64)
    scale = float(theirs.mean()) - random_policy

    def share(groups: list[Floats]) -> float:
        return float(groups[0].mean() - groups[1].mean()) / scale

    if scale <= 0.0 or min(len(ours), len(theirs)) < LEAST_SEEDS:
        value = share([ours, theirs]) if scale > 0.0 else float("nan")
        return Difference(Interval(value, float("-inf"), float("inf")), "undecided")
    found = bootstrap(share, [ours, theirs], 0.9, np.random.default_rng(0))
    worse, better = found.high < -TOLERANCE, found.low > -TOLERANCE
    return Difference(found, "not worse" if better else "worse" if worse else "undecided")


def improvement(hive: Mapping[str, Sequence[float]], peer: Mapping[str, Sequence[float]]) -> Interval:
    """The probability that a seed of hive scores above one of the peer, mean over tasks; ties count half."""
    tasks = sorted(hive.keys() & peer.keys())
    groups = [np.asarray(trainer[task], np.float64) for task in tasks for trainer in (hive, peer)]

    def probability(drawn: list[Floats]) -> float:
        pairs = zip(drawn[::2], drawn[1::2], strict=True)
        return float(np.mean([np.mean(np.sign(a[:, None] - b[None, :]) / 2.0 + 0.5) for a, b in pairs]))

    return bootstrap(probability, groups, 0.95, np.random.default_rng(0))


def overall(
    hive: Mapping[str, Sequence[float]], peer: Mapping[str, Sequence[float]], random_policy: Mapping[str, float]
) -> Interval:
    """The interquartile mean of hive's scores over all tasks and seeds: a random policy has 0, the peer's mean 1."""
    tasks = sorted(hive.keys() & peer.keys())
    scores = []
    for task in tasks:
        low, high = random_policy[task], float(np.mean(peer[task]))
        scores.append((np.asarray(hive[task], np.float64) - low) / (high - low))
    return bootstrap(lambda drawn: interquartile_mean(np.concatenate(drawn)), scores, 0.95, np.random.default_rng(0))
