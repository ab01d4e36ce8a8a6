"""The third screen: small multiples of the run's metrics, six or more at a time.

Every metric that the recorder writes is a curve; so are the busy share and the rate of each group of actors while this
view is open. The curves of another run can be drawn for comparison. The band shows the least and the greatest value of
a metric that has these: over the actors of a group, or over the episodes of an evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence

from hive.monitor.chart import Drawn, chart
from hive.monitor.drawing import BOLD, DIM, GOOD, PLAIN, SECOND, Line, amount, beside, fitted
from hive.monitor.series import Axis, Series

__all__ = ["multiples", "per_page"]

CHART = (36, 7)  # width and height in cells of the smallest chart, its heading included


def per_page(width: int, height: int) -> tuple[int, int]:
    """Return (charts in a row, rows of charts) for a screen of this size in cells."""
    return max(width // CHART[0], 1), max(height // CHART[1], 1)


def multiples(
    series: Series,
    width: int,
    height: int,
    *,
    names: Sequence[str],
    axis: Axis = "steps",
    band: bool = False,
    logarithmic: bool = False,
    other: Series | None = None,
) -> list[Line]:
    """Draw the metrics `names`, each in its own frame, in at most `height` lines.

    other: curves of another run, drawn behind those of this one.
    """
    if not names:
        return [[], [("   no metrics yet: the recorder writes the first after `record.every_s` seconds", DIM)]]
    across, down = per_page(width, height)
    rows = -(-min(len(names), across * down) // across)
    cell_width, cell_height = width // across, max(min(height // rows, 2 * CHART[1]), 3)
    lines: list[Line] = []
    for row in range(rows):
        charts = [
            _chart(series, name, cell_width - 1, cell_height, axis, band, logarithmic, other)
            for name in names[row * across : (row + 1) * across]
        ]
        joined = charts[-1]
        for left in reversed(charts[:-1]):
            joined = beside(left, joined, cell_width)
        lines += joined
    return [fitted(line, width) for line in lines[:height]]


def _chart(
    series: Series, name: str, width: int, height: int, axis: Axis, band: bool, logarithmic: bool, other: Series | None
) -> list[Line]:
    curve = series.curve(name)
    points = curve.points(axis) if curve else []
    drawn = [Drawn(points, GOOD)]
    compared = other.curve(name) if other else None
    if compared:
        drawn.append(Drawn(compared.points(axis), SECOND))
    if band and curve:
        drawn += [Drawn(curve.points(axis, column), DIM) for column in ("low", "high")]
    heading: Line = [(f" {name} ", BOLD), (amount(points[-1][1]) if points else "–", PLAIN)]
    if compared and (theirs := compared.points(axis)):
        heading.append((f" / {amount(theirs[-1][1])}", SECOND))
    lines = chart(drawn, width, height - 1, unit=axis, logarithmic=logarithmic)
    return [fitted(line, width) for line in (heading, *lines)]
