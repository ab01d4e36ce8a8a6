"""Metrics as curves: every metric of a run over steps, seconds and updates, in bounded memory.

Curves are read from metrics.jsonl. Every name in its lines makes a curve, including the metrics of user-defined actors.
A curve that grows beyond `MOST_POINTS` keeps every second point and from then on takes every second line, so the curves
of a week need no more memory than those of an hour. `add_group` adds values that only the view has measured (a group's
busy share, with a band over its actors); they are in no file.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from hive.monitor.history import History
from hive.records.documents import is_json_number
from hive.records.jsonl import parse_line
from hive.records.tail import Tail

Axis = Literal["steps", "seconds", "updates"]
AXES: tuple[Axis, ...] = ("steps", "seconds", "updates")
RETURN = "return/mean_100"
MOST_POINTS = 2048  # maximum points of a curve: four for each dot of a wide screen
# Metric -> the metrics that hold its least and its greatest value.
BANDS = {"evaluation/mean_return": ("evaluation/min", "evaluation/max")}
RANKS = (
    "evaluation",
    "learner",
    "",
    "rate",
    "episodes",
    "length",
    "ends",
    "lag",
    "environments",
)  # the order of metrics

Points = list[tuple[float, float]]


def _rank(name: str) -> int:
    """Return the rank of a metric's first word; user-defined metrics come early, because users look for them."""
    first = name.partition("/")[0]
    return RANKS.index(first) if first in RANKS else 2


def place_of(line: Mapping[str, Any]) -> dict[str, float] | None:
    """Return where a line of metrics.jsonl lies on the axes; None for a line that lacks one of them."""
    at = {axis: line.get(axis) for axis in AXES}
    return {axis: float(place) for axis, place in at.items()} if all(map(is_json_number, at.values())) else None  # type: ignore[arg-type]


class Curve:
    """The points of one metric: a value and, where a line has these, the least and the greatest value behind it."""

    def __init__(self) -> None:
        self.columns = {name: array("d") for name in (*AXES, "value", "low", "high")}
        self.stride = 1  # lines per point that is kept
        self.skipped = 0

    def add(self, at: Mapping[str, float], value: float, low: float = math.nan, high: float = math.nan) -> None:
        self.skipped += 1
        if self.skipped < self.stride:
            return
        self.skipped = 0
        for name, number in (*((axis, at[axis]) for axis in AXES), ("value", value), ("low", low), ("high", high)):
            self.columns[name].append(number)
        if len(self.columns["value"]) > MOST_POINTS:
            self.columns = {name: column[::2] for name, column in self.columns.items()}
            self.stride *= 2

    def points(self, axis: Axis, column: str = "value") -> Points:
        """Return (position on `axis`, value) in the order of `add`, without values that are not finite.

        column: "value", "low" or "high".
        """
        pairs = zip(self.columns[axis], self.columns[column], strict=True)
        return [(x, y) for x, y in pairs if math.isfinite(y)]


class Series:
    """All curves of one run."""

    def __init__(self, path: Path) -> None:
        self.tail = Tail(path)
        self.curves: dict[str, Curve] = {}
        self.group_curves: dict[str, Curve] = {}  # measured by this view, in no file
        self.at: dict[str, float] = dict.fromkeys(AXES, 0.0)

    def read(self, history: History | None = None) -> None:
        """Read the lines added since the last call; `history` receives them too, for the rates of the past."""
        for raw in self.tail.lines():
            if self.tail.restarted and self.curves:
                self.curves, self.tail.restarted = {}, False
            line = parse_line(raw)
            if line is not None:
                self._add(line)
                if history is not None:
                    history.add_metrics_line(line)

    def _add(self, line: Mapping[str, Any]) -> None:
        if (at := place_of(line)) is None:
            return
        self.at = at
        for name, value in line.items():
            if name not in AXES and name != "t" and is_json_number(value):
                low, high = (line.get(bound) for bound in BANDS.get(name, ("", "")))
                known = is_json_number(low) and is_json_number(high)
                curve = self.curves.setdefault(name, Curve())
                curve.add(self.at, float(value), *((float(low), float(high)) if known else ()))  # type: ignore[arg-type]

    def add_group(self, name: str, values: Iterable[float]) -> None:
        """Add one point to a curve: the mean of several actors' current values, with the band that they span."""
        numbers = [*values]
        if numbers:
            mean = sum(numbers) / len(numbers)
            self.group_curves.setdefault(name, Curve()).add(self.at, mean, min(numbers), max(numbers))

    @property
    def names(self) -> list[str]:
        """The names of all curves: the return, the other metrics in the order of `RANKS`, then those of groups."""
        metrics = sorted(self.curves, key=lambda name: (name != RETURN, _rank(name), name))
        return list(dict.fromkeys([*metrics, *sorted(self.group_curves)]))

    def curve(self, name: str) -> Curve | None:
        return self.curves.get(name) or self.group_curves.get(name)
