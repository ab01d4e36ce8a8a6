"""Slots whose contents travel over ZeroMQ: each field is a frame of one message.

    producer                                            consumer
    slot i of its own memory                            slot i of its own memory, for this producer
      reserve, write, commit (word: FULL)
      Payload(slot, sequence) + one frame per field  -> copied once, if the word still says FULL
                                                        claim (word: CLAIMED), read, retire (word: FREE)
    the slot may be reserved again

The slot words stay in shared memory and remain the truth, as with `Slots`: sequence numbers, credit, accounts, pauses
and the repair after an exit are the same code. Only the contents move. So no message can be lost or used twice however
often a Payload is lost, repeated or late: a consumer claims a slot only if it has the contents of its current sequence,
and a producer keeps them until the word says that the consumer has retired the slot.

A consumer that waits for a full slot without contents sends Fetch after RESCAN_S: the Payload was lost, was sent to a
predecessor or, where several consumers compete, to another one that is busy. A producer sends what is still unclaimed
to each consumer that joins.

When a producer exits, the contents of its unclaimed slots are gone. The supervisor drops these slots as `process_died`,
and the successor's numbers begin at the first one that no consumer had claimed (native: Slab::withdraw). A re-offered
message may thus be made again although its consumer's predecessor had used it; consumers that keep the number of the
last one skip it.

So a producer that is done reports it only when all its messages are claimed, unless the run ends or no consumer is
left. One consumer receives the messages of a producer in their order. If several compete, one of them may receive a
message after a newer one of the same producer, because an idle consumer fetches what a busy one has not claimed.

Producers of this carrier cannot read each other's messages, so `shared` is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from hive.errors import TopologyError, WireError
from hive.runtime.carriers.carrier import Account, End, Line, PlanChannel, RunMemory
from hive.runtime.carriers.slots import FULL, Slot, SlotReceiver, Slots, SlotSender
from hive.runtime.carriers.waiting import RESCAN_S
from hive.runtime.memory.segments import REASONS, SlabView
from hive.runtime.wire.arrays import Frame, Frames
from hive.runtime.wire.messages import Message
from hive.runtime.wire.protocol import Fetch, Payload

__all__ = ["Zmq", "ZmqReceiver", "ZmqSender"]

INCARNATIONS = 256  # a slot word holds the incarnation of its owner modulo this
MASK = 0xFFFFFFFF  # sequences in slot words wrap at 2^32


@dataclass(frozen=True)
class Zmq(Slots):
    """As Slots, but the contents of the slots travel over ZeroMQ. Each process has its own memory for them."""

    kind: ClassVar[str] = "zmq"
    in_segment: ClassVar[bool] = False

    def check(self, channel: str, source: str, message: type[Message], pattern: str, when_full: str) -> None:
        super().check(channel, source, message, pattern, when_full)
        if self.shared:
            raise TopologyError(
                f"`{source}` is shared, so its producers read each other's slots in place, which zmq cannot carry",
                hint="connect it with hive.Slots",
            )

    def source(self, end: End) -> Line:
        view = end.host.views.slab(end.channel.segments[end.channel.producers.index(end.actor)])
        return ZmqSender(end, self, view.with_slots(self.layout))

    def target(self, end: End) -> Line:
        views = {p: end.host.views.slab(end.channel.segments[p]) for p in self.sources(end)}
        return ZmqReceiver(end, self, {p: view.with_slots(self.layout) for p, view in views.items()})

    def accounts(self, channel: PlanChannel, memory: RunMemory) -> list[Account]:
        """Return the accounts of slots, with the bytes that each producer has sent."""
        counters = [memory.pages.snapshot(actor)["counters"] for actor in channel.producers]
        sent = [int(each.get(f"{channel.name}:sent_bytes", 0)) for each in counters]
        pairs = zip(super().accounts(channel, memory), sent, strict=True)
        return [account | {"sent_bytes": count} for account, count in pairs]

    def reclaim(self, channel: PlanChannel, memory: RunMemory, actor: int, incarnation: int, why: str) -> None:
        super().reclaim(channel, memory, actor, incarnation, why)
        if actor in channel.producers:
            words = memory.views.slab(channel.segments[channel.producers.index(actor)]).words
            words.withdraw(REASONS.index("run_ended" if why == "run_ended" else "process_died"))


class ZmqSender(SlotSender):
    """The producer's side of a channel."""

    settle_s = None  # the contents of unclaimed slots exist only in this process

    def __init__(self, end: End, carrier: Zmq, view: SlabView) -> None:
        super().__init__(end, carrier, view)
        channel = end.channel
        self.takers = [channel.consumers[p] for p in carrier.takers(channel, channel.producers.index(end.actor))]
        self.sent_to: dict[int, int] = {}  # slot -> the consumer that its contents were sent to last
        self.sent_bytes = self.waiter.status.counter(f"{channel.name}:sent_bytes")

    def commit(self, slot: Slot) -> int:
        """Hand a reserved slot to a consumer and return its sequence."""
        sequence: int = self.view.words.commit(slot.index, *self.me)
        self._send(slot.index, sequence, self._least_loaded())  # it wakes the consumer, who cannot use the word alone
        return sequence

    def _least_loaded(self) -> int:
        """Return the consumer with the fewest messages of this producer in flight; with several of them in rotation."""
        if len(self.takers) == 1:
            return self.takers[0]
        words = self.view.words
        loads = dict.fromkeys(self.takers, 0)
        for index, consumer in self.sent_to.items():
            loads[consumer] += bool(words.state(index)[0])
        first = words.produced % len(self.takers)
        present = [c for c in (*self.takers[first:], *self.takers[:first]) if self.end.host.joined(c) >= 0]
        return min(present or self.takers, key=loads.__getitem__)

    def _send(self, index: int, sequence: int, consumer: int) -> None:
        self.sent_to[index] = consumer
        frames: list[Frame] = [array.reshape(-1).view(np.uint8).data for array in self.view.slots[index].values()]
        payload = Payload(self.end.number, *self.me, consumer, index, sequence)
        local = self.end.host.target(self.end.number, consumer)
        if local is not None:
            local.received(payload, frames)
        elif self.end.host.joined(consumer) >= 0:
            self.waiter.status.add(self.sent_bytes, sum(map(len, frames)))
            # Stable: the slot changes only after it was claimed, and by then another Payload of it is not wanted.
            self.end.host.send(consumer, payload, frames, stable=True)

    def joined(self, members: Mapping[int, int]) -> None:
        """Send consumers that have joined the slots that are still unclaimed: predecessors had got them, or nobody."""
        for consumer in self.takers:
            for sequence, index in self._unclaimed() if consumer in members else ():
                if self.sent_to.get(index, consumer) == consumer:
                    self._send(index, sequence, consumer)

    def _unclaimed(self) -> list[tuple[int, int]]:
        """Return (sequence, slot) of the slots that nobody has claimed, oldest first."""
        states = [self.view.words.state(index) for index in range(self.view.words.slots)]
        full = [(state[3], index) for index, state in enumerate(states) if state[0] == FULL]
        return sorted(full, key=lambda at: (at[0] - self.produced) & MASK)

    def settled(self) -> bool | None:
        host, consumers = self.end.host, self.end.channel.consumers
        return host.draining or not self._unclaimed() or all(host.joined(c) < 0 for c in consumers) or None

    def received(self, message: Message, frames: Frames) -> None:
        """Send the contents of a slot again."""
        if not isinstance(message, Fetch):
            super().received(message, frames)
        elif message.consumer not in self.takers or not 0 <= message.slot < self.view.words.slots:
            raise WireError(f"a Fetch of slot {message.slot} by actor {message.consumer}")
        else:
            state, _, _, sequence = self.view.words.state(message.slot)
            if state == FULL and sequence == message.sequence:  # else it was claimed while this message was on its way
                self._send(message.slot, sequence, message.consumer)


