"""The ends of channels in one process: which actors have joined, how they are reached, and how they are woken.

After a change of shared memory an actor that may wait for it is woken through the notifier of a dedicated process, a
future of this process, or a Notify message to a process with several actors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hive import _native
from hive.clock import Clock
from hive.runtime.actor.actor import Actor
from hive.runtime.actor.ports import ports_of
from hive.runtime.carriers.carrier import End, Line
from hive.runtime.carriers.waiting import Waiter
from hive.runtime.process.views import Views
from hive.runtime.topology.plan import Plan
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.arrays import Frames
from hive.runtime.wire.messages import Message, encode
from hive.runtime.wire.protocol import Ack, Deliver, Fetch, Joined, Left, Member, Notify, Payload
from hive.runtime.wire.transport import Transport

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


class ChannelEnds:
    """The ends of channels in one process, and what it offers to them: a hive.runtime.carriers.carrier.Host."""

    def __init__(self, context: NodeContext) -> None:
        self.context = context
        self.incarnation = context.incarnation
        self.views = context.views
        self.draining = False  # whether the run ends
        self.members: dict[int, Member] = {}  # actors that have joined
        self.waiters: dict[int, Waiter] = {}  # of the actors in this process
        self.sources: dict[tuple[int, int], Line] = {}  # (channel, producer)
        self.targets: dict[tuple[int, int], Line] = {}  # (channel, consumer)

    def bind(self, actor: Actor, number: int) -> None:
        """Set `actor.<port>` to a bound port for every channel that names this actor. Its waiter is in `waiters`."""
        plan, topology = self.context.plan, self.context.topology
        group, ports = plan.actors[number].group, ports_of(type(actor))
        for index, (channel, described) in enumerate(zip(plan.channels, topology.channels.values(), strict=True)):
            end = End(self, index, channel, number, described.source.port.message, self.waiters[number])
            if number in channel.producers:
                name = channel.source.partition(".")[2]
                self.sources[index, number] = described.carrier.source(end)
                setattr(actor, name, ports[name].bind(self.sources[index, number]))
            for target in channel.targets:
                key, _, name = target.partition(".")
                if key == group and number in channel.consumers:
                    self.targets[index, number] = described.carrier.target(end)
                    setattr(actor, name, ports[name].bind(self.targets[index, number]))

    def source(self, channel: int, actor: int) -> Line | None:
        return self.sources.get((channel, actor))

    def target(self, channel: int, actor: int) -> Line | None:
        return self.targets.get((channel, actor))

    # --- the other ends

    def on_joined(self, message: Joined) -> None:
        members = message.members
        self.members |= members
        incarnations = {actor: member.incarnation for actor, member in members.items()}
        for line in (*self.sources.values(), *self.targets.values()):
            line.joined(incarnations)
        self.wake_all()

    def on_left(self, message: Left) -> bool:
        """Conclude the channels with an actor that has left; return False if another incarnation has joined since."""
        member = self.members.get(message.actor)
        if member is None or member.incarnation != message.incarnation:
            return False
        # The last Acks first: a sender counts as dropped whatever is unacknowledged when its consumer has left.
        for ack in message.taken:
            if (line := self.sources.get((ack.channel, ack.producer))) is not None:
                line.received(ack, ())
        del self.members[message.actor]
        for line in (*self.sources.values(), *self.targets.values()):
            line.left(message.actor, "run_ended" if message.with_run else "consumer_died")
        plan = self.context.plan
        address_unused = len(plan.processes) == len(plan.actors) or not any(
            m.address == member.address for m in self.members.values()
        )
        if address_unused and member.address != self.context.address:
            self.context.transport.forget(member.address)
        self.wake_all()
        return True

    def joined(self, actor: int) -> int:
        member = self.members.get(actor)
        return -1 if member is None else member.incarnation

    # --- messages

    def received(self, message: Message, frames: Frames) -> bool:
        """Pass a message on to the end that it is for; return False if it is for no end. Raises KeyError, WireError."""
        if isinstance(message, TO_TARGET):
            self.targets[message.channel, message.consumer].received(message, frames)
        elif isinstance(message, TO_SOURCE):
            self.sources[message.channel, message.producer].received(message, frames)
        else:
            return False
        return True

    def post(self, actor: int, frames: Frames, *, stable: bool = False) -> None:
        """Send frames to the process of an actor. Without a joined incarnation of the actor they are dropped."""
        member = self.members.get(actor)
        if member is not None and self.context.transport.post(member.address, frames, stable=stable):
            self.context.pages.mailed(actor)  # it may be asleep on its notifier, where it does not see the transport

    def send(self, actor: int, message: Message, frames: Frames = (), *, stable: bool = False) -> None:
        self.post(actor, [*encode(message), *frames], stable=stable)

    # --- waking

    def wake_all(self) -> None:
        """Wake all actors of this process."""
        for waiter in self.waiters.values():
            waiter.wake()

    def notify(self, actors: Sequence[int]) -> None:
        """Wake these actors after a change of shared memory."""
        self._wake_waiting(self.context.pages.notify_all(actors))

    def notify_one(self, actors: Sequence[int], channel: int, first: int) -> None:
        """Wake one of these actors for a message of `channel`: the first from position `first` that requested it."""
        # native channel numbers start at 1
        self._wake_waiting(self.context.pages.notify_one(actors, channel + 1, first))

    def pages_of(self, actors: Sequence[int]) -> list[_native.StatusPage] | None:
        members = [self.members.get(actor) for actor in actors]
        if not all(member is not None and member.dedicated for member in members):
            return None
        return [self.context.pages.page(actor) for actor in actors]

    def _wake_waiting(self, actors: Sequence[int]) -> None:
        for actor in actors:
            local = self.waiters.get(actor)
            if local is not None:
                local.wake()
            elif (member := self.members.get(actor)) is not None and not member.dedicated:
                self.context.transport.post(member.address, encode(Notify(actor)), hint=True)

    # --- the end of an actor

    def conclude(self, number: int) -> tuple[Ack, ...]:
        """Return the last acknowledgements of an actor that is done."""
        return tuple(ack for (_, actor), line in self.targets.items() if actor == number for ack in line.conclude())

    async def settle(self, number: int, log: logging.Logger) -> None:
        """Wait for the acknowledgements of the actor's last messages, so that its account ends with none in flight."""
        waiter = self.waiters[number]
        for (channel, producer), line in self.sources.items():
            if producer != number:
                continue
            try:
                async with asyncio.timeout(line.settle_s):
                    await waiter.until(line.settled, waiter.status.runtime)
            except TimeoutError:
                log.info("channel `%s` ends with messages in flight", self.context.plan.channels[channel].name)
