"""Formats a return for every line and table of text: small returns keep their digits, large ones get no noise."""

from __future__ import annotations

import math


def return_text(value: float | None) -> str:
    """Return `value` with one decimal if it is whole or at least 10, else with three digits; "–" for None and NaN."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value) or abs(value) >= 10.0 or value == int(value):
        return f"{value:,.1f}"
    return f"{value:.3g}"


NORMAL_95 = 1.96  # half-width, in standard errors, of the interval that contains 95 % of a normal distribution


def interval_95(deviation: float, episodes: int) -> float:
    """Return the half-width of the 95 % confidence interval of a mean return (central limit theorem).

    deviation: population standard deviation of the returns. NaN for a single episode.
    """
    return NORMAL_95 * deviation / math.sqrt(episodes - 1) if episodes > 1 else math.nan
