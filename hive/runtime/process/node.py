"""A node hosts the actors of one process and is the supervisor's counterpart there.

    Hello -> (Joined) -> build actors, bind ports, setup() -> Ready -> (Begin) -> run() -> Done | Failed

A process with one actor is *dedicated*; otherwise its actors share the event loop. The node sends and receives messages
and stores the address of every actor. After a change of shared memory it wakes the actors that may wait for it: through
the notifier of a dedicated process, a future of this process, or a Notify message to a process with several actors.

Transport, clock and shared memory are passed in, so that the same code runs in a forked process, in `--inline` and in
the simulator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from hive import _native
from hive.clock import Clock
from hive.errors import ActorFailed, HiveError, WireError
from hive.runtime.actor.actor import Actor, Handle
from hive.runtime.actor.error_location import describe, is_own, named, place_of
from hive.runtime.carriers.carrier import Line
from hive.runtime.carriers.waiting import Waiter
from hive.runtime.memory.status import Status
from hive.runtime.process.binding import bind_ports
from hive.runtime.process.calls import Calls
from hive.runtime.process.views import Views
from hive.runtime.topology.plan import Plan
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.arrays import Frames
from hive.runtime.wire.messages import Message, Tree, decode, encode
from hive.runtime.wire.protocol import (
    NODE_TYPES,
    Ack,
    Begin,
    Call,
    Deliver,
    Done,
    Drain,
    Failed,
    Fetch,
    Hello,
    Joined,
    Left,
    Member,
    Note,
    Notify,
    Pause,
    Payload,
    Ready,
    Renew,
    Reply,
    Resume,
    RunOver,
)
from hive.runtime.wire.transport import Transport

PULSE_S = 0.2  # interval of the loop's pulse: below any sensible limit of a phase; it costs 20 us each time
TO_TARGET, TO_SOURCE = (Deliver, Payload), (Ack, Fetch)  # messages between the ends of a channel


@dataclass(frozen=True)
class NodeContext:
    """The identity of a node's process, the plan, and the implementations of transport, clock and memory."""

    topology: Topology
    plan: Plan
    process: str
    incarnation: int
    pid: int
    address: str
    supervisor: str
    dedicated: bool  # no other process runs in the same event loop
    transport: Transport
    clock: Clock
    pages: _native.Status
    views: Views
    open_log: Callable[[str], logging.Logger]


