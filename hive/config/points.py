"""Schedules of keys, and checks of their points: [[0, 3e-4], [200_000, 1e-5]], environment steps and values there.

Steps are integers from 0 on and increase strictly. There is at least one point. Paths and texts of faults are made
here, because the limit of a step depends on the point before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hive.config.values import is_integer, shown

SCHEDULES = ("constant", "linear", "cosine")
SCHEDULE = "_schedule"  # ends the name of a key with the schedule of another one
Points = tuple[tuple[int, float], ...]  # environment steps and the value there
Schedule = str | Points  # one of SCHEDULES, or points in place of the key's value
EXAMPLE = "[[0, 3e-4], [200_000, 1e-5]]"


def points_fault(points: Sequence[Any], fits: Callable[[Any], bool]) -> tuple[int, ...] | None:
    """Return the path inside `points` to the first wrong part, () for an empty array, None if all is right.

    fits: whether a value is within the limits of the key.
    """
    last = -1
    for index, point in enumerate(points):
        if not isinstance(point, list | tuple) or len(point) != 2:
            return (index,)
        step, value = point
        if not is_integer(step) or step <= last:
            return index, 0
        if not fits(value):
            return index, 1
        last = step
    return None if points else ()


def points_message(points: Sequence[Any], fault: tuple[Any, ...], expected: str) -> str:
    """Return the text of an error about the part of `points` that `fault` leads to. expected: the allowed values."""
    if not fault:
        return f"expected at least one point, as in {EXAMPLE}, got an empty array"
    index, *part = fault
    place, point = f"point {index + 1}", points[index]
    if not part:
        return f"{place}: expected [step, value], as in {EXAMPLE}, got {_point_text(point)}"
    wrong = point[part[0]]
    if part == [1]:
        return f"{place}: expected {expected} as its value, got {shown(wrong)}"
    if index and is_integer(wrong):
        return f"{place}: expected a step after {points[index - 1][0]:_}, that of point {index}, got {shown(wrong)}"
    return f"{place}: expected an integer >= 0 as its step, got {shown(wrong)}"


def _point_text(point: Any) -> str:
    return f"an array of {len(point)}" if isinstance(point, list | tuple) else shown(point)
