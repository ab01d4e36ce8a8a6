"""Slots whose contents travel: nothing is lost or used twice, whatever happens to messages and processes."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from simulation.fakes import LocalHost

from hive import _native
from hive.errors import WireError
from hive.runtime import Layout, Message, Slots, Zmq
from hive.runtime.carriers.slots import SlotReceiver, SlotSender
from hive.runtime.carriers.waiting import RESCAN_S, Waiter
from hive.runtime.carriers.zmq import ZmqReceiver, ZmqSender
from hive.runtime.memory.segments import REASONS, Bytes, Packed, Segment, SlabPlan, SlabView
from hive.runtime.memory.status import PAGE_BYTES, Status
from hive.runtime.wire.protocol import Fetch, Notify, Payload

LAYOUT = Layout({"rewards": ("float32", (4, 2)), "number": ("int64", ())})
DIED = REASONS.index("process_died")
SLOTS = 3


class Rollout(Message):
    rewards: np.ndarray
    number: int


def memory(size: int) -> Bytes:
    segment = Segment.create("test", size)
    segment.close()
    return segment.memory


class Channel:
    """Producers 0 to P - 1 and the consumers after them, each in a process of its own: messages travel by `carry`."""

    def __init__(self, producers: int = 1, consumers: int = 1, by_share: bool = False, layout: Layout = LAYOUT) -> None:
        self.names = range(producers), range(producers, producers + consumers)
        self.carrier = Zmq(layout, slots=SLOTS, by_share=by_share, on_death="reoffer")
        self.segments: dict[str, Any] = {}
        for planned in self.carrier.segments("rollouts", [f"p-{p}" for p in self.names[0]], consumers):
            segment = memory(planned.plan.bytes)
            planned.plan.format(segment)
            is_slab = isinstance(planned.plan, SlabPlan)
            self.segments[planned.name] = SlabView(segment, planned.plan) if is_slab else segment
        self.pages = _native.Status(memory((producers + consumers) * PAGE_BYTES))
        self.hosts: dict[int, LocalHost] = {}
        for actor in (*self.names[0], *self.names[1]):
            self.start(actor, 0)
        self.join()

    def start(self, actor: int, incarnation: int) -> None:
        """Start an incarnation of an actor, whose memory is empty."""
        host = self.hosts[actor] = LocalHost(self.segments, incarnation)
        host.waiters[actor] = Waiter(Status(self.pages.page(actor), f"actor-{actor}", 1, incarnation), False)
        end = host.end(self.carrier, *self.names, actor, Rollout)
        is_producer = actor in self.names[0]
        line = self.carrier.source(end) if is_producer else self.carrier.target(end)
        host.lines["source" if is_producer else "target", 0, actor] = line

    def join(self, *actors: int) -> None:
        """Announce these actors, or all, to the others, and to them all that are there."""
        everyone = {actor: host.incarnation for actor, host in self.hosts.items()}
        for actor, host in self.hosts.items():
            new = everyone if not actors or actor in actors else {joined: everyone[joined] for joined in actors}
            host.members |= new
            for line in host.lines.values():
                line.joined(new)

    def leave(self, actor: int, why: str = "consumer_died") -> None:
        """Repair the slots of an actor that has exited, and announce that it has left."""
        host = self.hosts.pop(actor)
        channel = host.end(self.carrier, *self.names, actor, Rollout).channel
        memory: Any = type("Memory", (), {"views": host})
        self.carrier.reclaim(channel, memory, actor, host.incarnation, why)
        for other in self.hosts.values():
            other.members.pop(actor, None)
            for line in other.lines.values():
                line.left(actor, "consumer_died")

    def sender(self, actor: int = 0) -> ZmqSender:
        line = self.hosts[actor].lines["source", 0, actor]
        assert isinstance(line, ZmqSender)
        return line

    def receiver(self, actor: int | None = None) -> ZmqReceiver:
        actor = self.names[1][0] if actor is None else actor
        line = self.hosts[actor].lines["target", 0, actor]
        assert isinstance(line, ZmqReceiver)
        return line

    async def send(self, number: int, actor: int = 0) -> None:
        await self.sender(actor).send(Rollout(np.full((4, 2), number, np.float32), number))

    def carry(self, lose: type[Message] | None = None, times: int = 1) -> int:
        """Deliver all messages on their way, `times` times each; lose those of one type. Return how many there were."""
        parcels = [parcel for host in self.hosts.values() for parcel in host.sent]
        for host in self.hosts.values():
            host.sent = []
        for actor, message, frames in parcels:
            kind = "target" if isinstance(message, Payload) else "source"
            for _ in range(times if not isinstance(message, lose or Notify) else 0):
                if actor in self.hosts:
                    self.hosts[actor].lines[kind, 0, actor].received(message, frames)
        return len(parcels)

    def claim(self, actor: int | None = None, producer: int | None = None, sequence: int = -1) -> int | None:
        """Claim and retire a message; return its number."""
        receiver = self.receiver(actor)
        slot = receiver.claim_nowait(producer, sequence)
        if slot is None:
            return None
        number = int(slot.arrays["number"])
        assert (slot.arrays["rewards"] == number).all()
        receiver.retire(slot)
        return number

    def account(self) -> dict[str, Any]:
        channel = self.hosts[1].end(self.carrier, *self.names, 1, Rollout).channel
        (found,) = self.carrier.accounts(channel, self.memory)
        self.sent_bytes = found.pop("sent_bytes")
        return found

    @property
    def memory(self) -> Any:
        return type("Memory", (), {"views": next(iter(self.hosts.values())), "pages": self.pages})


async def test_contents_are_copied_once_into_the_memory_of_the_consumer() -> None:
    channel = Channel()
    for number in range(10):
        await channel.send(number)
        assert channel.claim() is None, "the word is full, and the contents are on their way"
        assert channel.carry() == 1
        assert channel.claim() == number
    assert channel.account() == {"produced": 10, "consumed": 10, "dropped": {}, "in_flight": 0}
    assert channel.sent_bytes == 10 * (32 + 8)
    sent, received = channel.sender().view.slots[0]["rewards"], channel.receiver().views[0].slots[0]["rewards"]
    assert not np.shares_memory(sent, received)
    assert received.ctypes.data % 64 == 0


async def test_the_slots_are_the_credit() -> None:
    channel = Channel()
    for number in range(SLOTS):
        await channel.send(number)
    waiting = asyncio.create_task(channel.send(SLOTS))
    await asyncio.sleep(0)
    channel.carry()
    slot = channel.receiver().claim_nowait()
    assert slot is not None
    await asyncio.sleep(0)
    assert not waiting.done(), "the producer keeps a message until it is retired"
    channel.receiver().retire(slot)
    channel.sender().waiter.wake()
    await waiting
    channel.carry()
    assert [channel.claim() for _ in range(4)] == [1, 2, 3, None]


async def test_a_lost_message_is_fetched_after_a_while_and_the_order_remains() -> None:
    channel = Channel()
    await channel.send(0)
    assert channel.carry(lose=Payload) == 1
    await channel.send(1)
    channel.carry()
    assert channel.claim() is None, "the only consumer takes the messages of a producer in order"
    assert channel.carry() == 0, "it may be on its way still"
    await asyncio.sleep(RESCAN_S)
    assert channel.claim() is None
    assert channel.carry() == 1, "a Fetch"
    assert channel.carry() == 1, "and its Payload"
    assert [channel.claim(), channel.claim(), channel.claim()] == [0, 1, None]


async def test_repeated_and_late_contents_change_nothing() -> None:
    channel = Channel()
    await channel.send(0)
    late = list(channel.hosts[0].sent)
    channel.carry(times=2)
    slot = channel.receiver().claim_nowait()
    assert slot is not None
    slot.arrays["rewards"][:] = -1
    receiver = channel.receiver()
    receiver.received(late[0][1], late[0][2])
    assert (slot.arrays["rewards"] == -1).all(), "a claimed slot is not overwritten"
    receiver.retire(slot)
    receiver.received(late[0][1], late[0][2])
    assert channel.claim() is None
    await channel.send(1)
    channel.carry()
    receiver.received(late[0][1], late[0][2])
    assert channel.claim() == 1


async def test_a_consumer_s_successor_gets_what_was_claimed_and_what_was_not() -> None:
    channel = Channel()
    channel.leave(0)
    channel.start(0, 5)
    channel.join(0)
    for number in range(SLOTS):
        await channel.send(number)
    channel.carry()
    assert channel.receiver().claim_nowait() is not None
    channel.leave(1)
    channel.start(1, 1)
    assert [channel.claim() for _ in range(4)] == [0, 1, 2, None], "they have survived in the buffer"
    assert channel.account() == {"produced": 3, "consumed": 3, "dropped": {}, "in_flight": 0}


async def test_what_had_not_arrived_is_sent_to_the_successor() -> None:
    channel = Channel()
    for number in range(SLOTS):
        await channel.send(number)
    channel.leave(1)
    channel.carry()
    channel.start(1, 1)
    assert channel.claim() is None
    channel.join(1)
    assert channel.carry() == SLOTS
    assert [channel.claim() for _ in range(4)] == [0, 1, 2, None]


async def test_what_had_arrived_survives_the_death_of_both_ends() -> None:
    """As in shared memory: a learner's successor needs the gradients that it had claimed, also of a killed worker."""
    channel = Channel()
    for number in range(SLOTS):
        await channel.send(number)
    channel.carry()
    assert channel.receiver().claim_nowait() is not None
    for actor in (0, 1):
        channel.leave(actor)
    for actor in (0, 1):
        channel.start(actor, 1)
        channel.join(actor)
    assert channel.sender().produced == SLOTS
    assert channel.sender().settled(), "it does not have to wait for what a predecessor had made"
    assert [channel.claim() for _ in range(4)] == [0, 1, 2, None]
    assert channel.account() == {"produced": 3, "consumed": 3, "dropped": {}, "in_flight": 0}


