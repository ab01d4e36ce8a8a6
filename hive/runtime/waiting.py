"""How an actor waits: for shared memory to change, for a message, for its turn.

    attempt() -> None            nothing yet: wait and try again
    attempt() -> anything else   that is the result

Every wait has a limit: whatever rings may be lost, so the attempt is repeated every 50 ms in any case.

An actor alone in its process that waits for shared memory sleeps on the native notifier of its status page (a futex, a
few microseconds to wake), in slices, and lets its event loop run between them. The slices are brief while a message is
on its way to it, of which its page tells before ZeroMQ does, and while its loop has calls to answer. Actors that share
a process wait on a future that a commit in the same process, or a doorbell message from another, completes: a blocked
thread would never see its own writer. Waits for messages always use the future, since the loop has to run to receive
them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from typing import TypeVar

from hive.runtime.status import WAIT_OUT, Status

__all__ = ["PAUSED", "RESCAN_S", "Asks", "Waiter"]

T = TypeVar("T")

PAUSED = "paused"  # the phase of a source that a pause has stopped
BREATH_NS = 200_000  # an actor that never waits lets its loop run so often: it hears a message as soon as it matters
BRIEF_NS = 100_000  # a message that was sent is there in that time, mostly; meanwhile the notifier spins
CALLS_NS = 1_000_000  # what goes on beside its run gets the loop so often
TURNS = 3  # of the loop: one reads the message, one begins what answers it, one lets that go on
RESCAN_S = 0.05  # a lost doorbell costs at most this much; rarer than any real notify, so it costs no measurable time


class _YieldToLoop:
    """Awaited, it lets the event loop run once: `asyncio.sleep(0)` without the coroutine around it."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield


YIELD_TO_LOOP = _YieldToLoop()


@dataclass(frozen=True)
class Asks:
    """What an actor waits for whose inlet has others beside it: the number of the channel in the plan.

    A message is for any one of them, so that one is woken, but for those who wait for a certain one (`every`).
    `pass_on` wakes another: who was picked, and goes on without having looked since, has to.
    """

    channel: int
    pass_on: Callable[[], None]
    every: bool = False


class Waiter:
    """The waits of one actor. `dedicated`: it is alone in its process. `calls`: what goes on there beside its run."""

    def __init__(self, status: Status, dedicated: bool, calls: Collection[object] = ()) -> None:
        self.status = status
        self.dedicated = dedicated
        self.halted = False  # the run pauses, and this actor is a source
        self._paused = 0  # the phase, once it was needed
        self._breathed_ns = 0  # when its loop last ran, as far as its waits know
        # In the order they fell asleep: a set would wake them by their addresses, and no schedule could be had again.
        self._sleepers: dict[asyncio.Future[None], None] = {}
        self._asking: list[Asks] = []  # of its waits at this moment
        self.heard = status.page.mail  # of the messages sent to its process: what came before is not its
        self._missing_ns = 0  # since when a message has been on its way
        self.calls = calls
        self._rescan: asyncio.TimerHandle | None = None  # set while somebody may sleep: one for many naps

    @property
    def asleep(self) -> bool:
        return bool(self._sleepers)

    def wake(self) -> None:
        """Something changed: every wait of this actor looks again."""
        for sleeper in self._sleepers:
            _rouse(sleeper)

    async def until(
        self, attempt: Callable[[], T | None], phase: int, *, memory: bool = False, asks: Asks | None = None
    ) -> T:
        """The first result of `attempt` that is not None. `memory`: it looks at shared memory only.

        `asks`: it waits for a message that others wait for too, and only one of them is woken.

        An actor that never waits yields to the loop all the same, so that it hears its messages: one of several always,
        one that is alone now and then, for a turn of the loop costs it more than most attempts.
        """
        if not self.dedicated:
            await YIELD_TO_LOOP
        elif time.monotonic_ns() - self._breathed_ns > BREATH_NS:
            await self._yield_to_loop()
        result = attempt()
        if result is not None:
            return result
        status, page = self.status, self.status.page
        status.enter(phase)
        if asks is not None:
            self._asking.append(asks)
        try:
            while True:
                seen = page.seen()
                if asks is not None:
                    self._ask()
                if memory and not self.dedicated:
                    page.set_waiting()
                result = attempt()
                if result is not None:
                    return result
                if self.dedicated and memory:
                    slice_ns = self._slice_ns()
                    page.wait(seen, slice_ns)
                    for _ in range(TURNS if slice_ns < RESCAN_S * 1e9 else 1):
                        await self._yield_to_loop()
                else:
                    await self._nap()
        finally:
            if asks is not None and self._unask(asks):
                asks.pass_on()
            status.enter(status.runtime)

    def _slice_ns(self) -> int:
        """How long its loop may stand still."""
        if self.status.page.mail == self.heard:
            self._missing_ns = 0
        elif not self._missing_ns:
            self._missing_ns = time.monotonic_ns()
        elif time.monotonic_ns() - self._missing_ns > RESCAN_S * 1e9:  # it was lost, or for one before
            self.heard, self._missing_ns = self.status.page.mail, 0
        if self._missing_ns:
            return BRIEF_NS
        return CALLS_NS if self.calls else int(RESCAN_S * 1e9)

    def _ask(self) -> None:
        """An actor that waits for several things at once asks for every message: its page has room for one channel."""
        if len(self._asking) == 1:
            self.status.page.ask(self._asking[0].channel + 1, self._asking[0].every)
        else:
            self.status.page.ask(0, every=True)

    def _unask(self, asks: Asks) -> bool:
        """Whether it was picked since it asked last."""
        self._asking.remove(asks)
        if not self._asking:
            return self.status.page.unask()
        self._ask()  # without a gap: who asked for every message was not picked
        return False

    async def admitted(self, owed: Callable[[], bool]) -> None:
        """Before a source begins anything: waits while the run is paused, unless it still owes that to its peers."""
        if self.halted:
            self._paused = self._paused or self.status.phase(PAUSED, WAIT_OUT)
            await self.until(lambda: True if not self.halted or owed() else None, self._paused)

    async def _yield_to_loop(self) -> None:
        await YIELD_TO_LOOP
        self._breathed_ns = time.monotonic_ns()

    async def _nap(self) -> None:
        loop = asyncio.get_running_loop()
        sleeper: asyncio.Future[None] = loop.create_future()
        self._sleepers[sleeper] = None
        if self._rescan is None:
            self._rescan = loop.call_later(RESCAN_S, self._look_again)
        try:
            await sleeper
        finally:
            self._sleepers.pop(sleeper, None)

    def _look_again(self) -> None:
        self._rescan = None
        self.wake()


def _rouse(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
