"""Judges the scores of a comparison: the verdict of one task, and the score over all tasks.

The statistics, and the protocol that they follow, are those of `hive.comparison.statistics`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hive.comparison.statistics import (
    LEAST_SEEDS,
    Doubles,
    Interval,
    Scores,
    bootstrap,
    interquartile_mean,
    probability_of_improvement,
)

TOLERANCE = 0.1  # share of (peer - random policy) by which hive may lie below the peer


@dataclass(frozen=True, slots=True)
class Difference:
    """hive minus peer in one task, in shares of (peer - random policy), with its 90 % interval.

    verdict: "not worse" where the interval lies above -TOLERANCE, "worse" where it lies below, else "undecided".
    """

    share: Interval
    verdict: str


def difference(hive: Sequence[float], peer: Sequence[float], random_policy: float) -> Difference:
    """Mean return per seed of both trainers, compared as the project's rule says: see Difference."""
    ours, theirs = np.asarray(hive, np.float64), np.asarray(peer, np.float64)
    scale = float(theirs.mean()) - random_policy

    def share(groups: Scores) -> Doubles:
        return np.asarray((groups[0].mean(axis=-1) - groups[1].mean(axis=-1)) / scale)

    if scale <= 0.0 or min(len(ours), len(theirs)) < LEAST_SEEDS:
        value = float(share([ours, theirs])) if scale > 0.0 else float("nan")
        return Difference(Interval(value, float("-inf"), float("inf")), "undecided")
    found = bootstrap(share, [ours, theirs], 0.9)
    worse, better = found.high < -TOLERANCE, found.low > -TOLERANCE
    return Difference(found, "not worse" if better else "worse" if worse else "undecided")


def improvement(hive: Mapping[str, Sequence[float]], peer: Mapping[str, Sequence[float]]) -> Interval:
    """The probability that a seed of hive scores above one of the peer, mean over tasks; ties count half."""
    tasks = sorted(hive.keys() & peer.keys())
    groups = [np.asarray(trainer[task], np.float64) for task in tasks for trainer in (hive, peer)]
    return bootstrap(probability_of_improvement, groups)


def overall(
    hive: Mapping[str, Sequence[float]], peer: Mapping[str, Sequence[float]], random_policy: Mapping[str, float]
) -> Interval:
    """The interquartile mean of hive's scores over all tasks and seeds: a random policy has 0, the peer's mean 1."""
    tasks = sorted(hive.keys() & peer.keys())
    scores = []
    for task in tasks:
        low, high = random_policy[task], float(np.mean(peer[task]))
        scores.append((np.asarray(hive[task], np.float64) - low) / (high - low))
    return bootstrap(interquartile_mean, scores)
