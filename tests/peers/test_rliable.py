"""The statistics of `hive compare` are those of rliable: estimates to 1e-9, intervals within the error of a bootstrap.

Needs `pip install '.[peers]'`; without it these tests are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hive.comparison import statistics
from hive.comparison.statistics import Scores, bootstrap

pytestmark = pytest.mark.full(reason="needs the extra `peers`")
metrics = pytest.importorskip("rliable.metrics", reason="pip install '.[peers]'")
library = pytest.importorskip("rliable.library", reason="pip install '.[peers]'")

EXACT = 1e-9
RESAMPLES = 3000  # number for rliable, which computes one at a time
BOOTSTRAP_ERROR = 0.08  # share of the width of an interval: four deviations of an end from RESAMPLES resamples
SHAPES = [(3, 1), (4, 2), (5, 1), (7, 3), (10, 6)]  # seeds, tasks

ESTIMATES = [
    (statistics.interquartile_mean, metrics.aggregate_iqm),
    (statistics.mean, metrics.aggregate_mean),
    (statistics.median, metrics.aggregate_median),
]


def matrix(seeds: int, tasks: int, number: int = 0) -> NDArray[np.float64]:
    """Return scores [seeds, tasks] with ties, as rliable takes them."""
    return np.random.default_rng(number).normal(100.0, 30.0, (seeds, tasks)).round()


def tasks_of(*matrices: NDArray[np.float64]) -> Scores:
    """Return the same scores as hive takes them: of each task, one array of each matrix."""
    return [scores[:, task] for task in range(matrices[0].shape[1]) for scores in matrices]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("ours", "theirs"), ESTIMATES)
def test_estimates_are_equal(ours: Callable[..., Any], theirs: Callable[..., Any], shape: tuple[int, int]) -> None:
    scores = matrix(*shape)
    assert float(ours(tasks_of(scores))) == pytest.approx(theirs(scores), abs=EXACT)


@pytest.mark.parametrize("shape", SHAPES)
def test_probabilities_of_improvement_are_equal(shape: tuple[int, int]) -> None:
    x, y = matrix(*shape), matrix(shape[0] + 2, shape[1], 1)
    ours = float(statistics.probability_of_improvement(tasks_of(x, y)))
    assert ours == pytest.approx(metrics.probability_of_improvement(x, y), abs=EXACT)


def assert_close(ours: statistics.Interval, theirs: NDArray[np.float64]) -> None:
    low, high = theirs.ravel()
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=BOOTSTRAP_ERROR * (high - low))


@pytest.mark.parametrize(("ours", "theirs"), ESTIMATES)
def test_intervals_agree(ours: Callable[..., Any], theirs: Callable[..., Any]) -> None:
    scores = matrix(8, 5)
    np.random.seed(0)  # noqa: NPY002  rliable draws from the global generator
    _, found = library.get_interval_estimates({"a": scores}, lambda x: np.array([theirs(x)]), reps=RESAMPLES)
    assert_close(bootstrap(ours, tasks_of(scores)), found["a"])


def test_intervals_of_the_probability_of_improvement_agree() -> None:
    x, y = matrix(8, 3), matrix(10, 3, 1)
    np.random.seed(0)  # noqa: NPY002
    _, found = library.get_interval_estimates(
        {"a": [x, y]}, lambda *both: np.array([metrics.probability_of_improvement(*both)]), reps=RESAMPLES
    )
    assert_close(bootstrap(statistics.probability_of_improvement, tasks_of(x, y)), found["a"])
