"""Format plain tables: columns as wide as their cells, text aligned to the left and numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.figures import Spread

__all__ = ["NOTHING", "WIDTH", "aligned", "number", "percent", "ratio", "spread_text"]

WIDTH = 120  # maximum width of a table in columns
NOTHING = "–"  # cell of a value that was not measured
GAP = "  "


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table whose first column is text and whose other columns are numbers."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return [
        GAP.join(
            [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in (head, *rows)
    ]


def number(value: float | None, digits: int = 0) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1%}"


def ratio(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def spread_text(spread: Spread) -> str:
    """Return `1.33 (1.10..1.60)`: the median, the least and the greatest value."""
    return f"{spread.median:.2f} ({spread.least:.2f}..{spread.most:.2f})"
