"""End a run: stop all actors, those that save state last, and kill any that do not stop.

    all other actors drain -> `last` actors drain -> a `last` actor killed while saving is started again -> outcome

One deadline holds for the whole sequence. Every problem on the way is logged as an event, but only one fails the run: a
`last` actor that has not finished. Its state was not saved, and the exit code must report that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hive.errors import HiveError
from hive.runtime.supervise.membership import ProcessRecord
from hive.runtime.supervise.states import ActorEvent
from hive.runtime.wire.protocol import Drain

if TYPE_CHECKING:
    from hive.runtime.supervise.supervisor import Supervisor

__all__ = ["LAST_TRIES", "Ending"]

LAST_TRIES = 3  # restarts of a `last` actor that is killed while it saves: more would fight a deliberate kill
KILL_AFTER_S = 2.0  # wait after SIGKILL before giving up on a process that ignores it (state D)


class Ending:
    """Drains the actors of a run in order and decides whether its end counts as a failure."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor

    async def stop_all(self) -> None:
        """Drain the other actors, then the `last` ones, and kill what remains after `drain_s` seconds in all."""
        supervisor = self.supervisor
        deadline = supervisor.clock.now_ns() / 1e9 + supervisor.settings.drain_s
        last = [p for p in supervisor.table.values() if any(supervisor.plan.actors[a].last for a in p.actors)]
        for wave in ([p for p in supervisor.table.values() if p not in last], last):
            for process in wave:
                for actor in process.actors:
                    if supervisor.machines[actor].accepts(ActorEvent.stop):
                        supervisor.machines[actor].handle(ActorEvent.stop, supervisor.reason)
                if process.alive:
                    supervisor.send(process, Drain(supervisor.reason))
            left = deadline - supervisor.clock.now_ns() / 1e9
            limit = left / 2 if last and wave is not last else left  # the other half is for the actors that save
            stopped = await supervisor.until(lambda wave=wave: not any(p.alive for p in wave), limit)  # type: ignore[misc]
            if not stopped:
                await self._kill_rest(wave, limit)
        for process in last if supervisor.processes.restarts else ():
            await self._finish_again(process, deadline)
        for process in last:
            if process.cut_short and supervisor.ending in ("finished", "stopped"):  # "scaled": the next stage decides
                self._fail_at_the_end(process)
        supervisor.recovery.drain()

    def _fail_at_the_end(self, process: ProcessRecord) -> None:
        """Turn the outcome into a failure: the state that this `last` process should have saved is lost."""
        supervisor = self.supervisor
        failed = process.failures[0] if process.failures else None
        name = supervisor.plan.actors[failed.actor].name if failed else process.name
        what = failed.text if failed else f"{process.why or 'it was killed'} before it had finished"
        supervisor.ending, supervisor.error = "failed", f"{name} failed at the end: {what}"
        supervisor.hint = failed.hint if failed else ""
        supervisor.reason = f"{name} failed at the end ({supervisor.reason})"

    async def _finish_again(self, process: ProcessRecord, deadline: float) -> None:
        """Restart a `last` process that exited before it had saved, at most LAST_TRIES times before `deadline`."""
        supervisor = self.supervisor
        for _ in range(LAST_TRIES):
            left = deadline - supervisor.clock.now_ns() / 1e9
            if not process.cut_short or left <= 0:
                return
            text = f"{process.name} had not finished and is started again"
            supervisor.event("restarted", text, {"process": process.name})
            for actor in process.actors:
                supervisor.machines[actor].handle(ActorEvent.restart)
                supervisor.machines[actor].handle(ActorEvent.stop, supervisor.reason)
            try:
                await supervisor.start(process)  # the supervisor answers its Hello with a Drain
            except HiveError as error:
                process.alive = False
                supervisor.event("not started", str(error), {"process": process.name})
                return
            if not await supervisor.until(lambda: not process.alive, left):
                await self._kill_rest([process], left)

    async def _kill_rest(self, wave: list[ProcessRecord], limit_s: float) -> None:
        late = [process for process in wave if process.alive]
        for process in late:
            text = f"{process.name} did not stop within {limit_s:.1f} s"
            self.supervisor.event("killed", text, {"process": process.name})
            self.supervisor.kill(process, "it did not stop in time", given_up=True)
        await self.supervisor.until(lambda: not any(p.alive for p in late), KILL_AFTER_S)
        for process in late:
            process.cut_short = True
