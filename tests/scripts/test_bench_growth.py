"""`bench growth`: lines through measured costs, and the costs of a run's figures."""

from __future__ import annotations

import pytest
from benchmarks.growth import AXES, costs_of, fit, lines_of


def test_a_line_through_exact_costs_explains_all_and_through_others_less() -> None:
    line = fit([1, 2, 4], [5.0, 7.0, 11.0])
    assert (line.fixed, line.slope, line.explained) == pytest.approx((3.0, 2.0, 1.0))
    assert fit([1, 2, 3, 4], [1.0, 2.0, 1.0, 2.0]).explained == pytest.approx(0.2)
    with pytest.raises(ValueError, match="two different sizes"):
        fit([2, 2], [1.0, 2.0])


def test_costs_are_milliseconds_of_an_update_and_of_a_second_for_the_runtime() -> None:
    cores = {
        "supervisor": 0.01,
        "fork-server": 0.0,
        "recorder": 0.02,
        "learner-0 + gradient-worker-0": 0.5,
        "collector-0": 0.1,
        "collector-1": 0.2,
        "gradient-worker-1": 0.4,
        "host-a": 0.03,
        "a/supervisor": 0.5,
    }
    costs = costs_of({"cpu_cores_of": cores, "updates_per_s": 10.0})
    assert costs == pytest.approx(
        {
            "learner": 50.0,
            "collectors": 30.0,
            "gradient workers": 40.0,
            "link": 3.0,
            "runtime": 30.0,
            "updates_per_s": 10.0,
        }
    )


def test_the_table_shows_medians_and_lines() -> None:
    axis = AXES[1]
    rows = [
        {"axis": axis.name, "units": units, "figure": figure, "value": value}
        for units in axis.units
        for figure in (*axis.figures, "updates_per_s")
        for value in (units, 2 * units, 9 * units)
    ]
    text = "\n".join(lines_of([axis], rows))
    assert "100.0%" in text
    assert "2.000" in text
