"""Pause and resume a run with all state in memory.

    pause -> Pause to all -> sources stop, consumers use up the messages in flight -> at rest -> state `paused`
    resume -> Resume to all -> state `running`

Only sources stop; all other actors run out of work. The run is at rest when every source waits for the end of the
pause, no other actor is busy, and the accounts of all channels balance and have stopped changing. Messages of an
incomplete round or update stay in their channel, counted as in flight. No decision depends on a clock, so a
deterministic run that was paused stays bit-identical to one that was not.

Incarnations that start during a pause are paused too. A request to end a paused run drains it like any other run.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hive.errors import UsageError
from hive.runtime.carriers.waiting import PAUSED
from hive.runtime.memory.status import BUSY, read_status
from hive.runtime.supervise.accounting import channel_accounts, holds
from hive.runtime.supervise.states import ActorState, RunEvent, RunState
from hive.runtime.wire.protocol import Pause, Resume

if TYPE_CHECKING:
    from hive.runtime.supervise.supervisor import Supervisor

__all__ = ["Pausing"]

POLL_S = 0.05  # interval between checks: longer than a message takes, and the same as the rescan of waits
STABLE_POLLS = 2  # consecutive checks without a change after which the run is at rest


class Pausing:
    """Pauses and resumes the run of a supervisor. `wanted` is true from a pause request until a resume request."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.wanted = False

    def pause(self) -> None:
        """Request a pause and return at once; the run's state becomes `paused` when it is at rest.

        Raises UsageError if the run is not running or has no sources.
        """
        supervisor = self.supervisor
        if supervisor.ending or supervisor.run_machine.state not in (RunState.running, RunState.paused):
            raise UsageError("the run is not running", hint="try again when it is")
        if not any(actor.source for actor in supervisor.plan.actors):
            raise UsageError(
                "no actor of this run is a source, so nothing would stop",
                hint="set `source = True` on an actor that has an inlet and also sends unprompted",
            )
        if not self.wanted:
            self.wanted = True
            supervisor.broadcast(Pause())
            supervisor.spawn(self._await_rest())

    def resume(self) -> None:
        """Continue the run. Raises UsageError if no pause was requested."""
        if not self.wanted:
            raise UsageError("the run is not paused")
        self.wanted = False
        self.supervisor.broadcast(Resume())
        if self.supervisor.run_machine.accepts(RunEvent.resume):
            self.supervisor.run_machine.handle(RunEvent.resume)
            self.supervisor.event("resumed", "continues", {})

    def active_actors(self) -> list[str]:
        """Return the actors that are not at rest, with their phase: sources that have not stopped, and busy actors."""
        supervisor, found = self.supervisor, []
        for number, actor in enumerate(supervisor.plan.actors):
            state = supervisor.machines[number].state
            if state is ActorState.finished:
                continue
            page = read_status(supervisor.pages, number)
            if not supervisor.table[actor.process].alive or state is not ActorState.running:
                found.append(f"{actor.name} (starting)")
            elif page.kind == BUSY or (actor.source and page.phase != PAUSED):
                found.append(f"{actor.name} (in {page.phase or 'start'})")
        return found

    async def _await_rest(self) -> None:
        supervisor, stable = self.supervisor, 0
        before: object = None
        while self.wanted and not supervisor.ending:
            accounts = channel_accounts(supervisor.plan, supervisor.memory)
            at_rest = not self.active_actors() and all(map(holds, accounts.values()))
            stable = stable + 1 if at_rest and accounts == before else 0
            before = accounts
            if stable == STABLE_POLLS:
                supervisor.run_machine.handle(RunEvent.pause)
                waiting = sum(account["in_flight"] for account in accounts.values())
                text = f"at rest, {waiting} messages wait in their channels"
                supervisor.event("paused", text, {"in_flight": waiting})
                return
            await asyncio.sleep(POLL_S)
