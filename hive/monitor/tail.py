"""Following a file that grows: its new lines at each look.

A line counts once its newline is there. A file that was replaced or cut (a rotated log, the metrics of a resumed run)
is read anew from its beginning, and `anew` says so. No file yet is an empty one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Tail"]

PIECE_BYTES = 1 << 20  # read at once
LINE_BYTES = 1 << 22  # of a line without an end: what is longer is no line of ours, and is passed over


class Tail:
    """The lines of one file from `back` bytes before its end (None: from its beginning)."""

    def __init__(self, path: Path, back: int | None = None) -> None:
        self.path = path
        self.back = back
        self.position = -1  # nothing was read yet
        self.inode = 0
        self.anew = False

    def lines(self) -> Iterator[bytes]:
        """The whole lines that are new, without their newlines."""
        self.anew = False
        try:
            with self.path.open("rb") as file:
                now = os.fstat(file.fileno())
                if self.position < 0:
                    self.position = max(now.st_size - self.back, 0) if self.back is not None else 0
                    self._begin_at_a_line(file.fileno())
                elif now.st_ino != self.inode or now.st_size < self.position:
                    self.position, self.anew = 0, True
                self.inode = now.st_ino
                file.seek(self.position)
                yield from self._whole(file.fileno())
        except OSError:
            return

    def _begin_at_a_line(self, descriptor: int) -> None:
        if self.position:
            piece = os.pread(descriptor, PIECE_BYTES, self.position)
            self.position += piece.find(b"\n") + 1  # none: it is one long line, which is shown

    def _whole(self, descriptor: int) -> Iterator[bytes]:
        rest = b""
        while piece := os.pread(descriptor, PIECE_BYTES, self.position + len(rest)):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self.position += len(line) + 1
                yield line
            if len(rest) > LINE_BYTES:
                self.position, rest = self.position + len(rest), b""
