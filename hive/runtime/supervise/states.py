"""Define the state machines of an actor and of a run as literal tables, without I/O, clock or types of other modules.

    ACTOR   the supervisor's view of one actor across its incarnations
    RUN     the run as a whole

A table is {state: {event: next state}}. `Machine` applies it: an event that the current state does not accept raises
`BadTransition` and changes nothing. Each machine keeps a history of its last 64 transitions; the error shows the end
of it.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping
from typing import Generic, TypeVar

from hive.errors import BadTransition

HISTORY_LENGTH = 64  # transitions kept per machine: several restarts, and it fits on one screen


class ActorState(enum.Enum):
    starting = "starting"  # forked, setting up
    ready = "ready"  # set up, waiting for the other actors
    running = "running"
    draining = "draining"  # asked to stop
    failed = "failed"  # its process exited without being asked to stop
    finished = "finished"  # ended by itself or on request


class ActorEvent(enum.Enum):
    ready = "ready"
    begin = "begin"
    stop = "stop"  # asked to stop
    done = "done"  # its run() returned
    died = "died"  # its process exited
    restart = "restart"


ACTOR: Mapping[ActorState, Mapping[ActorEvent, ActorState]] = {
    ActorState.starting: {
        ActorEvent.ready: ActorState.ready,
        ActorEvent.stop: ActorState.draining,
        ActorEvent.died: ActorState.failed,
    },
    ActorState.ready: {
        ActorEvent.begin: ActorState.running,
        ActorEvent.stop: ActorState.draining,
        ActorEvent.died: ActorState.failed,
    },
    ActorState.running: {
        ActorEvent.done: ActorState.finished,
        ActorEvent.stop: ActorState.draining,
        ActorEvent.died: ActorState.failed,
    },
    ActorState.draining: {
        ActorEvent.done: ActorState.finished,
        ActorEvent.died: ActorState.finished,
    },
    ActorState.failed: {ActorEvent.restart: ActorState.starting, ActorEvent.stop: ActorState.finished},
    ActorState.finished: {
        ActorEvent.restart: ActorState.starting,  # another actor of its process failed, and all restart together
        ActorEvent.died: ActorState.finished,
        ActorEvent.stop: ActorState.finished,
    },
}


class RunState(enum.Enum):
    starting = "starting"
    running = "running"
    paused = "paused"
    draining = "draining"
    finished = "finished"  # reached its goal
    stopped = "stopped"  # ended on request
    failed = "failed"
    lost = "lost"  # its supervisor exited without a summary; only views use this state


class RunEvent(enum.Enum):
    begin = "begin"
    pause = "pause"
    resume = "resume"
    drain = "drain"
    finish = "finish"
    stop = "stop"
    fail = "fail"
    lose = "lose"


RUN: Mapping[RunState, Mapping[RunEvent, RunState]] = {
    RunState.starting: {
        RunEvent.begin: RunState.running,
        RunEvent.drain: RunState.draining,
        RunEvent.fail: RunState.failed,
        RunEvent.lose: RunState.lost,
    },
    RunState.running: {
        RunEvent.pause: RunState.paused,
        RunEvent.drain: RunState.draining,
        RunEvent.fail: RunState.failed,
        RunEvent.lose: RunState.lost,
    },
    RunState.paused: {
        RunEvent.resume: RunState.running,
        RunEvent.drain: RunState.draining,
        RunEvent.fail: RunState.failed,
        RunEvent.lose: RunState.lost,
    },
    RunState.draining: {
        RunEvent.finish: RunState.finished,
        RunEvent.stop: RunState.stopped,
        RunEvent.fail: RunState.failed,
        RunEvent.lose: RunState.lost,
    },
    RunState.finished: {},
    RunState.stopped: {},
    RunState.failed: {},
    RunState.lost: {},
}

S = TypeVar("S", bound=enum.Enum)
E = TypeVar("E", bound=enum.Enum)


class Machine(Generic[S, E]):
    """A state machine: a transition table, the current state, and the history of transitions."""

    def __init__(self, name: str, table: Mapping[S, Mapping[E, S]], state: S) -> None:
        self.name = name
        self.table = table
        self.state = state
        self.history: deque[str] = deque(maxlen=HISTORY_LENGTH)

    def accepts(self, event: E) -> bool:
        """Return whether the current state has a transition for `event`."""
        return event in self.table[self.state]

    def handle(self, event: E, why: str = "") -> S:
        """Apply `event` and return the new state; `why` is added to the history.

        Raises BadTransition, and changes nothing, if the current state does not accept the event.
        """
        following = self.table[self.state].get(event)
        if following is None:
            history = "; ".join(list(self.history)[-5:]) or "no transition yet"
            raise BadTransition(
                f"{self.name} in state `{self.state.value}` cannot handle `{event.value}` (before: {history})"
            )
        self.history.append(f"{self.state.value} -{event.value}-> {following.value}" + (f" ({why})" if why else ""))
        self.state = following
        return following
