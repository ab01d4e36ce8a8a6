"""A topology in this process and one event loop, moved on by its owner: nothing happens between two calls.

    with InlineRun(topology) as run:
        run.until(lambda: sink.count >= 10)       actors work until this is true
        ...                                       nobody does anything
        outcome = run.finish()                    to the end that the topology comes to by itself

The supervisor, nodes, ports, slots and boards are those of every run; transport and process table are the in-memory
ones. What an actor raises is raised by the call in which it happened. A call inside a coroutine, as in every cell of a
notebook, finds a loop running in its thread, and moves this one on in another thread for which it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

from hive.clock import Clock, RealClock
from hive.runtime.membership import Settings
from hive.runtime.outcome import Journal, Outcome
from hive.runtime.processes import InlineProcesses, SharedMemory
from hive.runtime.supervisor import Supervisor
from hive.runtime.topology import Topology
from hive.runtime.transport import MemoryTransport

__all__ = ["InlineRun"]

ADDRESS = "memory://inline/supervisor"
Result = TypeVar("Result")
UNWATCHED = Settings(phase_limit_s=float("inf"))  # its owner may take any time between two calls


class InlineRun:
    """Hosts `topology` as tasks of a loop of its own, in this thread.

    clock: makes the clock of the loop; loop_factory: makes the loop. settings: of the supervisor; without any, no actor
    is taken for stuck, because the loop stands still between two calls.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        settings: Settings = UNWATCHED,
        clock: Callable[[asyncio.AbstractEventLoop], Clock] = lambda loop: RealClock(),
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
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
        self._life: asyncio.Task[Outcome] | None = None
        self._closed = False

    def until(self, condition: Callable[[], bool]) -> None:
        """Lets the actors work until the condition holds; it is looked at whenever they have all had a turn.

        They may have a few turns more: what must not happen before the next call has to be asked for by the owner.
        Raises what an actor raised, what the condition raises, and RuntimeError where the run ends before.
        """
        self._do(lambda: self._until(condition))

    async def _until(self, condition: Callable[[], bool]) -> None:
        life = self._begun()
        while not condition():
            if life.done():
                self._raise(life.result())
                raise RuntimeError(f"the run has ended: {life.result().reason or life.result().state}")
            await asyncio.sleep(0)

    def finish(self, begin: Callable[[], None] = lambda: None) -> Outcome:
        """Lets the actors work until the run ends; returns how. Raises what an actor raised.

        begin: called in the loop first.
        """

        async def wait() -> Outcome:
            begin()
            try:
                return await self._begun()
            finally:
                await self.processes.close()

        outcome = self._do(wait)
        self._raise(outcome)
        return outcome

    def stop(self, reason: str = "stopped") -> None:
        """Drains what runs and frees its memory. Again does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            _beside(lambda: self._end(reason))
        finally:
            self.memory.close()

    def _end(self, reason: str) -> None:
        with self.runner:
            if self._life is not None and not self._life.done():
                self.supervisor.request(reason)
                self.runner.run(self._drained(self._life))

    async def _drained(self, life: asyncio.Task[Outcome]) -> None:
        await life
        await self.processes.close()

    def _do(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        if self._closed:
            raise RuntimeError("this run has been stopped")
        return _beside(lambda: self.runner.run(work()))

    def _begun(self) -> asyncio.Task[Outcome]:
        if self._life is None:
            self._life = asyncio.get_running_loop().create_task(self.supervisor.run())
        return self._life

    def _raise(self, outcome: Outcome) -> None:
        if self.processes.errors and outcome.state == "failed":
            raise self.processes.errors[0]

    def __enter__(self) -> InlineRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()


def _beside(call: Callable[[], Result]) -> Result:
    """Call this in a thread in which no loop runs: in this one, where that is so."""
    if not _runs_a_loop():
        return call()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def _runs_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
