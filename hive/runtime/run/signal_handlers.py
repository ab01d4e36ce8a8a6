"""The signals that end a run, and the handlers of the program around a run `inline`."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from hive.runtime.process.stop_signals import REASONS, SIGNALS, blocked, is_ours, recorded
from hive.runtime.run.main_thread import in_main_thread, raised_in_program


class Down(Protocol):
    """Ends a run, as `LiveRun.down` does."""

    def __call__(self, reason: str, at_once: bool, way: str = "control") -> None: ...


class SignalHandlers:
    """Handles the signals of a run. leave: called when the program that waits for the run leaves it."""

    def __init__(self, down: Down, leave: Callable[[], None]) -> None:
        self.down = down
        self.leave = leave
        self.raised: BaseException | None = None  # by a handler of the program around a run `inline`

    @contextmanager
    def handled(self, received: Callable[[int], object] | None = None) -> Iterator[None]:
        """Handle signals inside the context: SIGTERM and SIGINT end the run, SIGHUP (a closed terminal) does not.

        Those that were kept before count, too. received: of a run `inline`, is called with each that ends the run;
        handlers that its program has set are called. Only the main thread receives signals; an inline run in another
        thread handles none.
        """
        if not in_main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in SIGNALS}
        ignored = [number for number, handler in before.items() if handler is signal.SIG_IGN and received is not None]
        for number in ignored:
            del before[number]
        for number, handler in before.items():
            if received is None or is_ours(number) or not callable(handler):
                loop.add_signal_handler(number, self.signalled, number, received)
            else:
                loop.add_signal_handler(number, self._call_handler, handler, number)
        for kept in recorded():
            self.down(REASONS[signal.Signals(kept)], False, "signal")
        try:
            yield
        finally:
            with blocked():  # the loop sets the defaults, which would end this process
                for number, handler in before.items():
                    loop.remove_signal_handler(number)
                    if handler is not None:  # None: not set by Python
                        signal.signal(number, handler)

    def _call_handler(self, handler: Callable[[int, None], object], number: int) -> None:
        """Call a handler of the program, between two steps of the actors; if it raises, the run is saved first."""
        try:
            handler(number, None)
        except BaseException as error:
            self.raise_at_end(error)

    def raise_at_end(self, error: BaseException) -> None:
        """End the run because of an exception that a handler of the program has raised, and raise it then."""
        self.raised = self.raised or error
        self.down(raised_in_program(error), at_once=False, way="program")

    def signalled(self, number: int, received: Callable[[int], object] | None) -> None:
        """Obey a signal, and pass one that ends the run to `received`."""
        if number == signal.SIGHUP:
            self.leave()  # as when its terminal is closed
            return
        if received is not None:
            received(number)
        self.down(REASONS[signal.Signals(number)], False, "signal")
