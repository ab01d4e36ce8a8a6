"""Ends a process with all that it has started, wherever its children went.

Its descendants are found in /proc while it lives. A child in a session of its own, whose parent has exited, is found by
a variable in its environment, the mark, which names the run, the environment and its incarnation.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

from hive.errors import EnvironmentFailed
from hive.runtime.process.pidfds import has_exited, open_marked, opened, send_signal
from hive.runtime.process.spawning import MARK as RUN_MARK
from hive.runtime.process.user_code.throwaway import children

MARK = "HIVE_ENV_MARK"
ENDING_S = 30.0  # a killed process that still runs after this time never returns from a call of the kernel
POLL_S = 0.001
PROPORTIONAL = re.compile(r"^Pss: +(\d+) kB", re.MULTILINE)
NONCE_BYTES = 8
_OWN = f"{os.getpid()} {time.time_ns()}"  # in place of the mark of a run, in a script


def marks_of(index: int) -> str:
    """Return the beginning of the marks of an environment of this run, in all its incarnations."""
    return f"{os.environ.get(RUN_MARK) or _OWN} {index}/"


def new_mark(index: int, incarnation: int) -> str:
    """Return a mark for a process that is about to start: another one each time.

    An environment of the same index and incarnation may live elsewhere: the one of a video, or one that is described.
    """
    return f"{marks_of(index)}{incarnation}.{secrets.token_hex(NONCE_BYTES)}."


def tree_of(pid: int) -> set[int]:
    """Return a process and all its descendants."""
    found, new = set[int](), {pid}
    while new:
        found |= new
        new = {child for one in new for child in children(one)} - found
    return found


def end_processes(process: subprocess.Popen[bytes] | None, mark: str) -> None:
    """Kill and reap a process, and kill all that it has started and all with the mark; wait until none of them is left.

    process: None if there is none besides those with the mark. One that was reaped has no number any more: what it has
    left is found by the mark. Raises EnvironmentFailed for a process that cannot be killed.
    """
    limit = time.monotonic() + ENDING_S
    held = dict[int, int]()  # pidfd -> pid, of the processes that have not exited
    try:
        if process is not None and process.returncode is None:
            held[os.pidfd_open(process.pid)] = process.pid
        while True:
            _drop_exited(held)
            _hold_marked(held, mark)
            _hold_descendants(held)
            if not held:
                break
            for pidfd in held:
                send_signal(pidfd, signal.SIGKILL)
            if time.monotonic() > limit:
                listed = ", ".join(map(str, sorted(held.values())))
                raise EnvironmentFailed(f"processes of an environment cannot be killed: {listed}", permanent=True)
            has_exited(next(iter(held)), POLL_S)
    finally:
        for pidfd in held:
            os.close(pidfd)
    if process is not None:
        process.wait()


def _hold_marked(held: dict[int, int], mark: str) -> None:
    beginning = f"{MARK}={mark}".encode()
    for pid, pidfd in open_marked(lambda variable: variable.startswith(beginning)):
        if pid in held.values():
            os.close(pidfd)
        else:
            held[pidfd] = pid


def _hold_descendants(held: dict[int, int]) -> None:
    parents = list(held.items())
    while parents:
        parent, pid = parents.pop()
        for child in children(pid) - set(held.values()):
            # The parent still runs, so its number is its own, and what is listed there are its children.
            pidfd = opened(child, partial(_is_child, child, pid))
            if pidfd is not None and has_exited(parent):
                os.close(pidfd)
            elif pidfd is not None:
                held[pidfd] = child
                parents.append((pidfd, child))


def _is_child(child: int, pid: int) -> bool:
    return child in children(pid)


def _drop_exited(held: dict[int, int]) -> None:
    for pidfd in [one for one in held if has_exited(one)]:
        del held[pidfd]
        os.close(pidfd)


def resident_bytes(pid: int) -> int:
    """Return the resident size of a process and all its descendants, in bytes; 0 if it has exited.

    Each has its part of the pages that several processes share, so these are counted once.
    """
    size = 0
    for one in tree_of(pid):
        with contextlib.suppress(OSError, IndexError):
            try:
                found = PROPORTIONAL.search(Path(f"/proc/{one}/smaps_rollup").read_text())
                size += int(found[1]) << 10 if found else 0
            except (FileNotFoundError, PermissionError):  # a kernel without it: shared pages count several times
                size += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return size
