"""Slots: messages of one fixed layout, written and read in place in shared memory.

A producer owns one slab of S slots per channel. It reserves a free slot, writes the arrays in place and commits. A
consumer claims a full slot, reads the arrays in place and retires the slot under a reason: "consumed", or the reason of
the drop. The native slot words record which actor holds a slot (native/include/hive/slots.hpp). The free slots are the
producer's credit.

`by_share` (synchronous and pipelined modes): consumer w of W only claims from producers c with c mod W == w.

While the run is paused, a producer that is a source (hive.runtime.actor.actor) reserves no slot. On an `in_step`
channel it still sends a message that a peer has already committed, so that a pause ends with whole rounds, in whatever
order the producers received it.

The producers of a channel are peers. Each can query how many peers have committed a message. On a `shared` channel it
can also read what they committed, without claiming it: message n then lies in slot n mod S until message n + S is
begun. The producer itself must not begin that one too early (hive.training.update.replica explains why it does not).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from hive.errors import TopologyError
from hive.runtime.carriers.carrier import AccountDict, Carrier, End, Line, PlanChannel, PlanSegment, RunMemory
from hive.runtime.carriers.waiting import WakeRequest
from hive.runtime.memory.segments import REASONS, Arrays, Bytes, Layout, SlabView
from hive.runtime.memory.status import WAIT_IN, WAIT_OUT
from hive.runtime.wire.messages import Message

COMMITTING, FULL = 2, 3  # values of the native SlotState
CODES = {reason: code for code, reason in enumerate(REASONS)}

OnDeath = Literal["drop", "reoffer"]
MAX_SLOTS = 4096  # limit on slots of a slab, native kMaxSlots: readers reject a damaged header that exceeds it


@dataclass(frozen=True)
class Slots(Carrier):
    """Slots in shared memory, `slots` per producer, each one `layout`.

    by_share: consumer w of W receives only from the producers c with c mod W = w; otherwise any consumer takes any
    message. on_death: whether the slots that a consumer had claimed when it exited are dropped or offered again. first:
    the first sequence number, or that of each producer. shared: producers read each other's messages. in_step: in a
    paused run, all producers have sent the same number of messages.
    """

    layout: Layout
    slots: int = 2
    by_share: bool = False
    on_death: OnDeath = "drop"
    first: int | Sequence[int] = 0
    shared: bool = False
    in_step: bool = False

    kind: ClassVar[str] = "slots"
    in_segment: ClassVar[bool] = True  # the slots lie in the segment of their words

    def check(self, channel: str, source: str, message: type[Message], pattern: str, when_full: str) -> None:
        if (pattern, when_full) != ("balance", "wait"):
            raise TopologyError(
                f'`{source}` is carried by {self.kind}, which requires pattern="balance" and when_full="wait"',
                hint="connect it without a carrier; it then sends messages",
            )
        if fault := self.layout.fault(message):
            raise TopologyError(
                f"the layout of `{source}` does not fit {message.__name__}: {fault}",
                hint=f"Layout.of({message.__name__}, ...) makes one that fits",
            )
        if self.slots < 2:
            raise TopologyError(
                f"channel `{channel}` has {self.slots} slots per producer",
                hint="the minimum is 2: one to write and one to read",
            )
        if self.slots > MAX_SLOTS:
            raise TopologyError(
                f"channel `{channel}` needs a slab of {self.slots} slots; the maximum is {MAX_SLOTS}",
                hint="connect it with fewer slots; in a config, lower slots, max_lag or bootstrap_rounds",
            )

    def segments(self, channel: str, producers: Sequence[str], consumers: int) -> list[PlanSegment]:
        size = self.layout.bytes if self.in_segment else 0
        sparse = self.slots * self.layout.sparse_bytes if self.in_segment else 0
        numbers = [self.first] * len(producers) if isinstance(self.first, int) else self.first
        return [
            PlanSegment(f"{channel}:{name}", "slab", self.slots, size, 0, 0, "", first, sparse)
            for name, first in zip(producers, numbers, strict=True)
        ]

    def source(self, end: End) -> Line:
        return SlotSender(end, self, end.host.views.slab(_own_segment(end)))

    def target(self, end: End) -> Line:
        return SlotReceiver(end, self, {p: end.host.views.slab(end.channel.segments[p]) for p in self.sources(end)})

    def sources(self, end: End) -> Sequence[int]:
        """Return the positions of the producers that this consumer may claim from."""
        position, producers = end.channel.consumers.index(end.actor), range(len(end.channel.producers))
        return [p for p in producers if position in self.takers(end.channel, p)]

    def takers(self, channel: PlanChannel, producer: int) -> Sequence[int]:
        """Return the positions of the consumers that may claim from the producer at this position."""
        everyone = range(len(channel.consumers))
        return [producer % len(everyone)] if self.by_share else everyone

    def competed(self, channel: PlanChannel) -> bool:
        """Return whether several consumers compete for each message."""
        return len(channel.consumers) > 1 and not self.by_share

    def reclaim(self, channel: PlanChannel, memory: RunMemory, actor: int, incarnation: int, why: str) -> None:
        """Free slots that the actor was filling, complete half transitions, drop or re-offer what it had claimed."""
        own = [channel.segments[channel.producers.index(actor)]] if actor in channel.producers else []
        for name in slabs_of(channel) if actor in channel.consumers else own:
            words = memory.views.slab(name).words
            words.recover(actor, incarnation, self.on_death == "reoffer", REASONS.index(why))

    def drain(self, channel: PlanChannel, memory: RunMemory) -> None:
        for name in slabs_of(channel):
            memory.views.slab(name).words.drain(REASONS.index("run_ended"))

    def accounts(self, channel: PlanChannel, memory: RunMemory) -> list[AccountDict]:
        return [memory.views.slab(name).counts() for name in slabs_of(channel)]

    def produced(self, channel: PlanChannel, memory: RunMemory) -> list[int]:
        return [memory.views.slab(name).words.produced for name in slabs_of(channel)]

    def capacity(self, channel: PlanChannel) -> int:
        return self.slots * len(channel.producers)


def slabs_of(channel: PlanChannel) -> Sequence[str]:
    """Return the segment of each producer's slab, in the order of the producers."""
    return channel.segments[: len(channel.producers)]


