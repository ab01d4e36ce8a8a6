"""Curves as JSON."""

from __future__ import annotations

from pathlib import Path

from hive.monitor.series import Series
from hive.records.documents import json_text
from hive.web.curves import POINTS_SENT, LineTimes, curves_document


def test_curves_share_places_and_are_thinned(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [
        {"t": 1.7e9 + n, "steps": n * 100, "updates": n, "seconds": n / 2, "a": n / 3, "b": None if n < 9 else 1.0}
        for n in range(1500)
    ]
    path.write_text("".join(json_text(line) + "\n" for line in lines))
    series, clock = Series(path), LineTimes()
    series.read()
    for line in lines:
        clock.add(line)
    clock.add({"t": 1.0})
    document = curves_document(series, clock)
    curves, places = document["curves"], document["places"]
    assert len(places) == 2
    assert curves["a"]["place"] == curves["t"]["place"] != curves["b"]["place"]
    steps = places[curves["a"]["place"]]["steps"]
    assert len(steps) == len(curves["a"]["value"]) <= POINTS_SENT + 1
    assert (steps[0], steps[-1], curves["a"]["value"][-1]) == (0, 149_900, 499.667)
    assert curves["t"]["value"][-1] == 1.7e9 + 1499


def test_bands_are_sent_where_a_metric_has_them(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    line = {"steps": 1, "updates": 1, "seconds": 1, "evaluation/mean_return": 2.0, "evaluation/min": 1.0}
    path.write_text(json_text(line | {"evaluation/max": 3.0}) + "\n")
    series = Series(path)
    series.read()
    curves = curves_document(series, LineTimes())["curves"]
    assert (curves["evaluation/mean_return"]["low"], curves["evaluation/mean_return"]["high"]) == ([1.0], [3.0])
    assert "low" not in curves["evaluation/min"]
    assert curves["t"]["value"] == []
