"""Runs a topology in this process, in an event loop that runs only while its owner calls `until` or `finish`.

    with InlineRun(topology) as run:
        run.until(lambda: sink.count >= 10)       actors work until this is true
        ...                                       no actor runs
        outcome = run.finish()                    actors work until the run ends by itself

Supervisor, nodes, ports, slots and boards are the same as in every run; transport and process table are the in-memory
ones. An exception of an actor is raised by the call during which it happened. A call from a coroutine (every cell of a
notebook is one) finds a running loop in its thread, so it runs this loop in another thread and waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from hive.clock import Clock, RealClock
from hive.runtime.process.processes import InlineProcesses, SharedMemory
from hive.runtime.process.user_code.guest import Guest
from hive.runtime.run.outside_loop import outside_any_loop
from hive.runtime.supervise.membership import Settings
from hive.runtime.supervise.outcome import Journal, Outcome
from hive.runtime.supervise.supervisor import Supervisor
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.transport import MemoryTransport

ADDRESS = "memory://inline/supervisor"
T = TypeVar("T")
UNWATCHED = Settings(
    phase_limit_s=float("inf"), start_limit_s=float("inf")
)  # no limit: the owner may take any time between two calls


class InlineRun:
    """Hosts the actors of `topology` as tasks of a separate event loop.

    clock: makes the clock of the loop. loop_factory: makes the loop. settings: the supervisor's; by default no actor
    counts as stuck, because the loop stands still between two calls.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        settings: Settings = UNWATCHED,
        clock: Callable[[asyncio.AbstractEventLoop], Clock] = lambda loop: RealClock(),
        loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        plan = topology.plan()
        self.memory = SharedMemory(plan)
        self.runner = asyncio.Runner(loop_factory=loop_factory)
        loop = self.runner.get_loop()
        its_clock, transport = clock(loop), MemoryTransport()
        self.processes = InlineProcesses(topology, plan, self.memory, transport, its_clock, ADDRESS)
        journal = Journal(event=lambda kind, text, fields: None, crash=lambda death: "")
        self.supervisor = Supervisor(
            plan, self.processes, transport, self.memory, its_clock, settings, journal, ADDRESS
        )
        self._supervision: asyncio.Task[Outcome] | None = None
        self._work: asyncio.Task[Any] | None = None
        self._closed = False
        self._guest = Guest()

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the actors work until the condition holds; it is checked once per iteration of the event loop.

        Actors may run a few steps beyond that point, so the condition is no barrier. Raises the exceptions of an actor
        and of the condition, and RuntimeError when the run ends first.
        """
        self._run(lambda: self._until(condition))

    async def _until(self, condition: Callable[[], bool]) -> None:
        supervision = self._started()
        while not condition():
            if supervision.done():
                outcome = supervision.result()
                self._raise(outcome)
                raise RuntimeError(f"the run has ended: {outcome.reason or outcome.state}")
            await asyncio.sleep(0)

    def finish(self, begin: Callable[[], None] = lambda: None) -> Outcome:
        """Let the actors work until the run ends, and return its outcome. Raises the exception of an actor.

        begin: called in the loop before the actors continue.
        """

        async def wait() -> Outcome:
            begin()
            try:
                return await self._started()
            finally:
                await self.processes.close()

        outcome = self._run(wait)
        self._raise(outcome)
        return outcome

    def stop(self, reason: str = "stopped") -> None:
        """Drain the run and free its memory. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            outside_any_loop(lambda: self._end(reason), self._cancel)
        finally:
            self.memory.close()

    def _end(self, reason: str) -> None:
        with self._guest, self.runner:
            if self._supervision is not None and not self._supervision.done():
                self.supervisor.request(reason)
                self.runner.run(self._cancellable(self._drain(self._supervision)))

    async def _drain(self, supervision: asyncio.Task[Outcome]) -> None:
        await supervision
        await self.processes.close()

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._closed:
            raise RuntimeError("this run has been stopped")
        return outside_any_loop(lambda: self._as_guest(work), self._cancel)

    def _as_guest(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with self._guest:
            return self.runner.run(self._cancellable(work()))

    async def _cancellable(self, work: Coroutine[Any, Any, T]) -> T:
        self._work = asyncio.current_task()
        return await work

    def _cancel(self, interrupt: BaseException) -> None:
        """Cancel the call that another thread makes, as `asyncio.run` does at Ctrl-C."""
        if self._work is not None:
            self._work.get_loop().call_soon_threadsafe(self._work.cancel)

    def _started(self) -> asyncio.Task[Outcome]:
        """Return the task that runs the supervisor, started by the first call."""
        if self._supervision is None:
            self._supervision = asyncio.get_running_loop().create_task(self.supervisor.run())
        return self._supervision

    def _raise(self, outcome: Outcome) -> None:
        if self.processes.errors and outcome.state == "failed":
            raise self.processes.errors[0]

    def __enter__(self) -> InlineRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()
