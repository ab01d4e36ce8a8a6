"""Fake implementations for the simulator: local memory, an unreliable transport, and kills within a native operation.

    LocalHost             the process of the ends of a channel, without a run
    LocalMemory           a plan's segments in one allocation
    SimulatedTransport    delays messages, loses those that may be lost; keeps the order from a process to an address
    DyingSlab, DyingPage, DyingBoard  kill the caller within a slot's transition, within an entry in an account, or
                          between the stores that publish a version

`Faults` sets the frequency of each fault. simulation.simulator chooses the processes and the moments.
"""

from __future__ import annotations

import contextvars
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hive import _native
from hive.runtime.carriers.carrier import Carrier, End, Line, PlanChannel
from hive.runtime.carriers.waiting import Waiter
from hive.runtime.memory.segments import PAGE, BoardView, Bytes, SlabView, aligned
from hive.runtime.memory.status import PAGE_BYTES
from hive.runtime.process.processes import SharedMemory
from hive.runtime.process.views import Views
from hive.runtime.topology.plan import Plan
from hive.runtime.wire.arrays import Frames
from hive.runtime.wire.batches import batch_length
from hive.runtime.wire.messages import Message, decode
from hive.runtime.wire.protocol import NODE_TYPES, Deliver
from hive.runtime.wire.transport import Receive
from simulation.simulated_process import SimulatedLoop, current_process

# A slab in words of 8 bytes: the size of its header, the position of `produced`, the size of a slot header.
HEADER_WORDS, PRODUCED_WORD, SLOT_WORDS, MASK = 8, 3, 16, 0xFFFFFFFF
COMMITTING, RETIRING = 2, 5  # the half states of a slot
# Byte offsets in a status page: its first counter, and the Change of two counters.
COUNTERS, CHANGE = 320, 3744

Half = Callable[[bool], None]  # makes the first half of an operation; True: including its count


@dataclass(frozen=True)
class Faults:
    """The frequency of each kind of fault. By default processes lose the processor, and messages are late or lost."""

    deaths: int = 0  # number of processes killed
    stops: int = 0  # number of processes stopped
    victims: tuple[str, ...] = ()  # the processes that are killed or stopped, by the beginning of their names; (): any
    after: int = 2_000  # deaths and stops happen within the first `after` callbacks of all processes
    torn: float = 0.3  # fraction of deaths that happen within a slot's transition or an account's entry
    preempted: float = 0.02  # chance, per callback, that the process loses the processor first
    preempted_s: float = 0.005  # longest time without the processor
    slow: float = 0.3  # chance that a message is delayed
    slow_s: float = 0.003  # longest delay of a message
    lost: float = 0.1  # chance that a notification is lost; it is duplicated half as often
    lost_starts: float = 0.0  # chance that a restart is lost with the fork server, after the new process has begun
    full: float = 0.0  # chance that the mailbox is full for a message of a channel or its acknowledgement


@dataclass(frozen=True)
class At:
    """A kill at a known moment: of the producer, right after message or commit `number` (from 1) of a channel."""

    channel: str
    number: int


class LocalHost:
    """Hosts the ends of channels without a run, to test a carrier alone (hive.runtime.carriers.carrier.Host).

    memory: the slabs and boards by segment. `sent` collects (actor, message, frames) of messages to other processes.
    """

    def __init__(self, memory: Mapping[str, Any], incarnation: int = 0) -> None:
        self.memory = memory
        self.incarnation = incarnation
        self.draining = False
        self.waiters: dict[int, Waiter] = {}
        self.members: dict[int, int] = {}
        self.lines: dict[tuple[str, int, int], Line] = {}  # ("source" or "target", channel, actor) -> its end
        self.sent: list[tuple[int, Message, Frames]] = []

    @property
    def views(self) -> LocalHost:
        return self

    def slab(self, segment: str) -> SlabView:
        view: SlabView = self.memory[segment]
        return view

    def buffer(self, segment: str) -> Bytes:
        memory: Bytes = self.memory[segment]
        return memory

    def board(self, segment: str) -> BoardView:
        view: BoardView = self.memory[segment]
        return view

    def notify(self, actors: Sequence[int]) -> None:
        for actor in actors:
            if actor in self.waiters:
                self.waiters[actor].wake()

    def notify_one(self, actors: Sequence[int], channel: int, first: int) -> None:
        self.notify(actors)

    def pages_of(self, actors: Sequence[int]) -> None:
        """None: only a message wakes them."""

    def send(self, actor: int, message: Message, frames: Frames = (), *, stable: bool = False) -> None:
        self.sent.append((actor, message, [bytes(frame) for frame in frames]))

    def joined(self, actor: int) -> int:
        return self.members.get(actor, -1)

    def source(self, channel: int, actor: int) -> Line | None:
        return self.lines.get(("source", channel, actor))

    def target(self, channel: int, actor: int) -> Line | None:
        return self.lines.get(("target", channel, actor))

    def end(
        self, carrier: Carrier, producers: Sequence[int], consumers: Sequence[int], actor: int, message: type[Message]
    ) -> End:
        """Return the place of an actor of a channel that is carried by `carrier`, in the segments of `memory`."""
        names = tuple(self.memory)
        channel = PlanChannel(
            "rollouts", carrier.kind, carrier.options(), "balance", "wait", "", (), (*producers,), (*consumers,), names
        )
        return End(self, 0, channel, actor, message, self.waiters[actor])


