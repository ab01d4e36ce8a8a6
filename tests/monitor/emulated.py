"""A terminal that understands what the status line needs: carriage return, erase a line, move up."""

from __future__ import annotations

import re

__all__ = ["lines_on_screen"]

SEQUENCE = re.compile(r"\x1b\[(\??\d*(?:;\d+)*)([A-Za-z])")


def lines_on_screen(text: str) -> list[str]:
    """Return the lines that a terminal without a right edge shows after `text`, without colours."""
    lines, row, column, at = [""], 0, 0, 0
    while at < len(text):
        found = SEQUENCE.match(text, at)
        if found:
            at = found.end()
            if found[2] == "K":
                lines[row] = ""
            elif found[2] == "A":
                row = max(row - int(found[1] or 1), 0)
            continue
        character, at = text[at], at + 1
        if character == "\r":
            column = 0
        elif character == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        else:
            lines[row] = lines[row][:column].ljust(column) + character + lines[row][column + 1 :]
            column += 1
    return lines
