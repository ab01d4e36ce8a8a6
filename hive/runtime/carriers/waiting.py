"""How an actor waits for a change of shared memory, or for a message.

    attempt() -> None            not yet: wait and try again
    attempt() -> anything else   the result of the wait

A notification may be lost, so every wait repeats its attempt at least every 50 ms.

An actor in a dedicated process waits for shared memory on the native notifier of its status page (a futex, which wakes
within microseconds). It sleeps in slices and lets its event loop run between them. The slices are short while a message
is on its way, which the page's mail counter shows before ZeroMQ delivers it, and while its loop has calls to answer.

Actors that share a process wait on a future instead, which a commit in the same process completes, or a Notify message
from another one. If they blocked the thread, a writer in the same process could never run. Waits for messages always
use the future, because the event loop has to run to receive them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from typing import TypeVar

from hive.runtime.memory.status import WAIT_OUT, Status

T = TypeVar("T")

PAUSED = "paused"  # the phase of a source that a pause has stopped
YIELD_NS = 200_000  # longest time without a yield of an actor that never waits: its messages are read that soon
MAIL_SLICE_NS = 100_000  # slice while a message is on its way, which usually arrives in that time; the notifier spins
CALLS_SLICE_NS = 1_000_000  # slice while endpoints run beside the actor's `run`
YIELDS = 3  # loop iterations after a short slice: one reads the message, one starts its task, one lets the task run
RESCAN_S = 0.05  # longest delay by a lost notification; attempts this rare cost no measurable time


class _YieldToLoop:
    """An awaitable that lets the event loop run once: `asyncio.sleep(0)` without the cost of a coroutine."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield


YIELD_TO_LOOP = _YieldToLoop()


@dataclass(frozen=True)
class WakeRequest:
    """Requests to be woken for messages of a channel for which several consumers compete.

    Each message wakes one of the waiting consumers. A consumer that waits for one particular message sets `every` and
    is woken by all of them. A consumer that was woken and stops waiting without a further attempt calls `pass_on`,
    which wakes another one.
    """

    channel: int  # index of the channel in the plan
    pass_on: Callable[[], None]
    every: bool = False


