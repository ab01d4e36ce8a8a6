"""A node: one process's actors and what they need. The process side of everything the supervisor does.

    Hello -> (Joined) -> build actors, bind ports, setup() -> Ready -> (Begin) -> run() -> Done | Failed

A node hosts one actor (it is *dedicated*) or several that share the process and its event loop. It carries messages in
and out, keeps the table of who lives where, and rings: after every change of shared memory it wakes those whom it may
concern, by their notifier, by a local future, or by a Doorbell message to a process that several actors share.

It takes its seams (transport, clock, the memory of segments) from outside, so that the same node runs in a forked
process, in `--inline`, and in the simulator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from hive import _native
from hive.clock import Clock
from hive.errors import HiveError, WireError
from hive.runtime.actor import Actor, Handle
from hive.runtime.batches import decode_batch, encode_batch
from hive.runtime.binding import bind_ports
from hive.runtime.calls import Calls, describe
from hive.runtime.channels import MessageReceiver, MessageSender
from hive.runtime.error_location import place_of
from hive.runtime.messages import Frames, Message, Tree, decode, encode
from hive.runtime.plan import Plan
from hive.runtime.protocol import (
    NODE_TYPES,
    Ack,
    Begin,
    Call,
    Deliver,
    Done,
    Doorbell,
    Drain,
    Failed,
    Hello,
    Joined,
    Left,
    Member,
    Note,
    Pause,
    Ready,
    Reply,
    Resume,
    RunOver,
)
from hive.runtime.status import Status
from hive.runtime.topology import Topology
from hive.runtime.transport import Transport
from hive.runtime.views import Views
from hive.runtime.waiting import Waiter

__all__ = ["ActorContext", "Node", "NodeContext"]

PULSE_S = 0.2  # below any sensible limit of a phase; 20 us of work each time
HANDLERS = {cls: f"_on_{name.lower()}" for name, cls in NODE_TYPES.items() if cls is not Deliver}
SETTLE_S = 2.0  # for the last acknowledgements, which take microseconds from a consumer that has a processor


@dataclass(frozen=True)
class NodeContext:
    """What a node is given: who it is, the plan, and its seams."""

    topology: Topology
    plan: Plan
    process: str
    incarnation: int
    pid: int
    address: str
    supervisor: str
    dedicated: bool  # this process has its event loop to itself
    transport: Transport
    clock: Clock
    pages: _native.Status
    views: Views
    open_log: Callable[[str], logging.Logger]


class ActorContext:
    """What an actor may ask of the process that hosts it."""

    def __init__(self, node: Node, number: int) -> None:
        self.node = node
        self.number = number

    def end_run(self, reason: str) -> None:
        self.node.tell(RunOver(self.number, reason))

    def note(self, kind: str, text: str, fields: dict[str, Tree]) -> None:
        self.node.tell(Note(self.number, kind, text, fields))

    @property
    def resumed_ns(self) -> int:
        """When the last pause ended, by the monotonic clock; 0: there was none."""
        return self.node.resumed_ns

    def cancel(self) -> None:
        if self.number in self.node.running:  # what an actor does after its run is not cut short
            self.node.tasks[self.number].cancel()


class Node:
    """See the module. `main` is its whole life; it returns when all its actors are done."""

    def __init__(self, context: NodeContext) -> None:
        self.context = context
        self.plan = context.plan
        self.numbers = self.plan.processes[context.process]
        self.dedicated = context.dedicated and len(self.numbers) == 1
        self.pages = context.pages
        self.members: dict[int, Member] = {}
        self.actors: dict[int, Actor] = {}
        self.waiters: dict[int, Waiter] = {}
        self.senders: dict[tuple[int, int], MessageSender] = {}  # (channel, producer)
        self.receivers: dict[tuple[int, int], MessageReceiver] = {}  # (channel, consumer)
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.running: set[int] = set()  # whose run() has not ended
        self.calls = Calls(self)
        self.message_types = [channel.source.port.message for channel in context.topology.channels.values()]
        self.types = [{message.__hive_name__: message} for message in self.message_types]
        self.begun = asyncio.Event()
        self.drain_reason: str | None = None
        self.failure: BaseException | None = None  # of what went on beside the actors' lives, such as drain()
        self.resumed_ns = 0  # when the last pause ended
        self.background: set[asyncio.Future[Any]] = set()
        self.beat: asyncio.TimerHandle | None = None
        self.bad_messages = 0
        self.log = logging.getLogger("hive.runtime")

    # --- life

    async def main(self) -> None:
        """Hosts the actors until all of them are done. Raises what an actor raised, after reporting it."""
        c = self.context
        c.transport.bind(c.address, self.receive)
        try:
            if c.dedicated:  # in a loop that all share, it would also beat for those who share it
                self._pulse()
            for number in self.numbers:
                self._build(number)
            self.tell(Hello(c.process, c.incarnation, c.pid, c.address))
            for number in self.numbers:
                await self._guard(number, self.actors[number].setup)
            self.tell(Ready(c.process, c.incarnation))
            await self.begun.wait()
            self.running.update(self.numbers)
            self.tasks = {n: asyncio.create_task(self._live(n), name=self.actors[n].name) for n in self.numbers}
            if self.drain_reason is not None:
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
        """Says now and then that the loop runs: whoever awaits something that has no phase is then not stuck."""
        for waiter in self.waiters.values():
            waiter.status.page.pulse()
        self.beat = asyncio.get_running_loop().call_later(PULSE_S, self._pulse)

    def _build(self, number: int) -> None:
        """Makes actor `number`: its page, log and ports first, so that its constructor can use them."""
        c, planned = self.context, self.plan.actors[number]
        group, index = c.topology.actor_of(number)
        status = Status(self.pages.page(number), planned.name, c.pid, c.incarnation)
        self.waiters[number] = Waiter(status, self.dedicated, self.background)
        actor = group.cls.__new__(group.cls)
        actor.name, actor.index, actor.incarnation = planned.name, index, c.incarnation
        actor.device, actor.clock = group.resources.device, c.clock
        actor.status, actor.actor_context, actor.log = status, ActorContext(self, number), c.open_log(planned.name)
        bind_ports(self, actor, number)
        parameters = {key: self._bind_handles(value, number) for key, value in group.parameters.items()}
        try:
            actor.__init__(**parameters)  # type: ignore[misc]
        except Exception as error:
            self._report(number, error)
            raise
        self.actors[number] = actor

    def _bind_handles(self, value: Any, caller: int) -> Any:
        if isinstance(value, Handle):
            return value.bound(
                lambda name, method, arguments, deadline: self.calls.call(caller, name, method, arguments, deadline)
            )
        if isinstance(value, (list, tuple)) and any(isinstance(v, Handle) for v in value):
            return type(value)(self._bind_handles(v, caller) for v in value)
        return value

    async def _live(self, number: int) -> None:
        try:
            await self._guard(number, self.actors[number].run)
        except asyncio.CancelledError:
            if self.drain_reason is None and self.failure is None:
                raise
        finally:
            self.running.discard(number)
            await self._guard(number, self.actors[number].teardown)
            taken = tuple(ack for (_, me), inbox in self.receivers.items() if me == number for ack in inbox.conclude())
        if self.failure is None:
            await self._settle(number)
            self.tell(Done(number, self.context.incarnation, taken))

    async def _settle(self, number: int) -> None:
        """Waits for the acknowledgements of its last messages, so that the account does not end in flight."""
        waiter = self.waiters[number]
        mine = [sender for (_, producer), sender in self.senders.items() if producer == number]
        try:
            async with asyncio.timeout(SETTLE_S):
                for sender in mine:
                    await waiter.until(sender.settled, waiter.status.runtime)
        except TimeoutError:
            self.log.info("channel `%s` ends with messages in flight", sender.name)

    async def _guard(self, number: int, work: Callable[[], Awaitable[None]]) -> None:
        """Runs a part of an actor's life; what it raises is reported before it goes on."""
        try:
            await work()
        except (Exception, SystemExit) as error:
            self._report(number, error)
            raise

    def _report(self, number: int, error: BaseException) -> None:
        """Tells the supervisor what happened before the process goes down with it."""
        doing = self.pages.snapshot(number)["phase"]
        permanent, hint = (error.permanent, error.hint) if isinstance(error, HiveError) else (False, "")
        kind, text, trace = describe(error)
        if (place := place_of(error)) and not isinstance(error, HiveError):  # whose errors say themselves what to do
            text = f"{text} ({place})"
        self.tell(Failed(number, self.context.incarnation, kind, text, hint, doing, trace, permanent))

    # --- messages

    def tell(self, message: Message) -> None:
        """To the supervisor."""
        self.context.transport.post(self.context.supervisor, encode(message))

    def post(self, actor: int, frames: Frames) -> None:
        """To the process of an actor that is there; to one that is not, nothing can be said."""
        if (member := self.members.get(actor)) is not None and self.context.transport.post(member.address, frames):
            self.pages.mailed(actor)  # it may sleep on its notifier

    def _on_call(self, message: Call) -> None:
        self.calls.received(message)

    def _on_reply(self, message: Reply) -> None:
        self.calls.answered(message)

    def receive(self, frames: Frames) -> None:
        """A message from outside. A bad one is counted, logged and dropped; it is never fatal."""
        for waiter in self.waiters.values():
            waiter.heard += 1
        try:
            message = decode(frames[:1], NODE_TYPES)
            if isinstance(message, Deliver):
                self._on_deliver(message, frames[1:])
            else:
                getattr(self, HANDLERS[type(message)])(message)
        except (WireError, IndexError, KeyError) as error:
            self.bad_messages += 1
            self.log.warning("dropped a bad message (%d so far): %s", self.bad_messages, error)

    def _on_joined(self, message: Joined) -> None:
        joined = message.members
        self.members |= joined
        for (channel, _), sender in self.senders.items():
            planned = self.plan.channels[channel]
            for consumer in planned.consumers:
                if consumer in joined:
                    sender.joined((consumer, joined[consumer].incarnation), planned.window)
        for (channel, _), receiver in self.receivers.items():
            if not joined.keys().isdisjoint(self.plan.channels[channel].producers):
                receiver.acknowledge_all()  # what could not be said before it was there
        self._wake_all()

    def _on_left(self, message: Left) -> None:
        member = self.members.get(message.actor)
        if member is None or member.incarnation != message.incarnation:
            return
        for ack in (ack for ack in message.taken if (ack.channel, ack.producer) in self.senders):
            self._on_ack(ack)
        del self.members[message.actor]
        for (channel, _), sender in self.senders.items():
            if message.actor in self.plan.channels[channel].consumers:
                sender.left(message.actor, "run_ended" if message.with_run else "consumer_died")
        self.calls.left(message.actor, message.reason)
        alone = len(self.plan.processes) == len(self.plan.actors) or not any(
            m.address == member.address for m in self.members.values()
        )
        if alone and member.address != self.context.address:
            self.context.transport.forget(member.address)
        self._wake_all()

    def _wake_all(self) -> None:
        for waiter in self.waiters.values():
            waiter.wake()

    def _on_begin(self, message: Begin) -> None:
        self.begun.set()

    def _on_pause(self, message: Pause) -> None:
        for number, waiter in self.waiters.items():
            waiter.halted = self.plan.actors[number].source

    def _on_resume(self, message: Resume) -> None:
        self.resumed_ns = self.context.clock.now_ns()
        for waiter in self.waiters.values():
            waiter.halted = False
        self._wake_all()

    def _on_drain(self, message: Drain) -> None:
        self.context.transport.poll()  # what was sent before must be heard before
        if self.drain_reason is None:
            self.drain_reason = message.reason
            for waiter in self.waiters.values():
                waiter.halted = False  # last words are said in a paused run too
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

    # --- channels

    def deliver(
        self, channel: int, producer: int, consumer: tuple[int, int], sequence: int, messages: Sequence[Message]
    ) -> None:
        """Hands messages, or a question, to an inlet: the objects themselves in this process, frames to another."""
        local = self.receivers.get((channel, consumer[0]))
        if local is not None:
            local.deliver((producer, self.context.incarnation), sequence, messages)
            return
        envelope = Deliver(channel, producer, self.context.incarnation, consumer[0], sequence)
        self.post(consumer[0], [*encode(envelope), *(encode_batch(messages) if messages else ())])

    def _on_deliver(self, envelope: Deliver, frames: Frames) -> None:
        messages = decode_batch(frames, self.types[envelope.channel]) if frames else ()
        receiver = self.receivers[envelope.channel, envelope.consumer]
        receiver.deliver((envelope.producer, envelope.incarnation), envelope.sequence, messages)

    def acknowledge(
        self, channel: int, consumer: int, producer: tuple[int, int], consumed: int, dropped: int, window: int
    ) -> Ack:
        ack = Ack(channel, producer[0], consumer, self.context.incarnation, producer[1], consumed, dropped, window)
        if (channel, producer[0]) in self.senders:
            self._on_ack(ack)
        else:
            self.post(producer[0], encode(ack))
        return ack

    def _on_ack(self, ack: Ack) -> None:
        if ack.producer_incarnation == self.context.incarnation:
            sender = self.senders[ack.channel, ack.producer]
            sender.acknowledged((ack.consumer, ack.incarnation), ack.consumed, ack.dropped, ack.window)

    # --- shared memory

    def notify(self, actors: Sequence[int]) -> None:
        """Shared memory changed in a way that concerns these actors."""
        self._wake_waiting(self.pages.notify_all(actors))

    def ring_one(self, actors: Sequence[int], channel: int, first: int) -> None:
        """A message of this channel is there, for one of these actors: the first from `first` on that asks for it."""
        self._wake_waiting(self.pages.notify_one(actors, channel + 1, first))  # channels count from 1 there

    def _wake_waiting(self, actors: Sequence[int]) -> None:
        for actor in actors:
            local = self.waiters.get(actor)
            if local is not None:
                local.wake()
            elif (member := self.members.get(actor)) is not None and not member.dedicated:
                self.context.transport.post(member.address, encode(Doorbell(actor)))

    def _on_doorbell(self, message: Doorbell) -> None:
        self.waiters[message.actor].wake()
