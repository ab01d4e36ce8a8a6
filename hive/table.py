"""Tables of text: columns as wide as their widest cells, fitted to a width; as cells, as lines, or as Markdown.

    rows ──> lay_out(columns, rows, width) ──> Table: titles, widths, cells ──> lines of text, or a widget

Where the width is too small, the columns with the greatest `drop_rank` are left out, and so is a column without any
text. The last column may be `rest`: it takes the width that the others leave. Without a width, every column is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from hive.printable import printable

GAP = 2  # blank cells between two columns
NOTHING = ("", "–")  # a column of nothing else is left out
LEAST_REST = 12  # cells below which the column that takes the remaining width is left out

R = TypeVar("R")


class TableCell(NamedTuple):
    """The text of a cell and the name of its style."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Column(Generic[R]):
    """One column. Columns with a greater `drop_rank` are left out first; rank 0 is never left out."""

    title: str
    cell: Callable[[R], TableCell]
    drop_rank: int = 0
    left: bool = False  # whether cells are aligned to the left
    least: int = 0  # minimum width in cells: keeps the table steady while values change
    rest: bool = False  # whether it takes the remaining width, and only that
    order: Callable[[R], float | str] | None = None  # sort key

    def needed(self, cells: Sequence[TableCell]) -> int:
        """Return the width of the column with these cells."""
        return LEAST_REST if self.rest else max(len(self.title), self.least, *(len(cell.text) for cell in cells), 0)

    def aligned(self, text: str, width: int) -> str:
        if len(text) > width:
            return text[: width - 1] + "…"
        return text.ljust(width) if self.left or self.rest else text.rjust(width)


@dataclass(frozen=True)
class Table:
    """A table that fits its width: indices, titles and widths of its columns, and the cells of each row by its key."""

    columns: tuple[int, ...]
    titles: tuple[str, ...]
    widths: tuple[int, ...]
    rows: Mapping[str, tuple[TableCell, ...]]


def lay_out(columns: Sequence[Column[R]], rows: Mapping[str, R], width: int | None = None) -> Table:
    """Return the table of these rows, at most `width` cells wide. Cells are aligned and cut to their columns."""
    cells = [[_safe(column.cell(row)) for row in rows.values()] for column in columns]
    widths = {n: column.needed(cells[n]) for n, column in enumerate(columns)}
    if width is not None:
        if rows:
            widths = {n: w for n, w in widths.items() if any(cell.text not in NOTHING for cell in cells[n])}
        _fit(columns, widths, width)
    return Table(
        tuple(widths),
        tuple(columns[n].aligned(columns[n].title, w) for n, w in widths.items()),
        tuple(widths.values()),
        {
            key: tuple(TableCell(columns[n].aligned(cells[n][i].text, w), cells[n][i].style) for n, w in widths.items())
            for i, key in enumerate(rows)
        },
    )


def _fit(columns: Sequence[Column[R]], widths: dict[int, int], width: int) -> None:
    """Remove columns from `widths` until they fit, and widen the one that takes the rest."""

    def free() -> int:
        return width - sum(w + GAP for w in widths.values())

    while free() < 0 and (droppable := [n for n in widths if columns[n].drop_rank]):
        del widths[max(droppable, key=lambda n: columns[n].drop_rank)]
    for n in widths:
        if columns[n].rest:
            widths[n] += max(free(), 0)


def _safe(cell: TableCell) -> TableCell:
    return TableCell(printable(cell.text), cell.style)


def text_lines(table: Table) -> Iterator[str]:
    """Yield a line of titles, unless all are empty, and a line for each row, without blanks at their ends."""
    if any(title.strip() for title in table.titles):
        yield (" " * GAP).join(table.titles).rstrip()
    for row in table.rows.values():
        yield (" " * GAP).join(cell.text for cell in row).rstrip()


def table_text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows of texts as lines, below their titles. Every row has one cell for each title."""
    if any(len(row) != len(head) for row in rows):
        raise ValueError(f"a row has another number of cells than {head}")

    def column(n: int) -> Column[Sequence[str]]:
        return Column(head[n], lambda row: TableCell(row[n]), left=True)

    table = lay_out([column(n) for n in range(len(head))], {str(n): row for n, row in enumerate(rows)})
    return "\n".join(text_lines(table))


def markdown_text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the same as Markdown; vertical bars in cells are escaped."""
    escaped = [[printable(cell).replace("|", "\\|") for cell in cells] for cells in (head, ["---"] * len(head), *rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in escaped)