class LocalMemory(SharedMemory):
    """The segments of a plan in private memory of this process. All segments share one allocation."""

    def __init__(self, plan: Plan) -> None:
        sizes = {"status": aligned(len(plan.actors) * PAGE_BYTES, PAGE)}
        sizes |= {planned.name: aligned(planned.plan.bytes, PAGE) for planned in plan.segments}
        arena = np.zeros(sum(sizes.values()) + PAGE, np.uint8)
        start = -arena.ctypes.data % PAGE
        self.areas: dict[str, Bytes] = {}
        for name, size in sizes.items():
            self.areas[name] = arena[start : start + size]
            start += size
        for planned in plan.segments:
            planned.plan.format(self.areas[planned.name][: planned.plan.bytes])
        self.segments = {}
        self.views = Views(plan, self.open)
        self.pages: _native.Status = Pages(self.open("status"))

    def open(self, name: str) -> Bytes:
        return self.areas[name]


class Pages(_native.Status):
    """Status pages that pass each notification to `notified`, and whose actors can be killed within an entry."""

    notified: Callable[[int], None]
    page_type: type[_native.StatusPage] = _native.StatusPage

    def __init__(self, memory: Bytes) -> None:
        super().__init__(memory)
        self.memory = memory
        self.notified = lambda actor: None

    def page(self, index: int) -> _native.StatusPage:
        return self.page_type(self, index)

    def notify(self, index: int) -> None:
        self.notified(index)

    def mailed(self, index: int) -> None:
        super().mailed(index)
        self.notified(index)

    def notify_all(self, indices: Sequence[int]) -> list[int]:
        waiting = super().notify_all(indices)
        for index in waiting:
            self.notified(index)
        return waiting

    def notify_one(self, indices: Sequence[int], channel: int, first: int) -> list[int]:
        waiting = super().notify_one(indices, channel, first)
        for index in waiting:
            self.notified(index)
        return waiting


class SimulatedTransport:
    """All mailboxes of a simulation. Messages from one process to one address keep their order, as over a socket."""

    def __init__(self, loop: SimulatedLoop, chance: random.Random, faults: Faults) -> None:
        self.loop = loop
        self.chance = chance
        self.faults = faults
        self.boxes: dict[str, tuple[Receive, contextvars.Context]] = {}
        self.last: dict[tuple[str, str], float] = {}  # (from, to) -> arrival time of the last message
        self.at: set[tuple[int, int]] = set()  # (channel, number) of messages whose producer is killed
        self.counts: dict[int, int] = {}  # messages of each channel so far
        self.kill: Callable[[str], None] = lambda process: None

    def bind(self, address: str, receive: Receive) -> None:
        self.boxes[address] = receive, contextvars.copy_context()

    def post(self, address: str, frames: Frames, *, stable: bool = False, hint: bool = False) -> bool:
        process = current_process()
        if address not in self.boxes or (process is not None and process.dead):
            return False
        parcel = [bytes(frame) for frame in frames]
        if process is not None and self._is_last(frames):
            self.loop.call_soon(self.kill, process.name, context=contextvars.Context())
        for _ in range(self._copies(parcel[0][:16])):
            self._send(str(process), address, parcel)
        return True

    def _is_last(self, frames: Frames) -> bool:
        """Return whether the producer of this message is to be killed after it."""
        if not self.at or len(frames) < 2 or b"Deliver" not in bytes(frames[0][:16]):
            return False
        envelope = decode(frames[:1], NODE_TYPES)
        assert isinstance(envelope, Deliver)
        before = self.counts.get(envelope.channel, 0)
        self.counts[envelope.channel] = after = before + batch_length(frames[1])
        return any((envelope.channel, number + 1) in self.at for number in range(before, after))

    def _copies(self, head: bytes) -> int:
        """Return how many copies of this message arrive. Only messages that the protocol may lose are lost."""
        draw = self.chance.random()
        if b"Notify" in head:
            return 0 if draw < self.faults.lost else 2 if draw < 1.5 * self.faults.lost else 1
        if b"Deliver" in head or b"Ack" in head:
            return int(draw >= self.faults.full)
        return 1

    def _send(self, sender: str, address: str, parcel: list[bytes]) -> None:
        now = self.loop.time()
        delay = self.chance.random() * self.faults.slow_s if self.chance.random() < self.faults.slow else 0.0
        at = max(now + delay, self.last.get((sender, address), 0.0))
        self.last[sender, address] = at
        context = self.boxes[address][1]
        self.loop.call_at(at, self._arrive, address, parcel, context=context.copy())

    def _arrive(self, address: str, parcel: list[bytes]) -> None:
        if address in self.boxes:
            self.boxes[address][0](parcel)

    def forget(self, address: str) -> None:
        self.boxes.pop(address, None)

    def poll(self) -> None:
        """Do nothing: messages on their way arrive at their simulated time."""

    def close(self, linger_s: float = 0.0) -> None:
        """Do nothing."""


