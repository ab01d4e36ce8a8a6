"""Messages of any type, sent from outlet to inlet over the transport.

    producer                                             consumer
    Deliver(channel, incarnation, sequence) + messages -> queue -> receive()
    <- Ack(channel, consumed, dropped, window)

The consumer grants credit: at most `window` messages of one producer may be on their way to it or in its queue. The
producer sends while  sent - consumed - dropped < window. `consumed` and `dropped` are running totals of one pair of
incarnations, so a lost, repeated or late Ack is harmless if another one follows. None follows if a full mailbox lost
the last message of a window, or the Ack that a consumer sends when its queue is empty. Therefore a producer that waits
sends a query every 50 ms: a Deliver without messages, with the number of messages sent so far. The consumer counts
those that never arrived as dropped, and replies with an Ack.

The producer keeps the channel's account on its status page, because only it can count unacknowledged messages:

    produced = consumed + dropped(by reason) + in flight       in flight: sent and not acknowledged, per consumer

Each entry changes two of these counters at once, so that they add up wherever the producer is killed.

When a consumer's process exits, its unacknowledged messages are dropped as `consumer_died`, or as `run_ended` if it
exits because the run ends. A consumer that is done hands its last totals over with its `Done`, because the news of its
exit could overtake an Ack. A broadcast counts each message once per consumer. A consumer in the same process receives
the object itself and must not change it.

`send_many` and `receive_many` handle up to a thousand messages with one Deliver, one wait and one entry in the account.
A Deliver that is lost on the way loses all of its messages.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hive.errors import HiveError, TopologyError
from hive.runtime.carriers.carrier import AccountDict, ActorIdentity, Carrier, End, Line, PlanChannel, RunMemory
from hive.runtime.carriers.waiting import RESCAN_S, Waiter
from hive.runtime.memory.status import WAIT_IN, WAIT_OUT, Status
from hive.runtime.wire.arrays import Frames
from hive.runtime.wire.batches import batch_of, decode_batch, encode_batch
from hive.runtime.wire.messages import Message
from hive.runtime.wire.protocol import Ack, Deliver


class ChannelFull(HiveError):
    """Raised by `send` when a channel with `when_full="fail"` has no room for the message."""


@dataclass(frozen=True)
class Messages(Carrier):
    """Messages of any type, at most `window` in flight from one producer to one consumer."""

    window: int = 16

    kind: ClassVar[str] = "messages"

    def check(self, channel: str, source: str, message: type[Message], pattern: str, when_full: str) -> None:
        if self.window < 1:
            raise TopologyError(f"channel `{channel}` has a window of {self.window} messages", hint="the minimum is 1")

    def may_block(self, channel: PlanChannel) -> bool:
        return channel.when_full == "wait" and self.window < len(channel.producers)

    def source(self, end: End) -> Line:
        def deliver(consumer: ActorIdentity, sequence: int, messages: Sequence[Message]) -> None:
            local = end.host.target(end.number, consumer[0])
            if isinstance(local, MessageReceiver):
                local.deliver(end.identity, sequence, messages)
                return
            envelope = Deliver(end.number, *end.identity, consumer[0], sequence)
            end.host.send(consumer[0], envelope, encode_batch(messages) if messages else ())

        channel = end.channel
        sender = MessageSender(channel.name, channel.pattern, channel.when_full, end.waiter, deliver)
        sender.admit(channel.consumers, self.window, end.host.incarnation)
        return sender

    def target(self, end: End) -> Line:
        def acknowledge(producer: ActorIdentity, consumed: int, dropped: int, window: int) -> Ack:
            me, incarnation = end.identity
            ack = Ack(end.number, producer[0], me, incarnation, producer[1], consumed, dropped, window)
            local = end.host.source(end.number, producer[0])
            if local is not None:
                local.received(ack, ())
            else:
                end.host.send(producer[0], ack)
            return ack

        channel = end.channel
        receiver = MessageReceiver(channel.name, self.window, channel.when_full, end.waiter, acknowledge)
        receiver.admit(channel.producers, end.message)
        return receiver

    def reclaim(self, channel: PlanChannel, memory: RunMemory, actor: int, incarnation: int, why: str) -> None:
        """Do nothing: the producers count what an exited consumer has not acknowledged as dropped."""

    def drain(self, channel: PlanChannel, memory: RunMemory) -> None:
        for producer in channel.producers:
            page = memory.pages.page(producer)
            in_flight = page.counter(f"{channel.name}:in_flight")
            if left := page.get(in_flight):
                page.add_both(page.counter(f"{channel.name}:run_ended"), left, in_flight, -left)

    def accounts(self, channel: PlanChannel, memory: RunMemory) -> list[AccountDict]:
        return [account_of(channel.name, memory.pages.snapshot(actor)["counters"]) for actor in channel.producers]

    def produced(self, channel: PlanChannel, memory: RunMemory) -> list[int]:
        counters = [memory.pages.snapshot(actor)["counters"] for actor in channel.producers]
        return [int(each.get(f"{channel.name}:produced", 0)) for each in counters]

    def capacity(self, channel: PlanChannel) -> int:
        return self.window * len(channel.consumers)


# (consumer, sequence, messages): hands messages to the transport, or to an inlet in this process. The last message has
# this sequence. Without messages it queries an Ack of all up to that sequence.
HandOver = Callable[[ActorIdentity, int, Sequence[Message]], None]
# (producer, consumed, dropped, window): sends an Ack and returns it
Acknowledge = Callable[[ActorIdentity, int, int, int], Ack]


@dataclass
class _Consumer:
    """The producer's totals of one consumer incarnation."""

    identity: ActorIdentity
    window: int
    sent: int = 0
    consumed: int = 0
    dropped: int = 0

    @property
    def in_flight(self) -> int:
        return self.sent - self.consumed - self.dropped

    @property
    def room(self) -> int:
        return self.window - self.in_flight


