"""The testing kit: a whole topology in one process and one event loop, through the real supervisor.

    outcome = hive.testing.run_inline(topology)

Transport and process table are the in-memory ones; slots, boards, ports, nodes and the supervisor are the real ones.
With `virtual=True` time jumps instead of passing. What an actor raised is raised here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hive.clock import Clock, RealClock, VirtualClock, VirtualLoop
from hive.runtime.membership import Settings
from hive.runtime.outcome import Journal, Outcome
from hive.runtime.processes import InlineProcesses, SharedMemory
from hive.runtime.supervisor import Supervisor
from hive.runtime.topology import Topology
from hive.runtime.transport import MemoryTransport

__all__ = ["run_inline"]

INLINE_ADDRESS = "memory://inline/supervisor"


def run_inline(
    topology: Topology,
    *,
    virtual: bool = False,
    seconds: float | None = None,
    settings: Settings | None = None,
    watch: Callable[[Supervisor], None] | None = None,
) -> Outcome:
    """Runs `topology` until it ends itself, or for `seconds`; returns the outcome. Raises what an actor raised.

    `watch` is given the supervisor before it starts, for tests that look at it or ask it to end.
    """
    plan = topology.plan()
    memory = SharedMemory(plan)

    async def main() -> Outcome:
        loop = asyncio.get_running_loop()
        clock: Clock = VirtualClock(loop) if virtual else RealClock()
        transport = MemoryTransport()
        processes = InlineProcesses(topology, plan, memory, transport, clock, INLINE_ADDRESS)
        journal = Journal(event=lambda kind, text, fields: None, crash=lambda death: "")
        supervisor = Supervisor(
            plan, processes, transport, memory, clock, settings or Settings(), journal, INLINE_ADDRESS
        )
        if watch is not None:
            watch(supervisor)
        if seconds is not None:
            loop.call_later(seconds, supervisor.request, f"{seconds:g} s are over")
        try:
            outcome = await supervisor.run()
        finally:
            await processes.close()
        if processes.errors and outcome.state == "failed":
            raise processes.errors[0]
        return outcome

    try:
        with asyncio.Runner(loop_factory=VirtualLoop if virtual else None) as runner:
            return runner.run(main())
    finally:
        memory.close()
