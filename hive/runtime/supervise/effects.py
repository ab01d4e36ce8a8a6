"""Execute the actions that the decisions of the supervisor return: messages, kills, repairs of memory, log lines.

The table in `Effects` maps each type of action to the method that executes it. No method waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hive.clock import Clock
from hive.runtime.process.processes import ProcessTable, SharedMemory
from hive.runtime.supervise.actions import (
    Action,
    Diagnose,
    DropInFlight,
    Forget,
    Kill,
    Log,
    Reclaim,
    Retire,
    Send,
)
from hive.runtime.supervise.outcome import Journal
from hive.runtime.supervise.recovery import Recovery
from hive.runtime.supervise.supervisor_state import SupervisorState
from hive.runtime.wire.messages import encode
from hive.runtime.wire.transport import Transport


class Effects:
    """Executes actions on the process table, the mailboxes, the shared memory and the journal of a run."""

    def __init__(
        self,
        state: SupervisorState,
        processes: ProcessTable,
        transport: Transport,
        memory: SharedMemory,
        clock: Clock,
        journal: Journal,
    ) -> None:
        self.state = state
        self.processes = processes
        self.transport = transport
        self.pages = memory.pages
        self.recovery = Recovery(state.plan, memory)
        self.clock = clock
        self.journal = journal
        self.table: Mapping[type[Action], Callable[[Any], None]] = {
            Send: self._send,
            Kill: lambda action: processes.kill(action.process),
            Reclaim: lambda action: self.recovery.reclaim(action.actor, action.incarnation, action.why),
            Retire: lambda action: self.recovery.retire(action.actor, action.incarnation, action.why),
            Forget: lambda action: transport.forget(action.address),
            DropInFlight: lambda action: self.recovery.drain(),
            Log: self._log,
            Diagnose: lambda action: self.journal.event(action.kind, action.text, dict(action.fields)),
        }

    def execute(self, action: Action) -> None:
        self.table[type(action)](action)

    def _send(self, action: Send) -> None:
        frames = encode(action.message)
        for process in (self.state.table[name] for name in action.to):
            self.transport.post(process.address, frames)
            for actor in process.actors:
                self.pages.mailed(actor)  # wakes it if it sleeps on its notifier

    def _log(self, action: Log) -> None:
        elapsed_s = (self.clock.now_ns() - self.state.begun_ns) / 1e9
        self.state.recent.append(f"{elapsed_s:.2f} s {action.kind}: {action.text}")
        self.journal.event(action.kind, action.text, dict(action.fields))
