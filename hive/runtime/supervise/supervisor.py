"""Supervise a run in the sense of Erlang/OTP: start the actors, track their states, restart those that fail.

    start all -> all ready -> Begin -> ... -> RunOver | a request | a failure -> drain -> kill -> outcome
                                       └─ pause, resume (hive.runtime.supervise.pausing)

The supervisor owns the run's memory and sockets, so an actor can be killed at any instruction without losing them.
After a *confirmed* exit (a stopped process is killed first) it repairs shared memory (hive.runtime.supervise.effects):
it frees slots that the actor was filling, drops its claimed slots as `consumer_died` or offers them again, completes
half-done transitions and removes its pins. Then it sends `Left`, and `Joined` when a new incarnation is ready.

    cause of the exit       detected by                                      reaction
    exit, signal            the process table, at once                       restart, or end of the run
    stopped (state T)       /proc, every 0.25 s                              kill, restart
    stuck                   no progress on its page for a limit              kill, restart
    a neighbor exited       actors of a process restart together             restart

An actor that fails more than `restarts` times within `window_s`, or in a row without progress, or with an error that a
restart cannot fix, ends the run: the others drain, and the outcome names the actor, its error and its phase.

    input (message, exit, request, time) -> decision on the SupervisorState -> actions -> executed

This module decides nothing. It receives the inputs and waits; the modules of hive.runtime.supervise.actions decide, and
hive.runtime.supervise.effects executes what they return. It imports no torch, has no code specific to reinforcement
learning, and accesses time and processes only through interfaces that tests replace.
"""

from __future__ import annotations

import asyncio
import math
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from hive.clock import Clock
from hive.errors import UsageError, WireError
from hive.runtime.memory.status import ActorStatus, read_status
from hive.runtime.process.processes import Exit, ProcessTable, SharedMemory
from hive.runtime.supervise import changes, circles, ending, exits, inbox, joining, pausing, watchdog
from hive.runtime.supervise.accounting import channel_accounts, digest_of, output_of, results_of
from hive.runtime.supervise.actions import Action, AnnounceLater, AwaitRest, Restart, Send
from hive.runtime.supervise.effects import Effects
from hive.runtime.supervise.membership import ProcessRecord, Settings
from hive.runtime.supervise.outcome import Journal, Outcome
from hive.runtime.supervise.starts import Starts
from hive.runtime.supervise.supervisor_state import StopPhase, SupervisorState
from hive.runtime.topology.plan import Plan
from hive.runtime.wire.arrays import Frames
from hive.runtime.wire.messages import Tree, decode
from hive.runtime.wire.protocol import SUPERVISOR, SUPERVISOR_TYPES, Call
from hive.runtime.wire.transport import Transport

