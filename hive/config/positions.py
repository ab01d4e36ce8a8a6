"""Locates each key and value in the text of a TOML file, so that an error can point at it.

`tomllib` checks the file and reads the values but keeps no positions. `Positions` then walks the text once.
Because the text is known to be valid, the walk only has to distinguish keys, strings, brackets and scalars:

    [network]                 key of ("network",)
    middleware = [64, 32]     key and value of ("network", "middleware"), values of (..., 0) and (..., 1)
    a.b = 1                   keys of ("network", "a") and ("network", "a", "b"), value of the latter

A path that occurs more than once (the tables of a `[[list]]`) keeps its first position. Paths deeper than
PATH_DEPTH and paths that are not in the file get the position of their nearest ancestor.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass

KeyPath = tuple[str | int, ...]

PATH_DEPTH = 8  # maximum parts of a path; keys have two. Without a limit, `a.a.a...` would take quadratic memory
LINE_WIDTH = 100  # maximum characters of a line in an error; a longer line is cut around the mark
LEAD = 20  # characters that are kept before the mark in a line that is cut

SPACE = re.compile(r"[ \t]*")
BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
BARE = re.compile(r"[A-Za-z0-9_-]+")
SCALAR = re.compile(r"[^,\]}#\n]*[^,\]}#\n \t]")
STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)


@dataclass(frozen=True)
class Mark:
    """A marked part of one line: `length` characters from `column` on. Lines count from 1, columns from 0."""

    line: int
    text: str
    column: int
    length: int


def mark(text: str, start: int, end: int) -> Mark:
    """Return the mark of `text[start:end]`, limited to the first of its lines."""
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line_end = len(text) if line_end < 0 else line_end
    cut = max(line_start, start - LEAD) if line_end - line_start > LINE_WIDTH else line_start
    shown = text[cut : min(line_end, cut + LINE_WIDTH)]
    length = max(1, min(end - start, len(shown) - (start - cut)))
    return Mark(text.count("\n", 0, start) + 1, shown, start - cut, length)


class Positions:
    """The positions of all keys and values in `text`, which is valid TOML with `\\n` as line ends."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._keys: dict[KeyPath, tuple[int, int]] = {}
        self._values: dict[KeyPath, tuple[int, int]] = {}
        self._walk()

    def key(self, path: KeyPath) -> Mark:
        """Return the mark of the last part of the key `path`."""
        return self._find(path, [self._keys])

    def value(self, path: KeyPath) -> Mark:
        """Return the mark of the value at `path`; for a table, of its key."""
        return self._find(path, [self._values, self._keys])

    def _find(self, path: KeyPath, places: list[dict[KeyPath, tuple[int, int]]]) -> Mark:
        for length in range(len(path), 0, -1):
            for spans in places:
                if path[:length] in spans:
                    return mark(self._text, *spans[path[:length]])
        return Mark(self._text.rstrip().count("\n") + 1, "", 0, 0)

    def _walk(self) -> None:
        table: KeyPath = ()
        while self._skip(BLANK) < len(self._text):
            if self._text[self._at] == "[":
                self._at += 1 + self._text.startswith("[[", self._at)
                table = self._key(())
                self._at = self._text.index("]", self._at)
                self._at += 1 + self._text.startswith("]]", self._at)
            else:
                self._pair(table)

    def _pair(self, table: KeyPath) -> None:
        path = self._key(table)
        self._at += 1  # the equals sign
        self._value(path)

    def _key(self, table: KeyPath) -> KeyPath:
        """Read `a.b.c` and the blanks after it; return the path of `c`, cut at PATH_DEPTH."""
        path = table
        while True:
            start = self._skip(SPACE)
            name = self._name()
            if len(path) < PATH_DEPTH:
                path = (*path, name)
                self._keys.setdefault(path, (start, self._at))
            self._skip(SPACE)
            if not self._text.startswith(".", self._at):
                return path
            self._at += 1

    def _name(self) -> str:
        start = self._at
        if self._text[start] not in "\"'":
            self._skip(BARE)
            return self._text[start : self._at]
        self._skip(STRING)
        return str(tomllib.loads(f"key = {self._text[start : self._at]}")["key"])

    def _value(self, path: KeyPath) -> None:
        start = self._skip(SPACE)
        first = self._text[start]
        if first in "\"'":
            self._skip(STRING)
        elif first in "[{":
            self._items(path, "]" if first == "[" else "}")
        else:
            self._skip(SCALAR)
        if len(path) <= PATH_DEPTH:
            self._values.setdefault(path, (start, self._at))

    def _items(self, path: KeyPath, closing: str) -> None:
        self._at += 1
        index = 0
        while self._text[self._skip(BLANK)] != closing:
            if closing == "]":
                self._value((*path[:PATH_DEPTH], index))
            else:
                self._pair(path)
            index += 1
            self._skip(BLANK)
            self._at += self._text.startswith(",", self._at)
        self._at += 1

    def _skip(self, pattern: re.Pattern[str]) -> int:
        """Move past the text that `pattern` matches at the current position, and return the new position."""
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return self._at
