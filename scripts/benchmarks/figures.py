"""Compute medians, spreads and ratios of repeated measurements.

Each repetition measures every contender once, so the k-th values of two contenders belong together: a machine that is
slow for a minute slows both. A ratio is therefore the median of the ratios of each repetition, not the ratio of two
medians.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Spread", "best_of", "medians", "ratio_of", "spread_of"]


@dataclass(frozen=True)
class Spread:
    """The median of some values, and the least and the greatest of them."""

    median: float
    least: float
    most: float


def spread_of(values: Sequence[float]) -> Spread:
    """Return the spread of the values. Raises ValueError if there are none."""
    if not values:
        raise ValueError("no value was measured")
    return Spread(statistics.median(values), min(values), max(values))


def ratio_of(values: Sequence[float], others: Sequence[float]) -> Spread:
    """Divide `values` by `others`, repetition by repetition. Raises ValueError if the lengths differ or one is 0."""
    if len(values) != len(others):
        raise ValueError(f"{len(values)} values cannot be compared with {len(others)}")
    if not all(others):
        raise ValueError("cannot divide by a measured rate of 0")
    return spread_of([value / other for value, other in zip(values, others, strict=True)])


def best_of(rates: Mapping[str, Sequence[float]]) -> str:
    """Return the name with the highest median.

    It is one name for all repetitions, because the best of each repetition would exceed every contender by the noise.
    """
    return max(rates, key=lambda name: statistics.median(rates[name]))


def medians(rows: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Return the median of every key over rows with the same keys; None where a row has None."""
    found: dict[str, float | None] = {}
    for key in rows[0] if rows else ():
        values = [row[key] for row in rows]
        known = [value for value in values if value is not None]
        found[key] = statistics.median(known) if len(known) == len(values) else None
    return found