ANSWER_POLL_S = 0.02  # interval between two looks for an answer, which a person waits for


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
        self.state = SupervisorState(
            plan,
            settings,
            can_restart=processes.restarts,
            dedicated=processes.dedicated,
            begun_ns=clock.now_ns(),
        )
        self.processes = processes
        self.transport = transport
        self.memory = memory
        self.clock = clock
        self.address = address
        self.effects = Effects(self.state, processes, transport, memory, clock, journal)
        self.starts = Starts(self.state, processes, transport, clock, address, self._perform)
        self.end_begun = asyncio.Event()
        self.changed = asyncio.Event()  # set by every message and exit
        self.tasks: set[asyncio.Task[None]] = set()
        self.asked = 0  # calls that were made with `ask`
        self.later: Mapping[type[Action], Callable[[Any], Coroutine[Any, Any, None]]] = {
            Restart: self.starts.restart,
            AwaitRest: self._await_rest,
            AnnounceLater: self._announce_later,
        }
        processes.on_exit = self._exited

    # --- the whole run

    async def run(self) -> Outcome:
        """Run the topology to its end and return the outcome."""
        state = self.state
        self.transport.bind(self.address, self._receive)
        self.spawn(self._watch())
        try:
            await asyncio.gather(*(self.starts.start(process) for process in state.table.values()))
            while not (joining.all_ready(state) or state.ending):
                await self._wait()
            if not state.ending:
                self._perform(joining.begin_all(state))
            await self.end_begun.wait()
            await self._stop_all()
        finally:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
        return ending.outcome(state, self.accounts(), self.results(), digest_of(state.plan, self.memory))

    async def _stop_all(self) -> None:
        self._perform(ending.begin_stop(self.state, self._now_s()))
        while (stop := self.state.stop) is not None and stop.phase is not StopPhase.over:
            if stop.phase is StopPhase.starting:
                await self.starts.start_last(*stop.waiting)
            else:
                await self._wait(stop.until_s)
            self._perform(ending.advance(self.state, self._now_s()))

    # --- requests and questions from outside

    def request(self, reason: str, *, at_once: bool = False) -> None:
        """End the run as requested from outside; `at_once` kills the actors instead of draining them. Idempotent."""
        self._perform(ending.requested(self.state, reason, at_once=at_once))

    def end(self, to: str, reason: str) -> None:
        """Begin to end the run, with the final state `to`; only the first call has an effect."""
        self._perform(ending.end(self.state, to, reason))

    def pause(self) -> None:
        """Request a pause and return at once. Raises UsageError if the run is not running or has no sources."""
        self._perform(pausing.pause(self.state))

    def resume(self) -> None:
        """Continue the run. Raises UsageError if no pause was requested."""
        self._perform(pausing.resume(self.state))

    def kill(self, actor: int, *, by_hand: bool = False) -> None:
        """Kill the process of an actor, which is then restarted; with `by_hand` it does not count as a failure.

        Raises UsageError if the actor is not running.
        """
        self._perform(exits.kill_on_request(self.state, actor, by_hand=by_hand))

    def change_key(self, key: str, value: Tree) -> list[str]:
        """Send the new value of a key to all actors that accept changes, now and at every later start.

        Returns their names; if there is none, nothing changes. A changed run is not exact.
        """
        called, actions = changes.change_key(self.state, key, value)
        self._perform(actions)
        return called

    def call(self, method: str, *arguments: Tree) -> list[str]:
        """Call this endpoint of every running actor that has it, and return their names.

        An error that an endpoint raises is reported by an EndpointFailed message and logged as an event.
        """
        called, actions = changes.call(self.state, method, arguments)
        self._perform(actions)
        return called

    async def ask(self, actor: str, method: str, *arguments: Tree, deadline_s: float) -> Tree:
        """Call an endpoint of an actor and return its value.

        Raises UsageError if the actor is not running, does not reply in time, or the endpoint raises.
        """
        number = self.state.plan.numbers[actor]
        process = self.state.process_of(number)
        if not process.listening:
            raise UsageError(f"{actor} is not running", hint="try again when it is")
        self.asked += 1
        number_of_call, until_s = self.asked, self._now_s() + deadline_s
        self.state.asked.add(number_of_call)
        self._perform([Send((process.name,), Call(number_of_call, SUPERVISOR, number, method, list(arguments)))])
        try:
            while (answer := self.state.answers.pop(number_of_call, None)) is None:
                if self._now_s() > until_s:
                    raise UsageError(f"{actor} did not reply within {deadline_s:.0f} s")
                await asyncio.sleep(ANSWER_POLL_S)
        finally:
            self.state.asked.discard(number_of_call)
        if answer.error:
            raise UsageError(answer.error)
        return answer.value

    def active_actors(self) -> list[str]:
        """Return the actors that a pause waits for, with their phase."""
        return pausing.active_actors(self.state, self._statuses(range(len(self.state.plan.actors))))

    def accounts(self) -> dict[str, dict[str, Any]]:
        """Return the account of every channel (hive.runtime.supervise.accounting)."""
        return channel_accounts(self.state.plan, self.memory)

    def results(self) -> dict[str, float]:
        """Return the run's results so far (hive.runtime.supervise.accounting)."""
        return results_of(self.state.plan, self.memory.pages)

    def _statuses(self, actors: Sequence[int]) -> list[ActorStatus]:
        return [read_status(self.memory.pages, actor) for actor in actors]

    # --- actions and messages

    def _perform(self, actions: Sequence[Action]) -> None:
        """Execute the actions of a decision; those that wait first continue as tasks."""
        for action in actions:
            if work := self.later.get(type(action)):
                self.spawn(work(action))
            else:
                self.effects.execute(action)
        if self.state.ending and not self.end_begun.is_set():
            self.end_begun.set()
            self.changed.set()

    def _receive(self, frames: Frames) -> None:
        try:
            message = decode(frames, SUPERVISOR_TYPES)
            self._perform(inbox.received(self.state, message, self.clock.now_ns()))
        except (WireError, IndexError, KeyError, TypeError) as error:
            self._perform(inbox.bad_message(self.state, error))
        self.changed.set()

    async def _announce_later(self, action: AnnounceLater) -> None:
        await asyncio.sleep(joining.ANNOUNCE_S)
        self._perform(joining.announce(self.state))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine until it or the run ends. An exception that it raises ends the run."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            text, trace = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
            path = self.effects.journal.crash(ending.supervisor_crash(self.state, text, trace))
            self._perform(ending.supervisor_failed(self.state, text, path))

    # --- exits

    def _exited(self, name: str, incarnation: int, how: Exit) -> None:
        process = self.state.table[name]
        if process.alive and process.incarnation == incarnation:
            self.spawn(self._handle_exit(process, how))

    async def _handle_exit(self, process: ProcessRecord, how: Exit) -> None:
        """Repair memory, notify the other actors, and restart the process or end the run."""
        if not how.signal:
            await self._await_exit_report(process, how)
        self.transport.poll()
        unexpected = exits.is_unexpected(self.state, process, how)
        self._perform(exits.confirmed(self.state, process, how))
        if unexpected:
            await self._report_exit(process, how)
        self.changed.set()

    async def _await_exit_report(self, process: ProcessRecord, how: Exit) -> None:
        """Wait for messages still in transit: `Done` of its actors, or `Failed` of the one that raised."""
        limit = self.clock.now_ns() + int(exits.EXIT_REPORT_S * 1e9)
        while not exits.report_arrived(self.state, process, how) and self.clock.now_ns() < limit:
            await asyncio.sleep(0.01)
            self.transport.poll()

    async def _report_exit(self, process: ProcessRecord, how: Exit) -> None:
        """Write a crash report, then restart the process or, if that is refused, end the run."""
        statuses = self._statuses(process.actors)
        outputs = {actor: output_of(self.state.plan, self.memory, actor) for actor in process.actors}
        verdict = exits.judged(self.state, process, how, statuses, self.clock.now_ns(), outputs)
        running = exits.witnesses(self.state, verdict)
        stacks = await self.processes.stacks(running) if running else {}
        path = self.effects.journal.crash(exits.crash_report(self.state, verdict, stacks))
        self._perform(exits.reported(self.state, verdict, path))

    # --- checks

    async def _watch(self) -> None:
        """Check every process of the run until cancelled."""
        check = 0
        while True:
            await asyncio.sleep(watchdog.WATCH_S)
            self._perform(watchdog.kill_stopped(self.state, self.processes.stopped()))
            now_ns = self.clock.now_ns()
            for process in self.state.table.values():
                statuses = self._statuses(watchdog.watched(process))
                actions, stuck = watchdog.slow_or_stuck(self.state, process, statuses, now_ns)
                self._perform(actions)
                if stuck is not None:
                    await self._kill_stuck(stuck)
            results = self.results()
            self._perform(ending.goal_reached(self.state, results))
            check += 1
            if check % watchdog.ACCOUNTS_EVERY == 0:
                self._perform(watchdog.wasted(self.state, self.accounts(), self.clock.now_ns()))
            if check % circles.EVERY == 0:
                statuses = self._statuses(range(len(self.state.plan.actors)))
                steps = int(results.get("env_steps", 0))
                self._perform(circles.checked(self.state, statuses, self.accounts, steps))

    async def _kill_stuck(self, stuck: watchdog.Stuck) -> None:
        name, stack = stuck.process.name, ""
        if stuck.process.listening:  # it can write its stacks only while it runs, so read them before the kill
            stack = (await self.processes.stacks([name])).get(name, "")
        self._perform(watchdog.kill_stuck(stuck, stack))

    async def _await_rest(self, action: AwaitRest) -> None:
        while pausing.awaits_rest(self.state, action.pause):
            accounts = self.accounts()
            statuses = self._statuses(range(len(self.state.plan.actors)))
            self._perform(pausing.checked(self.state, accounts, statuses))
            await asyncio.sleep(pausing.POLL_S)

    # --- time

    def _now_s(self) -> float:
        return self.clock.now_ns() / 1e9

    async def _wait(self, until_s: float = math.inf) -> None:
        """Wait for a message or an exit, until a time of the monotonic clock, and at most for WATCH_S seconds."""
        self.changed.clear()
        try:
            async with asyncio.timeout(min(until_s - self._now_s(), watchdog.WATCH_S)):
                await self.changed.wait()
        except TimeoutError:
            pass
