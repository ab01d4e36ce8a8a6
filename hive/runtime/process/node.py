"""A node hosts the actors of one process and is the supervisor's counterpart there.

    Hello -> (Joined) -> build actors, bind ports, setup() -> Ready -> (Begin) -> run() -> Done | Failed

A process with one actor is *dedicated*; otherwise its actors share the event loop. The node builds the actors, runs
them and reports how they end; hive.runtime.process.channel_ends connects them to the others.

Transport, clock and shared memory are passed in, so that the same code runs in a forked process, in `--inline` and in
the simulator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NoReturn

from hive.errors import ActorFailed, HiveError, WireError
from hive.runtime.actor.actor import Actor, Handle
from hive.runtime.actor.error_location import describe, is_own, named, place_of, terminal_hint
from hive.runtime.carriers.waiting import Waiter
from hive.runtime.memory.status import Status
from hive.runtime.process.calls import Calls
from hive.runtime.process.channel_ends import ChannelEnds, NodeContext
from hive.runtime.wire.arrays import Frames
from hive.runtime.wire.messages import Message, Tree, decode, encode
from hive.runtime.wire.protocol import (
    NODE_TYPES,
    Begin,
    Call,
    Done,
    Drain,
    Failed,
    Hello,
    Joined,
    Left,
    Note,
    Notify,
    Pause,
    Ready,
    Renew,
    Reply,
    Resume,
    RunOver,
)

PULSE_S = 0.2  # interval of the loop's pulse: below any sensible limit of a phase; it costs 20 us each time


class HostedActor:
    """The services that a node offers to one of its actors: an ActorContext."""

    def __init__(self, node: Node, number: int) -> None:
        self.node = node
        self.number = number

    def end_run(self, reason: str) -> None:
        self.node.report(RunOver(self.number, reason))

    def restart_actor(self, name: str, reason: str) -> None:
        target = self.node.plan.numbers[name]
        if (member := self.node.ends.members.get(target)) is not None:  # otherwise it has exited: a start is under way
            self.node.report(Renew(self.number, target, member.incarnation, reason))

    def note(self, kind: str, text: str, fields: dict[str, Tree]) -> None:
        self.node.report(Note(self.number, kind, text, fields))

    def neighbors(self) -> list[Actor]:
        return [actor for number, actor in self.node.actors.items() if number != self.number]

    @property
    def resumed_ns(self) -> int:
        return self.node.resumed_ns

    def cancel(self) -> None:
        if self.number in self.node.running:
            self.node.tasks[self.number].cancel()


class Node:
    """Hosts the actors of one process; see the module. `main` returns when all of them are done."""

    def __init__(self, context: NodeContext) -> None:
        self.context = context
        self.plan = context.plan
        self.numbers = self.plan.processes[context.process]
        self.dedicated = context.dedicated and len(self.numbers) == 1
        self.pages = context.pages
        self.ends = ChannelEnds(context)
        self.actors: dict[int, Actor] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.running: set[int] = set()  # actors whose run() has not ended
        self.calls = Calls(self)
        self.begun = asyncio.Event()
        self.drain_reason: str | None = None
        self.failure: BaseException | None = None  # the exception of the first background task that raised
        self.resumed_ns = 0  # monotonic time at which the last pause ended
        self.background: set[asyncio.Future[Any]] = set()
        self.beat: asyncio.TimerHandle | None = None
        self.bad_messages = 0
        self.log = logging.getLogger("hive.runtime")

    # --- actors

    async def main(self) -> None:
        """Host the actors until all of them are done. Raises an actor's exception after it was reported."""
        c = self.context
        c.transport.bind(c.address, self.receive)
        try:
            if c.dedicated:  # in a loop that several processes share, one of them would pulse for all
                self._pulse()
            for number in self.numbers:
                self._build(number)
            self.report(Hello(c.process, c.incarnation, c.pid, c.address))
            for number in self.numbers:
                await self._guard(number, self.actors[number].setup)
            self.report(Ready(c.process, c.incarnation))
            await self.begun.wait()
            self.running.update(self.numbers)
            self.tasks = {n: asyncio.create_task(self._run(n), name=self.actors[n].name) for n in self.numbers}
            if self.drain_reason is not None:  # a Drain that arrived before there were tasks to cancel
                self._drain()
            await asyncio.gather(*self.tasks.values())
            if self.failure is not None:
                raise self.failure
        finally:
            if self.beat is not None:
                self.beat.cancel()
            for task in (*self.tasks.values(), *self.background):
                task.cancel()
            await asyncio.gather(*self.tasks.values(), *self.background, return_exceptions=True)
            c.transport.forget(c.address)

    def _pulse(self) -> None:
        """Record on the status pages that the loop runs, so that an actor in a long await does not count as stuck."""
        for waiter in self.ends.waiters.values():
            waiter.status.page.pulse()
        self.beat = asyncio.get_running_loop().call_later(PULSE_S, self._pulse)

    def _build(self, number: int) -> None:
        """Build actor `number`. Its page, log and ports are set first, so that its constructor can use them."""
        c, planned = self.context, self.plan.actors[number]
        group, index = c.topology.actor_of(number)
        status = Status(self.pages.page(number), planned.name, c.pid, c.incarnation)
        self.ends.waiters[number] = Waiter(status, self.dedicated, self.background)
        cls, values = group.class_of(index)
        actor = cls.__new__(cls)
        actor.name, actor.index, actor.incarnation = planned.name, planned.index, c.incarnation
        actor.device, actor.clock, actor.forked = group.resources.device, c.clock, c.dedicated
        actor.status, actor.actor_context, actor.log = status, HostedActor(self, number), c.open_log(planned.name)
        self.ends.bind(actor, number)
        parameters = {key: self._bind_handles(value, number) for key, value in values.items()}
        try:
            actor.__init__(**parameters)  # type: ignore[misc]
        except BaseException as error:
            self._fail(number, error)
        self.actors[number] = actor

    def _bind_handles(self, value: Any, caller: int) -> Any:
        if isinstance(value, Handle):
            return value.bound(
                lambda name, method, arguments, deadline: self.calls.call(caller, name, method, arguments, deadline)
            )
        if isinstance(value, (list, tuple)) and any(isinstance(v, Handle) for v in value):
            return type(value)(self._bind_handles(v, caller) for v in value)
        return value

    async def _run(self, number: int) -> None:
        try:
            await self._guard(number, self.actors[number].run)
        except asyncio.CancelledError:
            if self.drain_reason is None and self.failure is None:
                raise
        finally:
            self.running.discard(number)
            await self._guard(number, self.actors[number].teardown)
            taken = self.ends.conclude(number)
        if self.failure is None:
            # Settled before it is reported as done: afterwards the supervisor may end this process.
            await self.ends.settle(number, self.log)
            self.report(Done(number, self.context.incarnation, taken))

    async def _guard(self, number: int, work: Callable[[], Awaitable[None]]) -> None:
        """Await a method of an actor and report an exception to the supervisor before re-raising it."""
        try:
            await work()
        except BaseException as error:
            self._fail(number, error)

    def _fail(self, number: int, error: BaseException) -> NoReturn:
        """Report an actor's exception and raise it; one that would end the event loop is raised as ActorFailed."""
        if not is_own(error):
            raise error
        self._report_failure(number, error)
        if isinstance(error, Exception):
            raise error
        raise ActorFailed(f"{self.plan.actors[number].name} raised {named(error)}") from error

    def _report_failure(self, number: int, error: BaseException) -> None:
        """Send the supervisor an actor's exception, before it ends the process."""
        doing = self.pages.snapshot(number)["phase"]
        hint = terminal_hint(error)
        permanent, hint = (error.permanent, error.hint) if isinstance(error, HiveError) else (bool(hint), hint)
        kind, text, trace = describe(error)
        if not isinstance(error, Exception):
            text = named(error)  # the text alone, as the `3` of sys.exit(3), would not explain the exit
        elif (place := place_of(error)) and not isinstance(
            error, HiveError
        ):  # a HiveError names cause and remedy itself
            text = f"{text} ({place})"
        self.report(Failed(number, self.context.incarnation, kind, text, hint, doing, trace, permanent))

    # --- messages

    def report(self, message: Message) -> None:
        """Send a message to the supervisor."""
        self.context.transport.post(self.context.supervisor, encode(message))

    def receive(self, frames: Frames) -> None:
        """Handle a message from the transport. An invalid one is counted, logged and dropped; it is never fatal."""
        for waiter in self.ends.waiters.values():
            waiter.received += 1
        try:
            message = decode(frames[:1], NODE_TYPES)
            if not self.ends.received(message, frames[1:]):
                HANDLERS[type(message)](self, message)
        except (WireError, IndexError, KeyError) as error:
            self.bad_messages += 1
            if self.bad_messages.bit_count() == 1:  # 1, 2, 4, 8, ...: a flood takes a few lines
                self.log.warning("dropped a bad message (%d so far): %s", self.bad_messages, error)

    def _on_left(self, message: Left) -> None:
        if self.ends.on_left(message):
            self.calls.left(message.actor, message.reason)

    def _on_pause(self, message: Pause) -> None:
        for number, waiter in self.ends.waiters.items():
            waiter.paused = self.plan.actors[number].source

    def _on_resume(self, message: Resume) -> None:
        self.resumed_ns = self.context.clock.now_ns()
        for waiter in self.ends.waiters.values():
            waiter.paused = False
        self.ends.wake_all()

    def _on_drain(self, message: Drain) -> None:
        self.context.transport.poll()  # messages that were sent before the Drain are received before the actors end
        if self.drain_reason is None:
            self.drain_reason, self.ends.draining = message.reason, True
            for waiter in self.ends.waiters.values():
                waiter.paused = False  # a source may send its last messages in a paused run, too
            self.begun.set()
            if self.tasks:
                self._drain()

    def _drain(self) -> None:
        for number in sorted(self.running):
            self.spawn(self._guard(number, self.actors[number].drain))

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.background.add(task)
        task.add_done_callback(self._background_done)

    def _background_done(self, task: asyncio.Future[Any]) -> None:
        self.background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.failure = self.failure or task.exception()
            for number in self.running:
                self.tasks[number].cancel()


# The handler of each message from the supervisor or another process that is not for the end of a channel.
HANDLERS: Mapping[type[Message], Callable[[Node, Any], None]] = {
    Joined: lambda node, message: node.ends.on_joined(message),
    Left: Node._on_left,
    Begin: lambda node, message: node.begun.set(),
    Drain: Node._on_drain,
    Pause: Node._on_pause,
    Resume: Node._on_resume,
    Notify: lambda node, message: node.ends.waiters[message.actor].wake(),
    Call: lambda node, message: node.calls.received(message),
    Reply: lambda node, message: node.calls.answered(message),
}
