"""The message carrier: messages without a fixed layout, from outlet to inlet.

    producer                                             consumer
    Deliver(channel, incarnation, sequence) + messages -> queue -> receive()
    <- Ack(channel, consumed, dropped, window)

The consumer grants credit: `window` is how many messages of this producer may be on their way or in its queue. The
producer sends while  sent - consumed - dropped < window. `consumed` and `dropped` are running totals of this pair of
incarnations, so an Ack that is lost, repeated or late does no harm, as long as another follows. Where none would,
because the last message of a window or the Ack of an emptied queue was lost to a full mailbox, the producer asks: a
Deliver without messages says how much it has sent, and is answered by an Ack that counts what never came as dropped.
It asks only while it waits, every 50 ms.

The producer keeps the channel's account, on its status page, because it alone knows what it has not been told about:

    produced = consumed + dropped(by reason) + in flight       in flight: sent and not acknowledged, per consumer

Each of its entries changes two of these at once, so that they add up wherever the producer is killed.

When a consumer dies, what it had not acknowledged is dropped as `consumer_died`; when it stops because the run ends, as
`run_ended`. The last totals of one that is done come straight from it: the news of its end may be faster. A broadcast
counts one message to each consumer as one. A consumer in the same process gets the object itself and must not change
it.

`send_many` and `receive_many` move what fits at once: one Deliver, one wait, one entry in the account for up to a
thousand messages. A Deliver is all or nothing: lost on the way, all of its messages are.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hive.errors import HiveError
from hive.runtime.batches import batch_of
from hive.runtime.messages import Message
from hive.runtime.ports import Pattern, WhenFull
from hive.runtime.protocol import Ack
from hive.runtime.status import WAIT_IN, WAIT_OUT, Status
from hive.runtime.waiting import RESCAN_S, Waiter

__all__ = ["ChannelFull", "MessageReceiver", "MessageSender"]


class ChannelFull(HiveError):
    """A message could not be sent at once over a channel whose `when_full` is "fail"."""


Identity = tuple[int, int]  # actor index, incarnation
# (consumer, sequence, messages): hands messages, the last of which has this sequence, to the transport, or to the inlet
# when it lives in this process; without any it asks for an Ack of all up to that sequence
Deliver = Callable[[Identity, int, Sequence[Message]], None]
# (producer, consumed, dropped, window); returns what it has sent
Acknowledge = Callable[[Identity, int, int, int], Ack]


@dataclass
class _Consumer:
    """What the producer knows of one consumer incarnation."""

    identity: Identity
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
    """The channel's counters on the producer's page. They outlive the producer's incarnations.

    Each entry is one change of two counters: a producer that is killed leaves an account that adds up.
    """

    def __init__(self, name: str, status: Status) -> None:
        self.status = status
        self.name = name
        self.produced = status.counter(f"{name}:produced")
        self.consumed = status.counter(f"{name}:consumed")
        self.in_flight = status.counter(f"{name}:in_flight")
        # What an earlier incarnation had not been told about is lost to the account: nobody can acknowledge it now.
        self.drop("process_died", status.get(self.in_flight))

    def send(self, count: int) -> None:
        self.status.add_both(self.produced, count, self.in_flight, count)

    def consume(self, count: int) -> None:
        self.status.add_both(self.consumed, count, self.in_flight, -count)

    def drop(self, reason: str, count: float) -> None:
        """Of those in flight."""
        if count:
            self.status.add_both(self._reason(reason), count, self.in_flight, -count)

    def refuse(self, reason: str, count: int) -> None:
        """Produced, and never sent to anybody."""
        self.status.add_both(self.produced, count, self._reason(reason), count)

    def _reason(self, reason: str) -> int:
        return self.status.counter(f"{self.name}:{reason}")


class MessageSender:
    """The producer's side of a channel."""

    def __init__(self, name: str, pattern: Pattern, when_full: WhenFull, waiter: Waiter, deliver: Deliver) -> None:
        self.name = name
        self.pattern = pattern
        self.when_full = when_full
        self.waiter = waiter
        self.deliver = deliver
        self.account = _Account(name, waiter.status)
        self.consumers: dict[int, _Consumer] = {}
        self.phase = waiter.status.phase(f"wait {name}"[:23], WAIT_OUT)
        self.asked_s: float | None = None  # when it last asked, or began to wait, by the loop's clock

    def joined(self, consumer: Identity, window: int) -> None:
        """A consumer is there. A later incarnation of one replaces it; an earlier one changes nothing."""
        known = self.consumers.get(consumer[0])
        if known is not None and known.identity[1] >= consumer[1]:
            return
        self.left(consumer[0])
        self.consumers[consumer[0]] = _Consumer(consumer, window)
        self.waiter.wake()

    def left(self, actor: int, why: str = "consumer_died") -> None:
        """A consumer is gone: its unacknowledged messages are dropped as `why`, one of REASONS."""
        gone = self.consumers.pop(actor, None)
        if gone is not None:
            self.account.drop(why, gone.in_flight)
            self.waiter.wake()

    def acknowledged(self, consumer: Identity, consumed: int, dropped: int, window: int) -> None:
        """Running totals from a consumer; older ones, and those of a dead incarnation, change nothing."""
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
        """True when nothing is in flight, else None: an attempt to wait with."""
        if not any(consumer.in_flight for consumer in self.consumers.values()):
            return True
        self._ask()
        return None

    def _ask(self) -> None:
        """Asks what has arrived, if it has waited for a while: messages and answers may have been lost."""
        now_s = asyncio.get_running_loop().time()
        if self.asked_s is None:
            self.asked_s = now_s
        elif now_s - self.asked_s >= RESCAN_S:
            self.asked_s = now_s
            for consumer in self.consumers.values():
                if consumer.in_flight:
                    self.deliver(consumer.identity, consumer.sent, ())

    async def send_many(self, messages: Sequence[Message]) -> None:
        """Sends each to one consumer (balance) or to all (broadcast), in portions of what there is room for.

        Waits, or raises ChannelFull, when there is no room; what was sent before stays sent.
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
            if self.pattern == "balance" and not targets:  # nobody is there to drop an older one
                self.account.refuse("overflow", count)
            for consumer in targets:
                # Counted before it leaves: an acknowledgement can then never be ahead of the account.
                self.account.send(count)
                consumer.sent += count
                self.deliver(consumer.identity, consumer.sent, rest[:count])
            rest = rest[count:]

    def _portion(self, messages: Sequence[Message], targets: Sequence[_Consumer]) -> int:
        """How many of these messages can go at once."""
        most = batch_of(messages)
        return most if self.when_full == "drop_oldest" else min((most, *(consumer.room for consumer in targets)))

    def _room(self) -> list[_Consumer] | None:
        targets = self._targets()
        if targets is None:
            self._ask()
        else:
            self.asked_s = None
        return targets

    def _targets(self) -> list[_Consumer] | None:
        if self.pattern == "balance":
            free = [c for c in self.consumers.values() if c.room > 0 or self.when_full == "drop_oldest"]
            return [min(free, key=lambda c: (c.in_flight, c.sent))] if free else None
        everyone = list(self.consumers.values())
        if self.when_full != "drop_oldest" and not all(c.room > 0 for c in everyone):
            return None
        return everyone


class MessageReceiver:
    """The consumer's side of a channel: one queue for all its producers."""

    def __init__(self, name: str, window: int, when_full: WhenFull, waiter: Waiter, acknowledge: Acknowledge) -> None:
        self.window = window
        self.when_full = when_full
        self.waiter = waiter
        self.acknowledge = acknowledge
        self.queue: deque[tuple[Identity, Message]] = deque()
        self.totals: dict[Identity, list[int]] = {}  # producer -> [received, consumed, dropped]
        self.owed: set[Identity] = set()  # producers that have not been told their totals
        self.phase = waiter.status.phase(f"wait {name}"[:23], WAIT_IN)

    def deliver(self, producer: Identity, sequence: int, messages: Sequence[Message]) -> None:
        """Messages from the transport, or a producer's question. Beyond the window the oldest are dropped.

        Repeats are ignored. The wire keeps the order, so a gap in the sequence was lost to a full mailbox: dropped, and
        said at once.
        """
        totals = self.totals.setdefault(producer, [0, 0, 0])
        missing = sequence - totals[0] - len(messages)
        if messages and missing < 0:
            return
        totals[0] = max(totals[0], sequence)
        totals[2] += max(missing, 0)
        if missing > 0 or not messages:
            self._acknowledge(producer)
        if not messages:
            return
        self.queue.extend((producer, message) for message in messages)
        beyond = totals[0] - totals[1] - totals[2] - self.window
        if self.when_full == "drop_oldest" and beyond > 0:
            self._drop_oldest(producer, beyond)
        self.waiter.wake()

    def _drop_oldest(self, producer: Identity, count: int) -> None:
        oldest = itertools.islice((i for i, (sender, _) in enumerate(self.queue) if sender == producer), count)
        for taken, index in enumerate([*oldest]):
            del self.queue[index - taken]
        self.totals[producer][2] += count
        self._acknowledge(producer)

    async def receive(self) -> Message:
        return await self.waiter.until(self.receive_nowait, self.phase)

    async def receive_many(self, most: int) -> list[Message]:
        """All that is there, at most so many; waits for the first."""
        return await self.waiter.until(lambda: self._take(most) or None, self.phase)

    def receive_nowait(self) -> Message | None:
        taken = self._take(1)
        return taken[0] if taken else None

    def _take(self, most: int) -> list[Message]:
        """The oldest messages. One Ack for half a window, or when there is nothing left: few, full messages."""
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
        """Tells every producer what it has not been told: at a quiescent point no account is behind."""
        for producer in sorted(self.owed):
            self._acknowledge(producer)

    def conclude(self) -> list[Ack]:
        """The last acknowledgements: tells every producer's latest incarnation its totals, and returns them."""
        latest = {actor: (actor, incarnation) for actor, incarnation in sorted(self.totals)}
        return [self._acknowledge(producer) for producer in latest.values()]

    def _acknowledge(self, producer: Identity) -> Ack:
        self.owed.discard(producer)
        _, consumed, dropped = self.totals[producer]
        return self.acknowledge(producer, consumed, dropped, self.window)


def account_of(name: str, counters: Mapping[str, float]) -> dict[str, object]:
    """A message channel's account from its producer's counters, as `summary.json` prints it."""
    mine = {key.removeprefix(f"{name}:"): int(value) for key, value in counters.items() if key.startswith(f"{name}:")}
    dropped = {reason: n for reason, n in mine.items() if reason not in ("produced", "consumed", "in_flight") and n}
    return {
        "produced": mine.get("produced", 0),
        "consumed": mine.get("consumed", 0),
        "dropped": dropped,
        "in_flight": mine.get("in_flight", 0),
    }
