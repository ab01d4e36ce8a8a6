"""Read a file of lines that may still grow: each call returns the lines added since the last one.

A line counts once its newline is written. A file that was replaced or truncated (a rotated log, the metrics of a
resumed run) is read again from its beginning, and `restarted` is then True.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hive.records.regular import open_regular

PIECE_BYTES = 1 << 20  # bytes per read
LINE_BYTES = 1 << 20  # maximum bytes of a line: thousands of metrics; hive writes no longer one, and readers skip it


class Tail:
    """The lines of one file from `back` bytes before its end (None: from its beginning).

    A file that is created after the first read is read from its beginning.
    """

    def __init__(self, path: Path, back: int | None = None) -> None:
        self.path = path
        self.back = back
        self.position = 0  # offset of the next line
        self.began = 0  # offset of the first line of the last call
        self.inode = 0  # 0: the file was never opened
        self.restarted = False
        self.in_long_line = False

    def lines(self) -> Iterator[bytes]:
        """Yield the complete lines added since the last call, without newlines; none of a file that cannot be read."""
        with suppress(OSError):
            yield from self.read()

    def read(self) -> Iterator[bytes]:
        """Yield the lines as `lines` does. Raises OSError for a file that is missing or cannot be read."""
        self.restarted = False
        try:
            file = open_regular(self.path)
        except FileNotFoundError:
            self.back = None
            raise
        with file:
            self._find_position(file.fileno())
            self.began = self.position
            yield from self._complete_lines(file.fileno())

    def skip(self) -> None:
        """Skip the lines written so far."""
        for _ in self.lines():
            pass

    def _find_position(self, descriptor: int) -> None:
        facts = os.fstat(descriptor)
        if not self.inode and self.back is not None:
            self.position = max(facts.st_size - self.back, 0)
            if self.position:  # without a newline (-1) the position stays: one long line is shown
                self.position += os.pread(descriptor, PIECE_BYTES, self.position).find(b"\n") + 1
        elif self.inode and (facts.st_ino != self.inode or facts.st_size < self.position):
            self.position, self.restarted, self.in_long_line = 0, True, False
        self.inode = facts.st_ino

    def _complete_lines(self, descriptor: int) -> Iterator[bytes]:
        rest = b""
        while piece := os.pread(descriptor, PIECE_BYTES, self.position + len(rest)):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self.position += len(line) + 1
                if self.in_long_line or len(line) >= LINE_BYTES:
                    self.in_long_line = False
                    continue
                yield line
            if len(rest) >= LINE_BYTES:
                self.position, self.in_long_line, rest = self.position + len(rest), True, b""
                self.position = _next_data(descriptor, self.position)


def _next_data(descriptor: int, position: int) -> int:
    """Return where the content continues at or after `position`: a hole, which may have terabytes, is not read."""
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError:  # the rest of the file is a hole (ENXIO)
        return max(position, os.fstat(descriptor).st_size)
