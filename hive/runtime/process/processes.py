"""Define the process table, through which the supervisor starts and kills processes and learns how they exited.

`ProcessTable` is the interface. Together with the transport it is all that the supervisor needs of the operating
system, so tests can replace both. `hive.runtime.process.forked.ForkedProcesses` is the real implementation.
`InlineProcesses` runs every process as a task of the same event loop, for `--inline` and tests. It restarts nothing: a
failure ends the run.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hive import _native
from hive.clock import Clock
from hive.errors import ActorFailed
from hive.runtime.actor.error_location import signal_name
from hive.runtime.memory.segments import PAGE, Bytes, Segment, aligned
from hive.runtime.memory.status import PAGE_BYTES
from hive.runtime.process.channel_ends import NodeContext
from hive.runtime.process.node import Node
from hive.runtime.process.views import Views
from hive.runtime.topology.plan import Plan
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.transport import Transport


class StartLost(ActorFailed):
    """Raised when the fork server failed during a start. Nothing of the new process is left; it may be tried again."""


@dataclass(frozen=True)
class Exit:
    """How a process ended: an exit code, or the signal that killed it."""

    code: int = 0
    signal: int = 0
    note: str = ""  # additional information, such as an out-of-memory kill

    @classmethod
    def of_status(cls, status: int, note: str = "") -> Exit:
        """Decode the status that `waitpid` returns; `note` is used only if a signal killed the process."""
        if os.WIFSIGNALED(status):
            return cls(signal=os.WTERMSIG(status), note=note)
        return cls(code=os.WEXITSTATUS(status))

    @property
    def clean(self) -> bool:
        return self.code == 0 and self.signal == 0

    def __str__(self) -> str:
        if self.signal:
            return f"killed by {signal_name(self.signal)}" + (f" ({self.note})" if self.note else "")
        return f"exited with code {self.code}"


OnExit = Callable[[str, int, Exit], None]  # process, incarnation, how


class SharedMemory:
    """All segments of a run, created from its plan by the process that owns them. `views` have counts but no slots."""

    def __init__(self, plan: Plan) -> None:
        self.segments = {"status": Segment.create("status", aligned(len(plan.actors) * PAGE_BYTES, PAGE))}
        for planned in plan.segments:
            segment = Segment.create(planned.name, planned.plan.bytes, planned.folder)
            planned.plan.format(segment.memory)
            self.segments[planned.name] = segment
        self.views = Views(plan, self.open)
        self.pages = _native.Status(self.open("status"))

    def open(self, name: str) -> Bytes:
        return self.segments[name].memory

    def descriptors(self) -> dict[str, int]:
        return {name: segment.fd for name, segment in self.segments.items()}

    def close(self) -> None:
        for segment in self.segments.values():
            segment.close()

    def release(self) -> None:
        """Return the memory to the system at once, for the next stage, although old processes may still map it."""
        for segment in self.segments.values():
            segment.release()


class ProcessTable(Protocol):
    """The operations that the supervisor needs of the operating system; see the module for implementations."""

    restarts: bool  # whether a process that has exited can be started again
    dedicated: bool  # whether each process has its own thread, which may block while it waits
    on_exit: OnExit  # called for each confirmed exit; set by the supervisor

    async def start(self, process: str, incarnation: int, address: str) -> int:
        """Start a process and return its pid. Raises StartLost or another HiveError; then it does not run."""

    def kill(self, process: str) -> None:
        """Send SIGKILL to the process and all its children; do nothing if it has exited."""

    def stopped(self) -> list[str]:
        """Return the processes that are in state T."""

    async def stacks(self, processes: Sequence[str]) -> Mapping[str, str]:
        """Return the current stacks of these processes, "" if one does not answer. They must be listening."""

    def facts(self) -> Mapping[str, tuple[int, str]]:
        """Return helper processes that run no actors: name -> (pid, state)."""

    async def close(self) -> None:
        """End all remaining processes."""


class InlineProcesses:
    """A process table that runs every process as a task of this event loop."""

    restarts = False
    dedicated = False

    def __init__(
        self,
        topology: Topology,
        plan: Plan,
        memory: SharedMemory,
        transport: Transport,
        clock: Clock,
        supervisor: str,
        open_log: Callable[[str], logging.Logger] = logging.getLogger,
    ) -> None:
        self.topology = topology
        self.plan = plan
        self.memory = memory
        self.views = Views(plan, memory.open)
        self.transport = transport
        self.clock = clock
        self.supervisor = supervisor
        self.open_log = open_log
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.on_exit: OnExit = lambda process, incarnation, how: None
        self.errors: list[BaseException] = []  # errors that actors raised, in order of time

    async def start(self, process: str, incarnation: int, address: str) -> int:
        context = NodeContext(
            topology=self.topology,
            plan=self.plan,
            process=process,
            incarnation=incarnation,
            pid=os.getpid(),
            address=address,
            supervisor=self.supervisor,
            dedicated=False,
            transport=self.transport,
            clock=self.clock,
            pages=self.memory.pages,
            views=self.views,
            open_log=self.open_log,
        )
        task = asyncio.create_task(Node(context).main(), name=process)
        self.tasks[process] = task
        task.add_done_callback(lambda task: self._ended(process, incarnation, task))
        return os.getpid()

    def _ended(self, process: str, incarnation: int, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.errors.append(error)
        how = Exit(signal=signal.SIGKILL) if task.cancelled() else Exit(code=1 if error else 0)
        self.on_exit(process, incarnation, how)

    def kill(self, process: str) -> None:
        if process in self.tasks:
            self.tasks[process].cancel()

    def stopped(self) -> list[str]:
        return []

    async def stacks(self, processes: Sequence[str]) -> Mapping[str, str]:
        return {}  # all share this thread, which is executing this line

    def facts(self) -> Mapping[str, tuple[int, str]]:
        return {}

    async def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
