"""Supervise a run in the sense of Erlang/OTP: start the actors, track their states, restart those that fail.

    start all -> all ready -> Begin -> ... -> RunOver | a request | a failure -> drain -> kill -> outcome
                                       └─ pause, resume (hive.runtime.supervise.pausing)

The supervisor owns the run's memory and sockets, so an actor can be killed at any instruction without losing them.
After a *confirmed* exit (a stopped process is killed first) it repairs shared memory (hive.runtime.supervise.recovery):
it frees slots that the actor was filling, drops its claimed slots as `consumer_died` or offers them again, completes
half-done transitions and removes its pins. Then it sends `Left`, and `Joined` when a new incarnation is ready.

    cause of the exit       detected by                                      reaction
    exit, signal            the process table, at once                       restart, or end of the run
    stopped (state T)       /proc, every 0.25 s                              kill, restart
    stuck                   no progress on its page for `phase_limit_s`      kill, restart
    a neighbour exited      actors of a process restart together             restart

An actor that fails more than `restarts` times within `window_s`, or with an error that a restart cannot fix, ends the
run: the others drain, and the outcome names the actor, its error and its phase. The supervisor imports no torch, has no
code specific to reinforcement learning, and accesses time and processes only through interfaces that tests replace.
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
from hive.runtime.process.processes import ProcessTable, SharedMemory, StartLost
from hive.runtime.supervise.accounting import channel_accounts, results_of
from hive.runtime.supervise.ending import Ending
from hive.runtime.supervise.exit_handler import ExitHandler
from hive.runtime.supervise.membership import ProcessRecord, Settings
from hive.runtime.supervise.outcome import CrashReport, Journal, Outcome
from hive.runtime.supervise.pausing import Pausing
from hive.runtime.supervise.recovery import Recovery
from hive.runtime.supervise.states import ACTOR, RUN, ActorEvent, ActorState, Machine, RunEvent, RunState
from hive.runtime.supervise.watchdog import WATCH_S, watch
from hive.runtime.topology.plan import Plan
from hive.runtime.wire.messages import Frames, Message, Tree, decode, encode
from hive.runtime.wire.protocol import (
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
from hive.runtime.wire.transport import Transport

__all__ = ["CHANGE", "Supervisor"]

CHANGE = "update_algorithm_parameter"  # endpoint (name, value) of actors that use keys of [algorithm]

ENDS = {"finished": RunEvent.finish, "failed": RunEvent.fail}  # final event by `ending`; any other is `stop`

STARTS = 5  # attempts to start an incarnation: each is lost only if the fork server exits during it

# While the run starts, processes that sent Hello are announced together after this delay. It holds up no message, since
# no actor sends before Begin.
ANNOUNCE_S = 0.02
REPORTED_EVENTS = 20  # events in a crash report: earlier ones are rarely the cause


class Supervisor:
    """Supervises one run, or one stage of it. `run` returns when it has ended; `request` asks it to end."""

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
        self.drain_requested = asyncio.Event()
        self.changed = asyncio.Event()  # set by every message and exit; `until` waits for it
        self.reason = ""
        self.ending = ""  # finished | stopped | failed | scaled once the run begins to end
        self.error = ""
        self.hint = ""
        self.exact = True
        self.changes: dict[str, Tree] = {}  # keys changed while running, which are sent to later incarnations too
        self.bad_messages = 0
        self.receiving = {c for channel in plan.channels if channel.carrier == "messages" for c in channel.consumers}
        self.newcomers: list[ProcessRecord] = []  # processes that listen but are not announced yet
        self.tasks: set[asyncio.Task[None]] = set()
        self.recent: deque[str] = deque(maxlen=REPORTED_EVENTS)
        self.report = ""  # path of the crash report of the exit that ended the run
        self.exit_handler = ExitHandler(self)
        self.pausing = Pausing(self)
        processes.on_exit = self.exit_handler.exited

    # --- the whole run

    async def run(self) -> Outcome:
        """Run the topology to its end and return the outcome."""
        self.transport.bind(self.address, self._receive)
        watching = asyncio.create_task(watch(self))
        try:
            await asyncio.gather(*(self.start(process) for process in self.table.values()))
            await self.until(
                lambda: all(m.state is ActorState.ready for m in self.machines) or self.drain_requested.is_set()
            )
            if not self.drain_requested.is_set():
                self._begin_all()
            await self.drain_requested.wait()
            await Ending(self).stop_all()
        finally:
            for task in (watching, *self.tasks):
                task.cancel()
            await asyncio.gather(watching, *self.tasks, return_exceptions=True)
        return self._outcome()

    def request(self, reason: str, *, at_once: bool = False) -> None:
        """End the run as requested from outside; `at_once` kills the actors instead of draining them. Idempotent."""
        if at_once:
            for process in self.table.values():
                self.kill(process, process.why or reason, given_up=True)
        self.end("stopped", reason)

    def event(self, kind: str, text: str, fields: dict[str, Tree]) -> None:
        """Log an event, and keep it for crash reports."""
        self.recent.append(f"{(self.clock.now_ns() - self.begun_ns) / 1e9:.2f} s {kind}: {text}")
        self.journal.event(kind, text, fields)

    def end(self, state: str, reason: str, error: str = "", hint: str = "") -> None:
        """Begin to end the run, with the outcome `state`; only the first call has an effect."""
        if self.ending:
            return
        self.ending, self.reason, self.error, self.hint = state, reason, error, hint
        self.run_machine.handle(RunEvent.drain, reason)
        self.event("draining", reason, {"state": state})
        self.drain_requested.set()
        self.changed.set()

    async def start(self, process: ProcessRecord) -> None:
        """Start the next incarnation of a process. Raises HiveError if that fails; then nothing of it is left."""
        for attempt in range(1, STARTS + 1):
            address = f"{self.address.rpartition('/')[0]}/{process.name}-{process.incarnation + 1}"
            process.begin(address, self.clock.now_ns())
            try:
                pid = await self.processes.start(process.name, process.incarnation, process.address)
                break
            except StartLost:
                self.exit_handler.start_lost(process)
                if attempt == STARTS:
                    raise
        process.forked(pid, self.clock.now_ns())
        if process.why:  # a kill was requested before the process existed
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
            if CHANGE in self.plan.actors[actor].endpoints:  # it was forked with the values from before the changes
                for key, value in self.changes.items():
                    self.send(process, Call(0, SUPERVISOR, actor, CHANGE, [key, value]))
        if self.pausing.wanted:
            self.send(process, Pause())
        self.send(process, Begin())

    def change_key(self, key: str, value: Tree) -> list[str]:
        """Send the new value of a key to all actors with the endpoint CHANGE, now and at every later start.

        Returns their names; if there is none, nothing changes. A changed run is not exact.
        """
        called = self.call(CHANGE, key, value)
        if called:
            self.changes[key] = value
            self.exact = False
        return called

    def call(self, method: str, *arguments: Tree) -> list[str]:
        """Call this endpoint of every running actor that has it, and return their names.

        An error that an endpoint raises is reported by an EndpointFailed message and logged as an event.
        """
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
            self.pages.mailed(actor)  # wakes it if it sleeps on its notifier

    def broadcast(self, message: Message) -> None:
        """Send a message to all processes that listen."""
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
        """Return the frames that announce all unfinished actors of these processes."""
        members: dict[int, Member] = {}
        for process in processes:
            dedicated = len(process.actors) == 1 and self.processes.dedicated
            present = (a for a in process.actors if self.machines[a].state is not ActorState.finished)
            members |= dict.fromkeys(present, Member(process.incarnation, process.address, dedicated))
        return encode(Joined.of(members))

    def _on_hello(self, message: Hello) -> None:
        process = self.table[message.process]
        if message.incarnation != process.incarnation or process.listening:
            return
        process.listening = True
        self.newcomers.append(process)
        if self.ending:  # it was still starting when Drain was sent to the others
            self.send(process, Drain(self.reason))
        if self.run_machine.state is not RunState.starting:
            self._announce()
        elif len(self.newcomers) == 1:  # announce n processes that start together with n messages instead of n * n
            asyncio.get_running_loop().call_later(ANNOUNCE_S, self._announce)

    def _announce(self) -> None:
        """Send the list of all actors to new processes, and the list of new actors to the others."""
        new = [process for process in self.newcomers if process.alive and process.listening]
        self.newcomers.clear()
        present = [p for p in self.table.values() if p.alive and p.listening]
        all_actors, new_actors = self._joined(present), self._joined(new)
        for process in present if new else ():
            self._post(process, all_actors if process in new else new_actors)

    def _on_ready(self, message: Ready) -> None:
        process = self.table[message.process]
        if message.incarnation != process.incarnation:
            return
        for actor in process.actors:
            if self.machines[actor].accepts(ActorEvent.ready):
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
        if message.incarnation == process.incarnation and machine.accepts(ActorEvent.done):
            machine.handle(ActorEvent.done)
            process.taken[message.actor] = message.taken
            self.exit_handler.actor_done(message.actor, process)
            # Actors that only answer calls never finish by themselves, so the run does not wait for them.
            working = (m for m, a in zip(self.machines, self.plan.actors, strict=True) if not a.serves)
            if all(m.state is ActorState.finished for m in working):
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
        """End the run if a task of the supervisor raised: a bug, after which a restart or repair would be missing."""
        self.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            text, trace = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
            crash = CrashReport("supervisor", text, "in `supervise`", trace, events=list(self.recent))
            report = self.journal.crash(crash)
            self.event("died", f"the supervisor failed: {text}", {"crash": report})
            self.report = self.report or report
            self.end("failed", "the supervisor failed", f"the supervisor failed: {text}")
            self.ending = "failed"  # also if the run was already ending for another reason

    def kill(self, process: ProcessRecord, why: str, *, given_up: bool = False) -> None:
        """Send SIGKILL to a process. Its exit is confirmed by the process table, which then calls `on_exit`."""
        process.why, process.given_up = why, given_up
        self.processes.kill(process.name)

    # --- the end

    async def until(self, condition: Callable[[], bool], limit_s: float = math.inf) -> bool:
        """Wait for a condition that a message or an exit makes true; return False after `limit_s` seconds."""
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
        self.run_machine.handle(ENDS.get(self.ending, RunEvent.stop), self.reason)
        return Outcome(
            state=self.ending,
            reason=self.reason,
            error=self.error,
            hint=self.hint,
            exact=self.exact,
            restarts={self.plan.actors[a].name: p.restarts for p in self.table.values() for a in p.actors},
            channels=channel_accounts(self.plan, self.memory),
            results=results_of(self.plan, self.pages),
            digest=self.recovery.digest(),
            report=self.report,
        )
