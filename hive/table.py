"""Prints the tables of commands: one line per row, columns as wide as their widest cell; or as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from hive.printable import printable

__all__ = ["markdown_table", "print_table"]


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to stdout, without trailing blanks. Every row must have the same number of cells as the head."""
    rows = [list(map(printable, row)) for row in rows]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to stdout as Markdown; vertical bars in cells are escaped."""
    for cells in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(printable(cell).replace('|', chr(92) + '|') for cell in cells)} |")
