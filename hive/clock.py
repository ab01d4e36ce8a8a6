"""Time, real and virtual: the first of the three seams (clock, process table, transport).

Every wait of the runtime goes through its event loop (`asyncio.sleep`, `call_later`) and every reading of time through
a `Clock`. Under `RealClock` that is the machine's time. `VirtualLoop` is an event loop whose time stands still while
anything is ready and jumps to the next timer when nothing is: a test of an hour of waiting takes milliseconds, and
the same seed gives the same schedule.

What decides in deterministic modes reads no clock at all; clocks serve limits, metrics and views.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import Protocol

__all__ = ["Clock", "RealClock", "VirtualClock", "VirtualLoop"]


class Clock(Protocol):
    """Where the runtime reads the time."""

    def now_ns(self) -> int:
        """Nanoseconds of a monotonic clock."""

    def wall(self) -> float:
        """Seconds since 1970, for people."""


class RealClock:
    """The machine's clocks."""

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
    """Never waits: where a real selector would sleep, it tells the loop to move its time on."""

    skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("a virtual loop has nothing to do and no timer: everything in it waits for ever")
        self.skipped_s += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time. Raises RuntimeError when all tasks wait and no timer is set (a deadlock)."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.skipped_s
