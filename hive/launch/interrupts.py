"""Turn the signals that ask a command to end into exceptions, and defer them where a run would be left half made.

It imports little, because `hive up` uses it before it starts the supervisor.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from hive.runtime.actor.interrupted import Interrupted, raise_interrupt
from hive.runtime.process.stop_signals import SIGNALS, is_ours, spare_children
from hive.runtime.run.main_thread import in_main_thread


def number_of(interrupt: KeyboardInterrupt) -> int:
    """Return the signal that raised the exception: SIGINT unless it is known to be another."""
    return interrupt.number if isinstance(interrupt, Interrupted) else signal.SIGINT


@contextmanager
def raising_interrupts() -> Iterator[None]:
    """Raise Interrupted at the signals that ask a command to end, inside the context.

    At Ctrl-C, too: a plain KeyboardInterrupt that passes through `exec`, as in a class decorator that an import runs,
    has Python end by SIGINT at last, although it was caught and the exit code is another.
    Signals that are ignored stay so: `nohup` does that. So do handlers that a script has set. Only the main thread
    receives signals.
    """
    if not in_main_thread():
        yield
        return
    spare_children()
    before = {number: signal.getsignal(number) for number in SIGNALS if is_ours(number)}
    try:
        for number in before:
            signal.signal(number, raise_interrupt)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Defer signals to the end of the block: they can end a started process only once a variable refers to it.

    Only the main thread receives signals, so this does nothing in others.
    """
    with recorded_interrupts() as held:
        yield
    if held:
        signal.raise_signal(held[0])


@contextmanager
def recorded_interrupts() -> Iterator[list[int]]:
    """Yield a list to which each signal is appended, inside the context, in place of its handler's effect.

    Signals that are ignored stay so. Outside the main thread, which receives all signals, the list stays empty.
    """
    held: list[int] = []
    if not in_main_thread():
        yield held
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in (number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)):
        signal.signal(number, lambda number, frame: held.append(number))
    try:
        yield held
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
