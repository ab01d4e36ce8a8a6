"""Slots whose contents travel over ZeroMQ: each field is a frame of one message.

    producer                                            consumer
    slot i of its own memory                            slot i of its buffer, for this producer
      reserve, write, commit (word: FULL)
      Payload(slot, sequence) + one frame per field  -> copied once, and marked with sequence and incarnation
                                                        claim (word: CLAIMED), read, retire (word: FREE)
    the slot may be reserved again

The slot words stay in shared memory and remain the truth, as with `Slots`: sequence numbers, credit, accounts, pauses
and the repair after an exit are the same code. Only the contents move. So no message can be lost or used twice however
often a Payload is lost, repeated or late: a consumer claims a slot only if it has the contents of its current sequence,
and a producer keeps them until the word says that the consumer has retired the slot.

A consumer that waits for a full slot without contents sends Fetch after RESCAN_S: the Payload was lost or, where
several consumers compete, was sent to another one that is busy. A producer sends what is still unclaimed to each
consumer that joins.

    buffer of a consumer   | marks: (sequence + 1, incarnation) of each slot | slots of producer 0 | of producer 1 | ...

The buffer is a segment of the supervisor, so contents that have arrived survive the consumer, as slots in shared memory
do: its successor claims them, also those that its predecessor had claimed, if the channel offers them again. When a
producer exits, contents that have not arrived are gone. The supervisor drops these slots as `process_died`, and the
successor's numbers begin at the first of them (native: Slab::withdraw). Where several consumers compete it drops all
that are unclaimed: only the consumer that has the contents could claim them, and it may wait for those that have none.

So a producer that is done reports it only when all its messages are claimed, unless the run ends or no consumer is
left. One consumer receives the messages of a producer in their order. If several compete, one of them may receive a
message after a newer one of the same producer, because an idle consumer fetches what a busy one has not claimed.

Producers of this carrier cannot read each other's messages, so `shared` is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hive import _native
from hive.errors import TopologyError, WireError
from hive.runtime.carriers.carrier import AccountDict, End, Line, PlanChannel, PlanSegment, RunMemory
from hive.runtime.carriers.slots import FULL, Slot, SlotReceiver, Slots, SlotSender
from hive.runtime.carriers.waiting import RESCAN_S
from hive.runtime.memory.segments import PAGE, REASONS, Arrays, Bytes, SlabView, aligned, slot_stride
from hive.runtime.wire.arrays import Frame, Frames
from hive.runtime.wire.messages import Message
from hive.runtime.wire.protocol import Fetch, Payload

MAKERS = 64  # a slot word holds the incarnation of its producer modulo this
MASK = 0xFFFFFFFF  # sequences in slot words wrap at 2^32


@dataclass(frozen=True)
class Zmq(Slots):
    """As Slots, but the contents of the slots travel over ZeroMQ, from the producer's memory to a consumer's buffer."""

    kind: ClassVar[str] = "zmq"
    in_segment: ClassVar[bool] = False

    def check(self, channel: str, source: str, message: type[Message], pattern: str, when_full: str) -> None:
        super().check(channel, source, message, pattern, when_full)
        if self.shared:
            raise TopologyError(
                f"`{source}` is shared, so its producers read each other's slots in place, which zmq cannot carry",
                hint="connect it with hive.Slots",
            )

    def segments(self, channel: str, producers: Sequence[str], consumers: int) -> list[PlanSegment]:
        segments = super().segments(channel, producers, consumers)
        for consumer in range(consumers):
            count = len(self._sources(consumer, len(producers), consumers))
            size = self._marks_bytes(count) + count * self.slots * slot_stride(self.layout)
            sparse = count * self.slots * self.layout.sparse_bytes
            segments.append(PlanSegment(f"{channel}:contents-{consumer}", "buffer", 0, size, 0, 0, "", 0, sparse))
        return segments

    def _sources(self, consumer: int, producers: int, consumers: int) -> list[int]:
        """Return the positions of the producers whose slots the buffer of a consumer has, in their order there."""
        return [p for p in range(producers) if not self.by_share or p % consumers == consumer]

    def _marks_bytes(self, sources: int) -> int:
        return aligned(max(sources, 1) * self.slots * 16, PAGE)

    def marks(self, buffer: Bytes, sources: int) -> NDArray[np.int64]:
        """Return the marks in a buffer, int64 [sources, slots, 2]: (sequence + 1, incarnation); 0: no contents."""
        return buffer[: sources * self.slots * 16].view(np.int64).reshape(sources, self.slots, 2)

    def source(self, end: End) -> Line:
        view = end.host.views.slab(end.channel.segments[end.channel.producers.index(end.actor)])
        return ZmqSender(end, self, view.with_slots(self.layout))

    def target(self, end: End) -> Line:
        channel, views = end.channel, {}
        buffer = end.host.views.buffer(_buffer_of(channel, channel.consumers.index(end.actor)))
        sources = self.sources(end)
        start, size = self._marks_bytes(len(sources)), self.slots * slot_stride(self.layout)
        for number, position in enumerate(sources):
            memory = buffer[start + number * size :][:size]
            views[position] = end.host.views.slab(channel.segments[position]).with_slots(self.layout, memory)
        return ZmqReceiver(end, self, views, self.marks(buffer, len(sources)))

    def accounts(self, channel: PlanChannel, memory: RunMemory) -> list[AccountDict]:
        """Return the accounts of slots, with the bytes that each producer has sent."""
        counters = [memory.pages.snapshot(actor)["counters"] for actor in channel.producers]
        sent = [int(each.get(f"{channel.name}:sent_bytes", 0)) for each in counters]
        pairs = zip(super().accounts(channel, memory), sent, strict=True)
        return [account | {"sent_bytes": count} for account, count in pairs]

    def reclaim(self, channel: PlanChannel, memory: RunMemory, actor: int, incarnation: int, why: str) -> None:
        super().reclaim(channel, memory, actor, incarnation, why)
        if actor not in channel.producers:
            return
        position = channel.producers.index(actor)
        words = memory.views.slab(channel.segments[position]).words
        for sequence, index in full_slots(words):
            alone = not self.competed(channel)
            if not (alone and self._arrived(channel, memory, position, index, sequence, words.maker(index))):
                words.withdraw(REASONS.index("run_ended" if why == "run_ended" else "process_died"), sequence)
                return

    def _arrived(
        self, channel: PlanChannel, memory: RunMemory, position: int, index: int, sequence: int, maker: int
    ) -> bool:
        """Return whether the one consumer has the contents of this slot of the producer at `position`."""
        (consumer,) = self.takers(channel, position)
        sources = self._sources(consumer, len(channel.producers), len(channel.consumers))
        marks = self.marks(memory.views.buffer(_buffer_of(channel, consumer)), len(sources))
        marked, incarnation = marks[sources.index(position), index].tolist()
        return bool((marked, incarnation % MAKERS) == (sequence + 1, maker))


def _buffer_of(channel: PlanChannel, consumer: int) -> str:
    return channel.segments[len(channel.producers) + consumer]


def full_slots(words: _native.Slab) -> list[tuple[int, int]]:
    """Return (sequence, slot) of the full slots, oldest first."""
    states: list[Any] = [words.state(index) for index in range(words.slots)]
    full = [(state[3], index) for index, state in enumerate(states) if state[0] == FULL]
    return sorted(full, key=lambda at: (at[0] - words.produced) & MASK)


class ZmqSender(SlotSender):
    """The producer's side of a channel."""

    settle_s = None  # the contents of unclaimed slots exist only in this process

    def __init__(self, end: End, carrier: Zmq, view: SlabView) -> None:
        super().__init__(end, carrier, view)
        channel, self.layout = end.channel, carrier.layout
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
        arrays = self.layout.in_use(self.view.slots[index])
        frames: list[Frame] = [array.reshape(-1).view(np.uint8).data for array in arrays.values()]
        payload = Payload(self.end.number, *self.me, consumer, index, sequence)
        local = self.end.host.target(self.end.number, consumer)
        if local is not None:
            local.received(payload, frames)
        elif self.end.host.joined(consumer) >= 0:
            self.waiter.status.add(self.sent_bytes, sum(map(len, frames)))
            # Stable: the slot changes only after it was claimed, and by then another Payload of it is not wanted.
            self.end.host.send(consumer, payload, frames, stable=True)

    def joined(self, members: Mapping[int, int]) -> None:
        """Send consumers that have joined the slots that are still unclaimed and were sent to nobody else."""
        for consumer in self.takers:
            for sequence, index in self._unclaimed() if consumer in members else ():
                if self.sent_to.get(index, consumer) == consumer:
                    self._send(index, sequence, consumer)

    def _unclaimed(self) -> list[tuple[int, int]]:
        """Return (sequence, slot) of the full slots that this incarnation has made, oldest first."""
        words = self.view.words
        return [(sequence, index) for sequence, index in full_slots(words) if self._made(index)]

    def _made(self, index: int) -> bool:
        return bool(self.view.words.maker(index) == self.me[1] % MAKERS)

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
            if state == FULL and sequence == message.sequence and self._made(message.slot):
                self._send(message.slot, sequence, message.consumer)


