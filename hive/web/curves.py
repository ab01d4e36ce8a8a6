"""The curves of a run as JSON: for a page that has none yet.

Metrics with the same places on the axes share them. The curve `t` (seconds since 1970) is sent too: it places events of
the event log, which have a time and no steps, on the axes.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Any

from hive.monitor.series import AXES, Axis, Curve, Series, place_of
from hive.records.documents import is_json_number

POINTS_SENT = 600  # points of a curve that a page begins with: one for each two pixels of a wide chart
DIGITS = 6  # significant digits of a value


class LineTimes:
    """The times of the lines of metrics, over their places on the axes."""

    def __init__(self) -> None:
        self.curve = Curve()

    def add(self, line: Mapping[str, Any]) -> None:
        """Add a line of metrics.jsonl; one without time or place is ignored."""
        if (at := place_of(line)) is not None and is_json_number(line.get("t")):
            self.curve.add(at, float(line["t"]))


def curves_document(series: Series, times: LineTimes) -> dict[str, Any]:
    """Return {"places": [{axis: values}], "curves": {name: {"place": index, "value": [...], "low", "high"}}}."""
    places: list[dict[str, list[float]]] = []
    known: dict[bytes, int] = {}
    curves: dict[str, Any] = {}
    named = {name: series.curves[name] for name in series.names if name in series.curves}
    for name, curve in {**named, "t": times.curve}.items():
        key = b"".join(curve.columns[axis].tobytes() for axis in AXES)
        if key not in known:
            known[key] = len(places)
            places.append({axis: _thinned(curve.columns[axis], _place(axis)) for axis in AXES})
        rounding = _place("seconds") if name == "t" else _rounded
        curves[name] = {"place": known[key], "value": _thinned(curve.columns["value"], rounding)}
        if not all(map(math.isnan, curve.columns["low"])):
            curves[name] |= {bound: _thinned(curve.columns[bound], _rounded) for bound in ("low", "high")}
    return {"places": places, "curves": curves}


def _place(axis: Axis) -> Any:
    return (lambda value: round(value, 3)) if axis == "seconds" else int


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _thinned(column: array[float], rounding: Any) -> list[Any]:
    """Return at most POINTS_SENT values, evenly spaced, the last one included; those that are not finite as None."""
    stride = -(-len(column) // POINTS_SENT)
    values = list(column) if stride <= 1 else [*column[:-1:stride], column[-1]]
    return [rounding(value) if math.isfinite(value) else None for value in values]