class Killed:
    """A frame of 8 bytes during whose copy the process ends."""

    def __len__(self) -> int:
        return 8


async def test_a_consumer_that_is_killed_while_it_copies_has_no_contents() -> None:
    channel = Channel()
    await channel.send(0)
    ((_, payload, frames),) = channel.hosts[0].sent
    marks = channel.receiver().marks[0]
    marks[0] = 1, 0
    channel.receiver().held[0].clear()
    with pytest.raises(TypeError):
        channel.receiver().received(payload, [frames[0], Killed()])  # type: ignore[list-item]
    assert marks[0][0] == 0, "no mark"
    channel.leave(1)
    channel.start(1, 1)
    assert channel.claim() is None
    channel.join(1)
    channel.carry()
    assert channel.claim() == 0


async def test_a_producer_s_successor_begins_at_the_first_number_that_nobody_had_claimed() -> None:
    channel = Channel()
    for number in range(SLOTS):
        await channel.send(number)
    old = list(channel.hosts[0].sent)
    channel.hosts[0].sent = old[:1]
    channel.carry()
    held = channel.receiver().claim_nowait()
    assert held is not None
    channel.leave(0)
    assert channel.claim() is None, "withdrawn, because the contents have not arrived"
    channel.start(0, 1)
    channel.join(0)
    assert channel.sender().produced == 1
    await channel.send(10)
    receiver = channel.receiver()
    assert (old[1][1].slot, old[1][1].sequence) == (1, 1), "where the successor's first message is, too"
    receiver.received(old[1][1], old[1][2])
    assert channel.claim() is None, "contents of an earlier incarnation do not belong to the new message"
    channel.carry()
    assert channel.claim(producer=0, sequence=1) == 10
    receiver.retire(held)
    assert channel.account() == {"produced": 4, "consumed": 2, "dropped": {"process_died": 2}, "in_flight": 0}


