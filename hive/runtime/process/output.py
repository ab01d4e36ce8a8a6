"""Redirect the output of a process (environments, libraries, stacks of native crashes) to `log/<process>.out`.

Lines are flushed one by one, so the file is complete even when the process is killed. A file that exceeds its limit is
renamed to `.out.1`, replacing the previous one, whose size the first line of the new file reports; otherwise an
environment that prints at every step would fill the disk overnight. A file that was removed is begun again. Each
process replaces only its own file. A subprocess that it has started keeps writing to the old one.
"""

from __future__ import annotations

import faulthandler
import io
import os
import sys
from pathlib import Path

__all__ = ["CHECK_S", "OUTPUT_BYTES", "redirect_output", "rotate_output"]

OUTPUT_BYTES = 10_000_000  # size limit of a file, as for logs: 20 MB per process with the previous file
CHECK_S = 1.0  # interval between checks of the size: a process prints at most about 100 MB in that time


def redirect_output(path: Path) -> None:
    """Append everything that this process prints to the file `path`, from now on. Raises OSError."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
    faulthandler.enable()


def rotate_output(path: Path) -> None:
    """Start a new file if the file was removed or exceeds OUTPUT_BYTES, and is renamed then.

    If that fails, the old file continues to grow.
    """
    try:
        if not path.exists():
            redirect_output(path)
        elif os.fstat(1).st_size > OUTPUT_BYTES:
            previous = Path(f"{path}.1")
            dropped = previous.stat().st_size if previous.exists() else 0
            path.replace(previous)
            redirect_output(path)
            if dropped:
                os.write(1, f"hive: {dropped:,} bytes of earlier output were dropped here\n".encode())
    except OSError:
        pass
