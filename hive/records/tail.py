"""Follow a file that grows: each call returns the lines added since the last one.

A line counts once its newline is written. A file that was replaced or truncated (a rotated log, the metrics of a
resumed run) is read again from its beginning, and `restarted` is then True. A missing file counts as empty.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hive.records.regular import open_regular

__all__ = ["Tail"]

PIECE_BYTES = 1 << 20  # bytes per read
LINE_BYTES = 1 << 22  # length of an unfinished line beyond which it is skipped: hive writes no such line


class Tail:
    """The lines of one file from `back` bytes before its end (None: from its beginning)."""

    def __init__(self, path: Path, back: int | None = None) -> None:
        self.path = path
        self.back = back
        self.position = -1  # offset of the next line; -1: nothing was read yet
        self.inode = 0
        self.restarted = False

    def lines(self) -> Iterator[bytes]:
        """Return the complete lines added since the last call, without their newlines."""
        self.restarted = False
        try:
            with open_regular(self.path) as file:
                now = os.fstat(file.fileno())
                if self.position < 0:
                    self.position = max(now.st_size - self.back, 0) if self.back is not None else 0
                    self._begin_at_a_line(file.fileno())
                elif now.st_ino != self.inode or now.st_size < self.position:
                    self.position, self.restarted = 0, True
                self.inode = now.st_ino
                file.seek(self.position)
                yield from self._whole(file.fileno())
        except OSError:
            return

    def _begin_at_a_line(self, descriptor: int) -> None:
        if self.position:
            piece = os.pread(descriptor, PIECE_BYTES, self.position)
            self.position += piece.find(b"\n") + 1  # without a newline (-1) the position stays: one long line is shown

    def _whole(self, descriptor: int) -> Iterator[bytes]:
        rest = b""
        while piece := os.pread(descriptor, PIECE_BYTES, self.position + len(rest)):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self.position += len(line) + 1
                yield line
            if len(rest) > LINE_BYTES:
                self.position, rest = self.position + len(rest), b""