class DyingSlab(_native.Slab):
    """Slot words that can kill their caller within a transition: in its half state, before or after it is counted.

    It writes the words as documented in native/include/hive/slots.hpp, up to the point of the kill.
    """

    dies: Callable[[], bool] = staticmethod(lambda: False)  # whether the caller is killed in this transition
    die: Callable[[Half], None]  # makes the half transition and kills the caller
    done: Callable[[DyingSlab], None] = staticmethod(lambda slab: None)  # called after a commit

    def __init__(self, memory: Bytes) -> None:
        super().__init__(memory)
        self.control = memory.view(np.uint64)

    def _half(self, slot: int, state: int) -> int:
        """Put the slot into a half state and return its sequence."""
        at = HEADER_WORDS + slot * SLOT_WORDS
        word = int(self.control[at])
        sequence = self.produced & MASK if state == COMMITTING else word & MASK
        self.control[at] = state << 56 | (word & ((1 << 56) - 1) & ~MASK) | sequence
        return sequence

    def _half_commit(self, counted: bool, slot: int) -> None:
        self._half(slot, COMMITTING)
        if counted:
            self.control[PRODUCED_WORD] += np.uint64(1)

    def _half_retire(self, counted: bool, slot: int, reason: int) -> None:
        sequence = self._half(slot, RETIRING + reason)
        tally = HEADER_WORDS + slot * SLOT_WORDS + 1 + reason
        if counted:
            self.control[tally] = ((int(self.control[tally]) >> 32) + 1) << 32 | (sequence + 1) & MASK

    def commit(self, slot: int, actor: int, incarnation: int) -> int:
        if self.dies():
            self.die(lambda counted: self._half_commit(counted, slot))
        sequence = super().commit(slot, actor, incarnation)
        self.done(self)
        return sequence

    def retire(self, slot: int, actor: int, incarnation: int, reason: int = 0) -> None:
        if self.dies():
            self.die(lambda counted: self._half_retire(counted, slot, reason))
        super().retire(slot, actor, incarnation, reason)


class DyingBoard(_native.Board):
    """Board words that can kill their writer before or after any store that publishes a version.

    Boards that share a commit word are sealed one by one and published together. A version that was sealed but not
    published does not exist.
    """

    dies: Callable[[], bool] = staticmethod(lambda: False)  # whether the caller is killed at this store
    die: Callable[[Half], None]  # makes the store or not, and kills the caller

    def seal(self, block: int, version: int) -> None:
        if self.dies():
            self.die(lambda done: super(DyingBoard, self).seal(block, version) if done else None)
        super().seal(block, version)

    def publish(self, version: int) -> None:
        if self.dies():
            self.die(lambda done: super(DyingBoard, self).publish(version) if done else None)
        super().publish(version)


class DyingPage(_native.StatusPage):
    """A status page that can kill its actor within an entry: after both new values are stored, and one or none is set.

    It writes the words as documented in native/include/hive/status.hpp, up to the point of the kill.
    """

    dies: Callable[[], bool] = staticmethod(lambda: False)  # whether the actor is killed in this entry
    die: Callable[[Half], None]  # makes half of the entry and kills the actor

    def __init__(self, pages: Pages, index: int) -> None:
        super().__init__(pages, index)
        own = pages.memory[index * PAGE_BYTES : (index + 1) * PAGE_BYTES]
        self.counters = own[COUNTERS:].view(np.float64)
        self.which = own[CHANGE : CHANGE + 4].view(np.uint32)
        self.values = own[CHANGE + 8 : CHANGE + 24].view(np.float64)

    def add_both(self, first: int, by: float, second: int, by_second: float) -> None:
        if self.dies():
            self.die(lambda counted: self._half(counted, (first, by), (second, by_second)))
        super().add_both(first, by, second, by_second)

    def _half(self, counted: bool, *changes: tuple[int, float]) -> None:
        (first, _), (second, _) = changes
        self.values[:] = [self.get(counter) + by for counter, by in changes]
        self.which[0] = first + 1 | (second + 1) << 16
        if counted:
            self.counters[first] = self.values[0]
