"""Places: where code runs in a simulation. Each incarnation of a simulated process is one.

All places share one event loop in virtual time. The loop knows by a context variable whose callback it runs, and so it
can do to a place what an operating system does to a process:

    away        it has lost the processor: its callbacks wait, in order, until it gets it again
    stopped     none of its callbacks runs any more, but nobody has been told (SIGSTOP)
    dead        none of its callbacks ever runs again: no `finally`, no last message (SIGKILL)

So a place dies between two callbacks, which are all its awaits; the simulation lets it die inside of a transition of a
slot as well (`leave_here`). Every choice comes from one seeded generator: a seed is a schedule.

The loop is a few lines of its own, because a schedule of 60 processes has to take milliseconds: no sockets, threads or
signals, callbacks of the same moment in the order they were asked for.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from asyncio import events, tasks
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["NEVER", "Killed", "SimulatedLoop", "SimulatedProcess", "current_process"]

MOST_AT_ONCE = 200_000  # callbacks in one moment of virtual time: 64 + 64 processes need a few thousand

NEVER = 1 << 62

Function = Callable[..., Any]

_PLACE: contextvars.ContextVar[SimulatedProcess | None] = contextvars.ContextVar("place", default=None)


class Killed(BaseException):
    """Takes a callback apart in which its place died, when the simulation is over. Nothing of the place catches it."""


class SimulatedProcess:
    """One incarnation of a simulated process."""

    def __init__(self, name: str, incarnation: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.dead = False
        self.stopped = False
        self.away = False
        self.ghost = False  # dead, and only there to be taken apart when the simulation is over
        self.waiting: deque[_Callback] = deque()  # callbacks that found it away, or still
        self.context = contextvars.copy_context()
        self.context.run(_PLACE.set, self)

    def __str__(self) -> str:
        return f"{self.name}-{self.incarnation}"

    @property
    def still(self) -> bool:
        """Whether nothing of it runs any more."""
        return (self.dead or self.stopped) and not self.ghost


def current_process() -> SimulatedProcess | None:
    """Whose callback is running; None for the supervisor's and the simulation's own."""
    return _PLACE.get()


class _Callback:
    """What asyncio calls a handle."""

    __slots__ = ("arguments", "context", "done", "function", "place")

    def __init__(self, function: Function, arguments: Any, context: contextvars.Context | None) -> None:
        self.function = function
        self.arguments = arguments
        self.context = contextvars.copy_context() if context is None else context
        self.place = self.context.get(_PLACE)
        self.done = False

    def cancel(self) -> None:
        self.done = True

    def cancelled(self) -> bool:
        return self.done


class SimulatedLoop(asyncio.AbstractEventLoop):
    """An event loop in virtual time whose callbacks belong to places.

    away: the chance, per callback, that its place loses the processor first; away_s: for how long at most. `on_turn`
    is told whose turn it is before a callback that it chose. Raises RuntimeError when everything waits for ever.
    """

    def __init__(self, chance: random.Random, away: float, away_s: float) -> None:
        self.chance = chance
        self.away = away
        self.away_s = away_s
        self.ran = 0  # callbacks of places so far
        self.next_turn = NEVER  # the callback at which `on_turn` is asked, which says when to ask again
        self.on_turn: Callable[[SimulatedProcess], int] = lambda place: NEVER
        self._next_away = self._gap()
        self.problems: list[str] = []  # what callbacks raised
        self._now = 0.0
        self._asked = 0
        self._ready: deque[_Callback] = deque()
        self._timers: list[tuple[float, int, _Callback]] = []
        self._goal: asyncio.Future[Any] | None = None  # what `run_until_complete` waits for
        self._failed: Exception | None = None  # why it never will be there

    # --- what asyncio asks of a loop

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        asked = _Callback(callback, args, context)
        self._ready.append(asked)
        return asked

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        asked = _Callback(callback, args, context)
        self._asked += 1
        heapq.heappush(self._timers, (when, self._asked, asked))
        return asked

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None) -> Any:
        return asyncio.Task(coro, loop=self, name=name or "task", context=context)

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.problems.append(f"{context.get('message')}: {context.get('exception')!r}")

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def run_until_complete(self, future: Any) -> Any:
        events._set_running_loop(self)
        try:
            self._goal = task = self.create_task(future)
            self._run()
            if self._failed is not None:
                raise self._failed
            return task.result()
        finally:
            events._set_running_loop(None)

    # --- turns

    def _run(self) -> None:
        goal = self._goal
        assert goal is not None
        self._run_ready()
        while not goal.done() and self._failed is None:
            self._jump()
            self._run_ready()

    def leave_here(self) -> NoReturn:
        """The callback that runs now never goes on, as far as the simulation can tell: its place dies here.

        Nothing leaves a Python function but through its `finally` blocks, which a killed process does not run. So all
        that happens from now on happens on top of it, and it is taken apart, by `Killed`, when everything is over.
        """
        task = asyncio.current_task(self)
        if task is not None:
            tasks._leave_task(self, task)
        try:
            self._run()
        except Exception as error:  # which nothing of the place may catch: it goes to who asked for the simulation
            self._failed = self._failed or error
            self._ready.clear()
        finally:
            if task is not None:
                tasks._enter_task(self, task)
        raise Killed

    def _run_ready(self) -> None:
        ready, left = self._ready, MOST_AT_ONCE
        while ready:
            callback = ready.popleft()
            if callback.done:
                continue
            left -= 1
            if left < 0:
                raise RuntimeError(f"after {MOST_AT_ONCE:,} callbacks at {self._now:.4f} s something still spins")
            place = callback.place
            if place is not None and not place.ghost:
                self.ran += 1
                if self.ran >= self.next_turn:
                    self.next_turn = self.on_turn(place)
                if self.ran >= self._next_away and not place.away:
                    self._take_away(place)
                if place.away or place.dead or place.stopped:
                    place.waiting.append(callback)
                    continue
            try:
                callback.context.run(callback.function, *callback.arguments)
            except Killed:  # when it heard a message; of a task, asyncio takes it for the task's end
                pass
            except Exception as error:
                self.problems.append(f"{callback.function!r}: {error!r}")

    def _jump(self) -> None:
        """To the time of the next timer."""
        timers = self._timers
        while timers and timers[0][2].done:
            heapq.heappop(timers)
        if not timers:
            raise RuntimeError("a simulation has nothing to do and no timer: everything in it waits for ever")
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(timers)[2])

    def _take_away(self, place: SimulatedProcess) -> None:
        """This place gets to run nothing for now."""
        place.away = True
        self._next_away = self.ran + self._gap()
        self.call_later(self.chance.random() * self.away_s, self.back, place, context=contextvars.Context())

    def _gap(self) -> int:
        """Callbacks until some place is taken away again: geometric, so each has the same chance."""
        return round(self.chance.expovariate(self.away)) + 1 if self.away else NEVER

    def back(self, place: SimulatedProcess) -> None:
        """It gets the processor again, and first goes on with what had waited."""
        place.away = False
        self._ready.extendleft(reversed(place.waiting))
        place.waiting.clear()
