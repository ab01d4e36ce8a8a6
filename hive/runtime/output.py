"""What a process prints: environments, libraries, and the stack of a crash in native code.

It goes to `log/<process>.out`, line by line, so that what is killed has said what it printed. A file that has grown
beyond its limit becomes `.out.1`, in the place of the one before: an environment that prints at every step would else
fill a disk over night. Only this process looks after its file; what a tool that it has started prints goes on into the
old one.
"""

from __future__ import annotations

import faulthandler
import io
import os
import sys
from pathlib import Path

__all__ = ["LOOK_S", "OUTPUT_BYTES", "bound_output", "redirect_output"]

OUTPUT_BYTES = 10_000_000  # as of a log: with the one before, 20 MB a process
LOOK_S = 1.0  # between two looks at its size: a process prints some 100 MB in that time at most


def redirect_output(path: Path) -> None:
    """From now on this process prints to the end of that file. Raises OSError."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
    faulthandler.enable()


def bound_output(path: Path) -> None:
    """Begins the file anew if it has grown beyond its limit. Where that cannot be done it goes on growing."""
    try:
        if os.fstat(1).st_size > OUTPUT_BYTES:
            path.replace(f"{path}.1")
            redirect_output(path)
    except OSError:
        pass
