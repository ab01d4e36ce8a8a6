"""Statistics of scores of several seeds, after Agarwal et al. 2021.

The protocol is that of "Deep reinforcement learning at the edge of the statistical precipice" and of its library,
rliable: one score per task and seed, interquartile means, and percentile intervals of a stratified bootstrap, which
draws seeds with replacement within each task. `tests/peers/test_rliable.py` compares the two.

`Scores` has one array per task, [N] or with resamples [R, N]; N, the number of seeds, may differ between tasks. All
estimates work along the last axis, so that one call computes thousands of resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000  # of a bootstrap: the ends of a 95 % interval then move by about 1 % of its width
TOGETHER = 1000  # most resamples computed in one call
MOST_PAIRS = 10_000_000  # pairs of seeds in one call: they take 80 MB
TRIMMED = 0.25  # share of the scores that the interquartile mean leaves out at each end
LEAST_SEEDS = 2  # fewer have no spread to resample

Doubles: TypeAlias = NDArray[np.float64]
Scores: TypeAlias = Sequence[Doubles]
Estimate: TypeAlias = Callable[[Scores], Doubles]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the ends of its interval, which are infinite if every task has fewer than LEAST_SEEDS seeds."""

    value: float
    low: float
    high: float


def interquartile_mean(scores: Scores) -> Doubles:
    """Return the mean of the middle half of all scores: a quarter of them, rounded down, is left out at each end."""
    every = np.sort(np.concatenate(scores, axis=-1), axis=-1)
    count = every.shape[-1]
    cut = int(TRIMMED * count)
    return np.asarray(every[..., cut : count - cut].mean(axis=-1))


def mean(scores: Scores) -> Doubles:
    """Return the mean over tasks of the mean over seeds."""
    return np.asarray(np.mean([task.mean(axis=-1) for task in scores], axis=0))


def median(scores: Scores) -> Doubles:
    """Return the median over tasks of the mean over seeds."""
    return np.asarray(np.median([task.mean(axis=-1) for task in scores], axis=0))


def probability_of_improvement(scores: Scores) -> Doubles:
    """Return the probability that a seed of X scores above one of Y, mean over tasks. Ties count half.

    scores: X and Y of each task in turn. It is the statistic U of Mann and Whitney, divided by the number of pairs.
    """
    pairs = zip(scores[::2], scores[1::2], strict=True)
    found = [np.sign(x[..., :, None] - y[..., None, :]).mean(axis=(-2, -1)) / 2.0 + 0.5 for x, y in pairs]
    return np.asarray(np.mean(found, axis=0))


def bootstrap(estimate: Estimate, scores: Scores, level: float = 0.95, seed: int = 0) -> Interval:
    """Return an estimate with its percentile interval of probability `level`; each task is resampled by itself.

    seed: of the resamples, so that the same scores always have the same interval.
    """
    value = float(estimate(scores))
    if max(len(task) for task in scores) < LEAST_SEEDS:
        return Interval(value, float("-inf"), float("inf"))
    generator = np.random.default_rng(seed)
    seeds = max(len(task) for task in scores)
    together = max(1, min(TOGETHER, MOST_PAIRS // seeds**2))
    found = [
        estimate([_resampled(task, min(together, RESAMPLES - done), generator) for task in scores])
        for done in range(0, RESAMPLES, together)
    ]
    low, high = np.quantile(np.concatenate(found), [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(value, float(low), float(high))


def _resampled(task: Doubles, count: int, generator: np.random.Generator) -> Doubles:
    """Return resamples [count, N] of the scores [N] of one task."""
    return np.asarray(task[generator.integers(0, len(task), (count, len(task)))])


def first_at_least(values: Doubles, threshold: float) -> int | None:
    """Return the index of the first of `values` [N] that has reached the threshold; None if there is none."""
    reached = np.flatnonzero(values >= threshold)
    return int(reached[0]) if len(reached) else None


def rolling_mean(values: Doubles, window: int) -> Doubles:
    """Return the mean of each value [N], N >= 1, and of up to `window` - 1 values before it."""
    window = min(window, len(values))
    # Each window is summed by itself: differences of running sums would lose all values after a very large one.
    whole = np.lib.stride_tricks.sliding_window_view(values, window).mean(axis=-1)
    return np.concatenate([np.cumsum(values[: window - 1]) / np.arange(1, window), whole])