async def test_contents_of_an_earlier_incarnation_do_not_count_as_arrived() -> None:
    channel = Channel()
    for number in (0, 1):
        await channel.send(number)
    del channel.hosts[0].sent[0]
    channel.carry()
    channel.leave(0)
    channel.start(0, 1)
    channel.join(0)
    for number in (10, 11):
        await channel.send(number)
    del channel.hosts[0].sent[1]
    channel.carry()
    channel.leave(0)
    channel.start(0, 2)
    channel.join(0)
    assert channel.sender().produced == 1, "only the first of the second incarnation has arrived"
    channel.sender().received(Fetch(0, 0, 1, 0, 0), ())
    assert channel.hosts[0].sent == [], "no producer sends contents that another incarnation has made"
    assert [channel.claim(), channel.claim()] == [10, None]


async def test_what_a_producer_leaves_when_the_run_ends_is_dropped_as_run_ended() -> None:
    channel = Channel()
    await channel.send(0)
    channel.leave(0, "run_ended")
    assert channel.account() == {"produced": 1, "consumed": 0, "dropped": {"run_ended": 1}, "in_flight": 0}


async def test_a_message_that_is_withdrawn_twice_counts_twice() -> None:
    channel = Channel()
    for incarnation in range(4):
        await channel.send(incarnation)
        channel.leave(0)
        channel.start(0, incarnation + 1)
        channel.join(0)
    assert channel.sender().produced == 0
    assert channel.account() == {"produced": 4, "consumed": 0, "dropped": {"process_died": 4}, "in_flight": 0}


