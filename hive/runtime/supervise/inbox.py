"""Decide what follows from a message of a process: the table HANDLERS maps each type of message to its decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from hive.runtime.supervise.actions import Action, Log
from hive.runtime.supervise.ending import end
from hive.runtime.supervise.exits import actor_done
from hive.runtime.supervise.joining import hello, ready
from hive.runtime.supervise.states import ActorEvent, ActorState
from hive.runtime.supervise.supervisor_state import SupervisorState
from hive.runtime.wire.messages import Message
from hive.runtime.wire.protocol import Answered, Done, EndpointFailed, Failed, Hello, Note, Ready, Renew, RunOver

Handler: TypeAlias = Callable[[SupervisorState, Any, int], list[Action]]  # (state, message, monotonic time in ns)


def received(state: SupervisorState, message: Message, now_ns: int) -> list[Action]:
    """Handle a message. Raises IndexError or KeyError if it names an actor or a process that does not exist."""
    return HANDLERS[type(message)](state, message, now_ns)


def bad_message(state: SupervisorState, error: Exception) -> list[Action]:
    """Count a message that could not be decoded or handled, and log the 1st, 2nd, 4th, 8th, ...: floods take few
    lines."""
    state.bad_messages += 1
    if state.bad_messages.bit_count() > 1:
        return []
    return [Log("bad message", str(error), {"count": state.bad_messages})]


def _done(state: SupervisorState, message: Done) -> list[Action]:
    machine, process = state.machines[message.actor], state.process_of(message.actor)
    if message.incarnation != process.incarnation or not machine.accepts(ActorEvent.done):
        return []
    machine.handle(ActorEvent.done)
    process.taken[message.actor] = message.taken
    actions = actor_done(state, message.actor, process)
    # Actors that only answer calls never finish by themselves, so the run does not wait for them.
    working = (m for m, a in zip(state.machines, state.plan.actors, strict=True) if not a.serves)
    if all(machine.state is ActorState.finished for machine in working):
        actions += end(state, "finished", "all actors are done")
    return actions


def _failed(state: SupervisorState, message: Failed) -> list[Action]:
    process = state.process_of(message.actor)
    if message.incarnation == process.incarnation:
        process.failures.append(message)
    return []


def _renew(state: SupervisorState, message: Renew) -> list[Action]:
    asking, target = state.plan.actors[message.actor].name, state.plan.actors[message.target]
    process = state.process_of(message.target)
    if state.ending or not process.alive or process.incarnation != message.incarnation:
        return []
    if not (state.can_restart and target.restart):
        why = "it is not restarted" if state.can_restart else "actors of one process are not restarted"
        return [Log("not restarted", f"{target.name}, for {asking}: {why}", {"actor": target.name})]
    process.by_hand = True
    return [process.kill(f"restarted by {asking}: {message.reason}")]


def _note(state: SupervisorState, message: Note) -> list[Action]:
    fields = message.fields if isinstance(message.fields, dict) else {}
    return [Log(message.kind, message.text, {**fields, "actor": state.plan.actors[message.actor].name})]


def _endpoint_failed(state: SupervisorState, message: EndpointFailed) -> list[Action]:
    actor = state.plan.actors[message.actor].name
    return [Log("not done", f"{message.method} of {actor}: {message.text}", {"actor": actor, "method": message.method})]


def _answered(state: SupervisorState, message: Answered) -> list[Action]:
    if message.call in state.asked:  # else nobody waits for it any more
        state.answers[message.call] = message
    return []


HANDLERS: Mapping[type[Message], Handler] = {
    Hello: lambda state, message, now_ns: hello(state, message),
    Ready: ready,
    Done: lambda state, message, now_ns: _done(state, message),
    Failed: lambda state, message, now_ns: _failed(state, message),
    RunOver: lambda state, message, now_ns: end(state, "finished", message.reason),
    Renew: lambda state, message, now_ns: _renew(state, message),
    Note: lambda state, message, now_ns: _note(state, message),
    Answered: lambda state, message, now_ns: _answered(state, message),
    EndpointFailed: lambda state, message, now_ns: _endpoint_failed(state, message),
}
