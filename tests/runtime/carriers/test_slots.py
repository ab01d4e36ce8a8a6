"""The slab carrier: round trips, order, shares, reasons, and who holds what when something goes wrong."""

from __future__ import annotations

import asyncio
import itertools

import numpy as np
import pytest
from simulation.fakes import LocalHost

from hive import _native
from hive.errors import TopologyError
from hive.runtime.carriers.slots import SlotReceiver, Slots, SlotSender
from hive.runtime.carriers.waiting import Waiter
from hive.runtime.memory.segments import REASONS, Bytes, Layout, Segment, SlabPlan, SlabView
from hive.runtime.memory.status import PAGE_BYTES, Status, read_status
from hive.runtime.wire.messages import Message


class Marker(Message):
    """Says nothing: what it stands for lies in slots."""


class Rollout(Message):
    rewards: np.ndarray
    version: int
    discount: float


LAYOUT = Layout({"rewards": ("float32", (4, 2)), "version": ("int64", ()), "discount": ("float64", ())})
SLOTS = 3
LIMIT_S = 10.0  # only a test that fails takes so long


def rollout(version: int) -> Rollout:
    return Rollout(np.arange(8, dtype=np.float32).reshape(4, 2) + version, version, 0.99)


def memory(size: int) -> Bytes:
    segment = Segment.create("test", size)
    segment.close()
    return segment.memory


def make_view() -> SlabView:
    plan = SlabPlan(SLOTS, LAYOUT.bytes)
    slab = memory(plan.bytes)
    plan.format(slab)
    return SlabView(slab, plan, LAYOUT)


class Channel:
    """Producers and consumers in one process: actor p produces in slab p, and the actors after them consume."""

    def __init__(self, producers: int = 1, consumers: int = 1, by_share: bool = False, shared: bool = False) -> None:
        actors = producers + consumers
        self.pages = _native.Status(memory(actors * PAGE_BYTES))
        self.waiters = [Waiter(Status(self.pages.page(i), f"actor-{i}", 1, 0), False) for i in range(actors)]
        self.views = [make_view() for _ in range(producers)]
        self.host = LocalHost({f"rollouts:{p}": view for p, view in enumerate(self.views)})
        self.host.waiters = dict(enumerate(self.waiters))
        self.carrier = Slots(LAYOUT, slots=SLOTS, by_share=by_share, shared=shared)
        self.names = range(producers), range(producers, actors)
        self.senders = [self.sender(p) for p in range(producers)]
        self.receivers = [self.receiver(c) for c in range(producers, actors)]

    def sender(self, actor: int) -> SlotSender:
        line = self.carrier.source(self.host.end(self.carrier, *self.names, actor, Rollout))
        assert isinstance(line, SlotSender)
        return line

    def receiver(self, actor: int) -> SlotReceiver:
        line = self.carrier.target(self.host.end(self.carrier, *self.names, actor, Rollout))
        assert isinstance(line, SlotReceiver)
        return line


async def test_a_message_arrives_as_it_was_sent() -> None:
    channel = Channel()
    for version in range(10):
        await channel.senders[0].send(rollout(version))
        received = await channel.receivers[0].receive()
        assert received == rollout(version)
        assert (type(received.version), type(received.discount)) == (int, float)
    assert channel.views[0].counts() == {"produced": 10, "consumed": 10, "dropped": {}, "in_flight": 0}


async def test_what_was_received_is_a_copy() -> None:
    channel = Channel()
    await channel.senders[0].send(rollout(1))
    received = await channel.receivers[0].receive()
    for version in range(2, 2 + SLOTS):
        await channel.senders[0].send(rollout(version))
    assert received == rollout(1)


async def test_slots_are_written_and_read_in_place() -> None:
    channel = Channel()
    sender, receiver = channel.senders[0], channel.receivers[0]
    slot = await sender.reserve()
    slot.arrays["rewards"][:] = 7
    assert receiver.claim_nowait() is None
    assert slot.sequence == sender.produced == 0
    assert sender.commit(slot) == 0
    claimed = await receiver.claim()
    assert (claimed.index, claimed.producer, claimed.sequence) == (slot.index, 0, 0)
    assert np.shares_memory(claimed.arrays["rewards"], slot.arrays["rewards"])
    assert (claimed.arrays["rewards"] == 7).all()
    assert channel.views[0].counts()["in_flight"] == 1
    receiver.retire(claimed)
    assert receiver.claim_nowait() is None


