"""Keep user code from ending the process that runs it: by `os._exit`, or with the process group of its own children.

`os._exit` ends a process at once, without a traceback. Called by an environment's constructor, it would end the fork
server, and the run would have no cause but an exit code. So it raises an exception, whose line can be reported. C code
that exits is not caught; its exit code is reported.

Launchers of simulators end the group of what they have started. A child without a session of its own is in the group of
the process that runs the environment, which would end itself. So a signal to that group goes to all others in it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

leave = os._exit  # the original, for the runtime's own exits
kill_group = os.killpg  # the same for its own kills
OWN = "hive:"  # begins the names of processes that hive forks beside the environments of one process


def raise_on_exit() -> None:
    """Make `os._exit` raise SystemExit in the main thread, and `os.killpg` spare this process, from now on.

    Other threads and processes that user code forks keep the original. A fork of the runtime calls this again.
    """
    pid = os.getpid()

    def raise_or_leave(status: int) -> NoReturn:
        if os.getpid() == pid and threading.current_thread() is threading.main_thread():
            raise SystemExit(f"os._exit({status})")
        leave(status)

    def kill_others(group: int, number: int) -> None:
        if os.getpid() != pid or group not in (0, os.getpgrp()):
            kill_group(group, number)
            return
        for other in members_of(os.getpgrp()) - {pid}:
            with suppress(ProcessLookupError):
                os.kill(other, number)

    setattr(os, "_exit", raise_or_leave)  # noqa: B010  # an assignment would define the name as one of hive's own
    setattr(os, "killpg", kill_others)  # noqa: B010


def members_of(group: int) -> set[int]:
    """Return the processes of a group, but for those that hive has forked."""
    found = set[int]()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError, IndexError, ValueError):
            name, _, rest = Path(f"/proc/{entry}/stat").read_text().partition("(")[2].rpartition(")")
            if int(rest.split()[2]) == group and not name.startswith(OWN):
                found.add(int(entry))
    return found


@contextmanager
def raising_on_exit() -> Iterator[None]:
    """Make `os._exit` raise as in `raise_on_exit`, inside the context only: for commands that run user code."""
    before = os._exit, os.killpg
    raise_on_exit()
    try:
        yield
    finally:
        for name, original in zip(("_exit", "killpg"), before, strict=True):
            setattr(os, name, original)
