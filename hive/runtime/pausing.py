"""Pausing: the supervisor's part that lets a run come to rest, and go on.

    pause -> Pause to all -> sources begin nothing more, what is on its way is used up -> at rest -> state `paused`
    resume -> Resume to all -> state `running`

Nobody but the sources is stopped: the others have nothing left to do. The run is at rest when every source waits for
the end of the pause, nobody else is at work, and the accounts of all channels hold and were the same a moment before.
What a round or an update still lacks then waits in its channel, counted as in flight. Nothing that decides reads a
clock, so a deterministic run that was paused is, byte for byte, the run that was not.

A pause holds for incarnations that start meanwhile. A run that is told to end while it is paused drains as any other.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hive.errors import UsageError
from hive.runtime.accounting import channel_accounts, holds
from hive.runtime.protocol import Pause, Resume
from hive.runtime.states import ActorState, RunEvent, RunState
from hive.runtime.status import BUSY, read_status
from hive.runtime.waiting import PAUSED

if TYPE_CHECKING:
    from hive.runtime.supervisor import Supervisor

__all__ = ["Pausing"]

LOOK_S = 0.05  # between two looks: longer than any message is on its way, and as often as waits rescan
ALIKE = 2  # looks in a row at which nothing has moved


class Pausing:
    """See the module. `wanted`: somebody asked for a pause, and nobody for its end."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.run = supervisor
        self.wanted = False

    def pause(self) -> None:
        """Returns at once; the run's state says when it is paused. Raises UsageError for one that cannot be."""
        run = self.run
        if run.ending or run.run_machine.state not in (RunState.running, RunState.paused):
            raise UsageError("the run is not running just now", hint="try again when it is")
        if not any(actor.source for actor in run.plan.actors):
            raise UsageError(
                "no actor of this run begins anything of its own, so nothing would stop",
                hint="an actor that has an inlet and sends of its own accord says `source = True`",
            )
        if not self.wanted:
            self.wanted = True
            run.tell_all(Pause())
            run.spawn(self._settle())

    def resume(self) -> None:
        """Raises UsageError for a run that is not paused, nor about to be."""
        if not self.wanted:
            raise UsageError("the run is not paused")
        self.wanted = False
        self.run.tell_all(Resume())
        if self.run.run_machine.knows(RunEvent.resume):
            self.run.run_machine.handle(RunEvent.resume)
            self.run.event("resumed", "goes on", {})

    def at_work(self) -> list[str]:
        """Who is not at rest yet: sources that have not stopped, and everybody else who is busy."""
        run, found = self.run, []
        for number, actor in enumerate(run.plan.actors):
            if run.machines[number].state is ActorState.finished:
                continue
            page = read_status(run.pages, number)
            if not run.table[actor.process].alive or run.machines[number].state is not ActorState.running:
                found.append(f"{actor.name} (starting)")
            elif page.kind == BUSY or (actor.source and page.phase != PAUSED):
                found.append(f"{actor.name} (in {page.phase or 'start'})")
        return found

    async def _settle(self) -> None:
        run, alike = self.run, 0
        before: object = None
        while self.wanted and not run.ending:
            accounts = channel_accounts(run.plan, run.memory.views, run.pages)
            rests = not self.at_work() and all(map(holds, accounts.values()))
            alike = alike + 1 if rests and accounts == before else 0
            before = accounts
            if alike == ALIKE:
                run.run_machine.handle(RunEvent.pause)
                waiting = sum(account["in_flight"] for account in accounts.values())
                run.event("paused", f"at rest, {waiting} messages wait in their channels", {"in_flight": waiting})
                return
            await asyncio.sleep(LOOK_S)