async def test_the_sender_waits_while_all_slots_are_held_and_goes_on_when_one_is_given_back() -> None:
    channel = Channel()
    sender, receiver = channel.senders[0], channel.receivers[0]
    for version in range(SLOTS):
        await sender.send(rollout(version))
    task = asyncio.create_task(sender.send(rollout(SLOTS)))
    while read_status(channel.pages, 0).phase != "wait rollouts":
        await asyncio.sleep(0)
    held = await receiver.claim()
    await asyncio.sleep(0)
    assert not task.done()
    receiver.retire(held)
    await task
    assert sender.produced == SLOTS + 1
    assert [(await receiver.receive()).version for _ in range(SLOTS)] == [1, 2, 3]


async def test_the_receiver_waits_for_a_commit() -> None:
    channel = Channel()
    task = asyncio.create_task(channel.receivers[0].receive())
    while read_status(channel.pages, 1).phase != "wait rollouts":
        await asyncio.sleep(0)
    await channel.senders[0].send(rollout(5))
    assert (await task).version == 5


async def test_the_oldest_or_the_requested_sequence() -> None:
    channel = Channel()
    sender, receiver = channel.senders[0], channel.receivers[0]
    for version in range(SLOTS):
        await sender.send(rollout(version))
    assert receiver.waiting(0) == [0, 1, 2]
    assert receiver.first_left(0) == 0
    middle = await receiver.claim(0, 1)
    assert (middle.sequence, int(middle.arrays["version"])) == (1, 1)
    assert receiver.claim_nowait(0, 1) is None
    assert receiver.claim_nowait(0, 3) is None
    assert receiver.waiting(0) == [0, 2]
    assert receiver.first_left(0) == 0
    assert [(await receiver.claim()).sequence for _ in range(2)] == [0, 2]
    assert receiver.waiting(0) == []
    assert receiver.first_left(0) == 3
    receiver.retire(middle)
    await sender.send(rollout(3))
    assert (await receiver.claim(0, 3)).index == middle.index


async def test_producers_take_turns() -> None:
    channel = Channel(producers=3)
    for sender, version in itertools.product(channel.senders, range(2)):
        await sender.send(rollout(version))
    order = []
    for _ in range(6):
        slot = await channel.receivers[0].claim()
        order.append((slot.producer, slot.sequence))
    assert [sequence for _, sequence in order] == [0, 0, 0, 1, 1, 1]
    assert {producer for producer, _ in order[:3]} == {0, 1, 2}


async def test_a_share_is_fixed() -> None:
    channel = Channel(producers=5, consumers=2, by_share=True)
    for sender in channel.senders:
        await sender.send(rollout(0))
    claimed = []
    for receiver in channel.receivers:
        slots = iter(receiver.claim_nowait, None)
        claimed.append(sorted(slot.producer for slot in slots))
    assert claimed == [[0, 2, 4], [1, 3]]


async def test_an_empty_share_owes_nothing() -> None:
    channel = Channel(producers=1, consumers=2, by_share=True)
    await channel.senders[0].send(rollout(0))
    assert channel.receivers[1].claim_nowait() is None
    assert channel.receivers[0].claim_nowait() is not None


async def test_reasons_are_counted() -> None:
    channel = Channel()
    for reason in (*REASONS, "stale"):
        await channel.senders[0].send(rollout(0))
        channel.receivers[0].retire(await channel.receivers[0].claim(), reason)
    dropped = dict.fromkeys(REASONS[1:], 1) | {"stale": 2}
    assert channel.views[0].counts() == {"produced": 9, "consumed": 1, "dropped": dropped, "in_flight": 0}


async def test_a_slot_is_given_back_once_and_by_its_holder() -> None:
    channel = Channel(consumers=2)
    await channel.senders[0].send(rollout(0))
    first, second = channel.receivers
    slot = await first.claim()
    for call in (lambda: second.retire(slot), lambda: channel.senders[0].commit(slot)):
        with pytest.raises(RuntimeError, match=r"cannot \w+ slot 0: it is in state 4, held by actor 1"):
            call()
    with pytest.raises(ValueError, match="unknown reason `bored` to retire a slot; use one of consumed, stale"):
        first.retire(slot, "bored")
    first.retire(slot)
    with pytest.raises(RuntimeError, match="cannot retire slot 0: it is in state 0"):
        first.retire(slot)
    assert channel.views[0].counts()["consumed"] == 1


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        (
            Rollout(np.zeros((2, 2), np.float32), 0, 0.9),
            r"`rewards` of Rollout is float32\[2, 2\], but the layout",
        ),
        (
            Rollout(np.zeros((4, 2), np.complex128), 0, 0.9),
            r"complex128\[4, 2\], but the layout of this channel has float32\[4, 2\]",
        ),
        (
            Rollout(np.zeros((4, 2), np.float32), 1 << 70, 0.9),
            r"`version` of Rollout is object\[\], but the layout",
        ),
        (Marker(), "Marker has no field `rewards`, which the layout of this channel requires"),
    ],
)
async def test_a_message_that_does_not_fit_costs_no_slot(message: Message, wrong: str) -> None:
    channel = Channel()
    for _ in range(SLOTS + 1):
        with pytest.raises(TopologyError, match=wrong):
            await channel.senders[0].send(message)
    assert channel.views[0].counts() == {"produced": 0, "consumed": 0, "dropped": {}, "in_flight": 0}
    await channel.senders[0].send(rollout(3))
    assert (await channel.receivers[0].receive()).version == 3


