"""Start the processes of a run: at its begin, after an exit, and those that are started for its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hive.clock import Clock
from hive.errors import HiveError
from hive.runtime.process.processes import ProcessTable, StartLost
from hive.runtime.supervise import ending, exits
from hive.runtime.supervise.actions import Action, Restart
from hive.runtime.supervise.membership import ProcessRecord
from hive.runtime.supervise.supervisor_state import SupervisorState
from hive.runtime.wire.transport import Transport

STARTS = 5  # attempts to start an incarnation: each is lost only if the fork server exits during it


@dataclass(frozen=True)
class Starts:
    """Starts incarnations. address: of the supervisor. perform: executes the actions of a decision."""

    state: SupervisorState
    processes: ProcessTable
    transport: Transport
    clock: Clock
    address: str
    perform: Callable[[Sequence[Action]], None]

    async def start(self, process: ProcessRecord) -> None:
        """Start the next incarnation of a process. Raises HiveError if that fails; then nothing of it is left."""
        for attempt in range(1, STARTS + 1):
            address = f"{self.address.rpartition('/')[0]}/{process.name}-{process.incarnation + 1}"
            process.begin(address, self.clock.now_ns())
            try:
                pid = await self.processes.start(process.name, process.incarnation, process.address)
                break
            except StartLost:
                self.transport.poll()
                self.perform(exits.start_lost(self.state, process))
                if attempt == STARTS:
                    raise
        process.forked(pid, self.clock.now_ns())
        if process.why:  # a kill was requested before the process existed
            self.processes.kill(process.name)

    async def restart(self, action: Restart) -> None:
        """Start a process again after a delay, unless the run ends before."""
        process = self.state.table[action.process]
        await asyncio.sleep(action.delay_s)
        if not exits.restart_due(self.state, process):
            return
        try:
            await self.start(process)
        except HiveError as error:
            self.perform(exits.not_started(self.state, process, error, self.clock.now_ns()))

    async def start_last(self, process: ProcessRecord) -> None:
        """Start a process once more, whose actors must run for the end of the run."""
        try:
            await self.start(process)
        except HiveError as error:
            self.perform(ending.last_not_started(self.state, error))
        else:
            ending.last_started(self.state, self.clock.now_ns() / 1e9)