async def test_competing_consumers_get_different_messages_and_an_idle_one_helps_out() -> None:
    channel = Channel(consumers=2)
    for number in range(SLOTS):
        await channel.send(number)
    channel.carry()
    mine = [channel.claim(1), channel.claim(1)]
    theirs = channel.claim(2)
    assert sorted([*mine, theirs], key=str) == [0, 1, 2] or None in mine
    left = {0, 1, 2} - {number for number in (*mine, theirs) if number is not None}
    idle = 1 if None in mine else 2
    for _ in range(2):
        assert channel.claim(idle) is None
        await asyncio.sleep(RESCAN_S)
    channel.claim(idle)
    channel.carry()
    channel.carry()
    assert {channel.claim(idle) for _ in left} == left


async def test_by_share_each_consumer_gets_its_producers_only() -> None:
    channel = Channel(producers=2, consumers=2, by_share=True)
    for producer in (0, 1):
        await channel.send(producer, producer)
    assert {actor for host in channel.hosts.values() for actor, _, _ in host.sent} == {2, 3}
    channel.carry()
    assert (channel.claim(2), channel.claim(2), channel.claim(3)) == (0, None, 1)


async def test_nothing_is_sent_to_a_consumer_that_has_not_joined() -> None:
    channel = Channel()
    channel.leave(1)
    await channel.send(0)
    assert channel.hosts[0].sent == []
    channel.start(1, 1)
    channel.join(1)
    assert channel.carry() == 1
    assert channel.claim() == 0


async def test_a_producer_that_is_done_waits_until_all_was_claimed() -> None:
    channel = Channel()
    sender = channel.sender()
    assert sender.settled()
    await channel.send(0)
    assert sender.settled() is None
    channel.carry()
    assert channel.claim() == 0
    assert sender.settled()
    await channel.send(1)
    channel.hosts[0].draining = True
    assert sender.settled(), "the run ends, and nobody will claim it"
    channel.hosts[0].draining = False
    channel.leave(1)
    assert sender.settled(), "no consumer is left"


@pytest.mark.parametrize(
    ("change", "frames"),
    [
        ({"slot": SLOTS}, None),
        ({"slot": -1}, None),
        ({"producer": 7}, None),
        ({}, [b"\0" * 32]),
        ({}, [b"\0" * 31, b"\0" * 8]),
        ({}, []),
    ],
)
async def test_contents_that_do_not_fit_are_refused(change: dict[str, int], frames: list[bytes] | None) -> None:
    channel = Channel()
    await channel.send(0)
    ((_, payload, whole),) = channel.hosts[0].sent
    bad = Payload(**{**vars(payload), **change})
    with pytest.raises(WireError):
        channel.receiver().received(bad, whole if frames is None else frames)
    assert channel.claim() is None
    channel.carry()
    assert channel.claim() == 0