class Waiter:
    """The waits of one actor.

    `dedicated`: its process hosts no other actor. `calls`: tasks in the process beside the actor's `run`.
    """

    def __init__(self, status: Status, dedicated: bool, calls: Collection[object] = ()) -> None:
        self.status = status
        self.dedicated = dedicated
        self.paused = False  # the run is paused or pausing, and this actor is a source
        self._paused_phase = 0  # index of the phase PAUSED, made at first use
        self._yielded_ns = 0  # time of the last yield to the loop
        # A dict keeps the order of the waits. A set would wake them by address, and a seed would not fix the schedule.
        self._sleepers: dict[asyncio.Future[None], None] = {}
        self._requests: list[WakeRequest] = []  # those of the current waits
        # Messages received, counted like the page's `mail`: messages before this moment were for an earlier
        # incarnation.
        self.received = status.page.mail
        self._missing_ns = 0  # time since which a message has been on its way; 0: none is
        self.calls = calls
        self._rescan: asyncio.TimerHandle | None = None  # one timer for all sleepers; set while there may be any

    @property
    def asleep(self) -> bool:
        return bool(self._sleepers)

    def wake(self) -> None:
        """Make every wait of this actor repeat its attempt."""
        for sleeper in self._sleepers:
            if not sleeper.done():
                sleeper.set_result(None)

    async def until(
        self, attempt: Callable[[], T | None], phase: int, *, memory: bool = False, request: WakeRequest | None = None
    ) -> T:
        """Return the first result of `attempt` that is not None; meanwhile the actor's status shows `phase`.

        `memory`: `attempt` reads shared memory only. `request`: other consumers compete for the same messages.
        """
        # An actor that never has to wait must yield too, or it would receive no messages. In a dedicated process it
        # does so at intervals only, because an iteration of the loop costs more than most attempts.
        if not self.dedicated:
            await YIELD_TO_LOOP
        elif time.monotonic_ns() - self._yielded_ns > YIELD_NS:
            await self._yield_to_loop()
        result = attempt()
        return await self._wait(attempt, phase, memory, request) if result is None else result

    async def _wait(self, attempt: Callable[[], T | None], phase: int, memory: bool, request: WakeRequest | None) -> T:
        """Sleep and repeat `attempt` until it has a result."""
        status, page = self.status, self.status.page
        status.enter(phase)
        if request is not None:
            self._requests.append(request)
        try:
            while True:
                # The order closes the race with a writer: announce the wait, then attempt, then sleep. A change before
                # the attempt is found by it. A later one finds the announcement, or changes the word `seen`, in which
                # case `page.wait` returns at once.
                seen = page.seen()
                if request is not None:
                    self._request_wake()
                if memory and not self.dedicated:
                    page.set_waiting()
                result = attempt()
                if result is not None:
                    return result
                if self.dedicated and memory:
                    slice_ns = self._slice_ns()
                    page.wait(seen, slice_ns)
                    for _ in range(YIELDS if slice_ns < RESCAN_S * 1e9 else 1):
                        await self._yield_to_loop()
                else:
                    await self._sleep()
        finally:
            # Also after a cancellation: the actor may have been picked for a message that it will not claim.
            if request is not None and self._withdraw(request):
                request.pass_on()
            status.enter(status.runtime)

    def _slice_ns(self) -> int:
        """Return how long the thread, and with it the event loop, may sleep."""
        if self.status.page.mail == self.received:
            self._missing_ns = 0
        elif not self._missing_ns:
            self._missing_ns = time.monotonic_ns()
        elif time.monotonic_ns() - self._missing_ns > RESCAN_S * 1e9:
            # The message was lost, or sent to an earlier incarnation: stop waiting for it.
            self.received, self._missing_ns = self.status.page.mail, 0
        if self._missing_ns:
            return MAIL_SLICE_NS
        return CALLS_SLICE_NS if self.calls else int(RESCAN_S * 1e9)

    def _request_wake(self) -> None:
        """Write the request of the current wait to the page.

        Several simultaneous waits request every message of all channels, because the page has room for one channel.
        """
        if len(self._requests) == 1:
            self.status.page.request_wake(self._requests[0].channel + 1, self._requests[0].every)
        else:
            self.status.page.request_wake(0, every=True)

    def _withdraw(self, request: WakeRequest) -> bool:
        """Withdraw a request; return whether the actor was picked for a message since its last attempt."""
        self._requests.remove(request)
        if not self._requests:
            return self.status.page.withdraw_wake()
        # Replaced and not withdrawn first, so that the other wait misses no message. A page that requested every
        # message is never picked, so there is nothing to pass on.
        self._request_wake()
        return False

    async def admitted(self, owed: Callable[[], bool]) -> None:
        """Wait while a pause stops this source, unless `owed`: its peers have already begun the same round."""
        if self.paused:
            self._paused_phase = self._paused_phase or self.status.phase(PAUSED, WAIT_OUT)
            await self.until(lambda: True if not self.paused or owed() else None, self._paused_phase)

    async def _yield_to_loop(self) -> None:
        await YIELD_TO_LOOP
        self._yielded_ns = time.monotonic_ns()

    async def _sleep(self) -> None:
        """Sleep until `wake`, at most RESCAN_S."""
        loop = asyncio.get_running_loop()
        sleeper: asyncio.Future[None] = loop.create_future()
        self._sleepers[sleeper] = None
        if self._rescan is None:
            self._rescan = loop.call_later(RESCAN_S, self._wake_again)
        try:
            await sleeper
        finally:
            self._sleepers.pop(sleeper, None)

    def _wake_again(self) -> None:
        self._rescan = None
        self.wake()
