"""Finds out in other threads that Ctrl-C is ending the program, because only the main thread receives signals.

    pool = ThreadPoolExecutor()         the main thread receives Ctrl-C, and raises KeyboardInterrupt
    with pool: pool.map(trial, ...)     the end of the block waits for the trials, which would go on for hours

The exception that a thread handles is public, also to other threads. At the prompt and in notebooks Ctrl-C ends a
statement and not the program, so the exceptions there are not looked at.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

LOOK_S = 0.5  # interval between two looks; an exception that is handled in less time does not end the program


class MainThread:
    """The main thread, for a call in any thread that waits for a run."""

    def __init__(self) -> None:
        self._known = self._latest = 0  # identities of exceptions: of the one that was returned, and of the latest

    def interrupted(self) -> bool:
        """Return whether it is being ended by Ctrl-C, or by SystemExit, since before the last look. True only once."""
        before, self._latest = self._latest, _ending()
        if self._latest in (0, self._known) or self._latest != before:
            return False
        self._known = self._latest
        return True


def refuse_at_the_end() -> None:
    """Raise KeyboardInterrupt in a thread that would start a run while Ctrl-C is ending the program.

    A pool executes all calls that it has been given before it ends.
    """
    if _ending():
        main = MainThread()
        main.interrupted()
        time.sleep(LOOK_S)
        if main.interrupted():
            raise KeyboardInterrupt


def raised_in_program(error: BaseException) -> str:
    """Return the `stop_reason` of a run that an exception has ended which a handler of its program has raised."""
    return f"{type(error).__name__} in the program"


def in_notebook() -> bool:
    """Return whether this program is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def in_main_thread() -> bool:
    """Whether this thread receives signals and may set their handlers."""
    return threading.current_thread() is threading.main_thread()


def _ending() -> int:
    """Return the identity of the exception that ends the main thread; 0 if there is none, and in the main thread."""
    if in_main_thread() or hasattr(sys, "ps1") or in_notebook():
        return 0
    handled: Any = sys._current_exceptions().get(threading.main_thread().ident or 0)
    if isinstance(handled, tuple):  # before Python 3.12: type, value, traceback
        handled = handled[1]
    if isinstance(handled, (KeyboardInterrupt, SystemExit)):
        return id(handled)
    uncaught = getattr(sys, "last_value", None)
    return id(uncaught) if isinstance(uncaught, KeyboardInterrupt) else 0
