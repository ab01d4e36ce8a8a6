"""Decide which actors an endpoint call of the supervisor reaches, and keep the keys that were changed while running.

A changed key is sent to every actor with the endpoint CHANGE, now and in each later incarnation, which was forked with
the values from before the change. A changed run is not exact.
"""

from __future__ import annotations

from collections.abc import Sequence

from hive.runtime.supervise.actions import Action, Send
from hive.runtime.supervise.membership import ProcessRecord
from hive.runtime.supervise.states import ActorState
from hive.runtime.supervise.supervisor_state import SupervisorState
from hive.runtime.wire.messages import Tree
from hive.runtime.wire.protocol import SUPERVISOR, Call

CHANGE = "update_algorithm_parameter"  # endpoint (name, value) of actors that use keys of [algorithm]


def call(state: SupervisorState, method: str, arguments: Sequence[Tree]) -> tuple[list[str], list[Action]]:
    """Call this endpoint of every running actor that has it; return their names and the actions."""
    called: list[str] = []
    actions: list[Action] = []
    for number, actor in enumerate(state.plan.actors):
        running = state.process_of(number).alive and state.machines[number].state is ActorState.running
        if running and method in actor.endpoints:
            actions.append(Send((actor.process,), Call(0, SUPERVISOR, number, method, list(arguments))))
            called.append(actor.name)
    return called, actions


def change_key(state: SupervisorState, key: str, value: Tree) -> tuple[list[str], list[Action]]:
    """Send the new value of a key to all actors with the endpoint CHANGE; return their names and the actions.

    If there is no such actor, nothing changes.
    """
    called, actions = call(state, CHANGE, (key, value))
    if called:
        state.changes[key] = value
        state.exact = False
    return called, actions


def repeat_changes(state: SupervisorState, process: ProcessRecord) -> list[Action]:
    """Send all keys changed so far to the actors of an incarnation that is about to begin."""
    return [
        Send((process.name,), Call(0, SUPERVISOR, actor, CHANGE, [key, value]))
        for actor in process.actors
        if CHANGE in state.plan.actors[actor].endpoints
        for key, value in state.changes.items()
    ]
