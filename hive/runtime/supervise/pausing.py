"""Decide when a run pauses and resumes, with all state in memory.

    pause -> Pause to all -> sources stop, consumers use up the messages in flight -> at rest -> state `paused`
    resume -> Resume to all -> state `running`

Only sources stop; all other actors run out of work. The run is at rest when every source waits for the end of the
pause, no other actor is busy, and the accounts of all channels balance and have stopped changing. Messages of an
incomplete round or update stay in their channel, counted as in flight. No decision depends on a clock, so a
deterministic run that was paused stays bit-identical to one that was not.

Incarnations that start during a pause are paused too. A request to end a paused run drains it like any other run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hive.errors import UsageError
from hive.runtime.carriers.waiting import PAUSED
from hive.runtime.memory.status import BUSY, ActorStatus
from hive.runtime.supervise.accounting import holds
from hive.runtime.supervise.actions import Action, AwaitRest, Log
from hive.runtime.supervise.states import ActorState, RunEvent, RunState
from hive.runtime.supervise.supervisor_state import PauseRequest, SupervisorState
from hive.runtime.wire.protocol import Pause, Resume

POLL_S = 0.05  # interval between checks: longer than a message takes, and the same as the rescan of waits
STABLE_POLLS = 2  # consecutive checks without a change after which the run is at rest


def pause(state: SupervisorState) -> list[Action]:
    """Request a pause; the run's state becomes `paused` when it is at rest.

    Raises UsageError if the run is not running or has no sources.
    """
    if state.ending or state.run_machine.state not in (RunState.running, RunState.paused):
        raise UsageError("the run is not running", hint="try again when it is")
    if not any(actor.source for actor in state.plan.actors):
        raise UsageError(
            "no actor of this run is a source, so nothing would stop",
            hint="set `source = True` on an actor that has an inlet and also sends unprompted",
        )
    if state.pause is not None:
        return []
    state.pauses += 1
    state.pause = PauseRequest(state.pauses)
    return [*state.broadcast(Pause()), AwaitRest(state.pauses)]


def resume(state: SupervisorState) -> list[Action]:
    """Continue the run. Raises UsageError if no pause was requested."""
    if state.pause is None:
        raise UsageError("the run is not paused")
    state.pause = None
    actions: list[Action] = [*state.broadcast(Resume())]
    if state.run_machine.accepts(RunEvent.resume):
        state.run_machine.handle(RunEvent.resume)
        actions.append(Log("resumed", "continues"))
    return actions


def active_actors(state: SupervisorState, statuses: Sequence[ActorStatus]) -> list[str]:
    """Return the actors that are not at rest, with their phase: sources that have not stopped, and busy actors.

    statuses: the page of every actor.
    """
    active = []
    for number, (actor, page) in enumerate(zip(state.plan.actors, statuses, strict=True)):
        actor_state = state.machines[number].state
        if actor_state is ActorState.finished:
            continue
        if not state.process_of(number).alive or actor_state is not ActorState.running:
            active.append(f"{actor.name} (starting)")
        elif page.kind == BUSY or (actor.source and page.phase != PAUSED):
            active.append(f"{actor.name} (in {page.phase or 'start'})")
    return active


def awaits_rest(state: SupervisorState, pause: int) -> bool:
    """Return whether the pause with this number is still wanted and the run is not at rest yet."""
    wanted = state.pause is not None and state.pause.number == pause
    return wanted and state.run_machine.state is RunState.running


def checked(
    state: SupervisorState, accounts: dict[str, dict[str, Any]], statuses: Sequence[ActorStatus]
) -> list[Action]:
    """Pause the run if it is at rest: STABLE_POLLS checks in a row found the same accounts, and no active actor."""
    request = state.pause
    assert request is not None
    at_rest = not active_actors(state, statuses) and all(map(holds, accounts.values()))
    request.stable_checks = request.stable_checks + 1 if at_rest and accounts == request.accounts else 0
    request.accounts = accounts
    if request.stable_checks < STABLE_POLLS:
        return []
    state.run_machine.handle(RunEvent.pause)
    waiting = sum(account["in_flight"] for account in accounts.values())
    return [Log("paused", f"at rest, {waiting} messages wait in their channels", {"in_flight": waiting})]
