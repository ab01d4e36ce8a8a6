"""Statistics of scores, against values computed by hand and by rliable 1.2.0 (`tests/peers/test_rliable.py`)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hive.comparison import statistics
from hive.comparison.statistics import (
    Doubles,
    Interval,
    Scores,
    bootstrap,
    first_at_least,
    interquartile_mean,
    mean,
    median,
    probability_of_improvement,
    rolling_mean,
)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([1.0], 1.0), ([0.0, 1.0, 2.0, 100.0], 1.5), ([0.0, 3.0, 9.0], 4.0), ([5.0] * 7, 5.0), ([9.0, 1, 2, 3, -9], 2.0)],
)
def test_the_interquartile_mean_leaves_out_a_quarter_rounded_down_at_each_end(
    scores: list[float], expected: float
) -> None:
    assert interquartile_mean([np.asarray(scores)]) == pytest.approx(expected)


def test_mean_and_median_are_of_the_means_of_tasks() -> None:
    scores = [np.array([1.0, 3.0]), np.array([10.0]), np.array([4.0, 4.0, 7.0])]
    assert (float(mean(scores)), float(median(scores))) == pytest.approx((17.0 / 3.0, 5.0))


def test_ties_count_half_in_the_probability_of_improvement() -> None:
    x, y = np.array([1.0, 2.0]), np.array([0.0, 2.0, 3.0])
    assert float(probability_of_improvement([x, y])) == pytest.approx(2.5 / 6.0)
    assert float(probability_of_improvement([x, x])) == 0.5
    assert float(probability_of_improvement([x, y, y, x])) == pytest.approx(0.5), "the mean over tasks"


@pytest.mark.parametrize("estimate", [interquartile_mean, mean, median])
def test_estimates_of_resamples_are_those_of_each_resample(estimate: object) -> None:
    assert callable(estimate)
    scores = [np.random.default_rng(task).normal(size=(5, 3 + task)) for task in range(3)]
    each = [estimate([task[index] for task in scores]) for index in range(5)]
    np.testing.assert_allclose(estimate(scores), each)


def test_an_interval_covers_the_mean_of_normal_scores_as_the_theory_says() -> None:
    scores = np.random.default_rng(1).normal(size=400)
    found = bootstrap(mean, [scores], 0.9)
    deviation = scores.std() / math.sqrt(400)
    assert found.value == pytest.approx(scores.mean())
    assert (found.low, found.high) == pytest.approx(
        (scores.mean() - 1.645 * deviation, scores.mean() + 1.645 * deviation), abs=0.1 * deviation
    )
    assert found == bootstrap(mean, [scores], 0.9), "the same scores have the same interval"


def test_many_seeds_are_resampled_in_calls_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MOST_PAIRS", 1 << 12)
    sizes: list[tuple[int, int]] = []

    def counted(scores: Scores) -> Doubles:
        x, y = scores
        sizes.append((x.shape[0] if x.ndim == 2 else 0, x.shape[-1] * y.shape[-1]))
        return mean(scores)

    bootstrap(counted, [np.arange(30.0), np.arange(32.0)])
    assert sum(count for count, _ in sizes) == statistics.RESAMPLES
    assert max(count * pairs for count, pairs in sizes) <= 1 << 12


def test_a_single_seed_has_no_interval() -> None:
    assert bootstrap(mean, [np.array([3.0])]) == Interval(3.0, -math.inf, math.inf)


def test_a_threshold_is_reached_at_the_first_value_that_is_not_below_it() -> None:
    values = np.array([1.0, 5.0, 2.0, 5.0])
    assert (first_at_least(values, 5.0), first_at_least(values, 5.1)) == (1, None)


def test_a_rolling_mean_uses_only_past_values() -> None:
    np.testing.assert_allclose(rolling_mean(np.array([4.0, 2.0, 0.0, 6.0]), 2), [4.0, 3.0, 1.0, 3.0])
    np.testing.assert_allclose(rolling_mean(np.array([4.0, 2.0]), 9), [4.0, 3.0])
    exploded = np.array([1e20, 1.0, 2.0, 3.0])
    assert [*rolling_mean(exploded, 1)] == [*exploded]
    assert [*rolling_mean(exploded, 2)[2:]] == [1.5, 2.5]
