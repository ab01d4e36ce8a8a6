"""The state machines of an actor and of a run, as literal tables. No I/O, no clock, no other module's types.

    ACTOR   the supervisor's view of one incarnation after another of the same actor
    RUN     the run as a whole

A table is {state: {event: next state}}. `Machine` applies one: an event that the current state does not know raises
`BadTransition` and changes nothing. Each machine keeps its last 64 transitions, its story, which every error about it
carries.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping
from typing import Generic, TypeVar

from hive.errors import BadTransition

__all__ = ["ACTOR", "RUN", "ActorEvent", "ActorState", "Machine", "RunEvent", "RunState"]

STORY_LENGTH = 64  # transitions kept: several restarts' worth, one screen


class ActorState(enum.Enum):
    starting = "starting"  # forked, setting up
    ready = "ready"  # set up, waits for the others
    running = "running"
    draining = "draining"  # asked to stop
    failed = "failed"  # its process is gone and it was not asked to
    finished = "finished"  # ended by itself or because it was asked to


class ActorEvent(enum.Enum):
    ready = "ready"
    begin = "begin"
    stop = "stop"  # asked to stop
    done = "done"  # its run() returned
    died = "died"  # its process is gone
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
        ActorEvent.restart: ActorState.starting,  # it shared a process with one that failed
        ActorEvent.died: ActorState.finished,
        ActorEvent.stop: ActorState.finished,
    },
}


class RunState(enum.Enum):
    starting = "starting"
    running = "running"
    paused = "paused"
    draining = "draining"
    finished = "finished"  # reached what it was asked to reach
    stopped = "stopped"  # ended because somebody asked
    failed = "failed"
    lost = "lost"  # its supervisor is gone; only views say so


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
    """One machine: a table, a current state and the story of how it got there."""

    def __init__(self, name: str, table: Mapping[S, Mapping[E, S]], state: S) -> None:
        self.name = name
        self.table = table
        self.state = state
        self.story: deque[str] = deque(maxlen=STORY_LENGTH)

    def knows(self, event: E) -> bool:
        return event in self.table[self.state]

    def handle(self, event: E, why: str = "") -> S:
        """Applies `event`. `why` goes into the story. Raises BadTransition, and changes nothing, if it is unknown."""
        following = self.table[self.state].get(event)
        if following is None:
            story = "; ".join(list(self.story)[-5:]) or "no transition yet"
            raise BadTransition(
                f"{self.name} in state `{self.state.value}` cannot handle `{event.value}` (before: {story})"
            )
        self.story.append(f"{self.state.value} -{event.value}-> {following.value}" + (f" ({why})" if why else ""))
        self.state = following
        return following
