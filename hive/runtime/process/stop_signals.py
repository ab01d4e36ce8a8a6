"""Handle the signals that ask a run to end, in each of its processes.

Slurm, systemd and docker send SIGTERM to all processes of a run at once, a terminal SIGINT or SIGHUP. Only the
supervisor ends the run: it asks its actors to drain, and they save. So actors and the fork server handle these signals
by a function that does nothing. They do not ignore them: programs that user code starts would inherit that, whereas
handlers become defaults again where a program is executed. Children that user code forks get the defaults, too.

A process is started with these signals blocked, and unblocks them once it handles them. So none of them can end it
before. This module imports little more than the standard library, since the supervisor handles them before its other
imports.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hive.runtime.actor.interrupted import raise_interrupt

# Signal that ends the run -> the `stop_reason` of its summary. SIGHUP does not end it: a closed terminal leaves it.
REASONS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
SIGNALS = (*REASONS, signal.SIGHUP)
TERMINATED = 75  # exit code of `hive up` after SIGTERM (EX_TEMPFAIL of sysexits.h): restart policies "on failure" act
FORCED = 130  # exit code of a run that was stopped at once, as for a program ended by SIGINT
DEFAULTS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}

OWN = "hive."  # what the names of the modules with hive's handlers begin with
ASYNCIO = "asyncio.runners"  # module of the handler that has Ctrl-C cancel the main task

_recorded: list[int] = []  # signals that ask the run to end and were not taken yet
_forking = False  # whether the next fork is that of an actor
_registered = False  # whether `_reset` is called after forks


@contextmanager
def blocked() -> Iterator[None]:
    """Block the signals in this thread inside the context: processes that it starts begin with them blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def is_ours(number: int) -> bool:
    """Return whether hive may replace the handler of a signal in a program: not if the program has set one itself."""
    handler = signal.getsignal(number)
    by_asyncio = getattr(getattr(handler, "func", None), "__module__", "") == ASYNCIO
    return by_asyncio or handler in (raise_interrupt, DEFAULTS[signal.Signals(number)])


def do_nothing() -> None:
    """Handle the signals in this process, from now on, by doing nothing. Handlers of user code are replaced."""
    global _forking
    _forking = False
    for number in SIGNALS:
        if signal.getsignal(number) is not _nothing:
            signal.signal(number, _nothing)
            signal.siginterrupt(number, False)  # restart system calls, so that an environment is unaffected
    spare_children()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def spare_children() -> None:
    """Give children that user code forks from now on the defaults in place of hive's handlers."""
    global _registered
    if not _registered:
        _registered = True
        os.register_at_fork(after_in_child=_reset)


@contextmanager
def forking() -> Iterator[None]:
    """Keep the handlers in processes that are forked inside the context: actors, which call `do_nothing` again."""
    global _forking
    _forking = True
    try:
        yield
    finally:
        _forking = False


def record() -> None:
    """Keep the signals that ask the run to end, from now on, until `recorded` returns them."""
    for number in REASONS:
        signal.signal(number, lambda number, frame: _recorded.append(number))
    signal.signal(signal.SIGHUP, _nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def recorded() -> list[int]:
    """Return the signals that were kept since the last call, oldest first."""
    taken = _recorded[:]
    del _recorded[: len(taken)]
    return taken


def _nothing(number: int, frame: FrameType | None) -> None:
    """Do nothing."""


def _reset() -> None:
    """Give a child that user code has forked the defaults, unless user code has set handlers of its own."""
    if not _forking:
        for number, default in DEFAULTS.items():
            if getattr(signal.getsignal(number), "__module__", "").startswith(OWN):
                signal.signal(number, default)