def _own_segment(end: End) -> str:
    return end.channel.segments[end.channel.producers.index(end.actor)]


class Slot:
    """A slot that one actor holds. `arrays` maps its field names to arrays in shared memory."""

    __slots__ = ("arrays", "index", "producer", "sequence", "view")

    def __init__(self, view: SlabView, index: int, producer: int, sequence: int) -> None:
        self.view = view
        self.index = index
        self.producer = producer
        self.sequence = sequence
        self.arrays: Arrays = view.slots[index]

    @property
    def block(self) -> Bytes:
        """The bytes that `arrays` lie in, those between two fields included."""
        return self.view.slots.block(self.index)

    @property
    def contents(self) -> Bytes:
        """The bytes of `block` that are in use: all but the last rows of a packed field."""
        return self.block[: self.view.slots.layout.bytes_in_use(self.arrays)]

    @property
    def arrays_in_use(self) -> Arrays:
        """`arrays`, of which a packed field has only the rows that are in use. To copy a slot, copy these."""
        return self.view.slots.layout.in_use(self.arrays)


class SlotSender(Line):
    """The producer's side of a channel."""

    def __init__(self, end: End, carrier: Slots, view: SlabView) -> None:
        self.end = end
        self.view = view
        self.me = end.identity
        self.waiter = end.waiter
        self.notify = self._notifier(carrier)
        self.shared = carrier.shared
        self.in_step = carrier.in_step
        name = end.channel.name
        self.phase = self.waiter.status.phase(f"wait {name}"[:23], WAIT_OUT)
        self.peer_phase = self.waiter.status.phase(f"wait peers {name}"[:23], WAIT_IN) if self.shared else 0

    def _notifier(self, carrier: Slots) -> Callable[[], None]:
        """Return a function that wakes one of several competing consumers, or else all, and peers that read slots."""
        channel, host = self.end.channel, self.end.host
        position = channel.producers.index(self.end.actor)
        peers = [peer for peer in channel.producers if carrier.shared and peer != self.end.actor]
        consumers = [channel.consumers[taker] for taker in carrier.takers(channel, position)]
        if not carrier.competed(channel):
            return functools.partial(host.notify, [*consumers, *peers])
        first = itertools.count(position)  # the consumer to consider first; it rotates, so that all get messages

        def notify() -> None:
            host.notify_one(consumers, self.end.number, next(first))
            if peers:
                host.notify(peers)

        return notify

    @functools.cached_property
    def peers(self) -> Sequence[SlabView]:
        """The slabs of all producers of this channel, including this one's."""
        return [self.end.host.views.slab(segment) for segment in slabs_of(self.end.channel)]

    @property
    def produced(self) -> int:
        """Messages committed so far, which is the sequence of the next one."""
        return self.view.words.produced

    async def reserve(self) -> Slot:
        """Reserve a free slot for the next sequence; waits while none is free, and while a pause stops this source."""
        # Admitted before it reserves, so that a source that waits for the end of a pause holds no slot.
        await self.waiter.admitted(self._owed)
        index = await self.waiter.until(self._reserve, self.phase, memory=True)
        return Slot(self.view, index, self.me[0], self.produced)

    def _owed(self) -> bool:
        """Whether a peer has committed the message that is next here, so that a pause now would split a round."""
        return self.in_step and self.committed(self.produced) > 0

    def _reserve(self) -> int | None:
        words = self.view.words
        # Peers of a `shared` channel find message n in slot n mod S, so only that slot will do.
        index = words.reserve(*self.me, words.produced % words.slots if self.shared else -1)
        return index if index >= 0 else None

    def committed(self, sequence: int) -> int:
        """Count the producers of this channel that have committed message `sequence`."""
        return sum(peer.words.produced > sequence for peer in self.peers)

    async def peek(self, which: Sequence[tuple[int, int]]) -> list[Arrays]:
        """Return the arrays of the messages `which`, given as (producer, sequence); waits until all are committed.

        For `shared` channels only. Nothing is copied: the arrays are overwritten when a producer begins the message S
        sequences later.
        """
        missing = list(which)

        def all_committed() -> bool | None:
            while missing and self.peers[missing[-1][0]].words.produced > missing[-1][1]:
                missing.pop()
            return None if missing else True

        await self.waiter.until(all_committed, self.peer_phase, memory=True)
        views = [(self.peers[producer], sequence) for producer, sequence in which]
        return [view.slots[sequence % view.words.slots] for view, sequence in views]

    def commit(self, slot: Slot) -> int:
        """Hand a reserved slot to the consumers and return its sequence."""
        sequence: int = self.view.words.commit(slot.index, *self.me)
        self.notify()  # after the commit: a consumer that is woken earlier finds nothing and sleeps again
        return sequence

    async def send(self, message: Message) -> None:
        """Copy the message's fields into a slot. Raises TopologyError when a field does not fit the layout."""
        slot = await self.reserve()
        try:
            for name, array in slot.arrays.items():
                self._put(message, name, array)
        except BaseException:
            self.view.words.abandon(slot.index, *self.me)  # else the slot would stay reserved until this process exits
            raise
        self.commit(slot)

    async def send_many(self, messages: Sequence[Message]) -> None:
        for message in messages:
            await self.send(message)

    def _put(self, message: Message, name: str, array: np.ndarray[Any, Any]) -> None:
        """Copy one field into a slot. Raises TopologyError, which names both shapes, when it does not fit."""
        try:
            value = np.asarray(getattr(message, name))
            np.copyto(array, value, casting="same_kind")
        except AttributeError:
            raise TopologyError(
                f"{type(message).__name__} has no field `{name}`, which the layout of this channel requires",
                hint="add the field to the message, or write the slot in place: reserve() and commit()",
            ) from None
        except (ValueError, TypeError):
            raise TopologyError(
                f"`{name}` of {type(message).__name__} is {value.dtype}{list(value.shape)}, but the layout of this "
                f"channel has {array.dtype}{list(array.shape)}",
                hint="change the message, or the layout that topology.connect(..., layout=...) receives",
            ) from None


