"""`bench tree`: all ways write and draw what they should, checks compare medians."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.tree import HiveTree, NumpyTree, checks_of
from benchmarks.tree_rates import ALPHA, BATCH, EPSILON, rates_of

ROWS = 1000


def measured(updates: float, samples: float) -> dict[str, list[dict[str, float]]]:
    """Return hive's given rates, with one slow repetition; the NumPy tree has 1 M/s."""
    rates = {"updates_per_s": updates, "samples_per_s": samples}
    ones = {"updates_per_s": 1e6, "samples_per_s": 1e6}
    return {"hive": [rates, ones, rates], "NumPy": [ones] * 3}


@pytest.mark.parametrize(("rates", "passed"), [((5e6, 2e6), [True, True]), ((4.9e6, 1.9e6), [False, False])])
def test_checks_compare_medians_with_the_promises(rates: tuple[float, float], passed: list[bool]) -> None:
    assert [check.passed for check in checks_of(measured(*rates))] == passed


@pytest.mark.parametrize("make", [HiveTree, NumpyTree])
def test_every_way_is_timed(make: type[HiveTree] | type[NumpyTree]) -> None:
    way = make(ROWS)
    rates = rates_of(way, 0.01, ROWS)
    assert min(rates.values()) > 0
    rows = way.draw(3)
    assert len(rows) == BATCH
    assert 0 <= rows.min() <= rows.max() < ROWS


def test_both_trees_hold_the_powers_of_the_errors() -> None:
    rows, errors = np.array([3, 999, 3]), np.array([1.0, 2.0, 4.0], np.float32)
    hive, numpy = HiveTree(ROWS), NumpyTree(ROWS)
    for way in (hive, numpy):
        way.write(rows, errors)
    expected = (errors[1:].astype(float) + EPSILON) ** ALPHA
    assert hive.tree.leaves[[999, 3]] / 2**20 == pytest.approx(expected, rel=1e-5)
    assert numpy.sums[numpy.first + np.array([999, 3])] == pytest.approx(expected)
    assert numpy.sums[1] == pytest.approx(numpy.sums[numpy.first :].sum())


def test_the_numpy_tree_finds_the_row_of_a_point() -> None:
    tree = NumpyTree(5)
    tree.put(np.arange(5), np.array([1.0, 0.0, 2.0, 0.5, 0.5]))
    assert tree.rows_at(np.array([0.0, 0.9, 1.0, 2.9, 3.0, 3.6])).tolist() == [0, 0, 2, 2, 3, 4]
