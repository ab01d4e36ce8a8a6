"""Curves are drawn as a median and a band where all seeds have values."""

from __future__ import annotations

import numpy as np

from hive.comparison.picture import GRID_POINTS, draw_curves, draw_intervals, new_figure
from hive.comparison.statistics import Doubles, Interval


def line(*values: float, first: float = 0.0) -> tuple[Doubles, Doubles]:
    return np.arange(len(values)) + first, np.array(values)


def test_the_median_covers_the_range_of_all_seeds() -> None:
    _, (axes,) = new_figure(4.0, 3.0)
    draw_curves(axes, {"a": [line(0, 0, 0, 0), line(1, 1, 1, first=1), line(5, 5, 5)]}, xlabel="steps")
    middle = axes.get_lines()[-1]
    x, y = np.asarray(middle.get_xdata()), np.asarray(middle.get_ydata())
    assert (len(x), x[0], x[-1], {*y}) == (GRID_POINTS, 1.0, 2.0, {1.0})
    assert len(axes.collections) == 1, "the band"


def test_seeds_without_a_common_range_are_marked_and_have_no_median() -> None:
    _, (axes,) = new_figure(4.0, 3.0)
    draw_curves(axes, {"none": [], "a": [line(1.0), line(2.0, first=5)]}, xlabel="steps")
    assert [curve.get_marker() for curve in axes.get_lines()] == ["o", "o"]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["a (2)"]


def test_a_group_without_values_keeps_its_row() -> None:
    _, (axes,) = new_figure(4.0, 3.0)
    draw_intervals(axes, [("a", [1.0, 3.0], Interval(2.0, 1.0, 3.0)), ("b", [], None)], xlabel="return")
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "b"]
