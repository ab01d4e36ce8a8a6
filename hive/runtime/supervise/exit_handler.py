"""Handle the exit of a process: repair shared memory, notify the other actors, write a report, then restart or stop.

    exit confirmed -> memory repaired -> `Left` to the others -> crash report -> restart, or the end of the run

A crash report names the actor and the cause, its phase, its traceback or the stack where it was stuck, its transitions
and the run's last events. If the exit ends the run, the report also has the stacks of all other processes. The process
is restarted within the limits of [supervision]; a start that fails because the machine has no room is retried.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hive.errors import HiveError
from hive.runtime.memory.status import read_status
from hive.runtime.process.processes import Exit
from hive.runtime.supervise.membership import ProcessRecord
from hive.runtime.supervise.outcome import CrashReport
from hive.runtime.supervise.states import ActorEvent, ActorState, RunState
from hive.runtime.wire.messages import Tree
from hive.runtime.wire.protocol import Failed, Left

if TYPE_CHECKING:
    from hive.runtime.supervise.supervisor import Supervisor

__all__ = ["ExitHandler"]

EXIT_REPORT_S = 0.5  # wait for the last message of a process that exited by itself; it is already on its way


class ExitHandler:
    """Handles the exits of a run's processes. The process table calls `exited` once an exit is confirmed."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor

    def exited(self, name: str, incarnation: int, how: Exit) -> None:
        process = self.supervisor.table[name]
        if process.alive and process.incarnation == incarnation:
            self.supervisor.spawn(self._handle_exit(process, how))

    async def _handle_exit(self, process: ProcessRecord, how: Exit) -> None:
        """Repair memory, notify the other actors, and restart the process or end the run."""
        supervisor = self.supervisor
        if not how.signal:
            await self._await_exit_report(process, how)
        supervisor.transport.poll()
        expected = how.clean and self._may_exit(process)
        process.cut_short = bool(supervisor.ending) and not expected and not process.given_up
        self._reclaim(process, str(how), "run_ended" if supervisor.ending and expected else "consumer_died")
        if not expected and not process.given_up:
            await self._restart_or_end(process, how)
        supervisor.changed.set()

    def _reclaim(self, process: ProcessRecord, how: str, why: str) -> None:
        """Repair the memory of all actors of the process, then announce that they left."""
        supervisor = self.supervisor
        process.alive = False
        for actor in process.actors:
            supervisor.recovery.reclaim(actor, process.incarnation, why)
        for actor in process.actors:
            self._announce_left(actor, process, how, why == "run_ended")
        supervisor.transport.forget(process.address)
        for actor in process.actors:
            supervisor.machines[actor].handle(ActorEvent.died, process.why or how)

    def _announce_left(self, actor: int, process: ProcessRecord, how: str, with_run: bool) -> None:
        # While the run ends, only producers that wait for credits of this consumer still need the message.
        if not self.supervisor.ending or actor in self.supervisor.receiving:
            self.supervisor.broadcast(Left(actor, process.incarnation, how, process.taken.get(actor, ()), with_run))

    def start_lost(self, process: ProcessRecord) -> None:
        """Reclaim an incarnation that was lost together with its fork server.

        It may have been forked, sent Hello and begun to work before it was killed, so it is treated like any exit.
        """
        self.supervisor.transport.poll()
        self._reclaim(process, "its start was lost", "consumer_died")
        for actor in process.actors:
            self.supervisor.machines[actor].handle(ActorEvent.restart)
            if self.supervisor.ending:
                self.supervisor.machines[actor].handle(ActorEvent.stop, self.supervisor.reason)

    def actor_done(self, actor: int, process: ProcessRecord) -> None:
        """Release the slots and pins of a finished actor whose process continues with other actors.

        If all actors of the process are finished, the process exits and `exited` does the same.
        """
        if process.alive and not self._may_exit(process):
            ending = bool(self.supervisor.ending)
            self.supervisor.recovery.retire(actor, process.incarnation, "run_ended" if ending else "consumer_died")
            self._announce_left(actor, process, "it is done", ending)

    def _may_exit(self, process: ProcessRecord) -> bool:
        """Return whether all its actors are finished or draining, so that an exit is expected."""
        machines = (self.supervisor.machines[actor] for actor in process.actors)
        return all(machine.state in (ActorState.finished, ActorState.draining) for machine in machines)

    async def _await_exit_report(self, process: ProcessRecord, how: Exit) -> None:
        """Wait for messages still in transit: `Done` of its actors, or `Failed` of the one that raised."""
        supervisor = self.supervisor
        limit = supervisor.clock.now_ns() + int(EXIT_REPORT_S * 1e9)
        while not process.failures and supervisor.clock.now_ns() < limit:
            if how.clean and all(supervisor.machines[a].state is ActorState.finished for a in process.actors):
                break
            await asyncio.sleep(0.01)
            supervisor.transport.poll()

    async def _restart_or_end(self, process: ProcessRecord, how: Exit) -> None:
        """Write a crash report, then restart the process or, if that is refused, end the run."""
        supervisor = self.supervisor
        failed = process.failures[0] if process.failures else None
        actor = failed.actor if failed else process.actors[0]
        status, name = read_status(supervisor.pages, actor), supervisor.plan.actors[actor].name
        what = process.why or (f"{failed.error}: {failed.text}" if failed else str(how))
        where = f"in `{failed.doing if failed else status.phase or 'start'}`"
        where += "" if failed or not status.since_ns else f" after {status.doing_s:.1f} s"
        process.record_exit(how, supervisor.clock.now_ns(), supervisor.settings.window_s)
        supervisor.exact &= bool(supervisor.ending)  # a restart after the run's goal changes no weights
        refusal = self._refusal(process, how, failed)
        count = f"; restart {len(process.exits)} of {supervisor.settings.restarts}" if refusal is None else ""
        report = supervisor.journal.crash(
            CrashReport(
                actor=name,
                error=what,
                doing=f"{where} (version {status.version}, {status.progress:,} phase changes)",
                traceback=failed.traceback if failed else "",
                stack=process.stack,
                story=list(supervisor.machines[actor].history),
                events=list(supervisor.recent),
                stacks=await self._stacks_of_others() if refusal is not None and not supervisor.ending else "",
            )
        )
        fields: dict[str, Tree] = {"actor": name, "pid": process.pid, "how": str(how), "doing": status.phase}
        fields |= {"crash": report} if report else {}
        supervisor.event("died", f"{name} died {where}: {what}{count}", fields)
        if refusal is None:
            process.restarts += 1
            supervisor.spawn(self._restart(process))
        elif not supervisor.ending:
            supervisor.report = report
            error = f"{name} failed {where}: {failed.text if failed else what}" + (f" ({refusal})" if refusal else "")
            supervisor.end("failed", f"{name} failed", error, failed.hint if failed else "")

    async def _stacks_of_others(self) -> str:
        """Return the stacks of all running processes, for the report of the exit that ends the run."""
        running = [p.name for p in self.supervisor.table.values() if p.alive and p.listening]
        stacks = await self.supervisor.processes.stacks(running)
        return "\n\n".join(f"{name}\n{stack}" for name, stack in stacks.items() if stack)

    def _refusal(self, process: ProcessRecord, how: Exit, failed: Failed | None) -> str | None:
        """Return why this process is not restarted, None if it is; "" if the error itself explains why."""
        supervisor = self.supervisor
        if supervisor.ending:
            return "the run is ending"
        # An actor that raises during the first start would raise again; one that a signal killed may succeed.
        hopeless = supervisor.run_machine.state is RunState.starting and not how.signal
        if hopeless or not supervisor.processes.restarts or (failed and failed.permanent):
            return ""
        if not all(supervisor.plan.actors[a].restart for a in process.actors):
            return "it was added with restart=False"
        return process.restart_limit(supervisor.settings) or None

    async def _restart(self, process: ProcessRecord) -> None:
        """Start the next incarnation; retry a failed start until the restart limit is exceeded."""
        supervisor = self.supervisor
        while True:
            await asyncio.sleep(process.backoff_s)
            if supervisor.ending:
                return
            for actor in process.actors:
                supervisor.machines[actor].handle(ActorEvent.restart)
            try:
                await supervisor.start(process)
                return
            except HiveError as error:
                cause = error
            process.alive = False
            for actor in process.actors:
                supervisor.machines[actor].handle(ActorEvent.died, str(cause))
            process.record_exit(Exit(code=1), supervisor.clock.now_ns(), supervisor.settings.window_s)
            refusal = process.restart_limit(supervisor.settings)
            supervisor.event("not started", str(cause) + (f"; {refusal}" if refusal else ""), {"process": process.name})
            if refusal:
                name = supervisor.plan.actors[process.actors[0]].name
                supervisor.end("failed", f"{name} failed", f"{cause} ({refusal})", cause.hint)
                return