class HostedActor:
    """The services that a node offers to one of its actors: an ActorContext."""

    def __init__(self, node: Node, number: int) -> None:
        self.node = node
        self.number = number

    def end_run(self, reason: str) -> None:
        self.node.report(RunOver(self.number, reason))

    def restart_actor(self, name: str, reason: str) -> None:
        target = self.node.plan.numbers[name]
        if (member := self.node.members.get(target)) is not None:  # otherwise it has exited: a start is under way
            self.node.report(Renew(self.number, target, member.incarnation, reason))

    def note(self, kind: str, text: str, fields: dict[str, Tree]) -> None:
        self.node.report(Note(self.number, kind, text, fields))

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
        self.members: dict[int, Member] = {}
        self.actors: dict[int, Actor] = {}
        self.waiters: dict[int, Waiter] = {}
        self.sources: dict[tuple[int, int], Line] = {}  # (channel, producer)
        self.targets: dict[tuple[int, int], Line] = {}  # (channel, consumer)
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
        for waiter in self.waiters.values():
            waiter.status.page.pulse()
        self.beat = asyncio.get_running_loop().call_later(PULSE_S, self._pulse)

    def _build(self, number: int) -> None:
        """Build actor `number`. Its page, log and ports are set first, so that its constructor can use them."""
        c, planned = self.context, self.plan.actors[number]
        group, index = c.topology.actor_of(number)
        status = Status(self.pages.page(number), planned.name, c.pid, c.incarnation)
        self.waiters[number] = Waiter(status, self.dedicated, self.background)
        cls, given = group.class_of(index)
        actor = cls.__new__(cls)
        actor.name, actor.index, actor.incarnation = planned.name, planned.index, c.incarnation
        actor.device, actor.clock, actor.forked = group.resources.device, c.clock, c.dedicated
        actor.status, actor.actor_context, actor.log = status, HostedActor(self, number), c.open_log(planned.name)
        for channel, is_source, line in bind_ports(c.topology, self.plan, self, actor, number, self.waiters[number]):
            (self.sources if is_source else self.targets)[channel, number] = line
        parameters = {key: self._bind_handles(value, number) for key, value in given.items()}
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
            taken = tuple(ack for (_, me), line in self.targets.items() if me == number for ack in line.conclude())
        if self.failure is None:
            # Settled before it is reported as done: afterwards the supervisor may end this process.
            await self._settle(number)
            self.report(Done(number, self.context.incarnation, taken))

    async def _settle(self, number: int) -> None:
        """Wait for the acknowledgements of the actor's last messages, so that its account ends with none in flight."""
        waiter = self.waiters[number]
        for (channel, producer), line in self.sources.items():
            if producer != number:
                continue
            try:
                async with asyncio.timeout(line.settle_s):
                    await waiter.until(line.settled, waiter.status.runtime)
            except TimeoutError:
                self.log.info("channel `%s` ends with messages in flight", self.plan.channels[channel].name)

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
        permanent, hint = (error.permanent, error.hint) if isinstance(error, HiveError) else (False, "")
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

    def post(self, actor: int, frames: Frames, *, stable: bool = False) -> None:
        """Send frames to the process of an actor. Without a joined incarnation of the actor they are dropped."""
        member, transport = self.members.get(actor), self.context.transport
        if member is not None and transport.post(member.address, frames, stable=stable):
            self.pages.mailed(actor)  # it may be asleep on its notifier, where it does not see the transport

    def _on_call(self, message: Call) -> None:
        self.calls.received(message)

    def _on_reply(self, message: Reply) -> None:
        self.calls.answered(message)

    def receive(self, frames: Frames) -> None:
        """Handle a message from the transport. An invalid one is counted, logged and dropped; it is never fatal."""
        for waiter in self.waiters.values():
            waiter.received += 1
        try:
            message = decode(frames[:1], NODE_TYPES)
            if isinstance(message, TO_TARGET):
                self.targets[message.channel, message.consumer].received(message, frames[1:])
            elif isinstance(message, TO_SOURCE):
                self.sources[message.channel, message.producer].received(message, frames[1:])
            else:
                HANDLERS[type(message)](self, message)
        except (WireError, IndexError, KeyError) as error:
            self.bad_messages += 1
            if self.bad_messages.bit_count() == 1:  # 1, 2, 4, 8, ...: a flood takes a few lines
                self.log.warning("dropped a bad message (%d so far): %s", self.bad_messages, error)

    def _on_joined(self, message: Joined) -> None:
        joined = message.members
        self.members |= joined
        incarnations = {actor: member.incarnation for actor, member in joined.items()}
        for line in (*self.sources.values(), *self.targets.values()):
            line.joined(incarnations)
        self._wake_all()

    def _on_left(self, message: Left) -> None:
        member = self.members.get(message.actor)
        if member is None or member.incarnation != message.incarnation:
            return
        # The last Acks first: a sender counts as dropped whatever is unacknowledged when its consumer has left.
        for ack in message.taken:
            if (line := self.sources.get((ack.channel, ack.producer))) is not None:
                line.received(ack, ())
        del self.members[message.actor]
        for line in (*self.sources.values(), *self.targets.values()):
            line.left(message.actor, "run_ended" if message.with_run else "consumer_died")
        self.calls.left(message.actor, message.reason)
        address_unused = len(self.plan.processes) == len(self.plan.actors) or not any(
            m.address == member.address for m in self.members.values()
        )
        if address_unused and member.address != self.context.address:
            self.context.transport.forget(member.address)
        self._wake_all()

    def _wake_all(self) -> None:
        for waiter in self.waiters.values():
            waiter.wake()

    def _on_begin(self, message: Begin) -> None:
        self.begun.set()

    def _on_pause(self, message: Pause) -> None:
        for number, waiter in self.waiters.items():
            waiter.paused = self.plan.actors[number].source

    def _on_resume(self, message: Resume) -> None:
        self.resumed_ns = self.context.clock.now_ns()
        for waiter in self.waiters.values():
            waiter.paused = False
        self._wake_all()

    def _on_drain(self, message: Drain) -> None:
        self.context.transport.poll()  # messages that were sent before the Drain are received before the actors end
        if self.drain_reason is None:
            self.drain_reason = message.reason
            for waiter in self.waiters.values():
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

    # --- what the ends of channels use (hive.runtime.carriers.carrier.Host)

    @property
    def incarnation(self) -> int:
        return self.context.incarnation

    @property
    def views(self) -> Views:
        return self.context.views

    @property
    def draining(self) -> bool:
        return self.drain_reason is not None

    def source(self, channel: int, actor: int) -> Line | None:
        return self.sources.get((channel, actor))

    def target(self, channel: int, actor: int) -> Line | None:
        return self.targets.get((channel, actor))

    def joined(self, actor: int) -> int:
        member = self.members.get(actor)
        return -1 if member is None else member.incarnation

    def send(self, actor: int, message: Message, frames: Frames = (), *, stable: bool = False) -> None:
        self.post(actor, [*encode(message), *frames], stable=stable)

    def notify(self, actors: Sequence[int]) -> None:
        """Wake these actors after a change of shared memory."""
        self._wake_waiting(self.pages.notify_all(actors))

    def notify_one(self, actors: Sequence[int], channel: int, first: int) -> None:
        """Wake one of these actors for a message of `channel`: the first from position `first` that requested it."""
        self._wake_waiting(self.pages.notify_one(actors, channel + 1, first))  # native channel numbers start at 1

    def _wake_waiting(self, actors: Sequence[int]) -> None:
        for actor in actors:
            local = self.waiters.get(actor)
            if local is not None:
                local.wake()
            elif (member := self.members.get(actor)) is not None and not member.dedicated:
                self.context.transport.post(member.address, encode(Notify(actor)), hint=True)

    def _on_notify(self, message: Notify) -> None:
        self.waiters[message.actor].wake()


# The handler of each message from the supervisor or another process that is not for the end of a channel.
HANDLERS: Mapping[type[Message], Callable[[Node, Any], None]] = {
    Joined: Node._on_joined,
    Left: Node._on_left,
    Begin: Node._on_begin,
    Drain: Node._on_drain,
    Pause: Node._on_pause,
    Resume: Node._on_resume,
    Notify: Node._on_notify,
    Call: Node._on_call,
    Reply: Node._on_reply,
}