class _Account:
    """The channel's counters on the producer's status page. They survive restarts of the producer.

    Each entry changes two counters as one, so the account of a killed producer adds up.
    """

    def __init__(self, name: str, status: Status) -> None:
        self.status = status
        self.name = name
        self.produced = status.counter(f"{name}:produced")
        self.consumed = status.counter(f"{name}:consumed")
        self.in_flight = status.counter(f"{name}:in_flight")
        # Acks name the incarnation that sent the messages, so what an earlier one had in flight is never acknowledged.
        self.drop("process_died", status.get(self.in_flight))

    def send(self, count: int) -> None:
        self.status.add_both(self.produced, count, self.in_flight, count)

    def consume(self, count: int) -> None:
        self.status.add_both(self.consumed, count, self.in_flight, -count)

    def drop(self, reason: str, count: float) -> None:
        """Count messages in flight as dropped."""
        if count:
            self.status.add_both(self._reason(reason), count, self.in_flight, -count)

    def refuse(self, reason: str, count: int) -> None:
        """Count messages as produced and dropped that were sent to no consumer."""
        self.status.add_both(self.produced, count, self._reason(reason), count)

    def _reason(self, reason: str) -> int:
        return self.status.counter(f"{self.name}:{reason}")


class MessageSender(Line):
    """The producer's side of a channel."""

    def __init__(self, name: str, pattern: str, when_full: str, waiter: Waiter, deliver: HandOver) -> None:
        self.name = name
        self.pattern = pattern
        self.when_full = when_full
        self.waiter = waiter
        self.deliver = deliver
        self.account = _Account(name, waiter.status)
        self.consumers: dict[int, _Consumer] = {}
        self.phase = waiter.status.phase(f"wait {name}"[:23], WAIT_OUT)
        self.queried_s: float | None = None  # loop time of the last query, or of the beginning of this wait
        self.admitted: Collection[int] = ()  # actors that may become consumers
        self.window = 0
        self.incarnation = -1

    def admit(self, consumers: Collection[int], window: int, incarnation: int) -> None:
        """Add these actors as consumers when they join. `incarnation`: the producer's, which their Acks must name."""
        self.admitted, self.window, self.incarnation = consumers, window, incarnation

    def joined(self, members: Mapping[int, int]) -> None:
        for consumer in self.admitted:
            if consumer in members:
                self.add_consumer((consumer, members[consumer]), self.window)

    def received(self, message: Message, frames: Frames) -> None:
        if not isinstance(message, Ack):
            super().received(message, frames)
        elif message.producer_incarnation == self.incarnation:
            identity = message.consumer, message.incarnation
            self.acknowledged(identity, message.consumed, message.dropped, message.window)

    def add_consumer(self, consumer: ActorIdentity, window: int) -> None:
        """Add a consumer. A later incarnation replaces an earlier one; an earlier one is ignored."""
        known = self.consumers.get(consumer[0])
        if known is not None and known.identity[1] >= consumer[1]:
            return
        self.left(consumer[0])
        self.consumers[consumer[0]] = _Consumer(consumer, window)
        self.waiter.wake()

    def left(self, actor: int, why: str = "consumer_died") -> None:
        """Remove a consumer and count its unacknowledged messages as dropped under `why`, one of REASONS."""
        gone = self.consumers.pop(actor, None)
        if gone is not None:
            self.account.drop(why, gone.in_flight)
            self.waiter.wake()

    def acknowledged(self, consumer: ActorIdentity, consumed: int, dropped: int, window: int) -> None:
        """Take over running totals from a consumer. Older totals, and those of an earlier incarnation, are ignored."""
        known = self.consumers.get(consumer[0])
        if known is None or known.identity != consumer or consumed + dropped > known.sent:
            return
        if (newly := consumed - known.consumed) > 0:
            known.consumed = consumed
            self.account.consume(newly)
        if (newly := dropped - known.dropped) > 0:
            known.dropped = dropped
            self.account.drop("overflow", newly)
        known.window = window
        self.waiter.wake()

    def settled(self) -> bool | None:
        """Return True when nothing is in flight, else None; an `attempt` for `Waiter.until`."""
        if not any(consumer.in_flight for consumer in self.consumers.values()):
            return True
        self._query()
        return None

    def _query(self) -> None:
        """Query the consumers' totals once per RESCAN_S of waiting, because messages or Acks may have been lost."""
        now_s = asyncio.get_running_loop().time()
        if self.queried_s is None:
            self.queried_s = now_s
        elif now_s - self.queried_s >= RESCAN_S:
            self.queried_s = now_s
            for consumer in self.consumers.values():
                if consumer.in_flight:
                    self.deliver(consumer.identity, consumer.sent, ())

    async def send_many(self, messages: Sequence[Message]) -> None:
        """Send each message to one consumer (balance) or to all (broadcast), in portions that the windows admit.

        In a full channel it waits, drops the oldest or raises ChannelFull, as `when_full` says; earlier portions remain
        sent.
        """
        rest = messages
        await self.waiter.admitted(lambda: False)
        while rest:
            if self.when_full == "wait":
                targets = await self.waiter.until(self._room, self.phase)
            else:
                targets = self._targets() or []
                if self.when_full == "fail" and not targets:
                    raise ChannelFull(
                        f"channel `{self.name}` has no room",
                        hint='connect it with when_full="wait", or a larger window',
                    )
            count = self._portion(rest, targets)
            if self.pattern == "balance" and not targets:  # drop_oldest without a consumer: the newest are dropped
                self.account.refuse("overflow", count)
            for consumer in targets:
                # Counted before it is sent: a consumer in this process may acknowledge before `deliver` returns.
                self.account.send(count)
                consumer.sent += count
                self.deliver(consumer.identity, consumer.sent, rest[:count])
            rest = rest[count:]

    def _portion(self, messages: Sequence[Message], targets: Sequence[_Consumer]) -> int:
        """Return how many of these messages fit one Deliver to all `targets`."""
        most = batch_of(messages)
        return most if self.when_full == "drop_oldest" else min((most, *(consumer.room for consumer in targets)))

    def _room(self) -> list[_Consumer] | None:
        targets = self._targets()
        if targets is None:
            self._query()
        else:
            self.queried_s = None
        return targets

    def _targets(self) -> list[_Consumer] | None:
        """Return the least loaded consumer (balance) or all (broadcast); None if there is no room."""
        if self.pattern == "balance":
            free = [c for c in self.consumers.values() if c.room > 0 or self.when_full == "drop_oldest"]
            return [min(free, key=lambda c: (c.in_flight, c.sent))] if free else None
        consumers = list(self.consumers.values())
        if self.when_full != "drop_oldest" and not all(c.room > 0 for c in consumers):
            return None
        return consumers


