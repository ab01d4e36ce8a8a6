"""Decide how processes join the run: announced to each other when they listen, begun when they are ready.

    Hello -> announced (Joined) -> Ready -> Begin

All processes of the first start begin together. A later incarnation begins as soon as it is ready; it first receives
the keys changed meanwhile and, in a paused run, Pause.
"""

from __future__ import annotations

from collections.abc import Sequence

from hive.runtime.supervise.actions import Action, AnnounceLater, Log, Send
from hive.runtime.supervise.changes import repeat_changes
from hive.runtime.supervise.membership import ProcessRecord
from hive.runtime.supervise.states import ActorEvent, ActorState, RunEvent, RunState
from hive.runtime.supervise.supervisor_state import SupervisorState
from hive.runtime.wire.protocol import Begin, Drain, Hello, Joined, Member, Pause, Ready

# While the run starts, processes that sent Hello are announced together after this delay. It holds up no message, since
# no actor sends before Begin.
ANNOUNCE_S = 0.02


def hello(state: SupervisorState, message: Hello) -> list[Action]:
    """Register a process that listens now."""
    process = state.table[message.process]
    if message.incarnation != process.incarnation or process.listening:
        return []
    process.listening = True
    state.newcomers.append(process)
    actions: list[Action] = []
    asked = {ActorState.draining, ActorState.finished}
    if state.ending and set(state.actor_states(process)) <= asked:  # it was still starting when Drain was sent
        actions.append(Send((process.name,), Drain(state.end.reason)))
    if state.run_machine.state is not RunState.starting:
        actions += announce(state)
    elif len(state.newcomers) == 1:  # announce n processes that start together with n messages instead of n * n
        actions.append(AnnounceLater())
    return actions


def announce(state: SupervisorState) -> list[Action]:
    """Send the list of all actors to new processes, and the list of new actors to the others."""
    new = [process for process in state.newcomers if process.alive and process.listening]
    state.newcomers.clear()
    if not new:
        return []
    present = state.listening()
    others = [process for process in present if process not in new]
    actions: list[Action] = [Send(tuple(process.name for process in new), _joined(state, present))]
    if others:
        actions.append(Send(tuple(process.name for process in others), _joined(state, new)))
    return actions


def _joined(state: SupervisorState, processes: Sequence[ProcessRecord]) -> Joined:
    """Return the message that announces all unfinished actors of these processes."""
    members: dict[int, Member] = {}
    for process in processes:
        dedicated = len(process.actors) == 1 and state.dedicated
        present = (a for a in process.actors if state.machines[a].state is not ActorState.finished)
        members |= dict.fromkeys(present, Member(process.incarnation, process.address, dedicated))
    return Joined.of(members)


def ready(state: SupervisorState, message: Ready, now_ns: int) -> list[Action]:
    """Register that the actors of a process are set up, and begin them if the run already runs."""
    process = state.table[message.process]
    if message.incarnation != process.incarnation:
        return []
    for actor in process.actors:
        if state.machines[actor].accepts(ActorEvent.ready):
            state.machines[actor].handle(ActorEvent.ready)
    running = state.run_machine.state in (RunState.running, RunState.paused)
    if not running or set(state.actor_states(process)) != {ActorState.ready}:
        return []
    text = f"{process.name} is back after {(now_ns - process.started_ns) / 1e6:.0f} ms"
    fields = {"process": process.name, "incarnation": process.incarnation}
    return [*_begin(state, process), Log("restarted", text, fields)]


def all_ready(state: SupervisorState) -> bool:
    """Return whether every actor of the run is ready to begin."""
    return all(machine.state is ActorState.ready for machine in state.machines)


def begin_all(state: SupervisorState) -> list[Action]:
    """Begin the run, after all actors are ready."""
    actions = announce(state)
    state.run_machine.handle(RunEvent.begin)
    for process in state.table.values():
        actions += _begin(state, process)
    actors, processes = len(state.plan.actors), len(state.table)
    return [*actions, Log("running", f"{_counted(actors, 'actor')} in {_counted(processes, 'process', 'es')}")]


def _counted(count: int, noun: str, plural: str = "s") -> str:
    return f"{count} {noun}{'' if count == 1 else plural}"


def _begin(state: SupervisorState, process: ProcessRecord) -> list[Action]:
    state.handle(process, ActorEvent.begin)
    to = (process.name,)
    paused = [Send(to, Pause())] if state.pause is not None else []
    return [*repeat_changes(state, process), *paused, Send(to, Begin())]
