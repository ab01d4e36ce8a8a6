"""The slab carrier: messages of one fixed layout, written and read in place.

A producer owns one slab per channel. It reserves a free slot, writes the arrays where they lie, commits. A consumer
claims a full slot, reads the arrays where they lie, retires it under a reason ("consumed" or why it was dropped).
The native slot words decide who holds what (native/include/hive/slots.hpp); a free slot is the producer's credit.

`by="share"` (deterministic modes): consumer w of W only claims from producers c with c mod W == w.

A producer that is a source (hive.runtime.actor) begins nothing while the run pauses, but what its peers of an `in_step`
channel have committed already: so a pause comes to rest with whole rounds, whoever heard of it first.

The producers of a channel are peers. Each can ask how far the others are, and where the channel is `shared` read what
they have committed, without claiming it: message n then lies in slot n mod S, where it stays until message n + S is
begun. What keeps a producer from beginning that one too early is its own affair (hive.workers.replica has a reason).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hive.errors import TopologyError
from hive.runtime.memory import REASONS, Arrays, SlabView
from hive.runtime.messages import Message
from hive.runtime.status import WAIT_IN, WAIT_OUT
from hive.runtime.waiting import Asks, Waiter

__all__ = ["SlabReceiver", "SlabSender", "Slot"]

COMMITTING, FULL = 2, 3  # of the native SlotState
CODES = {reason: code for code, reason in enumerate(REASONS)}

Identity = tuple[int, int]  # actor index, incarnation


class Slot:
    """One slot in the hands of one actor. `arrays` are its fields in shared memory."""

    __slots__ = ("arrays", "index", "producer", "sequence", "view")

    def __init__(self, view: SlabView, index: int, producer: int, sequence: int) -> None:
        self.view = view
        self.index = index
        self.producer = producer
        self.sequence = sequence
        self.arrays: Arrays = view.slots[index]


class SlabSender:
    """The producer's side. `notify` wakes the consumers."""

    def __init__(
        self,
        name: str,
        view: SlabView,
        me: Identity,
        waiter: Waiter,
        notify: Callable[[], None],
        peers: Callable[[], Sequence[SlabView]] = tuple,
        shared: bool = False,
        in_step: bool = False,
    ) -> None:
        self.view = view
        self.me = me
        self.waiter = waiter
        self.notify = notify
        self.shared = shared
        self.in_step = in_step
        self.phase = waiter.status.phase(f"wait {name}"[:23], WAIT_OUT)
        self.peer_phase = waiter.status.phase(f"wait peers {name}"[:23], WAIT_IN) if shared else 0
        self._open_peers = peers

    @functools.cached_property
    def peers(self) -> Sequence[SlabView]:
        """The slabs of all producers of this channel, its own among them."""
        return self._open_peers()

    @property
    def produced(self) -> int:
        return self.view.words.produced

    async def reserve(self) -> Slot:
        """A free slot, which will be committed as the next sequence; waits while the consumers hold all of them."""
        await self.waiter.admitted(self._owed)
        index = await self.waiter.until(self._reserve, self.phase, memory=True)
        return Slot(self.view, index, self.me[0], self.produced)

    def _owed(self) -> bool:
        """Whether a peer has committed the message that is next here, so that a pause would tear a round apart."""
        return self.in_step and self.committed(self.produced) > 0

    def _reserve(self) -> int | None:
        words = self.view.words
        index = words.reserve(*self.me, words.produced % words.slots if self.shared else -1)
        return index if index >= 0 else None

    def committed(self, sequence: int) -> int:
        """How many producers of this channel have committed message `sequence`."""
        return sum(peer.words.produced > sequence for peer in self.peers)

    async def peek(self, which: Sequence[tuple[int, int]]) -> list[Arrays]:
        """What others committed, as (producer, sequence) each; waits until all have. `shared` channels only.

        It is the memory itself, and whoever reads it after the producer went S messages further reads something else.
        """
        missing = list(which)

        def all_there() -> bool | None:
            while missing and self.peers[missing[-1][0]].words.produced > missing[-1][1]:
                missing.pop()
            return None if missing else True

        await self.waiter.until(all_there, self.peer_phase, memory=True)
        views = [(self.peers[producer], sequence) for producer, sequence in which]
        return [view.slots[sequence % view.words.slots] for view, sequence in views]

    def commit(self, slot: Slot) -> int:
        sequence: int = self.view.words.commit(slot.index, *self.me)
        self.notify()
        return sequence

    async def send(self, message: Message) -> None:
        """Copies the message's fields into a slot. Raises TypeError or ValueError when one does not fit its field."""
        slot = await self.reserve()
        try:
            for name, array in slot.arrays.items():
                self._put(message, name, array)
        except BaseException:
            self.view.words.abandon(slot.index, *self.me)  # else the slot would be lost until this actor dies
            raise
        self.commit(slot)

    async def send_many(self, messages: Sequence[Message]) -> None:
        for message in messages:
            await self.send(message)

    def _put(self, message: Message, name: str, array: np.ndarray[Any, Any]) -> None:
        """Copies one field into its place. Raises TopologyError, which names both shapes, when it does not fit."""
        try:
            value = np.asarray(getattr(message, name))
            np.copyto(array, value, casting="same_kind")
        except AttributeError:
            raise TopologyError(
                f"{type(message).__name__} has no `{name}`, which the layout of this channel has",
                hint="give the message the field, or write the slot in place: reserve() and commit()",
            ) from None
        except (ValueError, TypeError):
            raise TopologyError(
                f"`{name}` of {type(message).__name__} is {value.dtype}{list(value.shape)}, a slot holds "
                f"{array.dtype}{list(array.shape)} there",
                hint="the layout is what topology.connect(..., layout=...) was given",
            ) from None


