"""Ends a process with all that it has started, wherever its children went.

Its descendants are found in /proc while it lives. A child in a session of its own, whose parent has exited, is found by
a variable in its environment, the mark, which names the run, the environment and its incarnation.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path

from hive.errors import EnvironmentFailed
from hive.runtime.process.spawning import MARK as RUN_MARK
from hive.runtime.process.user_code.companion import state_of
from hive.runtime.process.user_code.throwaway import children

MARK = "HIVE_ENV_MARK"
ENDING_S = 30.0  # a killed process that still runs after this time never returns from a call of the kernel
POLL_S = 0.001
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


def marked(mark: str) -> set[int]:
    """Return the other processes whose mark begins with `mark`."""
    beginning, found = f"{MARK}={mark}".encode(), set[int]()
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):  # it has exited, or belongs to another user
            if name.isdigit() and any(
                line.startswith(beginning) for line in Path("/proc", name, "environ").read_bytes().split(b"\0")
            ):
                found.add(int(name))
    return found - {os.getpid()}


def end_processes(pid: int | None, mark: str, reap: Callable[[], object] = lambda: None) -> None:
    """Kill a process, all that it has started, and all with the mark, and wait until none of them is left.

    pid: None if there is none besides those with the mark. reap: takes the exit status of children of this process; it
    is called until they are gone. Raises EnvironmentFailed for a process that cannot be killed.
    """
    limit = time.monotonic() + ENDING_S
    known = set() if pid is None else {pid}
    while True:
        for one in list(known):
            known |= tree_of(one)
        known |= marked(mark)
        left = {one for one in known if state_of(one) not in ("", "Z", "X")}
        for one in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGKILL)
        reap()
        if not left:
            return
        if time.monotonic() > limit:
            listed = ", ".join(map(str, sorted(left)))
            raise EnvironmentFailed(f"processes of an environment cannot be killed: {listed}", permanent=True)
        time.sleep(POLL_S)


def resident_bytes(pid: int) -> int:
    """Return the resident size of a process and all its descendants, in bytes; 0 if it has exited."""
    pages = 0
    for one in tree_of(pid):
        with contextlib.suppress(OSError, IndexError):
            pages += int(Path(f"/proc/{one}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
