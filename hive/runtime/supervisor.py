"""The supervisor (in OTP's meaning): starts the actors, knows how each of them is, brings back those that die.

    start all -> everyone ready -> Begin -> ... -> RunOver | a request | an escalation -> drain -> kill -> outcome
                                            └─ pause, resume (hive.runtime.pausing)

It owns the run's memory and its sockets, so an actor can die at any instruction and take nothing with it. After a
*confirmed* exit (never on suspicion: a stopped process is killed first) it puts shared memory right: what the dead one
was filling is freed, what it had claimed is dropped as `consumer_died` or offered again, half transitions are
completed, its pins are taken out. Then it says `Left`, and `Joined` when a new incarnation is ready.

    dead because            found by                                         then
    exit, signal            the process table, at once                       restart, or escalate
    stopped (state T)       a look at /proc, every 0.25 s                    killed, restart
    stuck                   no progress on its page for `phase_limit_s`      killed, restart
    its neighbour died      they share a process: the unit of restart        restart

An actor that fails more than `restarts` times within `window_s`, or whose error a restart cannot help, ends the run:
the others drain, and the outcome says who failed, how, and what it was doing. The supervisor imports no torch, knows
no reinforcement learning, and reads time and processes through seams.
"""

from __future__ import annotations

import asyncio
import math
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from hive.clock import Clock
from hive.errors import WireError
from hive.runtime.accounting import channel_accounts, results_of
from hive.runtime.ending import Ending
from hive.runtime.exit_handler import ExitHandler
from hive.runtime.membership import ProcessRecord, Settings
from hive.runtime.messages import Frames, Message, Tree, decode, encode
from hive.runtime.outcome import Death, Journal, Outcome
from hive.runtime.pausing import Pausing
from hive.runtime.plan import Plan
from hive.runtime.processes import ProcessTable, SharedMemory, StartLost
from hive.runtime.protocol import (
    SUPERVISOR,
    SUPERVISOR_TYPES,
    Begin,
    Call,
    Done,
    Drain,
    EndpointFailed,
    Failed,
    Hello,
    Joined,
    Member,
    Note,
    Pause,
    Ready,
    RunOver,
)
from hive.runtime.recovery import Recovery
from hive.runtime.states import ACTOR, RUN, ActorEvent, ActorState, Machine, RunEvent, RunState
from hive.runtime.transport import Transport
from hive.runtime.watchdog import WATCH_S, watch

__all__ = ["CHANGE", "Supervisor"]

CHANGE = "update_algorithm_parameter"  # the endpoint (name, value) of whoever works by keys of [algorithm]

ENDS = {"finished": RunEvent.finish, "failed": RunEvent.fail}

STARTS = 5  # each is lost with a fork server that dies over it

ANNOUNCE_S = 0.02  # while the run starts, newcomers are announced together; nobody sends before it has begun
EVENTS_TOLD = 20  # in a crash report: what happened before is seldom to blame


