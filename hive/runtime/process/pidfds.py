"""Processes that another process reaps: their numbers may belong to others by the time a signal is sent.

A pidfd refers to the process that had a number when it was opened, and to no later one. So a process is opened first
and recognised again after that; then signals go to the pidfd.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path


def opened(pid: int, is_meant: Callable[[], bool] = lambda: True) -> int | None:
    """Return a pidfd of process `pid`, None if there is none, or if `is_meant` does not hold now that it is open.

    Without `is_meant`, the number must still belong to the process: this one reaps it, and has not yet.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if is_meant():
        return pidfd
    os.close(pidfd)
    return None


def has_exited(pidfd: int, limit_s: float = 0.0) -> bool:
    """Wait at most `limit_s`; return whether the process has exited, with all its threads."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(limit_s * 1e3))


def send_signal(pidfd: int, number: int) -> None:
    """Send a signal, if the process still exists and belongs to this user."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(pidfd, number)


def open_marked(fits: Callable[[bytes], bool]) -> Iterator[tuple[int, int]]:
    """Yield number and pidfd of each other process that was started with a variable that fits, as b"NAME=value"."""

    def is_marked(pid: int) -> bool:
        try:
            return any(map(fits, Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")))
        except OSError:  # it has exited, or belongs to another user
            return False

    for name in os.listdir("/proc"):
        pid = int(name) if name.isdigit() else os.getpid()
        if pid != os.getpid() and is_marked(pid) and (pidfd := opened(pid, partial(is_marked, pid))) is not None:
            yield pid, pidfd
