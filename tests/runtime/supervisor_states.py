"""States of a supervised run, for tests of decisions: no processes, no event loop, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hive.runtime.carriers.carrier import PlanChannel
from hive.runtime.carriers.messages import Messages
from hive.runtime.memory.status import BUSY, RUNTIME, WAIT_IN, ActorStatus
from hive.runtime.supervise.actions import Action, Log, Send
from hive.runtime.supervise.membership import Settings
from hive.runtime.supervise.states import ActorEvent, RunEvent
from hive.runtime.supervise.supervisor_state import SupervisorState
from hive.runtime.topology.plan import Plan, PlanActor
from hive.runtime.wire.messages import Message

S = 10**9  # nanoseconds


def planned(actors: dict[str, dict[str, Any]], receivers: Sequence[str] = ()) -> Plan:
    """Return a plan of these actors, each with its fields that differ from the defaults.

    receivers: consumers of the only message channel, whose producer is the first actor.
    """
    defaults = {"index": 0, "restart": True, "last": False}
    made = tuple(
        PlanActor(**{"name": name, "group": name, "process": name, **defaults, **fields})
        for name, fields in actors.items()
    )
    consumers = tuple(number for number, name in enumerate(actors) if name in receivers)
    carrier = Messages(window=4)
    channel = PlanChannel(
        "out", carrier.kind, carrier.options(), "balance", "wait", "x.out", ("y.in",), (0,), consumers, segments=()
    )
    return Plan(made, (channel,) if receivers else (), (), "", (), "", 0)


def starting(
    actors: dict[str, dict[str, Any]] | Sequence[str],
    receivers: Sequence[str] = (),
    *,
    can_restart: bool = True,
    dedicated: bool = True,
    **settings: Any,
) -> SupervisorState:
    """Return the state of a run whose processes were forked at time 0 and listen; none of them is ready."""
    fields = actors if isinstance(actors, dict) else {name: {} for name in actors}
    state = SupervisorState(
        planned(fields, receivers), Settings(**settings), can_restart=can_restart, dedicated=dedicated
    )
    for number, process in enumerate(state.table.values()):
        process.begin(f"memory://{process.name}-0", 0)
        process.forked(100 + number, 0)
        process.listening = True
    return state


def running(actors: dict[str, dict[str, Any]] | Sequence[str], *args: Any, **options: Any) -> SupervisorState:
    """Return the state of a run in which all actors run."""
    state = starting(actors, *args, **options)
    for process in state.table.values():
        state.handle(process, ActorEvent.ready)
        state.handle(process, ActorEvent.begin)
    state.run_machine.handle(RunEvent.begin)
    return state


def page(state: SupervisorState, actor: int, phase: str = "step", kind: int = BUSY, **changes: Any) -> ActorStatus:
    """Return the status page of an actor's current incarnation: in this phase for 2 s, at time 10 s."""
    process = state.process_of(actor)
    kinds = {"runtime": (RUNTIME, 0), "wait": (WAIT_IN, 0), phase: (kind, 0)}
    name = state.plan.actors[actor].name
    made = ActorStatus(name, process.pid, process.incarnation, phase, 8 * S, 0, 10 * S, 1234, 7, 0, kinds, {})
    return replace(made, **changes)


def sent(actions: Sequence[Action], cls: type[Message] = Message) -> list[tuple[tuple[str, ...], Message]]:
    """Return (processes, message) of all messages of a type that are sent."""
    return [
        (action.to, action.message)
        for action in actions
        if isinstance(action, Send) and type(action.message) in (cls, *cls.__subclasses__())
    ]


def texts(actions: Sequence[Action], kind: str) -> list[str]:
    """Return the texts of the logged events of a kind."""
    return [action.text for action in actions if isinstance(action, Log) and action.kind == kind]


def state_names(state: SupervisorState) -> dict[str, str]:
    return {machine.name: machine.state.value for machine in state.machines}
