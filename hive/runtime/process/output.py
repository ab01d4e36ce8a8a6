"""Redirect the output of a process (environments, libraries, stacks of native crashes) to `log/<process>.out`.

Lines are flushed one by one, so the file is complete even when the process is killed. A file that was removed is begun
again. Each process replaces only its own file; a subprocess that it has started keeps writing to the old one.

The supervisor bounds the files from outside, by truncating them: a process whose environment never returns to the event
loop, native code, and subprocesses write to them without a line of hive being run, at hundreds of megabytes a second.
The files are opened for appending, so a writer continues at the beginning of a truncated file and never waits. Before
that, the last part of the file is copied to `.out.1`. What is dropped is counted, and a line of the file says so.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import stat
import sys
import time
from pathlib import Path

from hive.records.regular import open_appended

OUTPUT_BYTES = 10_000_000  # size limit of a file, as for logs
COPIES = 2  # size limit of the copy in files: with it, a process has 30 MB at most, as an actor's logs
CHECK_S = 0.1  # interval between two looks at the sizes; within it a file may exceed its limit
FLOOD_S = 0.02  # the same after a look that found too long a file
COPY_S = 1.0  # least time between two copies: a flood costs the supervisor no more than a copy in that time
CHUNK = 1 << 20  # bytes that are copied at once


def redirect_output(path: Path) -> None:
    """Append everything that this process prints to the file `path`, from now on. Raises OSError."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    fd = open_appended(path, 0o644)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
    faulthandler.enable()


def keep_output(path: Path) -> None:
    """Begin the file of this process again if it was removed."""
    with contextlib.suppress(OSError):  # the folder is gone too: the supervisor makes it again
        if not path.exists():
            redirect_output(path)


class BoundedOutput:
    """The files with the output of a run's processes, in `folder`.

    dropped: process -> bytes of its output that neither of its two files has any more.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._copied_s: dict[str, float] = {}  # process -> time of the last copy
        self.dropped: dict[str, int] = {}

    def look(self) -> bool:
        """Truncate the files that are too long; return whether there was one."""
        flooded = False
        for path in self._folder.glob("*.out"):
            with contextlib.suppress(OSError):
                if os.lstat(path).st_size > OUTPUT_BYTES:
                    self._truncate(path)
                    flooded = True
        return flooded

    def _truncate(self, path: Path) -> None:
        # No link, and no pipe that would block.
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return
            dropped, now_s = 0, time.monotonic()
            if now_s - self._copied_s.get(path.stem, -COPY_S) >= COPY_S:
                self._copied_s[path.stem] = now_s
                dropped = _copy(fd, Path(f"{path}.1"))
            dropped += os.fstat(fd).st_size
            os.ftruncate(fd, 0)
            if dropped > 0:
                self.dropped[path.stem] = self.dropped.get(path.stem, 0) + dropped
                note = f"hive: {dropped:,} bytes of earlier output were dropped; `{path.name}.1` has what was kept\n"
                os.write(fd, note.encode())
        finally:
            os.close(fd)


def _copy(fd: int, target: Path) -> int:
    """Replace `target` by the last whole lines of a file; return the bytes that it had, less those that it has now."""
    size = os.fstat(fd).st_size
    start = max(size - COPIES * OUTPUT_BYTES, 0)
    if start:
        start += os.pread(fd, CHUNK, start).find(b"\n") + 1
    try:
        before = target.stat().st_size if target.exists() else 0
        target.unlink(missing_ok=True)
        with open(target, "xb") as file:
            while start + file.tell() < size:
                file.write(os.pread(fd, min(CHUNK, size - start - file.tell()), start + file.tell()))
        return before - (size - start)
    except OSError:  # a full disk, or a folder of this name: the truncation matters more
        return 0