@pytest.mark.parametrize("reoffer", [False, True])
async def test_what_a_dead_consumer_held_is_dropped_or_offered_again(reoffer: bool) -> None:
    channel = Channel(consumers=2)
    first, second = channel.receivers
    for version in range(2):
        await channel.senders[0].send(rollout(version))
    assert (await first.claim()).sequence == 0
    assert channel.views[0].words.recover(*first.me, reoffer, REASONS.index("consumer_died")) == 1
    received = [slot.sequence for slot in iter(second.claim_nowait, None)]
    assert received == ([0, 1] if reoffer else [1])
    dropped = {} if reoffer else {"consumer_died": 1}
    counts = {"produced": 2, "consumed": 0, "dropped": dropped, "in_flight": len(received)}
    assert channel.views[0].counts() == counts
    assert channel.views[0].words.drain(REASONS.index("run_ended")) == len(received)
    assert channel.views[0].counts()["dropped"] == {**dropped, "run_ended": len(received)}


async def test_a_dead_producer_leaves_its_slot_to_its_successor() -> None:
    channel = Channel()
    sender = channel.senders[0]
    await sender.send(rollout(0))
    slot = await sender.reserve()
    assert channel.views[0].words.recover(*sender.me, False, 0) == 0
    with pytest.raises(RuntimeError, match="cannot commit slot"):
        sender.commit(slot)
    channel.host.incarnation = 1
    successor = channel.sender(0)
    await successor.send(rollout(1))
    assert [(await channel.receivers[0].receive()).version for _ in range(2)] == [0, 1]
    assert channel.views[0].counts()["produced"] == 2


# --- producers that look at each other


async def test_a_producer_sees_how_far_its_peers_are() -> None:
    channel = Channel(producers=3)
    assert channel.senders[0].committed(0) == 0
    for producer, count in ((0, 1), (1, 3), (2, 2)):
        for version in range(count):
            await channel.senders[producer].send(rollout(version))
    assert [channel.senders[1].committed(sequence) for sequence in range(4)] == [3, 2, 1, 0]


async def test_peers_read_what_was_committed_and_leave_it_there() -> None:
    channel = Channel(producers=2, shared=True)
    for version in (3, 4):
        await channel.senders[1].send(rollout(version))
    seen = await channel.senders[0].peek([(1, 0), (1, 1)])
    assert [int(arrays["version"]) for arrays in seen] == [3, 4]
    assert channel.views[1].counts()["in_flight"] == 2
    assert (await channel.receivers[0].receive()).version == 3
    again = await channel.senders[0].peek([(1, 0)])
    assert int(again[0]["version"]) == 3  # retired, and still there


async def test_a_peer_waits_until_all_is_committed() -> None:
    channel = Channel(producers=3, shared=True)
    looking = asyncio.create_task(channel.senders[0].peek([(0, 0), (1, 0), (2, 0)]))
    for producer in (2, 0, 1):
        await asyncio.sleep(0)
        assert not looking.done()
        await channel.senders[producer].send(rollout(producer))
    seen = await asyncio.wait_for(looking, LIMIT_S)
    assert [int(arrays["version"]) for arrays in seen] == [0, 1, 2]


async def test_a_shared_message_lies_in_the_slot_of_its_number() -> None:
    """Also when another slot is free: what a peer may still read is overwritten as late as can be."""
    channel = Channel(producers=1, shared=True)
    sender, receiver = channel.senders[0], channel.receivers[0]
    for sequence in range(3 * SLOTS):
        slot = await sender.reserve()
        assert slot.index == sequence % SLOTS
        sender.commit(slot)
        receiver.retire(await receiver.claim())


async def test_a_shared_slot_is_waited_for_while_others_are_free() -> None:
    channel = Channel(producers=1, shared=True)
    sender, receiver = channel.senders[0], channel.receivers[0]
    for version in range(SLOTS):
        await sender.send(rollout(version))
    first = await receiver.claim(0, 0)
    for sequence in range(1, SLOTS):
        receiver.retire(await receiver.claim(0, sequence))
    waiting = asyncio.create_task(sender.reserve())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    receiver.retire(first)
    assert (await asyncio.wait_for(waiting, LIMIT_S)).index == 0