class Supervisor:
    """See the module. `run` is the whole run; `request` asks it to end."""

    def __init__(
        self,
        plan: Plan,
        processes: ProcessTable,
        transport: Transport,
        memory: SharedMemory,
        clock: Clock,
        settings: Settings,
        journal: Journal,
        address: str,
    ) -> None:
        self.plan = plan
        self.processes = processes
        self.transport = transport
        self.memory = memory
        self.clock = clock
        self.begun_ns = clock.now_ns()
        self.settings = settings
        self.journal = journal
        self.address = address
        self.recovery = Recovery(plan, memory)
        self.pages = memory.pages
        self.table = {name: ProcessRecord(name, actors) for name, actors in plan.processes.items()}
        self.machines = [Machine(a.name, ACTOR, ActorState.starting) for a in plan.actors]
        self.run_machine: Machine[RunState, RunEvent] = Machine("run", RUN, RunState.starting)
        self.over = asyncio.Event()
        self.changed = asyncio.Event()
        self.reason = ""
        self.ending = ""  # finished | stopped | failed, once known
        self.error = ""
        self.hint = ""
        self.exact = True
        self.changes: dict[str, Tree] = {}  # keys that were changed live: later incarnations are told of them too
        self.bad_messages = 0
        self.receiving = {c for channel in plan.channels if channel.carrier == "message" for c in channel.consumers}
        self.newcomers: list[ProcessRecord] = []  # processes that listen and were not announced yet
        self.tasks: set[asyncio.Task[None]] = set()
        self.recent: deque[str] = deque(maxlen=EVENTS_TOLD)
        self.report = ""  # of the death that ended the run
        self.deaths = ExitHandler(self)
        self.pausing = Pausing(self)
        processes.on_exit = self.deaths.exited

    # --- the whole run

    async def run(self) -> Outcome:
        """Runs the topology to its end."""
        self.transport.bind(self.address, self._receive)
        watching = asyncio.create_task(watch(self))
        try:
            await asyncio.gather(*(self.start(process) for process in self.table.values()))
            await self.until(lambda: all(m.state is ActorState.ready for m in self.machines) or self.over.is_set())
            if not self.over.is_set():
                self._begin_all()
            await self.over.wait()
            await Ending(self).stop_all()
        finally:
            for task in (watching, *self.tasks):
                task.cancel()
            await asyncio.gather(watching, *self.tasks, return_exceptions=True)
        return self._outcome()

    def request(self, reason: str, *, now: bool = False) -> None:
        """Ends the run because somebody asked; `now` kills instead of draining. Idempotent."""
        if now:
            for process in self.table.values():
                self.kill(process, process.why or reason, given_up=True)
        self.end("stopped", reason)

    def event(self, kind: str, text: str, fields: dict[str, Tree]) -> None:
        self.recent.append(f"{(self.clock.now_ns() - self.begun_ns) / 1e9:.2f} s {kind}: {text}")
        self.journal.event(kind, text, fields)

    def end(self, state: str, reason: str, error: str = "", hint: str = "") -> None:
        if self.ending:
            return
        self.ending, self.reason, self.error, self.hint = state, reason, error, hint
        self.run_machine.handle(RunEvent.drain, reason)
        self.event("draining", reason, {"state": state})
        self.over.set()
        self.changed.set()

    async def start(self, process: ProcessRecord) -> None:
        """Its next incarnation. Raises HiveError when there is none; then nothing of it is left."""
        for attempt in range(1, STARTS + 1):
            address = f"{self.address.rpartition('/')[0]}/{process.name}-{process.incarnation + 1}"
            process.begin(address, self.clock.now_ns())
            try:
                pid = await self.processes.start(process.name, process.incarnation, process.address)
                break
            except StartLost:
                self.deaths.lost(process)
                if attempt == STARTS:
                    raise
        process.forked(pid, self.clock.now_ns())
        if process.why:  # somebody wanted it dead before it was there
            self.processes.kill(process.name)

    def _begin_all(self) -> None:
        self._announce()
        self.run_machine.handle(RunEvent.begin)
        for process in self.table.values():
            self._begin(process)
        self.event("running", f"{len(self.plan.actors)} actors in {len(self.table)} processes", {})

    def _begin(self, process: ProcessRecord) -> None:
        for actor in process.actors:
            self.machines[actor].handle(ActorEvent.begin)
        for actor in process.actors if self.changes else ():
            if CHANGE in self.plan.actors[actor].endpoints:  # it was made of the config as it had been
                for key, value in self.changes.items():
                    self.send(process, Call(0, SUPERVISOR, actor, CHANGE, [key, value]))
        if self.pausing.wanted:
            self.send(process, Pause())
        self.send(process, Begin())

    def tell_of_change(self, key: str, value: Tree) -> list[str]:
        """Tells everybody who works by this key of its new value, now and at every later start; their names."""
        called = self.call(CHANGE, key, value)
        if called:
            self.changes[key] = value
            self.exact = False
        return called

    def call(self, method: str, *arguments: Tree) -> list[str]:
        """Calls this endpoint of every actor that has it; their names. What it raises there the diary tells."""
        called = []
        for number, actor in enumerate(self.plan.actors):
            process = self.table[actor.process]
            if method in actor.endpoints and process.alive and self.machines[number].state is ActorState.running:
                self.send(process, Call(0, SUPERVISOR, number, method, list(arguments)))
                called.append(actor.name)
        return called

    # --- messages

    def send(self, process: ProcessRecord, message: Message) -> None:
        self._post(process, encode(message))

    def _post(self, process: ProcessRecord, frames: Frames) -> None:
        self.transport.post(process.address, frames)
        for actor in process.actors:
            self.pages.mailed(actor)  # it may sleep on its notifier

    def tell_all(self, message: Message) -> None:
        frames = encode(message)
        for process in self.table.values():
            if process.alive and process.listening:
                self._post(process, frames)

    def _receive(self, frames: Frames) -> None:
        try:
            message = decode(frames, SUPERVISOR_TYPES)
            getattr(self, f"_on_{type(message).__name__.lower()}")(message)
        except (WireError, IndexError, KeyError, TypeError) as error:
            self.bad_messages += 1
            self.event("bad message", str(error), {"count": self.bad_messages})
        self.changed.set()

    def _joined(self, processes: Sequence[ProcessRecord]) -> Frames:
        """The announcement of all actors of these processes."""
        members: dict[int, Member] = {}
        for process in processes:
            dedicated = len(process.actors) == 1 and self.processes.dedicated
            there = (a for a in process.actors if self.machines[a].state is not ActorState.finished)
            members |= dict.fromkeys(there, Member(process.incarnation, process.address, dedicated))
        return encode(Joined.of(members))

    def _on_hello(self, message: Hello) -> None:
        process = self.table[message.process]
        if message.incarnation != process.incarnation or process.listening:
            return
        process.listening = True
        self.newcomers.append(process)
        if self.ending:  # it was being started when the others were told
            self.send(process, Drain(self.reason))
        if self.run_machine.state is not RunState.starting:
            self._announce()
        elif len(self.newcomers) == 1:  # n processes that start together are n announcements, not n * n
            asyncio.get_running_loop().call_later(ANNOUNCE_S, self._announce)

    def _announce(self) -> None:
        """Tells the newcomers of everybody, and everybody of the newcomers."""
        new = [process for process in self.newcomers if process.alive and process.listening]
        self.newcomers.clear()
        there = [p for p in self.table.values() if p.alive and p.listening]
        everyone, newcomers = self._joined(there), self._joined(new)
        for process in there if new else ():
            self._post(process, everyone if process in new else newcomers)

    def _on_ready(self, message: Ready) -> None:
        process = self.table[message.process]
        if message.incarnation != process.incarnation:
            return
        for actor in process.actors:
            if self.machines[actor].knows(ActorEvent.ready):
                self.machines[actor].handle(ActorEvent.ready)
        if self.run_machine.state in (RunState.running, RunState.paused) and all(
            self.machines[a].state is ActorState.ready for a in process.actors
        ):
            self._begin(process)
            took = (self.clock.now_ns() - process.started_ns) / 1e6
            self.event(
                "restarted",
                f"{process.name} is back after {took:.0f} ms",
                {"process": process.name, "incarnation": process.incarnation},
            )

    def _on_done(self, message: Done) -> None:
        machine, process = self.machines[message.actor], self._process_of(message.actor)
        if message.incarnation == process.incarnation and machine.knows(ActorEvent.done):
            machine.handle(ActorEvent.done)
            process.taken[message.actor] = message.taken
            self.deaths.done(message.actor, process)
            at_work = (m for m, a in zip(self.machines, self.plan.actors, strict=True) if not a.serves)
            if all(m.state is ActorState.finished for m in at_work):
                self.end("finished", "all actors are done")

    def _on_failed(self, message: Failed) -> None:
        process = self._process_of(message.actor)
        if message.incarnation == process.incarnation:
            process.failures.append(message)

    def _on_runover(self, message: RunOver) -> None:
        self.end("finished", message.reason)

    def _on_note(self, message: Note) -> None:
        fields = message.fields if isinstance(message.fields, dict) else {}
        self.event(message.kind, message.text, {**fields, "actor": self.plan.actors[message.actor].name})

    def _on_endpointfailed(self, message: EndpointFailed) -> None:
        actor = self.plan.actors[message.actor].name
        self.event("not done", f"{message.method} of {actor}: {message.text}", {"actor": actor})

    def _process_of(self, actor: int) -> ProcessRecord:
        return self.table[self.plan.actors[actor].process]

    def spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        """What raises here is a fault of ours. Whatever it was about would never happen: better no run than that."""
        self.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            text, trace = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
            report = self.journal.crash(Death("supervisor", text, "in `supervise`", trace, events=list(self.recent)))
            self.event("died", f"the supervisor failed: {text}", {"crash": report})
            self.report = self.report or report
            self.end("failed", "the supervisor failed", f"the supervisor failed: {text}")
            self.ending = "failed"

    def kill(self, process: ProcessRecord, why: str, *, given_up: bool = False) -> None:
        """Only then is its death confirmed."""
        process.why, process.given_up = why, given_up
        self.processes.kill(process.name)

    # --- the end

    async def until(self, condition: Callable[[], bool], limit_s: float = math.inf) -> bool:
        """Waits for a condition that a message or an exit makes true; False when the limit came first."""
        limit = self.clock.now_ns() / 1e9 + limit_s
        while not condition():
            left = limit - self.clock.now_ns() / 1e9
            if left <= 0:
                return False
            self.changed.clear()
            try:
                async with asyncio.timeout(min(left, WATCH_S)):
                    await self.changed.wait()
            except TimeoutError:
                pass
        return True

    def _outcome(self) -> Outcome:
        event = ENDS.get(self.ending, RunEvent.stop)  # whatever else it is called, somebody asked for it
        self.run_machine.handle(event, self.reason)
        return Outcome(
            state=self.ending,
            reason=self.reason,
            error=self.error,
            hint=self.hint,
            exact=self.exact,
            restarts={self.plan.actors[a].name: p.restarts for p in self.table.values() for a in p.actors},
            channels=channel_accounts(self.plan, self.memory.views, self.pages),
            results=results_of(self.plan, self.pages),
            digest=self.recovery.digest(),
            report=self.report,
        )