class MessageReceiver(Line):
    """The consumer's side of a channel: one queue for all its producers."""

    def __init__(self, name: str, window: int, when_full: str, waiter: Waiter, acknowledge: Acknowledge) -> None:
        self.window = window
        self.when_full = when_full
        self.waiter = waiter
        self.acknowledge = acknowledge
        self.queue: deque[tuple[ActorIdentity, Message]] = deque()
        self.totals: dict[ActorIdentity, list[int]] = {}  # producer -> [received, consumed, dropped]
        self.owed: set[ActorIdentity] = set()  # producers whose current totals have not been acknowledged
        self.phase = waiter.status.phase(f"wait {name}"[:23], WAIT_IN)
        self.admitted: Collection[int] = ()  # actors that send on this channel
        self.types: Mapping[str, type[Message]] = {}

    def admit(self, producers: Collection[int], message: type[Message]) -> None:
        """Accept messages of this type from these actors."""
        self.admitted, self.types = producers, {message.__hive_name__: message}

    def joined(self, members: Mapping[int, int]) -> None:
        if not members.keys().isdisjoint(self.admitted):
            self.acknowledge_all()  # Acks to a producer that had not joined yet were dropped

    def received(self, message: Message, frames: Frames) -> None:
        if not isinstance(message, Deliver):
            super().received(message, frames)
        else:
            messages = decode_batch(frames, self.types) if frames else ()
            self.deliver((message.producer, message.incarnation), message.sequence, messages)

    def deliver(self, producer: ActorIdentity, sequence: int, messages: Sequence[Message]) -> None:
        """Queue messages, or answer a query without messages. Beyond the window the oldest are dropped.

        Repeats are ignored. The transport keeps the order, so a full mailbox lost the messages of a gap in the
        sequence. They are counted as dropped and acknowledged at once.
        """
        totals = self.totals.setdefault(producer, [0, 0, 0])
        missing = sequence - totals[0] - len(messages)
        if messages and missing < 0:
            return
        # `max`, because a repeated query carries an older sequence.
        totals[0] = max(totals[0], sequence)
        totals[2] += max(missing, 0)
        if missing > 0 or not messages:
            # At once: the producer may be waiting for the room that the lost messages take up in its window.
            self._acknowledge(producer)
        if not messages:
            return
        self.queue.extend((producer, message) for message in messages)
        beyond = totals[0] - totals[1] - totals[2] - self.window
        if self.when_full == "drop_oldest" and beyond > 0:
            self._drop_oldest(producer, beyond)
        self.waiter.wake()

    def _drop_oldest(self, producer: ActorIdentity, count: int) -> None:
        oldest = itertools.islice((i for i, (sender, _) in enumerate(self.queue) if sender == producer), count)
        for taken, index in enumerate([*oldest]):
            del self.queue[index - taken]
        self.totals[producer][2] += count
        self._acknowledge(producer)

    async def receive(self) -> Message:
        """Remove and return the oldest message; waits for one."""
        return await self.waiter.until(self.receive_nowait, self.phase)

    async def receive_many(self, most: int) -> list[Message]:
        """Remove and return the queued messages, at most `most`; waits for the first."""
        return await self.waiter.until(lambda: self._take(most) or None, self.phase)

    def receive_nowait(self) -> Message | None:
        """Remove and return the oldest message, or None if the queue is empty."""
        taken = self._take(1)
        return taken[0] if taken else None

    def _take(self, most: int) -> list[Message]:
        """Remove the oldest messages. Sends one Ack per half window, and one when the queue becomes empty."""
        taken: list[Message] = []
        for _ in range(min(most, len(self.queue))):
            producer, message = self.queue.popleft()
            taken.append(message)
            totals = self.totals[producer]
            totals[1] += 1
            self.owed.add(producer)
            if self.queue and (totals[1] + totals[2]) % max(self.window // 2, 1) == 0:
                self._acknowledge(producer)
        if taken and not self.queue:
            self.acknowledge_all()
        return taken

    def acknowledge_all(self) -> None:
        """Acknowledge all outstanding totals, so that the accounts of a quiescent run are exact."""
        for producer in sorted(self.owed):
            self._acknowledge(producer)

    def conclude(self) -> list[Ack]:
        """Send the last acknowledgement to the latest incarnation of each producer, and return them."""
        latest = {actor: (actor, incarnation) for actor, incarnation in sorted(self.totals)}
        return [self._acknowledge(producer) for producer in latest.values()]

    def _acknowledge(self, producer: ActorIdentity) -> Ack:
        self.owed.discard(producer)
        _, consumed, dropped = self.totals[producer]
        return self.acknowledge(producer, consumed, dropped, self.window)


def account_of(name: str, counters: Mapping[str, float]) -> dict[str, object]:
    """Build a message channel's account, as `summary.json` prints it, from its producer's counters."""
    mine = {key.removeprefix(f"{name}:"): int(value) for key, value in counters.items() if key.startswith(f"{name}:")}
    dropped = {reason: n for reason, n in mine.items() if reason not in ("produced", "consumed", "in_flight") and n}
    return {
        "produced": mine.get("produced", 0),
        "consumed": mine.get("consumed", 0),
        "dropped": dropped,
        "in_flight": mine.get("in_flight", 0),
    }
