"""Judges whether arrays of transitions with two leading axes are [B, T] where [T, B] is expected.

With next observations it is certain: they are equal to the following observations along the axis of time. Without
them, two steps of one environment hardly ever both end an episode, and mostly differ less than two environments do.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import numpy as np
from numpy.typing import NDArray

MOST = 2000  # rows of each axis that are judged
ALONG, ACROSS = 0.9, 0.1  # share of steps that continue along the axis of time at least, and across it at most
SMOOTHER = 0.25  # the same of the size of changes, along and across
LEAST_ENDS = 3
LEAST_STEPS = 3  # along the second axis: two numbers may follow each other by chance


class Axes(Enum):
    """What the two leading axes of arrays are, where that is not as expected."""

    EXPECTED = ""
    SWAPPED = "swapped"
    PROBABLY_SWAPPED = "probably swapped"


def axes_of(
    observations: NDArray[np.generic],
    following: NDArray[np.generic] | None,
    ended: NDArray[np.bool_],
) -> Axes:
    """Judge arrays [T, B, ...]. observations, following: before and after each step. ended: whether an episode did."""
    seen, ends = observations[:MOST, :MOST], ended[:MOST, :MOST]
    flat = seen.reshape(*seen.shape[:2], -1)
    if following is not None:
        if following.shape != observations.shape or seen.shape[1] < LEAST_STEPS:  # the caller reports other shapes
            return Axes.EXPECTED
        after = following[:MOST, :MOST].reshape(flat.shape)
        down, right = _continued(flat, after, ends), _continued(flat.swapaxes(0, 1), after.swapaxes(0, 1), ends.T)
        return Axes.SWAPPED if right >= ALONG and down <= ACROSS else Axes.EXPECTED
    if ends.sum() >= LEAST_ENDS and min(ends.shape) > 1:
        down, right = _both(ends), _both(ends.T)
        if down >= ALONG and right <= ACROSS:
            return Axes.PROBABLY_SWAPPED
    if ends.shape[1] <= ends.shape[0] or ends.shape[0] < 2 or flat.dtype.kind not in "iuf":
        return Axes.EXPECTED
    down, right = _change(flat, ends), _change(flat.swapaxes(0, 1), ends.T)
    return Axes.PROBABLY_SWAPPED if 0.0 < right < SMOOTHER * down else Axes.EXPECTED


def _continued(seen: NDArray[np.generic], after: NDArray[np.generic], ends: NDArray[np.bool_]) -> float:
    """Return the share of steps without an end whose next observation is the following one along the first axis."""
    goes_on = ~ends[:-1]
    same = (after[:-1] == seen[1:]).all(2)[goes_on]
    return float(same.mean()) if len(same) else 0.0


def _both(ends: NDArray[np.bool_]) -> float:
    """Return the share of steps that end an episode, after which the next one along the first axis does too."""
    first = ends[:-1]
    return float(ends[1:][first].mean()) if first.any() else 0.0


def _change(seen: NDArray[np.generic], ends: NDArray[np.bool_]) -> float:
    """Return the mean size of the changes along the first axis within episodes."""
    changes = np.abs(np.diff(seen.astype(np.float64), axis=0)).mean(2)[~ends[:-1]]
    return float(changes.mean()) if len(changes) else 0.0


def swapped(fields: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
    """Return arrays with their two leading axes swapped."""
    return {name: np.ascontiguousarray(array.swapaxes(0, 1)) for name, array in fields.items()}