class SlotReceiver(Line):
    """The consumer's side of a channel. `views`: the slabs to claim from, by their producer's position."""

    def __init__(self, end: End, carrier: Slots, views: Mapping[int, SlabView]) -> None:
        self.end = end
        self.message = end.message
        self.views = views
        self.producers = tuple(views)
        self.me = end.identity
        self.waiter = end.waiter
        self.phase = self.waiter.status.phase(f"wait {end.channel.name}"[:23], WAIT_IN)
        request = None
        if carrier.competed(end.channel):
            position = end.channel.consumers.index(end.actor)
            pass_on = functools.partial(end.host.notify_one, end.channel.consumers, end.number, position + 1)
            request = WakeRequest(end.number, pass_on)
        self._request_any = request
        # A consumer that waits for one producer cannot take the other producers' messages: being picked for one of them
        # would keep it from a consumer that can. So it is woken by every message and never picked.
        self._request_every = replace(request, every=True) if request else None
        self._next = 0

    async def claim(self, producer: int | None = None, sequence: int = -1) -> Slot:
        """Claim the full slot of this producer and sequence, or the oldest of any producer, in rotation; waits.

        Raises TopologyError for a producer that this consumer does not receive from.
        """
        if producer is not None and producer not in self.views:
            known = ", ".join(map(str, self.producers)) or "none"
            raise TopologyError(
                f"there are no messages of producer {producer} of `{self.end.channel.name}` here; known: {known}",
                hint="claim() takes the oldest of any producer; `producers` lists those of this actor",
            )
        request = self._request_any if producer is None else self._request_every
        return await self.waiter.until(
            lambda: self.claim_nowait(producer, sequence), self.phase, memory=True, request=request
        )

    def claim_nowait(self, producer: int | None = None, sequence: int = -1) -> Slot | None:
        """Claim a slot as `claim` does, or return None if there is none now."""
        candidates: Sequence[int] = (producer,) if producer is not None else self.rotation()
        actor, incarnation = self.me
        for position in candidates:
            view = self.views[position]
            words = view.words
            index = words.claim(actor, incarnation, sequence)
            if index >= 0:
                return Slot(view, index, position, words.sequence(index))
        return None

    def rotation(self) -> Sequence[int]:
        """Return the producers, beginning with another one each time, so that no producer's slots wait forever."""
        if len(self.producers) < 2:  # with more consumers than producers, a share may be empty
            return self.producers
        self._next += 1
        first = self._next % len(self.producers)
        return [*self.producers[first:], *self.producers[:first]]

    def retire(self, slot: Slot, reason: str = "consumed") -> None:
        """Give the slot back to its producer, counted under `reason`. Raises ValueError for an unknown reason."""
        if (code := CODES.get(reason)) is None:
            raise ValueError(f"unknown reason `{reason}` to retire a slot; use one of {', '.join(REASONS)}")
        slot.view.words.retire(slot.index, *self.me, code)
        # After the slot is free: the producer may be waiting for it.
        self.end.host.notify((self.end.channel.producers[slot.producer],))

    def waiting(self, producer: int) -> list[int]:
        """Return the unclaimed sequences of this producer, ascending, including one that is being committed."""
        words = self.views[producer].words
        states: list[Any] = [words.state(i) for i in range(words.slots)]
        return sorted(state[3] for state in states if state[0] in (COMMITTING, FULL))

    def first_left(self, producer: int) -> int:
        """Return the first unclaimed sequence of this producer: of a full slot, or else of the next commit."""
        return self.views[producer].words.first_left()

    async def receive(self) -> Message:
        """Return a copy of the oldest message, whose slot is retired at once; waits for one."""
        return self._copy(await self.claim())

    def receive_nowait(self) -> Message | None:
        """Return a copy of the oldest message, whose slot is retired at once, or None if there is none."""
        slot = self.claim_nowait()
        return None if slot is None else self._copy(slot)

    async def receive_many(self, most: int) -> list[Message]:
        """Return copies of the committed messages, at most `most`; waits for the first."""
        messages = [self._copy(await self.claim())]
        while len(messages) < most and (slot := self.claim_nowait()) is not None:
            messages.append(self._copy(slot))
        return messages

    def _copy(self, slot: Slot) -> Message:
        message = self.message(
            **{name: array.copy() if array.ndim else array.item() for name, array in slot.arrays_in_use.items()}
        )
        self.retire(slot)
        return message
