"""`bench tree`: all ways write and draw what they should, checks compare medians, ways are measured in turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.command import parser
from benchmarks.tree import measure_trees, ways
from benchmarks.tree_rates import ALPHA, BATCH, EPSILON, rates_of
from benchmarks.tree_report import checks_of, document_of, text_of
from benchmarks.tree_ways import WAYS, HiveTree, NumpyTree, WholeHive, WholeNumpy

ROWS = 1000


def measured(updates: float, samples: float) -> dict[str, list[dict[str, float]]]:
    """Return hive's given rates, with one slow repetition; the NumPy tree has 1 M/s."""
    rates = {"updates_per_s": updates, "samples_per_s": samples}
    ones = {"updates_per_s": 1e6, "samples_per_s": 1e6}
    return {"whole/hive": [rates, ones, rates], "whole/NumPy": [ones] * 3}


@pytest.mark.parametrize(("rates", "passed"), [((5e6, 2e6), [True, True]), ((4.9e6, 1.9e6), [False, False])])
def test_checks_compare_medians_with_the_promises(rates: tuple[float, float], passed: list[bool]) -> None:
    assert [check.passed for check in checks_of(measured(*rates))] == passed


def test_the_report_shows_rates_and_ratios() -> None:
    text = text_of(measured(6e6, 3e6), 3, [0.1, 0.1])
    assert "6.00 (1.00..6.00)" in text
    assert "Not a quiet machine" not in text
    document = document_of(measured(6e6, 3e6), 1.0, {})
    assert document["measured"]["whole/hive"][0] == {"updates_per_s": 6e6, "samples_per_s": 3e6}


def test_ways_are_measured_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(
        "benchmarks.tree.run_program", lambda words, seconds, variables, rate: {rate: float(len(words))}
    )
    found = measure_trees(["whole/hive", "tree/NumPy"], 2, 1.0, Path("/none"), told.append)
    assert found == {name: [{"samples_per_s": 5.0}] * 2 for name in ("whole/hive", "tree/NumPy")}
    assert told == ["1/2 whole/hive", "1/2 tree/NumPy", "2/2 whole/hive", "2/2 tree/NumPy"]
    assert set(ways(peers=False)) == set(WAYS)
    assert set(ways(peers=True)) - set(WAYS) == {"whole/TorchRL", "tree/TorchRL"}


def test_the_command() -> None:
    options = parser().parse_args(["tree", "--no-peers", "--repetitions", "2"])
    assert (options.peers, options.repetitions, options.seconds) == (False, 2, 2.0)


@pytest.mark.parametrize("make", [WholeHive, HiveTree, WholeNumpy, NumpyTree])
def test_every_way_is_timed(make: type[WholeHive] | type[NumpyTree]) -> None:
    way = make(ROWS)
    rates = rates_of(way, 0.01, ROWS)
    assert min(rates.values()) > 0
    rows = way.draw(3)
    assert len(rows) == BATCH
    assert 0 <= rows.min() <= rows.max() < ROWS


def test_both_trees_hold_the_powers_of_the_errors() -> None:
    rows, errors = np.array([3, 999, 3]), np.array([1.0, 2.0, 4.0], np.float32)
    hive, numpy = WholeHive(ROWS), WholeNumpy(ROWS)
    for way in (hive, numpy):
        way.write(rows, errors)
    expected = (errors[1:].astype(float) + EPSILON) ** ALPHA
    assert hive.tree.leaves[[999, 3]] / 2**20 == pytest.approx(expected, rel=1e-5)
    assert numpy.sums[numpy.first + np.array([999, 3])] == pytest.approx(expected)
    assert numpy.sums[1] == pytest.approx(numpy.sums[numpy.first :].sum())


def test_the_numpy_tree_finds_the_row_of_a_point() -> None:
    tree = NumpyTree(5)
    tree.put(np.arange(5), np.array([1.0, 0.0, 2.0, 0.5, 0.5]))
    assert tree.find(np.array([0.0, 0.9, 1.0, 2.9, 3.0, 3.6])).tolist() == [0, 0, 2, 2, 3, 4]
