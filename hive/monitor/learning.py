"""The content of the learning screen: the run's metrics as curves, the most important first.

Every metric that the recorder writes is a curve; so are the busy share and the rate of each group of actors while this
view is open. The curves of another run can be drawn for comparison. The band shows the least and the greatest value of
a metric that has these: over the actors of a group, or over the episodes of an evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence

from hive.monitor.chart import Drawn, chart
from hive.monitor.drawing import BOLD, DIM, GOOD, PLAIN, SECOND, Spans, amount, printable_line
from hive.monitor.series import RETURN, Axis, Series

CHART = (36, 7)  # width and height in cells of the smallest chart, its heading included
# The metrics that judge the learning itself, in this order; all others follow in the order of `Series.names`.
FIRST = (
    *(RETURN, "evaluation/mean_return", "learner/entropy", "learner/kl"),
    *("learner/explained_variance", "learner/value_loss", "learner/policy_loss", "learner/gradient_norm"),
    "rate/env_steps_per_s",
)


def ranked(names: Sequence[str]) -> list[str]:
    """Return the names with those of `FIRST` at the beginning."""
    return sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))


def per_page(width: int, height: int) -> tuple[int, int]:
    """Return (charts in a row, rows of charts) for a screen of this size in cells."""
    return max(width // CHART[0], 1), max(height // CHART[1], 1)


def curve_chart(
    series: Series,
    name: str,
    width: int,
    height: int,
    *,
    axis: Axis = "steps",
    band: bool = False,
    logarithmic: bool = False,
    other: Series | None = None,
) -> list[Spans]:
    """Draw one metric, with a heading. other: curves of another run, drawn behind those of this one."""
    curve = series.curve(name)
    points = curve.points(axis) if curve else []
    drawn = [Drawn(points, GOOD)]
    compared = other.curve(name) if other else None
    if compared:
        drawn.append(Drawn(compared.points(axis), SECOND))
    if band and curve:
        drawn += [Drawn(curve.points(axis, column), DIM) for column in ("low", "high")]
    heading: Spans = [(f" {name} ", BOLD), (amount(points[-1][1]) if points else "–", PLAIN)]
    if compared and (theirs := compared.points(axis)):
        heading.append((f" / {amount(theirs[-1][1])}", SECOND))
    lines = chart(drawn, width, height - 1, unit=axis, logarithmic=logarithmic)
    return [printable_line(line) for line in (heading, *lines)]