class _Held(NamedTuple):
    """The contents that a consumer has in one slot of its buffer."""

    sequence: int
    incarnation: int  # the producer's


class ZmqReceiver(SlotReceiver):
    """The consumer's side of a channel. `views`: the words of each producer, with slots in the buffer of `marks`."""

    def __init__(self, end: End, carrier: Zmq, views: Mapping[int, SlabView], marks: NDArray[np.int64]) -> None:
        super().__init__(end, carrier, views)
        self.marks = dict(zip(views, marks, strict=True))
        self.layout = carrier.layout
        self.competed = carrier.competed(end.channel)
        self.positions = {end.channel.producers[p]: p for p in self.producers}
        # What this incarnation has received or found, by producer, then by slot.
        self.held: dict[int, dict[int, _Held]] = {
            p: {i: _Held(marked - 1, made) for i, (marked, made) in enumerate(of.tolist()) if marked}
            for p, of in self.marks.items()
        }
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
        if len(frames) != len(arrays) or (in_use := self._in_use(arrays, frames)) is None:
            raise WireError(
                f"a Payload of {len(frames)} frames that do not fit the layout of `{self.end.channel.name}`"
            )
        held = _Held(message.sequence, message.incarnation)
        if self._current(position, message.slot, held) and self.held[position].get(message.slot) != held:
            mark = self.marks[position][message.slot]
            mark[0] = 0  # a consumer that is killed while it copies leaves no mark
            for array, frame in zip(in_use.values(), frames, strict=True):
                array.reshape(-1).view(np.uint8)[:] = np.frombuffer(frame, np.uint8)
            mark[1], mark[0] = held.incarnation, held.sequence + 1
            self.held[position][message.slot] = held
            self.waiter.wake()

    def _in_use(self, arrays: Arrays, frames: Frames) -> Arrays | None:
        """Return the arrays that the frames fill, of a packed one the rows that they say are in use; None: no fit."""
        packed, parts = self.layout.packed, dict(zip(arrays, frames, strict=True))
        if packed is not None:
            field = arrays[packed.count]
            if len(parts[packed.count]) != field.nbytes:
                return None
            arrays = self.layout.in_use(arrays, {packed.count: np.frombuffer(parts[packed.count], field.dtype)})
        return arrays if all(len(parts[name]) == array.nbytes for name, array in arrays.items()) else None

    def _current(self, position: int, index: int, held: _Held) -> bool:
        """Return whether these contents are those of the full slot that the word describes now."""
        words = self.views[position].words
        state, _, _, sequence = words.state(index)
        return bool(state == FULL and sequence == held.sequence and words.maker(index) == held.incarnation % MAKERS)

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
            del held[index]  # another consumer has claimed it, or it was withdrawn
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
