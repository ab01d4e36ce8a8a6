"""Ties a run to the call of a program that waits for it: what ends the program or the call ends the run, saved.

    Ctrl-C         KeyboardInterrupt leaves the call once the run was saved; in a notebook the call returns its result
    SIGTERM        the program ends by it once the run was saved
    SIGHUP         the program ends by it; a run that has begun continues
    an exception   that a handler of the program has raised leaves the call once the run was saved
    SIGKILL, ...   the supervisor notices that the program has ended, and ends the run (`LiveRun.watch_program`)

Handlers that the program has set stay. In threads other than the main one, which get no signals, Ctrl-C that ends the
main thread ends the run, too (hive.runtime.run.main_thread), and SIGTERM ends the program at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NoReturn

from hive.launch.interrupts import raising_interrupts
from hive.runtime.actor.interrupted import Interrupted
from hive.runtime.process.command import of_program
from hive.runtime.process.spawning import CALLBACKS, PROGRAM
from hive.runtime.process.stop_signals import is_ours, spare_children
from hive.runtime.run.main_thread import in_main_thread, in_notebook, refuse_at_the_end


@contextmanager
def ending_as_asked() -> Iterator[None]:
    """Raise Interrupted at signals inside the context. At its end SIGTERM and SIGHUP end the program as usual."""
    refuse_at_the_end()
    try:
        with raising_interrupts():
            yield
    except Interrupted as interrupt:
        if interrupt.number == signal.SIGINT:
            raise KeyboardInterrupt from None
        _end_by(interrupt.number)


@contextmanager
def cancelled_by_sigterm() -> Iterator[None]:
    """Have SIGTERM cancel the task of this call, inside the context. At its end SIGTERM ends the program as usual.

    Ctrl-C cancels the main task anyway.
    """
    task, loop, received = asyncio.current_task(), asyncio.get_running_loop(), []
    if task is None or not in_main_thread() or not is_ours(signal.SIGTERM):
        yield
        return

    def cancel(number: int, frame: object) -> None:
        received.append(number)
        loop.call_soon_threadsafe(task.cancel)

    spare_children()
    before = signal.signal(signal.SIGTERM, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if received:
            _end_by(signal.SIGTERM)


@contextmanager
def waiting_for_runs(callbacks: str = "") -> Iterator[None]:
    """Have runs that are started inside the context end with this program. callbacks: where its callbacks listen."""
    given = {PROGRAM: str(os.getpid())} | ({CALLBACKS: callbacks} if callbacks else {})
    token = of_program.set(given)
    try:
        yield
    finally:
        of_program.reset(token)


def raise_for(signals: Mapping[int, int]) -> None:
    """Raise Interrupted for the signals that have ended a run; in a notebook not for Ctrl-C, which ends a statement."""
    if signal.SIGTERM in signals:
        raise Interrupted(signal.SIGTERM)
    if signals and not in_notebook():
        raise Interrupted(min(signals))


def _end_by(number: int) -> NoReturn:
    """End this program by a signal, whose handler is the default again, and write what it has printed first."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    signal.raise_signal(number)
    raise SystemExit(128 + number) from None  # the first process of a container has no default action