class _Held(NamedTuple):
    """The contents that a consumer has in one slot of its memory."""

    sequence: int
    incarnation: int  # the producer's


class ZmqReceiver(SlotReceiver):
    """The consumer's side of a channel. `views` have the words of each producer, and slots in this process."""

    def __init__(self, end: End, carrier: Zmq, views: Mapping[int, SlabView]) -> None:
        super().__init__(end, carrier, views)
        self.competed = carrier.competed(end.channel)
        self.positions = {end.channel.producers[p]: p for p in self.producers}
        self.held: dict[int, dict[int, _Held]] = {p: {} for p in self.producers}  # by producer, then by slot
        self.missing: dict[tuple[int, int], float] = {}  # (producer, sequence) -> loop time of the last Fetch

    def received(self, message: Message, frames: Frames) -> None:
        """Copy the contents of a slot, unless they are not wanted any more. Raises WireError for unfitting frames."""
        if not isinstance(message, Payload):
            super().received(message, frames)
            return
        position = self.positions.get(message.producer, -1)
        if position < 0 or not 0 <= message.slot < self.views[position].words.slots:
            raise WireError(f"a Payload for slot {message.slot} of actor {message.producer}")
        arrays = self.views[position].slots[message.slot]
        if [len(frame) for frame in frames] != [array.nbytes for array in arrays.values()]:
            raise WireError(
                f"a Payload of {len(frames)} frames that do not fit the layout of `{self.end.channel.name}`"
            )
        held = _Held(message.sequence, message.incarnation)
        if self._current(position, message.slot, held) and self.held[position].get(message.slot) != held:
            for array, frame in zip(arrays.values(), frames, strict=True):
                array.reshape(-1).view(np.uint8)[:] = np.frombuffer(frame, np.uint8)
            self.held[position][message.slot] = held
            self.waiter.wake()

    def _current(self, position: int, index: int, held: _Held) -> bool:
        """Return whether these contents are those of the full slot that the word describes now."""
        state, owner, incarnation, sequence = self.views[position].words.state(index)
        if state != FULL or sequence != held.sequence:
            return False
        producer = self.end.channel.producers[position]
        if owner != producer:  # offered again: the word names the consumer that had claimed it
            incarnation = self.end.host.joined(producer)
        return bool(held.incarnation % INCARNATIONS == incarnation % INCARNATIONS)

    def claim_nowait(self, producer: int | None = None, sequence: int = -1) -> Slot | None:
        candidates: Sequence[int] = (producer,) if producer is not None else self.rotation()
        for position in candidates:
            index = self._arrived(position, sequence)
            if index >= 0:
                view, number = self.views[position], self.held[position].pop(index).sequence
                if view.words.claim(*self.me, number) == index:
                    return Slot(view, index, position, number)
        self._fetch(candidates, sequence)
        return None

    def _arrived(self, position: int, sequence: int) -> int:
        """Return the slot of this sequence, or with -1 of the oldest, whose contents are here; -1 if there is none."""
        held = self.held[position]
        for index in [index for index, contents in held.items() if not self._current(position, index, contents)]:
            del held[index]  # another consumer has claimed it
        words = self.views[position].words
        if sequence < 0 and not self.competed:
            sequence = words.first_left()
        made = words.produced
        ages = {(made - c.sequence) & MASK: i for i, c in held.items() if sequence in (-1, c.sequence)}
        return ages[max(ages)] if ages else -1

    def _fetch(self, candidates: Sequence[int], sequence: int) -> None:
        """Request contents that have been missing for RESCAN_S, although their slot is full."""
        now_s, seen = asyncio.get_running_loop().time(), {}
        for position in candidates:
            words, producer = self.views[position].words, self.end.channel.producers[position]
            for index in range(words.slots):
                state, _, _, number = words.state(index)
                if state != FULL or sequence not in (-1, number) or index in self.held[position]:
                    continue
                since_s = self.missing.get((position, number), now_s)
                if now_s - since_s >= RESCAN_S:
                    since_s = now_s
                    self._request(producer, Fetch(self.end.number, producer, self.end.actor, index, number))
                seen[position, number] = since_s
        self.missing = seen

    def _request(self, producer: int, fetch: Fetch) -> None:
        local = self.end.host.source(self.end.number, producer)
        if local is not None:
            local.received(fetch, ())
        else:
            self.end.host.send(producer, fetch)
