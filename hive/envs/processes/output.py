"""The output of an environment process or a program: a file in the run's log folder, or one in memory."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from hive.printable import printable
from hive.records.regular import open_appended
from hive.runtime.process.output import OUTPUT_BYTES

TAIL_BYTES = 1 << 14  # of the end of the output that are read for an event
CRASH = "Fatal Python error: "  # with which faulthandler begins the stack of a crash
TAIL_LINES, TAIL_CHARACTERS = 10, 2000  # of it that the event shows


class Output:
    """Where everything goes that one environment's processes print. fd: open for appending.

    path: a file `*.out` in the log folder, which the supervisor bounds; None: in memory, bounded by `bound`.
    """

    def __init__(self, path: Path | None) -> None:
        if path is None:
            memory = os.memfd_create("output", os.MFD_CLOEXEC)
            # Opened again to append: otherwise a process continues where it was, behind a hole, after `bound`.
            self.fd = os.open(f"/proc/self/fd/{memory}", os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            os.close(memory)
        else:
            self.fd = open_appended(path, 0o644)
        self._in_memory = path is None
        self._begin = os.fstat(self.fd).st_size  # what an earlier process has printed is no part of `tail`

    def end(self) -> str:
        """Return the end of what was printed."""
        size = os.fstat(self.fd).st_size
        begin = self._begin if self._begin <= size else 0  # a file that was truncated is shorter
        return os.pread(self.fd, TAIL_BYTES, max(begin, size - TAIL_BYTES)).decode(errors="backslashreplace")

    def tail(self) -> str:
        """Return the last lines that were printed before a crash, without what a terminal would execute."""
        text = self.end().partition(CRASH)[0]
        lines = [printable(line, TAIL_CHARACTERS) for line in text.splitlines() if line.strip()]
        return "\n".join(lines[-TAIL_LINES:])[-TAIL_CHARACTERS:]

    def bound(self) -> None:
        """Empty a file in memory that is too long."""
        if self._in_memory and os.fstat(self.fd).st_size > OUTPUT_BYTES:
            os.ftruncate(self.fd, 0)

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):
            os.close(self.fd)
