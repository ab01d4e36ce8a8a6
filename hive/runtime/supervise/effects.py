"""Execute the actions that the decisions of the supervisor return: messages, kills, repairs of memory, log lines.

The table in `Effects` maps each type of action to the method that executes it. No method waits. Each carrier repairs
its channels after an actor has exited:

    slots   slots that the actor was filling are freed, half-done transitions are completed, and slots that it had
            claimed are dropped as `consumer_died` or, if the channel says so, offered again
    zmq     likewise, and what it had sent and no actor had claimed is dropped: the contents were in its own memory
    board   its pins are removed; blocks that it wrote and did not publish become void
    page    a half-written entry in the account of a channel of messages is completed

Memory is repaired only after the exit is confirmed: a stopped process is killed first, because it could continue and
write into slots that have a new owner.
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
        self.memory = memory
        self.clock = clock
        self.journal = journal
        self.table: Mapping[type[Action], Callable[[Any], None]] = {
            Send: self._send,
            Kill: lambda action: processes.kill(action.process),
            Reclaim: self._reclaim,
            Retire: self._retire,
            Forget: lambda action: transport.forget(action.address),
            DropInFlight: self._drop_in_flight,
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
                self.memory.pages.mailed(actor)  # wakes it if it sleeps on its notifier

    def _reclaim(self, action: Reclaim) -> None:
        self.memory.pages.page(action.actor).complete()
        self._retire(action)

    def _retire(self, action: Reclaim | Retire) -> None:
        """Repair slabs and boards only: the process of a finished actor may still run and write its page."""
        for channel in self.state.plan.channels:
            if action.actor in channel.producers or action.actor in channel.consumers:
                channel.description.reclaim(channel, self.memory, action.actor, action.incarnation, action.why)

    def _drop_in_flight(self, action: DropInFlight) -> None:
        for channel in self.state.plan.channels:
            channel.description.drain(channel, self.memory)

    def _log(self, action: Log) -> None:
        elapsed_s = (self.clock.now_ns() - self.state.begun_ns) / 1e9
        self.state.recent.append(f"{elapsed_s:.2f} s {action.kind}: {action.text}")
        self.journal.event(action.kind, action.text, dict(action.fields))
