"""Hold everything that the supervisor knows about a run, as one object without I/O.

It owns the records of the processes, the state machines of the actors and of the run, how the run ends, and the
progress of a pause and of the final stop. The decisions of this package read and change it, and any reader in the same
process may read it, such as the status document. It has no clock, transport, process table or shared memory: decisions
receive what they need of these as arguments.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hive.runtime.supervise.actions import Send
from hive.runtime.supervise.diagnostics import Diagnostics
from hive.runtime.supervise.membership import ProcessRecord, Settings
from hive.runtime.supervise.states import ACTOR, RUN, ActorEvent, ActorState, Machine, RunEvent, RunState
from hive.runtime.topology.plan import Plan
from hive.runtime.wire.messages import Message, Tree
from hive.runtime.wire.protocol import Answered

REPORTED_EVENTS = 20  # events in a crash report: earlier ones are rarely the cause


@dataclass
class RunEnd:
    """How the run ends. All texts are "" until it begins to end."""

    state: str = ""  # finished | stopped | failed | scaled
    reason: str = ""
    error: str = ""
    hint: str = ""
    report: str = ""  # path of the crash report of the exit that ended the run
    frames: str = ""  # last frames of user code in the traceback of that exit


@dataclass
class PauseRequest:
    """A pause that was requested and not yet ended, and the last check of whether the run is at rest."""

    number: int  # 1 for the first request of the run
    accounts: Mapping[str, Mapping[str, Any]] | None = None
    stable_checks: int = 0  # consecutive checks at rest with these accounts


class StopPhase(enum.Enum):
    draining = "draining"  # `waiting` were asked to drain
    killing = "killing"  # `waiting` did not stop in time and were killed
    starting = "starting"  # the `last` process in `waiting` had not finished and is being started again
    over = "over"


@dataclass
class StopSequence:
    """The progress of the final stop. Times are seconds of the monotonic clock."""

    deadline_s: float  # end of the whole sequence
    waves: list[list[ProcessRecord]]  # processes that were not yet asked to drain, in order
    unfinished: list[ProcessRecord]  # `last` processes that may have to be started again, in order
    phase: StopPhase = StopPhase.draining
    waiting: list[ProcessRecord] = field(default_factory=list)
    limit_s: float = 0.0  # time that the processes in `waiting` have for their drain
    until_s: float = math.inf  # end of the current phase
    tries: int = 0  # starts of the first of `unfinished`


class SupervisorState:
    """The state of one supervised run.

    can_restart, dedicated: properties of the process table (see ProcessTable). begun_ns: monotonic time.
    """

    def __init__(
        self, plan: Plan, settings: Settings, *, can_restart: bool, dedicated: bool, begun_ns: int = 0
    ) -> None:
        self.plan = plan
        self.settings = settings
        self.can_restart = can_restart
        self.dedicated = dedicated
        self.begun_ns = begun_ns
        self.table = {name: ProcessRecord(name, actors) for name, actors in plan.processes.items()}
        self.machines = [Machine(a.name, ACTOR, ActorState.starting) for a in plan.actors]
        self.run_machine: Machine[RunState, RunEvent] = Machine("run", RUN, RunState.starting)
        self.receiving = {c for channel in plan.channels if channel.carrier == "messages" for c in channel.consumers}
        self.newcomers: list[ProcessRecord] = []  # processes that listen but are not announced yet
        self.changes: dict[str, Tree] = {}  # keys changed while running, which are sent to later incarnations too
        self.exact = True
        self.end = RunEnd()
        self.pause: PauseRequest | None = None
        self.pauses = 0  # number of requested pauses
        self.stop: StopSequence | None = None
        self.stalled = False  # whether actors were blocked at the last check (hive.runtime.supervise.circles)
        self.bad_messages = 0
        self.asked: set[int] = set()  # calls of the supervisor that wait for an answer
        self.answers: dict[int, Answered] = {}
        self.recent: deque[str] = deque(maxlen=REPORTED_EVENTS)
        self.diagnostics = Diagnostics()

    @property
    def ending(self) -> bool:
        return bool(self.end.state)

    def process_of(self, actor: int) -> ProcessRecord:
        return self.table[self.plan.actors[actor].process]

    def actor_states(self, process: ProcessRecord) -> list[ActorState]:
        return [self.machines[actor].state for actor in process.actors]

    def listening(self) -> list[ProcessRecord]:
        """Return the processes that receive messages."""
        return [process for process in self.table.values() if process.alive and process.listening]

    def broadcast(self, message: Message) -> list[Send]:
        """Return the action that sends a message to all processes that listen."""
        to = tuple(process.name for process in self.listening())
        return [Send(to, message)] if to else []

    def handle(self, process: ProcessRecord, event: ActorEvent, why: str = "") -> None:
        """Apply an event to all actors of a process."""
        for actor in process.actors:
            self.machines[actor].handle(event, why)

    def stop_actors(self, processes: Iterable[ProcessRecord]) -> None:
        """Apply the event `stop` to every actor of these processes that accepts it."""
        for process in processes:
            for actor in process.actors:
                if self.machines[actor].accepts(ActorEvent.stop):
                    self.machines[actor].handle(ActorEvent.stop, self.end.reason)
