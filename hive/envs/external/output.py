"""The output of a program, of which the last lines explain a failure.

A file of the caller is only read. Without one it is kept in memory, up to a limit: the program appends, so it continues
at the beginning when what it has written is dropped, and never waits.
"""

from __future__ import annotations

import os

from hive.printable import printable

MOST_BYTES = 1 << 20  # of an output in memory
TAIL_LINES = 10
TAIL_CHARACTERS = 2000


class Output:
    """Where a program prints. fd: a file that is open for reading and appending; None: memory."""

    def __init__(self, fd: int | None = None) -> None:
        self._is_memory = fd is None
        if fd is not None:
            self.fd = os.dup(fd)
            return
        memory = os.memfd_create("output", os.MFD_CLOEXEC)
        self.fd = os.open(f"/proc/self/fd/{memory}", os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        os.close(memory)

    def bound(self) -> None:
        """Drop an output in memory that is too long."""
        if self._is_memory and os.fstat(self.fd).st_size > MOST_BYTES:
            os.ftruncate(self.fd, 0)

    def tail(self) -> str:
        """Return the last lines, at most TAIL_LINES and TAIL_CHARACTERS."""
        size = os.fstat(self.fd).st_size
        end = os.pread(self.fd, 4 * TAIL_CHARACTERS, max(0, size - 4 * TAIL_CHARACTERS))
        lines = [printable(line.rstrip()) for line in end.decode(errors="replace").split("\n")]
        kept = [line for line in lines if line][-TAIL_LINES:]
        return "\n".join(kept)[-TAIL_CHARACTERS:]

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)