PACKED = Layout({"number": ("int64", ()), "rewards": ("float32", (6, 2))}, Packed("number", 0, 1))


async def committed(channel: Channel, rows: int) -> None:
    slot = await channel.sender().reserve()
    slot.arrays["number"][...] = rows
    slot.arrays["rewards"][:] = 100 + rows
    channel.sender().commit(slot)


@pytest.mark.parametrize("rows", [0, 1, 6])
async def test_only_rows_in_use_of_a_packed_field_travel(rows: int) -> None:
    channel = Channel(layout=PACKED)
    await committed(channel, rows)
    assert [len(frame) for frame in channel.hosts[0].sent[0][2]] == [8, rows * 8]
    channel.carry()
    slot = channel.receiver().claim_nowait()
    assert slot is not None
    assert slot.arrays_in_use["rewards"].tolist() == [[100 + rows] * 2] * rows
    assert not slot.arrays["rewards"][rows:].any(), "the rest of the consumer's memory is untouched"
    words, contents = channel.carrier.segments("rollouts", ["p-0"], 1)
    assert (words.sparse_bytes, contents.sparse_bytes) == (0, SLOTS * 5 * 8)


@pytest.mark.parametrize("rows", [0, 1, 3, 6, 7])
async def test_another_number_of_rows_than_the_message_counts_is_refused(rows: int) -> None:
    channel = Channel(layout=PACKED)
    await committed(channel, 2)
    ((_, payload, (number, rewards)),) = channel.hosts[0].sent
    for bad in ([number, b"\0" * 8 * rows], [number, bytes(rewards)[:-1]], [b"\2", rewards]):
        with pytest.raises(WireError):
            channel.receiver().received(payload, bad)
    assert channel.claim() is None


@pytest.mark.parametrize("fetch", [Fetch(0, 0, 1, SLOTS, 0), Fetch(0, 0, 9, 0, 0), Notify(0)])
async def test_a_fetch_that_does_not_fit_is_refused(fetch: Message) -> None:
    channel = Channel()
    with pytest.raises(WireError):
        channel.sender().received(fetch, ())
    channel.sender().received(Fetch(0, 0, 1, 0, 5), ())
    assert channel.hosts[0].sent == [], "a Fetch of a message that was claimed meanwhile is ignored"


def test_it_is_the_carrier_of_slots_with_other_ends() -> None:
    assert issubclass(Zmq, Slots)
    assert issubclass(ZmqSender, SlotSender)
    assert issubclass(ZmqReceiver, SlotReceiver)
    words, contents = Zmq(LAYOUT, slots=2).segments("rollouts", ["a-0"], 1)
    assert (words.kind, words.item_bytes, words.count) == ("slab", 0, 2)
    assert (contents.kind, contents.name) == ("buffer", "rollouts:contents-0")
    assert contents.plan.bytes >= 2 * LAYOUT.bytes


def test_withdrawing_does_not_touch_what_a_consumer_holds() -> None:
    plan = SlabPlan(SLOTS, 0)
    words = memory(plan.bytes)
    plan.format(words)
    slab = SlabView(words, plan).words
    for _ in range(SLOTS):
        slab.commit(slab.reserve(0, 0), 0, 0)
    held = slab.claim(1, 0, 1)
    assert slab.withdraw(DIED, 0) == 2
    assert slab.produced == 2, "number 2 is given out again; 0 is older than what a consumer holds, and is not"
    assert slab.counts() == (3, [0, 0, 0, 0, 0, 2, 0, 0], 1)
    slab.retire(held, 1, 0, 0)
    assert slab.counts() == (3, [1, 0, 0, 0, 0, 2, 0, 0], 0)
