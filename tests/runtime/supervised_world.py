"""A whole run in virtual time, whose processes are tasks that the supervisor can restart."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from hive.clock import VirtualClock, VirtualLoop
from hive.errors import ActorFailed
from hive.runtime.actor.actor import Actor
from hive.runtime.process.processes import InlineProcesses, SharedMemory
from hive.runtime.supervise.accounting import holds
from hive.runtime.supervise.membership import Settings
from hive.runtime.supervise.outcome import CrashReport, Journal, Outcome
from hive.runtime.supervise.supervisor import Supervisor
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.transport import MemoryTransport

ADDRESS = "memory://inline/supervisor"


class Bystander(Actor):
    """Runs until it is drained."""

    async def run(self) -> None:
        self.note("hello", f"from {self.name}")
        await asyncio.Event().wait()


class Falls(Actor):
    """Raises in its first `lives` incarnations, 0.1 s after their start; the next one ends the run."""

    lives = 1

    def __init__(self, lives: int = 1) -> None:
        self.lives = lives

    async def run(self) -> None:
        await asyncio.sleep(0.1)
        self.status.count("lives")  # progress: without it, the second error at the same line would end the run
        if self.incarnation < self.lives:
            raise ValueError(f"fell in life {self.incarnation}")
        self.end_run("stands")


class Restarting(InlineProcesses):
    """Inline processes that can be restarted. Starts of falls-0 fail if their number, from 0, is in `refused`."""

    restarts = True
    refused: Sequence[int] = ()
    starts = -1

    async def start(self, process: str, incarnation: int, address: str) -> int:
        if process == "falls-0":
            self.starts += 1
            if self.starts in self.refused:
                raise ActorFailed(f"{process} cannot be started: no room", hint="make room")
        return await super().start(process, incarnation, address)

    def begin(self, supervisor: Supervisor) -> None:
        """Called before the run, so that tests can change the supervisor or schedule calls."""

    async def stacks(self, processes: Sequence[str]) -> Mapping[str, str]:
        return {name: f"File x, in {name}" for name in processes}


class World:
    """One run in virtual time, by default of an actor that raises and two bystanders."""

    def __init__(
        self,
        lives: int = 1,
        refused: Sequence[int] = (),
        topology: Topology | None = None,
        table: type[Restarting] = Restarting,
        **settings: Any,
    ) -> None:
        if topology is None:
            topology = Topology()
            topology.add(Bystander, count=2)
            topology.add(Falls, count=1, lives=lives)
        plan = topology.plan()
        memory = SharedMemory(plan)
        self.deaths: list[CrashReport] = []
        self.events: list[tuple[str, str, dict[str, Any]]] = []

        async def main() -> Outcome:
            clock, transport = VirtualClock(asyncio.get_running_loop()), MemoryTransport()
            processes = table(topology, plan, memory, transport, clock, ADDRESS)
            processes.refused = refused
            journal = Journal(lambda *event: self.events.append(event), self._report)
            supervisor = Supervisor(plan, processes, transport, memory, clock, Settings(**settings), journal, ADDRESS)
            self.supervisor = supervisor
            processes.begin(supervisor)
            try:
                return await supervisor.run()
            finally:
                await processes.close()

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            self.outcome = runner.run(main())
        memory.close()
        assert all(holds(account) for account in self.outcome.channels.values()), self.outcome.channels

    def _report(self, death: CrashReport) -> str:
        self.deaths.append(death)
        return f"crash/{death.actor}-{len(self.deaths)}.txt"

    def texts(self, kind: str) -> list[str]:
        return [text for happened, text, _ in self.events if happened == kind]
