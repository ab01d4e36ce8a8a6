"""Metrics as curves: every metric of a run over steps, seconds and updates, in bounded memory.

Read from metrics.jsonl, which is the truth; whatever names its lines have are curves, also those that a user's actor
sends. A curve that grows beyond `MOST_POINTS` keeps every second point and from then on takes every second line, so the
curves of a week take what those of an hour take. What a view alone has seen (a group's work, with a band over its
actors) is added by `see` and is not in any file.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from hive.monitor.history import History
from hive.monitor.tail import Tail
from hive.records.documents import parse_object

__all__ = ["AXES", "RETURN", "Axis", "Curve", "Points", "Series"]

Axis = Literal["steps", "seconds", "updates"]
AXES: tuple[Axis, ...] = ("steps", "seconds", "updates")
RETURN = "return/mean_100"
MOST_POINTS = 2048  # of a curve: four for each dot of a wide screen
BANDS = {"evaluation/mean_return": ("evaluation/min", "evaluation/max")}  # metrics that come with their extremes
RANKS = ("evaluation", "learner", "", "rate", "episodes", "lag")  # the order of metrics

Points = list[tuple[float, float]]


def _rank(name: str) -> int:
    """Of a metric's first word: one that is not listed is a user's own, and looked for."""
    first = name.partition("/")[0]
    return RANKS.index(first) if first in RANKS else 2


class Curve:
    """One metric: its values where they are known, the least and the greatest of several actors if there are any."""

    def __init__(self) -> None:
        self.columns = {name: array("d") for name in (*AXES, "value", "low", "high")}
        self.stride = 1  # lines for each point that is kept
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
        """(place, value) in the order in which they came, where there is one."""
        pairs = zip(self.columns[axis], self.columns[column], strict=True)
        return [(x, y) for x, y in pairs if math.isfinite(y)]


class Series:
    """All curves of one run."""

    def __init__(self, path: Path) -> None:
        self.tail = Tail(path)
        self.curves: dict[str, Curve] = {}
        self.seen: dict[str, Curve] = {}  # by this view alone
        self.at: dict[str, float] = dict.fromkeys(AXES, 0.0)

    def read(self, history: History | None = None) -> None:
        """Takes in the lines that are new; `history` recalls them too."""
        for raw in self.tail.lines():
            if self.tail.anew and self.curves:
                self.curves, self.tail.anew = {}, False
            line = parse_object(raw)
            if line is not None:
                self._add(line)
                if history is not None:
                    history.recall(line)

    def _add(self, line: Mapping[str, Any]) -> None:
        at = {axis: line.get(axis) for axis in AXES}
        if not all(type(place) in (int, float) for place in at.values()):
            return
        self.at = {axis: float(place) for axis, place in at.items()}  # type: ignore[arg-type]
        for name, value in line.items():
            if name not in AXES and name != "t" and type(value) in (int, float):
                low, high = (line.get(bound) for bound in BANDS.get(name, ("", "")))
                known = type(low) in (int, float) and type(high) in (int, float)
                curve = self.curves.setdefault(name, Curve())
                curve.add(self.at, float(value), *((float(low), float(high)) if known else ()))  # type: ignore[arg-type]

    def see(self, name: str, values: Iterable[float]) -> None:
        """What several actors did this moment: their mean, and the band between the least and the greatest."""
        numbers = [*values]
        if numbers:
            mean = sum(numbers) / len(numbers)
            self.seen.setdefault(name, Curve()).add(self.at, mean, min(numbers), max(numbers))

    @property
    def names(self) -> list[str]:
        """Of all curves: the return first, then what is learned, what else was written, and what was seen."""
        names = [*sorted(self.curves, key=lambda name: (name != RETURN, _rank(name), name)), *sorted(self.seen)]
        return list(dict.fromkeys(names))

    def curve(self, name: str) -> Curve | None:
        return self.curves.get(name) or self.seen.get(name)
