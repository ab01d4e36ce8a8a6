"""Simulated processes: the incarnations of a simulation's processes, and the event loop in which all of them run.

The loop runs in virtual time. A context variable holds the process of the current callback, so that the loop can treat
a process as an operating system does:

    preempted   has lost the processor: its callbacks wait, in order, until it gets the processor back
    stopped     no callback runs any more, and no other process is notified (SIGSTOP)
    dead        no callback ever runs again: no `finally` block, no last message (SIGKILL)

So a process is stopped or killed between two callbacks, which is to say at an await. The simulation can also kill it
within a slot's transition (`abandon_callback`). One seeded generator makes every choice, so a seed fixes the schedule.

hive has its own loop here because a schedule of 60 processes has to take milliseconds. It has no sockets, threads or
signals, and runs callbacks of the same moment in the order in which they were scheduled.
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

MOST_AT_ONCE = 200_000  # maximum callbacks at one moment of virtual time: 64 + 64 processes need a few thousand

NEVER = 1 << 62  # a number of callbacks that no simulation reaches

Function = Callable[..., Any]

_CURRENT: contextvars.ContextVar[SimulatedProcess | None] = contextvars.ContextVar("process", default=None)


class Killed(BaseException):
    """Unwinds a callback in which its process was killed, at the end of the simulation. No process may catch it."""


class SimulatedProcess:
    """One incarnation of a simulated process. `machine`: that on which it runs; "": the only one, or the head.

    `kill` ends it; its process table sets it. `at_exit`: called once when it has exited, however it did.
    """

    def __init__(self, name: str, incarnation: int, machine: str = "") -> None:
        self.name = name
        self.incarnation = incarnation
        self.machine = machine
        self.label = f"{machine}/{name}-{incarnation}" if machine else f"{name}-{incarnation}"
        self.kill: Callable[[], None] = self.exit
        self.at_exit: list[Callable[[], None]] = []
        self.dead = False
        self.stopped = False
        self.preempted = False
        self.unwinding = False  # dead, and the simulation is over: its callbacks run again, to be cancelled
        self.waiting: deque[_Callback] = deque()  # callbacks that were due while it was preempted, stopped or dead
        self.context = contextvars.copy_context()
        self.context.run(_CURRENT.set, self)

    def __str__(self) -> str:
        return self.label

    def exit(self, *, dead: bool = True) -> None:
        """It has exited. `dead`: it was killed, so none of its callbacks runs any more."""
        self.dead = self.dead or dead
        while self.at_exit:
            self.at_exit.pop()()

    @property
    def inactive(self) -> bool:
        """Whether none of its callbacks will run any more."""
        return (self.dead or self.stopped) and not self.unwinding


def current_process() -> SimulatedProcess | None:
    """Return the process of the current callback; None for the supervisor and the simulation itself."""
    return _CURRENT.get()


class _Callback:
    """A scheduled callback, in asyncio's terms a handle."""

    __slots__ = ("arguments", "context", "done", "function", "process")

    def __init__(self, function: Function, arguments: Any, context: contextvars.Context | None) -> None:
        self.function = function
        self.arguments = arguments
        self.context = contextvars.copy_context() if context is None else context
        self.process = self.context.get(_CURRENT)
        self.done = False

    def cancel(self) -> None:
        self.done = True

    def cancelled(self) -> bool:
        return self.done


class SimulatedLoop(asyncio.AbstractEventLoop):
    """An event loop in virtual time whose callbacks belong to simulated processes.

    preempted: the chance, per callback, that its process loses the processor first. preempted_s: the longest
    preemption. Raises RuntimeError when no callback is ready and no timer is set, and after MOST_AT_ONCE callbacks at
    one moment.
    """

    def __init__(self, chance: random.Random, preempted: float, preempted_s: float) -> None:
        self.chance = chance
        self.preempted = preempted
        self.preempted_s = preempted_s
        self.ran = 0  # number of callbacks of processes so far
        # Before callback `next_on_callback`, `on_callback` receives its process and returns the next such number.
        self.next_on_callback = NEVER
        self.on_callback: Callable[[SimulatedProcess], int] = lambda process: NEVER
        self._next_preemption = self._gap()
        self.problems: list[str] = []  # exceptions of callbacks
        self._now = 0.0
        self._scheduled = 0  # number of timers so far, which orders timers of the same moment
        self._ready: deque[_Callback] = deque()
        self._timers: list[tuple[float, int, _Callback]] = []
        self._goal: asyncio.Future[Any] | None = None  # the future of `run_until_complete`
        self._failed: Exception | None = None  # the error that keeps `_goal` from completing

    # --- the interface of an asyncio loop

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        scheduled = _Callback(callback, args, context)
        self._ready.append(scheduled)
        return scheduled

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        scheduled = _Callback(callback, args, context)
        self._scheduled += 1
        heapq.heappush(self._timers, (when, self._scheduled, scheduled))
        return scheduled

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None) -> Any:
        process = _CURRENT.get() if context is None else context.get(_CURRENT)
        return asyncio.Task(coro, loop=self, name=name or str(process), context=context)

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

    # --- callbacks

    def _run(self) -> None:
        goal = self._goal
        assert goal is not None
        self._run_ready()
        while not goal.done() and self._failed is None:
            self._jump()
            self._run_ready()

    def abandon_callback(self) -> NoReturn:
        """Never returns during the simulation: the process of the current callback is killed here.

        Python cannot leave a function without running its `finally` blocks, which a killed process would not run. So
        the rest of the simulation runs within this call, and `Killed` unwinds the callback afterwards.
        """
        task = asyncio.current_task(self)
        if task is not None:
            tasks._leave_task(self, task)
        try:
            self._run()
        except Exception as error:  # raised by `run_until_complete`, because the killed process might catch it here
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
            process = callback.process
            if process is not None and not process.unwinding:
                self.ran += 1
                if self.ran >= self.next_on_callback:
                    self.next_on_callback = self.on_callback(process)
                if self.ran >= self._next_preemption and not process.preempted:
                    self._preempt(process)
                if process.preempted or process.dead or process.stopped:
                    process.waiting.append(callback)
                    continue
            try:
                callback.context.run(callback.function, *callback.arguments)
            except Killed:  # of a callback outside any task; in a task, asyncio ends the task with it
                pass
            except Exception as error:
                self.problems.append(f"{callback.function!r}: {error!r}")

    def _jump(self) -> None:
        """Advance the time to the next timer."""
        timers = self._timers
        while timers and timers[0][2].done:
            heapq.heappop(timers)
        if not timers:
            raise RuntimeError("deadlock in a simulation: no callback is ready and no timer is set")
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(timers)[2])

    def _preempt(self, process: SimulatedProcess) -> None:
        """Delay the callbacks of this process for up to `preempted_s`."""
        process.preempted = True
        self._next_preemption = self.ran + self._gap()
        self.call_later(
            self.chance.random() * self.preempted_s, self.end_preemption, process, context=contextvars.Context()
        )

    def _gap(self) -> int:
        """Draw the number of callbacks until the next preemption: geometric, so each callback has the same chance."""
        return round(self.chance.expovariate(self.preempted)) + 1 if self.preempted else NEVER

    def end_preemption(self, process: SimulatedProcess) -> None:
        """Give the processor back to a process, which first runs its waiting callbacks."""
        process.preempted = False
        self._ready.extendleft(reversed(process.waiting))
        process.waiting.clear()
