"""Curves of every metric, in bounded memory; the order of their names; bands."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

from hive.monitor import History
from hive.monitor.series import AXES, MOST_POINTS, RETURN, Curve, Series


def line(n: int, **values: Any) -> dict[str, Any]:
    return {"t": 1.7e9 + n, "steps": 100 * n, "updates": n, "seconds": n / 2, "episodes": n, RETURN: float(n), **values}


def series(folder: Path, *lines: dict[str, Any]) -> Series:
    path = folder / "metrics.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    made = Series(path)
    made.read()
    return made


def test_a_metric_is_a_curve_over_each_axis(tmp_path: Path) -> None:
    curve = series(tmp_path, line(1), line(2)).curve(RETURN)
    assert curve is not None
    assert [curve.points(axis) for axis in AXES] == [[(100, 1), (200, 2)], [(0.5, 1), (1, 2)], [(1, 1), (2, 2)]]


def test_user_defined_metrics_are_curves(tmp_path: Path) -> None:
    extra = {
        "curriculum/level": 3,
        "lag/policy_mean": 1.0,
        "learner/entropy": 0.5,
        "rate/x": 1.0,
        "broken": None,
        "s": "x",
    }
    names = series(tmp_path, line(1, **extra)).names
    assert names == [RETURN, "learner/entropy", "curriculum/level", "rate/x", "episodes", "lag/policy_mean"]


def test_lines_without_metrics_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(
        '{"steps": 1}\nnot json\n[1]\n{"steps": true, "updates": 1, "seconds": 1}\n'
    )
    made = Series(tmp_path / "metrics.jsonl")
    made.read()
    assert made.names == []
    assert made.curve(RETURN) is None


def test_new_lines_are_added_and_a_resumed_run_starts_again(tmp_path: Path) -> None:
    made = series(tmp_path, line(1), line(2), line(3))
    with made.tail.path.open("a") as file:
        file.write(json.dumps(line(4)) + "\n")
    made.read()
    curve = made.curve(RETURN)
    assert curve is not None
    assert len(curve.points("steps")) == 4
    made.tail.path.write_text(json.dumps(line(1)) + "\n")
    made.read()
    curve = made.curve(RETURN)
    assert curve is not None
    assert curve.points("steps") == [(100, 1)]


def test_lines_that_are_read_reach_the_history(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line(n)) + "\n" for n in range(20)))
    history = History()
    Series(path).read(history)
    assert history.rate("env_steps", 60) == 100.0


def test_a_curve_is_thinned_and_keeps_its_shape() -> None:
    curve = Curve()
    for n in range(100_000):
        curve.add(dict.fromkeys(AXES, float(n)), float(n))
    points = curve.points("steps")
    assert MOST_POINTS / 2 <= len(points) <= MOST_POINTS
    assert all(x == y for x, y in points)
    steps = {b[0] - a[0] for a, b in itertools.pairwise(points)}
    assert steps == {curve.stride}
    assert points[-1][0] > 99_000


def test_values_that_are_not_finite_are_no_points() -> None:
    curve = Curve()
    curve.add(dict.fromkeys(AXES, 1.0), math.inf)
    curve.add(dict.fromkeys(AXES, 2.0), 5.0)
    assert curve.points("steps") == [(2.0, 5.0)]


def test_an_evaluation_has_a_band(tmp_path: Path) -> None:
    found = {"evaluation/mean_return": 5.0, "evaluation/min": 1.0, "evaluation/max": 9.0}
    curve = series(tmp_path, line(1, **found)).curve("evaluation/mean_return")
    assert curve is not None
    assert [curve.points("steps", column) for column in ("low", "value", "high")] == [
        [(100, 1)],
        [(100, 5)],
        [(100, 9)],
    ]
    plain = series(tmp_path, line(1)).curve(RETURN)
    assert plain is not None
    assert plain.points("steps", "low") == []


def test_values_measured_by_the_view_are_a_curve_with_a_band(tmp_path: Path) -> None:
    made = series(tmp_path, line(1))
    made.add_group("collectors/busy", [0.2, 0.4, 0.9])
    made.add_group("nobody", [])
    curve = made.curve("collectors/busy")
    assert curve is not None
    assert curve.points("steps") == [(100, 0.5)]
    assert curve.points("steps", "high") == [(100, 0.9)]
    assert made.names[-1] == "collectors/busy"


def test_numbers_beyond_64_bits_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    huge = "9" * 400
    path.write_text(f'{{"steps": 1, "updates": 1, "seconds": 1, "a": {huge}, "b": NaN, "c": 2, "a/b": {huge}}}\n')
    series = Series(path)
    series.read()
    assert series.names == ["c"]
