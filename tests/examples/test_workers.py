"""The same update in two ways: they agree to rounding, and they learn."""

from __future__ import annotations

import numpy as np
import pytest
import workers


def test_both_ways_learn_the_same() -> None:
    coach, rlpack = workers.by_threads(150), workers.by_a_loop(150)
    assert workers.distance(coach, rlpack) < 1e-5
    untrained = workers.error(workers.by_a_loop(0))
    assert workers.error(coach) < 0.6 * untrained
    assert workers.error(coach) == pytest.approx(workers.error(rlpack), abs=1e-4)


def test_batches_follow_from_their_numbers() -> None:
    for (one, heights), (two, same) in ((workers.batch(1, 2), workers.batch(1, 2)),):
        assert np.array_equal(one, two)
        assert np.array_equal(heights, same)
    assert not np.array_equal(workers.batch(1, 2)[0], workers.batch(2, 1)[0])
