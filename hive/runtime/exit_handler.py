"""ExitHandler: what follows when a process of a run has ended.

    exit confirmed -> memory put right -> `Left` to the others -> crash report -> restart, or the end of the run

A crash report says who, how, what it was doing, its traceback or the stack where it was stuck, its transitions and the
run's last events; where the death ends the run, also what everybody else was executing at that moment. The process is
restarted within the limits of [supervision], and again where the machine has no room for it just now.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hive.errors import HiveError
from hive.runtime.membership import ProcessRecord
from hive.runtime.messages import Tree
from hive.runtime.outcome import Death
from hive.runtime.processes import Exit
from hive.runtime.protocol import Failed, Left
from hive.runtime.states import ActorEvent, ActorState, RunState
from hive.runtime.status import read_status

if TYPE_CHECKING:
    from hive.runtime.supervisor import Supervisor

__all__ = ["ExitHandler"]

LAST_WORDS_S = 0.5  # how long to wait for the report of an actor whose process says that it raised


class ExitHandler:
    """The supervisor's part that deals with the dead. `exited` is told of each exit, once it is certain."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.run = supervisor

    def exited(self, name: str, incarnation: int, how: Exit) -> None:
        process = self.run.table[name]
        if process.alive and process.incarnation == incarnation:
            self.run.spawn(self._handle_exit(process, how))

    async def _handle_exit(self, process: ProcessRecord, how: Exit) -> None:
        """A process is gone for certain: puts memory right, tells the others, and decides what follows."""
        if not how.signal:
            await self._last_words(process, how)
        self.run.transport.poll()
        expected = how.clean and self._expects_end(process)
        process.cut_short = bool(self.run.ending) and not expected and not process.given_up
        self._gone(process, str(how), "run_ended" if self.run.ending and expected else "consumer_died")
        if not expected and not process.given_up:
            await self._decide(process, how)
        self.run.changed.set()

    def _gone(self, process: ProcessRecord, how: str, why: str) -> None:
        """Puts memory right and tells the others."""
        process.alive = False
        for actor in process.actors:
            self.run.recovery.reclaim(actor, process.incarnation, why)
        for actor in process.actors:
            self._tell_left(actor, process, how, why == "run_ended")
        self.run.transport.forget(process.address)
        for actor in process.actors:
            self.run.machines[actor].handle(ActorEvent.died, process.why or how)

    def _tell_left(self, actor: int, process: ProcessRecord, how: str, with_run: bool) -> None:
        if not self.run.ending or actor in self.run.receiving:  # of the others nobody who drains wants to know
            self.run.tell_all(Left(actor, process.incarnation, how, process.taken.get(actor, ()), with_run))

    def lost(self, process: ProcessRecord) -> None:
        """A start was lost. Who was forked and not told of may have said Hello, and begun: nothing of it is left."""
        self.run.transport.poll()
        self._gone(process, "its start was lost", "consumer_died")
        for actor in process.actors:
            self.run.machines[actor].handle(ActorEvent.restart)
            if self.run.ending:
                self.run.machines[actor].handle(ActorEvent.stop, self.run.reason)

    def done(self, actor: int, process: ProcessRecord) -> None:
        """An actor is done. With its process it would be gone; one that shares it leaves the others."""
        if process.alive and not self._expects_end(process):
            self.run.recovery.retire(actor, process.incarnation, "run_ended" if self.run.ending else "consumer_died")
            self._tell_left(actor, process, "it is done", bool(self.run.ending))

    def _expects_end(self, process: ProcessRecord) -> bool:
        """Whether all its actors are done, or were asked to come to an end."""
        return all(self.run.machines[a].state in (ActorState.finished, ActorState.draining) for a in process.actors)

    async def _last_words(self, process: ProcessRecord, how: Exit) -> None:
        """That its actors are done, or the report of one that raised, may still be on its way."""
        limit = self.run.clock.now_ns() + int(LAST_WORDS_S * 1e9)
        while not process.failures and self.run.clock.now_ns() < limit:
            if how.clean and all(self.run.machines[a].state is ActorState.finished for a in process.actors):
                break
            await asyncio.sleep(0.01)
            self.run.transport.poll()

    async def _decide(self, process: ProcessRecord, how: Exit) -> None:
        """Restart or escalate."""
        failed = process.failures[0] if process.failures else None
        actor = failed.actor if failed else process.actors[0]
        status, name = read_status(self.run.pages, actor), self.run.plan.actors[actor].name
        what = process.why or (f"{failed.error}: {failed.text}" if failed else str(how))
        where = f"in `{failed.doing if failed else status.phase or 'start'}`"
        where += "" if failed or not status.since_ns else f" since {status.doing_s:.1f} s"
        process.died(how, self.run.clock.now_ns(), self.run.settings.window_s)
        self.run.exact &= bool(self.run.ending)  # what follows the end changes nothing that was learned
        refusal = self._refusal(process, how, failed)
        turn = f"; restart {len(process.deaths)} of {self.run.settings.restarts}" if refusal is None else ""
        report = self.run.journal.crash(
            Death(
                actor=name,
                error=what,
                doing=f"{where} (version {status.version}, {status.progress:,} phase changes)",
                traceback=failed.traceback if failed else "",
                stack=process.stack,
                story=list(self.run.machines[actor].story),
                events=list(self.run.recent),
                stacks=await self._stacks_of_others() if refusal is not None and not self.run.ending else "",
            )
        )
        fields: dict[str, Tree] = {"actor": name, "pid": process.pid, "how": str(how), "doing": status.phase}
        fields |= {"crash": report} if report else {}
        self.run.event("died", f"{name} died {where}: {what}{turn}", fields)
        if refusal is None:
            process.restarts += 1
            self.run.spawn(self._restart(process))
        elif not self.run.ending:
            self.run.report = report
            error = f"{name} failed {where}: {failed.text if failed else what}" + (f" ({refusal})" if refusal else "")
            self.run.end("failed", f"{name} failed", error, failed.hint if failed else "")

    async def _stacks_of_others(self) -> str:
        """What everybody else is executing at the moment that one of them ends the run."""
        stacks = await self.run.processes.stacks([p.name for p in self.run.table.values() if p.alive and p.listening])
        return "\n\n".join(f"{name}\n{stack}" for name, stack in stacks.items() if stack)

    def _refusal(self, process: ProcessRecord, how: Exit, failed: Failed | None) -> str | None:
        """Why this process is not restarted; None when it is. An empty text needs no words."""
        if self.run.ending:
            return "the run is ending"
        hopeless = self.run.run_machine.state is RunState.starting and not how.signal  # what cannot even start
        if hopeless or not self.run.processes.restarts or (failed and failed.permanent):
            return ""
        if not all(self.run.plan.actors[a].restart for a in process.actors):
            return "it is not to be restarted"
        return process.too_often(self.run.settings) or None

    async def _restart(self, process: ProcessRecord) -> None:
        """Starts it again, and again where the machine has no room for it, within the limits of deaths."""
        while True:
            await asyncio.sleep(process.backoff_s)
            if self.run.ending:
                return
            for actor in process.actors:
                self.run.machines[actor].handle(ActorEvent.restart)
            try:
                await self.run.start(process)
                return
            except HiveError as error:
                cause = error
            process.alive = False
            for actor in process.actors:
                self.run.machines[actor].handle(ActorEvent.died, str(cause))
            process.died(Exit(code=1), self.run.clock.now_ns(), self.run.settings.window_s)
            refusal = process.too_often(self.run.settings)
            self.run.event("not started", str(cause) + (f"; {refusal}" if refusal else ""), {"process": process.name})
            if refusal:
                name = self.run.plan.actors[process.actors[0]].name
                self.run.end("failed", f"{name} failed", f"{cause} ({refusal})", cause.hint)
                return
