"""Real and virtual time. Tests can replace three parts of the runtime: the clock, the process table and the transport.

The runtime waits only through its event loop (`asyncio.sleep`, `call_later`) and reads the time only from a `Clock`.
`RealClock` reads the machine's time. `VirtualLoop` is an event loop whose time stands still while a callback is ready,
and otherwise jumps to the next timer. A test of an hour of waiting takes milliseconds, and the same seed gives the same
schedule.

In synchronous and pipelined modes no decision of the trainer depends on a clock; clocks serve limits, metrics and
views.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import Protocol


class Clock(Protocol):
    """The runtime's source of time."""

    def now_ns(self) -> int:
        """Return the monotonic time in nanoseconds."""

    def wall(self) -> float:
        """Return the wall-clock time in seconds since 1970."""


class RealClock:
    """Reads the machine's clocks."""

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def wall(self) -> float:
        return time.time()


class VirtualClock:
    """The clock of a `VirtualLoop`; its wall clock starts in 1970."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def now_ns(self) -> int:
        return int(self.loop.time() * 1e9)

    def wall(self) -> float:
        return self.loop.time()


class _JumpingSelector(selectors.SelectSelector):
    """Advances the loop's time by the timeout for which a real selector would sleep."""

    skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("deadlock in a virtual loop: no callback is ready and no timer is set")
        self.skipped_s += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time. Raises RuntimeError when no callback is ready and no timer is set (a deadlock)."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.skipped_s
