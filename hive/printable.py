"""Makes text safe for a terminal, wherever it came from: a name, a file, an environment, another process.

A terminal obeys control characters: they erase lines, forge them, change their order or run commands of the terminal.
Lone surrogates cannot be encoded at all. `str.isprintable` is false for all of these. The command line writes through
`PrintableStream`, so that no command has to remember this; a text that must stay on one line also goes through
`printable`, because line ends in it would forge lines.
"""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO, cast

BLANKS = str.maketrans("\t\n", "  ")


def printable(text: str, length: int | None = None) -> str:
    """Return `text` for one line of a terminal: without control characters, at most `length` characters."""
    if length is not None and len(text) > length:
        text = text[: length - 3] + "..."
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text.translate(BLANKS))


def printable_lines(text: str) -> str:
    """Return `text` for several lines of a terminal: as `printable`, but with its line ends."""
    return "\n".join(map(printable, text.split("\n")))


class PrintableStream:
    """A text stream that writes only printable characters and line ends to `under`; all else is that of `under`."""

    def __init__(self, under: TextIO) -> None:
        self.under = under

    def write(self, text: str) -> int:
        safe, encoding = printable_lines(text), self.under.encoding or "utf-8"
        self.under.write(safe if safe.isascii() else safe.encode(encoding, "replace").decode(encoding))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.under, name)


def obeyed(stream: TextIO) -> TextIO:
    """Return the stream for control characters of hive itself. The caller makes all other text printable."""
    return stream.under if isinstance(stream, PrintableStream) else stream


def _nowhere() -> TextIO:
    """Return a stream in the place of a closed one (`>&-`), whose descriptor it takes: the lowest that is free."""
    return open(os.devnull, "w")


class printable_output:
    """Within this context, stdout and stderr are PrintableStreams."""

    def __enter__(self) -> None:
        self.before = sys.stdout, sys.stderr
        streams = (stream or _nowhere() for stream in self.before)
        sys.stdout, sys.stderr = (cast(TextIO, PrintableStream(obeyed(stream))) for stream in streams)

    def __exit__(self, *exception: object) -> None:
        sys.stdout, sys.stderr = self.before
