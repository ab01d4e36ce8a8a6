"""Curves in braille: eight dots a cell, so that half a screen shows a hundred points across.

    300┤                    ⣀⣀⠤⠤⠒⠒⠊⠉⠉
    150┤        ⣀⣀⠤⠤⠒⠒⠊⠉
      0┤⣀⣀⣀⠤⠊⠉
        0                     9.2M steps

Several curves share one frame, and the first is drawn over the others. A column of dots shows the mean of the points
that fall into it. Neighboring columns are joined, also across columns without a point.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from hive.monitor.drawing import BRAILLE, DIM, PLAIN, Spans, amount
from hive.monitor.series import Points

LABEL = 8  # width in cells of a number beside the axis: `amount` takes seven, and a sign
# The dots of a cell, by column and row from the top.
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


@dataclass(frozen=True)
class Drawn:
    """One curve: its points in any order, and the name of its style."""

    points: Points
    style: str = PLAIN


@dataclass(frozen=True)
class _Frame:
    """The values at the four edges of the frame, and its size in dots."""

    left: float
    right: float
    low: float
    high: float
    across: int
    down: int

    def column(self, x: float) -> int:
        return min(int((x - self.left) / (self.right - self.left) * self.across), self.across - 1)

    def row(self, y: float) -> int:
        """Return the row of dots, counted from the top."""
        return round((self.high - y) / (self.high - self.low) * (self.down - 1))


def chart(
    curves: Sequence[Drawn], width: int, height: int, *, unit: str = "", logarithmic: bool = False
) -> list[Spans]:
    """Draw the curves in `width` x `height` cells, axes included; `unit` labels the horizontal axis.

    A logarithmic axis leaves out points with y <= 0. Without a point the frame is empty.
    """
    shown = [
        Drawn([(x, _scaled(y, logarithmic)) for x, y in c.points if y > 0 or not logarithmic], c.style) for c in curves
    ]
    across, down = max(width - LABEL - 1, 1), max(height - 1, 1)
    frame = _framed(shown, across * 2, down * 4)
    if frame is None:
        return [[(" " * LABEL + "┤", DIM)] for _ in range(down)] + [[]]
    cells: dict[tuple[int, int], tuple[int, str]] = {}
    for curve in reversed(shown):
        own: dict[tuple[int, int], int] = {}
        for column, row in _dots(curve.points, frame):
            cell = (column // 2, row // 4)
            own[cell] = own.get(cell, 0) | DOTS[column % 2][row % 4]
        cells |= {cell: (dots | cells.get(cell, (0, ""))[0], curve.style) for cell, dots in own.items()}
    lines = []
    for row in range(down):
        label = ""
        if row in {0, down // 2, down - 1} or down <= 2:
            part = row / max(down - 1, 1)
            value = frame.high - part * (frame.high - frame.low)
            label = amount(_rounded(_value(value, logarithmic), frame, logarithmic))
        lines.append([(f"{label:>{LABEL}}┤", DIM), *_spans([cells.get((column, row)) for column in range(across)])])
    left, right = amount(frame.left), f"{amount(frame.right)} {unit}".rstrip()
    lines.append([(" " * (LABEL + 1) + left + right.rjust(max(across - len(left), len(right) + 1)), DIM)])
    return lines


def _scaled(value: float, logarithmic: bool) -> float:
    return math.log10(value) if logarithmic else value


def _value(scaled: float, logarithmic: bool) -> float:
    return 10**scaled if logarithmic else scaled


def _rounded(value: float, frame: _Frame, logarithmic: bool) -> float:
    """Round a label to the precision that one line of the frame can show."""
    if logarithmic or not value:
        return value
    step = (frame.high - frame.low) / frame.down
    return round(value, max(0, 1 - math.floor(math.log10(step)))) if step > 0 else value


def _framed(curves: Sequence[Drawn], across: int, down: int) -> _Frame | None:
    points = [point for curve in curves for point in curve.points]
    if not points:
        return None
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    if left == right:
        right = left + 1.0
    if low == high:
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    return _Frame(left, right, low, high, across, down)


def _dots(points: Points, frame: _Frame) -> list[tuple[int, int]]:
    """Return (column, row) of each dot of one curve: the mean of each column, and the dots that join these."""
    sums: dict[int, tuple[float, int]] = {}
    for x, y in points:
        column = frame.column(x)
        total, count = sums.get(column, (0.0, 0))
        sums[column] = total + y, count + 1
    means = [(column, frame.row(total / count)) for column, (total, count) in sorted(sums.items())]
    dots = means[:1]
    for (c0, r0), (c1, r1) in itertools.pairwise(means):
        for column in range(c0 + 1, c1 + 1):
            begin = r0 + (r1 - r0) * (column - 1 - c0) / (c1 - c0)
            end = r0 + (r1 - r0) * (column - c0) / (c1 - c0)
            low, high = sorted((round(begin), round(end)))
            dots += [(column, row) for row in range(low, high + 1)]
    return dots


def _spans(cells: Sequence[tuple[int, str] | None]) -> Spans:
    """Join neighboring cells of the same style into one span."""
    line: Spans = []
    for cell in cells:
        text, style = (chr(BRAILLE + cell[0]), cell[1]) if cell else (" ", line[-1][1] if line else PLAIN)
        if line and line[-1][1] == style:
            line[-1] = (line[-1][0] + text, style)
        else:
            line.append((text, style))
    return line
