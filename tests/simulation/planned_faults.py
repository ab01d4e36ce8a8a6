"""The faults of a simulation that happen at a number of callbacks: processes are killed or stopped, and other events.

A process is killed before a callback, or within an operation of its callback that asks `dies_torn`. Runs that share a
loop share one plan, so a seed fixes the faults of all of them.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import NoReturn

from simulation.fakes import Faults, Half
from simulation.simulated_process import NEVER, SimulatedLoop, SimulatedProcess, current_process

MOST_TORN = 32  # maximum kills within an operation: each adds some 20 calls to the stack; further ones are at an await


class PlannedFaults:
    """Draws the moments of the deaths and stops of `faults`, and carries them out. `history` gets a line of each."""

    def __init__(self, loop: SimulatedLoop, faults: Faults, history: list[str]) -> None:
        self.loop = loop
        self.chance = loop.chance
        self.faults = faults
        self.history = history
        ends = [("stop", False)] * faults.stops
        ends += [("kill", self.chance.random() < faults.torn) for _ in range(faults.deaths)]
        self.ends = sorted(((self.chance.randrange(faults.after), *end) for end in ends), reverse=True)
        self.events: list[tuple[int, Callable[[], None]]] = []  # latest first
        self.torn_due = False
        self.torn = 0
        loop.on_callback, loop.next_on_callback = self._reached, self._next()

    def plan(self, number: int, event: Callable[[], None]) -> None:
        """Call `event`, outside of all processes, at callback `number`."""
        self.events.append((number, event))
        self.events.sort(key=lambda planned: -planned[0])
        self.loop.next_on_callback = self._next()

    def _next(self) -> int:
        return min(planned[-1][0] if planned else NEVER for planned in (self.ends, self.events))

    def _reached(self, simulated: SimulatedProcess) -> int:
        """Carry out what is due at a callback of this process; return the number of the next such callback."""
        while self.events and self.events[-1][0] <= self.loop.ran:
            self.loop.call_soon(self.events.pop()[1], context=contextvars.Context())
        if not self.ends or self.ends[-1][0] > self.loop.ran:
            return self._next()
        if not self._may_end(simulated):
            return self.loop.ran + 1
        _, how, torn = self.ends.pop()
        if how == "stop":
            simulated.stopped = True
            self.history.append(f"{self.loop.time():.4f} stopped {simulated}")
        elif torn and self.torn < MOST_TORN:
            self.torn_due = True
        else:
            simulated.kill()
        return self._next()

    def _may_end(self, simulated: SimulatedProcess) -> bool:
        """Return whether the faults may kill or stop this process."""
        victims = self.faults.victims
        return not victims or simulated.name.startswith(victims)

    def dies_torn(self) -> bool:
        """Return whether the current process is to be killed within the operation that it begins."""
        simulated = current_process()
        if not self.torn_due or simulated is None or simulated.dead or not self._may_end(simulated):
            return False
        return self.chance.random() < 0.5

    def tear(self, what: str, half: Half) -> NoReturn:
        """Kill the current process within a transition, an entry in an account, or a store of a board."""
        self.torn_due = False
        self.torn += 1
        simulated = current_process()
        assert simulated is not None
        half(self.chance.random() < 0.5)
        self.history.append(f"{self.loop.time():.4f} torn {what} of {simulated}")
        simulated.kill()
        try:
            self.loop.abandon_callback()
        finally:
            simulated.unwinding = True