class SlabReceiver:
    """The consumer's side. `views`: the slabs it may claim from, by their producer's position; `notify` wakes one.

    `asks`: of one of several consumers that may all claim the same.
    """

    def __init__(
        self,
        name: str,
        message: type[Message],
        views: Mapping[int, SlabView],
        me: Identity,
        waiter: Waiter,
        notify: Callable[[int], None],
        asks: Asks | None = None,
    ) -> None:
        self.message = message
        self.views = views
        self.producers = tuple(views)
        self.me = me
        self.waiter = waiter
        self.notify = notify
        self.phase = waiter.status.phase(f"wait {name}"[:23], WAIT_IN)
        self.any = asks
        self.certain = replace(asks, every=True) if asks else None
        self._next = 0

    async def claim(self, producer: int | None = None, sequence: int = -1) -> Slot:
        """Waits for a full slot: of that producer and sequence, or the oldest of whoever has one, in rotation."""
        asks = self.any if producer is None else self.certain
        return await self.waiter.until(
            lambda: self.claim_nowait(producer, sequence), self.phase, memory=True, asks=asks
        )

    def claim_nowait(self, producer: int | None = None, sequence: int = -1) -> Slot | None:
        """The same at once, or None."""
        candidates: Sequence[int] = (producer,) if producer is not None else self._rotation()
        actor, incarnation = self.me
        for position in candidates:
            view = self.views[position]
            words = view.words
            index = words.claim(actor, incarnation, sequence)
            if index >= 0:
                return Slot(view, index, position, words.sequence(index))
        return None

    def _rotation(self) -> Sequence[int]:
        if len(self.producers) < 2:  # a share may be empty
            return self.producers
        self._next += 1
        cut = self._next % len(self.producers)
        return [*self.producers[cut:], *self.producers[:cut]]

    def retire(self, slot: Slot, reason: str = "consumed") -> None:
        """Gives the slot back to its producer, counted under `reason`. Raises ValueError for one that there is not."""
        if (code := CODES.get(reason)) is None:
            raise ValueError(f"slots are not retired as `{reason}`, but as {', '.join(REASONS)}")
        slot.view.words.retire(slot.index, *self.me, code)
        self.notify(slot.producer)

    def waiting(self, producer: int) -> list[int]:
        """The sequences of that producer that are unclaimed, full or becoming so this moment, ascending."""
        words = self.views[producer].words
        states: list[Any] = [words.state(i) for i in range(words.slots)]
        return sorted(state[3] for state in states if state[0] in (COMMITTING, FULL))

    def first_left(self, producer: int) -> int:
        """The first sequence of that producer that nobody has claimed: one that is there, or the next to come."""
        return self.views[producer].words.first_left()

    async def receive(self) -> Message:
        """A copy of the oldest message; its slot is retired at once."""
        return self._copy(await self.claim())

    async def receive_many(self, most: int) -> list[Message]:
        """Copies of what is there, at most so many; waits for the first."""
        messages = [self._copy(await self.claim())]
        while len(messages) < most and (slot := self.claim_nowait()) is not None:
            messages.append(self._copy(slot))
        return messages

    def _copy(self, slot: Slot) -> Message:
        message = self.message(
            **{name: array.copy() if array.ndim else array.item() for name, array in slot.arrays.items()}
        )
        self.retire(slot)
        return message
