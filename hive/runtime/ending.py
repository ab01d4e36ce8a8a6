"""The end of a run: everybody stops, those that have something to save last; who does not is killed.

    the many drain -> those that are `last` drain -> who died over its saving is started again, to save -> outcome

One deadline holds for all of it. Everything that happens on the way is told; what fails the run is only that one of
those that are `last` has not finished: what it should have saved is not there, and whoever waits for the exit code
must hear of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hive.errors import HiveError
from hive.runtime.membership import ProcessRecord
from hive.runtime.protocol import Drain
from hive.runtime.states import ActorEvent

if TYPE_CHECKING:
    from hive.runtime.supervisor import Supervisor

__all__ = ["LAST_TRIES", "Ending"]

LAST_TRIES = 3  # of one that dies while it saves: who kills it again and again means it
KILL_AFTER_S = 2.0  # from the end of a drain's deadline to giving up on processes that ignore SIGKILL (state D)


class Ending:
    """The supervisor's part that brings a run to its end."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.run = supervisor

    async def stop_all(self) -> None:
        """One deadline for all: the many drain, then those that are to be last; who is left is killed.

        Those that are to be last have something to save: the many leave them half of the time.
        """
        deadline = self.run.clock.now_ns() / 1e9 + self.run.settings.drain_s
        last = [p for p in self.run.table.values() if any(self.run.plan.actors[a].last for a in p.actors)]
        for wave in ([p for p in self.run.table.values() if p not in last], last):
            for process in wave:
                for actor in process.actors:
                    if self.run.machines[actor].knows(ActorEvent.stop):
                        self.run.machines[actor].handle(ActorEvent.stop, self.run.reason)
                if process.alive:
                    self.run.send(process, Drain(self.run.reason))
            left = deadline - self.run.clock.now_ns() / 1e9
            limit = left / 2 if last and wave is not last else left
            if not await self.run.until(lambda wave=wave: not any(p.alive for p in wave), limit):  # type: ignore[misc]
                await self._kill_rest(wave, limit)
        for process in last if self.run.processes.restarts else ():
            await self._finish_again(process, deadline)
        for process in last:
            if process.cut_short and self.run.ending in ("finished", "stopped"):  # after a stage there is another
                self._fail_at_the_end(process)
        self.run.recovery.drain()

    def _fail_at_the_end(self, process: ProcessRecord) -> None:
        """What one that was to be last should have saved is lost. Of the others, who only had to stop, it is told."""
        failed = process.failures[0] if process.failures else None
        name = self.run.plan.actors[failed.actor].name if failed else process.name
        what = failed.text if failed else f"{process.why or 'it was killed'} before it had finished"
        self.run.ending, self.run.error = "failed", f"{name} failed at the end: {what}"
        self.run.hint = failed.hint if failed else ""
        self.run.reason = f"{name} failed at the end ({self.run.reason})"

    async def _finish_again(self, process: ProcessRecord, deadline: float) -> None:
        """One that was to be last has something to save: if it dies over that, it is started once more, to save it."""
        for _ in range(LAST_TRIES):
            left = deadline - self.run.clock.now_ns() / 1e9
            if not process.cut_short or left <= 0:
                return
            text = f"{process.name} had not finished and is started again"
            self.run.event("restarted", text, {"process": process.name})
            for actor in process.actors:
                self.run.machines[actor].handle(ActorEvent.restart)
                self.run.machines[actor].handle(ActorEvent.stop, self.run.reason)
            try:
                await self.run.start(process)  # as soon as it listens it is told to drain
            except HiveError as error:
                process.alive = False
                self.run.event("not started", str(error), {"process": process.name})
                return
            if not await self.run.until(lambda: not process.alive, left):
                await self._kill_rest([process], left)

    async def _kill_rest(self, wave: list[ProcessRecord], limit_s: float) -> None:
        late = [process for process in wave if process.alive]
        for process in late:
            text = f"{process.name} did not stop within {limit_s:.1f} s"
            self.run.event("killed", text, {"process": process.name})
            self.run.kill(process, "it did not stop in time", given_up=True)
        await self.run.until(lambda: not any(p.alive for p in late), KILL_AFTER_S)
        for process in late:
            process.cut_short = True
