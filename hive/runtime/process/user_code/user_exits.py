"""Turn `os._exit` of user code into an exception, so that its line can be reported.

`os._exit` ends a process at once, without a traceback. Called by an environment's constructor, it would end the fork
server, and the run would have no cause but an exit code. C code that exits is not caught; its exit code is reported.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

leave = os._exit  # the original, for the runtime's own exits


def raise_on_exit() -> None:
    """Make `os._exit` raise SystemExit in the main thread of this process, from now on.

    Other threads and processes that user code forks keep the original. A fork of the runtime calls this again.
    """
    pid = os.getpid()

    def raise_or_leave(status: int) -> NoReturn:
        if os.getpid() == pid and threading.current_thread() is threading.main_thread():
            raise SystemExit(f"os._exit({status})")
        leave(status)

    setattr(os, "_exit", raise_or_leave)  # noqa: B010  # an assignment would define the name as one of hive's own


@contextmanager
def raising_on_exit() -> Iterator[None]:
    """Make `os._exit` raise as in `raise_on_exit`, inside the context only: for commands that run user code."""
    before = os._exit
    raise_on_exit()
    try:
        yield
    finally:
        setattr(os, "_exit", before)  # noqa: B010
