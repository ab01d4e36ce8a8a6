"""The message carrier: credits, patterns, deaths, and an account that holds whatever happens to the messages."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.fakes import DyingPage, Pages

from hive import _native
from hive.clock import VirtualLoop
from hive.runtime.actor.ports import Pattern, WhenFull
from hive.runtime.carriers.messages import ChannelFull, MessageReceiver, MessageSender, account_of
from hive.runtime.carriers.waiting import RESCAN_S, Waiter
from hive.runtime.memory.segments import Bytes, Segment
from hive.runtime.memory.status import PAGE_BYTES, WAIT_OUT, Status, read_status
from hive.runtime.supervise.accounting import holds
from hive.runtime.wire import protocol
from hive.runtime.wire.messages import Message

PRODUCER = 0
Identity = tuple[int, int]
Ack = tuple[Identity, Identity, int, int, int]  # consumer, producer, consumed, dropped, window


class Number(Message):
    value: int


def memory_for(actors: int) -> Bytes:
    segment = Segment.create("status", actors * PAGE_BYTES)
    segment.close()
    return segment.memory


class Channel:
    """One producer and some consumers; what is on its way lies in lists, and a test decides what becomes of it.

    `mail[consumer]` holds (producer, sequence, message), `acks` what consumers said. Nothing moves by itself.
    """

    def __init__(
        self, pattern: Pattern = "balance", when_full: WhenFull = "wait", window: int = 2, consumers: int = 1
    ) -> None:
        self.memory = memory_for(consumers + 1)
        self.pages = _native.Status(self.memory)
        self.pattern: Pattern = pattern
        self.when_full: WhenFull = when_full
        self.window = window
        self.mail: dict[Identity, list[tuple[int, int, Sequence[Message]]]] = {}
        self.acks: list[Ack] = []
        self.latest_acks: dict[tuple[Identity, Identity], Ack] = {}
        self.heard: dict[tuple[Identity, int], int] = {}  # (consumer, producer's incarnation) -> last sequence
        self.receivers: dict[Identity, MessageReceiver] = {}
        self.incarnation = -1
        self.living: dict[int, int] = {}  # consumer -> its incarnation
        self.joined: list[Identity] = []
        self.start_producer()
        for consumer in range(1, consumers + 1):
            self.join(consumer, 0)

    def start_producer(self) -> None:
        self.incarnation += 1
        status = Status(self.pages.page(PRODUCER), "producer-0", 1, self.incarnation)
        self.sender = MessageSender("out", self.pattern, self.when_full, Waiter(status, False), self._post)
        for consumer, incarnation in self.living.items():
            self.sender.add_consumer((consumer, incarnation), self.window)

    def _post(self, consumer: Identity, sequence: int, messages: Sequence[Message]) -> None:
        self.mail[consumer].append((self.incarnation, sequence, messages))

    def join(self, consumer: int, incarnation: int) -> None:
        identity = (consumer, incarnation)
        waiter = Waiter(Status(self.pages.page(consumer), f"consumer-{consumer}", 1, incarnation), False)

        def acknowledge(producer: Identity, consumed: int, dropped: int, window: int) -> protocol.Ack:
            ack = (identity, producer, consumed, dropped, window)
            self.acks.append(ack)
            self.latest_acks[identity, producer] = ack
            return protocol.Ack(0, producer[0], consumer, incarnation, producer[1], consumed, dropped, window)

        self.receivers[identity] = MessageReceiver("out", self.window, self.when_full, waiter, acknowledge)
        self.mail[identity] = []
        self.living[consumer] = incarnation
        self.joined.append(identity)
        self.sender.add_consumer(identity, self.window)

    def leave(self, consumer: int) -> None:
        identity = (consumer, self.living.pop(consumer))
        del self.receivers[identity], self.mail[identity]
        self.sender.left(consumer)

    async def send(self, *values: int) -> None:
        for value in values:
            await asyncio.wait_for(self.sender.send_many((Number(value),)), 5)

    async def try_send(self, *values: int) -> bool:
        """Sends if that is possible now; a send that would wait is cancelled."""
        sending = asyncio.ensure_future(self.sender.send_many([*map(Number, values)]))
        await settle()
        if sending.done():
            sending.result()
            return True
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        return False

    def deliver(self, consumer: Identity, count: int | None = None) -> None:
        for incarnation, sequence, messages in self.mail[consumer][:count]:
            self.receivers[consumer].deliver((PRODUCER, incarnation), sequence, messages)
            self.heard[consumer, incarnation] = sequence
        del self.mail[consumer][:count]

    def receive(self, consumer: Identity) -> list[int]:
        values = []
        while (message := self.receivers[consumer].receive_nowait()) is not None:
            assert isinstance(message, Number)
            values.append(message.value)
        return values

    def acknowledge(self, *acks: Ack) -> None:
        """Brings acknowledgements to the producer; those for an earlier incarnation are dropped on the way."""
        for consumer, producer, consumed, dropped, window in acks:
            if producer == (PRODUCER, self.incarnation):
                self.sender.acknowledged(consumer, consumed, dropped, window)

    def settle(self) -> None:
        """Everything on its way arrives, is consumed and is acknowledged."""
        for consumer in list(self.mail):
            self.deliver(consumer)
            self.receive(consumer)
        self.acknowledge(*self.acks)
        self.acks.clear()

    @property
    def account(self) -> dict[str, Any]:
        return account_of("out", self.pages.snapshot(PRODUCER)["counters"])

    def in_flight(self) -> dict[int, int]:
        return {number: consumer.in_flight for number, consumer in self.sender.consumers.items()}


async def settle() -> None:
    """Lets everything that is ready happen."""
    for _ in range(4):
        await asyncio.sleep(0)


def account(produced: int, consumed: int, in_flight: int = 0, **dropped: int) -> dict[str, Any]:
    return {"produced": produced, "consumed": consumed, "dropped": dropped, "in_flight": in_flight}


# --- credits


async def test_a_producer_sends_no_more_than_the_window() -> None:
    channel = Channel(window=3)
    await channel.send(1, 2, 3)
    assert not await channel.try_send(4)
    assert channel.in_flight() == {1: 3}
    assert channel.account == account(3, 0, in_flight=3)


async def test_a_waiting_producer_goes_on_with_the_first_credit() -> None:
    channel = Channel(window=1)
    await channel.send(1)
    waiting = asyncio.ensure_future(channel.sender.send_many((Number(2),)))
    await settle()
    assert not waiting.done()
    assert read_status(channel.pages, PRODUCER).phase == "wait out"
    assert read_status(channel.pages, PRODUCER).kind == WAIT_OUT
    channel.settle()
    await waiting
    assert [messages for _, _, messages in channel.mail[1, 0]] == [(Number(2),)]
    assert channel.account == account(2, 1, in_flight=1)


async def test_a_producer_waits_until_there_is_a_consumer() -> None:
    channel = Channel(consumers=0)
    waiting = asyncio.ensure_future(channel.sender.send_many((Number(1),)))
    await settle()
    assert not waiting.done()
    assert channel.account == account(0, 0)
    channel.sender.add_consumer((1, 0), 1)
    channel.mail[1, 0] = []
    await waiting
    assert channel.account == account(1, 0, in_flight=1)


async def test_a_send_that_is_cancelled_while_it_waits_was_never_sent() -> None:
    channel = Channel(window=1)
    await channel.send(1)
    assert not await channel.try_send(2)
    channel.settle()
    assert channel.account == account(1, 1)


async def test_a_consumer_that_is_in_the_same_process_may_acknowledge_at_once() -> None:
    channel = Channel(window=1)

    def post(consumer: Identity, sequence: int, messages: Sequence[Message]) -> None:
        channel.receivers[consumer].deliver((PRODUCER, 0), sequence, messages)
        channel.receive(consumer)
        channel.acknowledge(*channel.acks)

    channel.sender.deliver = post
    await channel.send(*range(10))
    assert channel.account == account(10, 10)


# --- patterns


async def test_balance_goes_where_the_demand_is() -> None:
    channel = Channel(window=2, consumers=3)
    await channel.send(1, 2, 3)
    assert channel.in_flight() == {1: 1, 2: 1, 3: 1}
    channel.deliver((2, 0))
    channel.receive((2, 0))
    channel.acknowledge(*channel.acks)
    await channel.send(4, 5)
    assert channel.in_flight() == {1: 2, 2: 1, 3: 1}
    assert [messages for _, _, messages in channel.mail[2, 0]] == [(Number(4),)]


async def test_balance_prefers_the_consumer_with_the_fewest_messages() -> None:
    channel = Channel(window=5, consumers=2)
    for value in range(6):
        await channel.send(value)
        channel.settle()
    assert [consumer.sent for consumer in channel.sender.consumers.values()] == [3, 3]


async def test_balance_passes_by_a_consumer_that_is_full() -> None:
    channel = Channel(window=2, consumers=2)
    await channel.send(1, 2, 3, 4)
    assert channel.in_flight() == {1: 2, 2: 2}
    for value in (5, 6, 7):
        channel.deliver((1, 0))
        channel.receive((1, 0))
        channel.acknowledge(*channel.acks)
        await channel.send(value, value)
        assert channel.in_flight() == {1: 2, 2: 2}
    assert not await channel.try_send(10)


async def test_a_broadcast_reaches_everybody_and_counts_once_for_each() -> None:
    channel = Channel("broadcast", "wait", window=3, consumers=3)
    await channel.send(1, 2)
    assert all([m for _, _, m in mail] == [(Number(1),), (Number(2),)] for mail in channel.mail.values())
    assert channel.account == account(6, 0, in_flight=6)
    channel.settle()
    assert channel.account == account(6, 6)


async def test_a_broadcast_that_waits_goes_at_the_pace_of_the_slowest() -> None:
    channel = Channel("broadcast", "wait", window=1, consumers=2)
    await channel.send(1)
    channel.deliver((1, 0))
    channel.receive((1, 0))
    channel.acknowledge(*channel.acks)
    assert not await channel.try_send(2)
    channel.settle()
    assert await channel.try_send(2)


async def test_a_broadcast_without_consumers_counts_nothing() -> None:
    for when_full in ("wait", "drop_oldest"):
        channel = Channel("broadcast", when_full, consumers=0)  # type: ignore[arg-type]
        await channel.send(1)
        assert channel.account == account(0, 0)


async def test_drop_oldest_never_waits_and_is_counted_for_each_consumer() -> None:
    channel = Channel("broadcast", "drop_oldest", window=2, consumers=2)
    for value in range(5):
        await channel.send(value)
        channel.deliver((1, 0))
        channel.deliver((2, 0))
        assert channel.receive((1, 0)) == [value]
        channel.acknowledge(*channel.acks)
    assert channel.account == account(10, 5, in_flight=2, overflow=3)
    assert channel.receive((2, 0)) == [3, 4]
    channel.acknowledge(*channel.acks)
    assert channel.account == account(10, 7, overflow=3)


async def test_a_balanced_channel_can_drop_the_oldest_too() -> None:
    channel = Channel("balance", "drop_oldest", window=2, consumers=1)
    await channel.send(1, 2, 3, 4)
    channel.deliver((1, 0))
    assert channel.receive((1, 0)) == [3, 4]
    channel.acknowledge(*channel.acks)
    assert channel.account == account(4, 2, overflow=2)


async def test_a_balanced_message_without_consumers_is_counted_as_dropped() -> None:
    channel = Channel("balance", "drop_oldest", consumers=0)
    await channel.send(1, 2)
    assert channel.account == account(2, 0, overflow=2)


@pytest.mark.parametrize("pattern", ["balance", "broadcast"])
async def test_fail_says_at_once_that_there_is_no_room(pattern: Pattern) -> None:
    channel = Channel(pattern, "fail", window=1)
    await channel.send(1)
    with pytest.raises(ChannelFull, match="channel `out` has no room") as caught:
        await channel.send(2)
    assert caught.value.hint == 'connect it with when_full="wait", or a larger window'
    assert channel.account == account(1, 0, in_flight=1)
    channel.settle()
    await channel.send(3)
    assert channel.account == account(2, 1, in_flight=1)


# --- acknowledgements


async def test_a_consumer_that_is_done_repeats_and_returns_its_totals() -> None:
    """It repeats totals that it has sent before, because an earlier Ack may have been lost."""
    channel = Channel(window=8)
    await channel.send(1, 2, 3, 4, 5)
    channel.deliver((1, 0))
    for _ in range(2):
        channel.receivers[1, 0].receive_nowait()
    channel.acks.clear()
    assert channel.receivers[1, 0].conclude() == [protocol.Ack(0, PRODUCER, 1, 0, 0, 2, 0, 8)]
    assert channel.acks == [((1, 0), (PRODUCER, 0), 2, 0, 8)]
    channel.start_producer()  # the totals are those of the earlier incarnation
    await channel.send(6)
    channel.deliver((1, 0))
    assert channel.receivers[1, 0].conclude() == [protocol.Ack(0, PRODUCER, 1, 0, 1, 0, 0, 8)]


async def test_a_lost_acknowledgement_is_made_good_by_the_next() -> None:
    channel = Channel(window=4)
    await channel.send(1, 2, 3)
    channel.deliver((1, 0))
    channel.receive((1, 0))
    channel.acks.clear()
    assert channel.account == account(3, 0, in_flight=3)
    await channel.send(4)
    channel.settle()
    assert channel.account == account(4, 4)


async def test_repeated_reordered_and_late_acknowledgements_change_nothing() -> None:
    channel = Channel(window=8)
    seen = []
    for value in range(8):
        await channel.send(value)
        channel.deliver((1, 0))
        channel.receive((1, 0))
        seen.extend(channel.acks)
        channel.acks.clear()
    assert len(seen) == 8
    shuffled = seen * 3
    random.Random(7).shuffle(shuffled)
    for ack in shuffled:
        channel.acknowledge(ack)
        assert holds(channel.account)
        assert 0 <= channel.account["in_flight"] <= 8
    assert channel.account == account(8, 8)


async def test_an_acknowledgement_of_what_was_never_sent_is_ignored() -> None:
    channel = Channel(window=8)
    await channel.send(1, 2)
    me = (PRODUCER, 0)
    channel.acknowledge(((1, 0), me, 3, 0, 8), ((1, 0), me, 1, 2, 8), ((1, 0), me, -5, -5, 8), ((9, 0), me, 1, 0, 8))
    assert channel.account == account(2, 0, in_flight=2)


async def test_a_consumer_can_change_its_window() -> None:
    channel = Channel(window=1)
    await channel.send(1)
    channel.sender.acknowledged((1, 0), 0, 0, 3)
    await channel.send(2, 3)
    assert not await channel.try_send(4)


async def test_few_acknowledgements_for_many_messages() -> None:
    channel = Channel(window=16)
    await channel.send(*range(16))
    channel.deliver((1, 0))
    channel.receive((1, 0))
    assert [(consumed, dropped) for _, _, consumed, dropped, _ in channel.acks] == [(8, 0), (16, 0)]
    channel.acknowledge(*channel.acks)
    await channel.send(17)
    channel.deliver((1, 0))
    channel.receive((1, 0))
    assert channel.acks[-1][2:4] == (17, 0), "the last one is always acknowledged"


async def test_an_empty_queue_acknowledges_every_producer() -> None:
    receiver, acks = receiver_with(window=16)
    for producer in ((0, 0), (7, 0), (3, 1)):
        for sequence in (1, 2, 3):
            receiver.deliver(producer, sequence, (Number(sequence),))
    for _ in range(8):
        receiver.receive_nowait()
    assert acks == []
    receiver.receive_nowait()
    assert acks == [((0, 0), 3, 0, 16), ((3, 1), 3, 0, 16), ((7, 0), 3, 0, 16)]
    receiver.acknowledge_all()
    assert len(acks) == 3, "nobody is told twice"


async def test_a_consumer_that_ends_can_tell_what_it_took() -> None:
    receiver, acks = receiver_with(window=16)
    for sequence in (1, 2, 3):
        receiver.deliver((0, 0), sequence, (Number(sequence),))
    receiver.receive_nowait()
    receiver.acknowledge_all()
    assert acks == [((0, 0), 1, 0, 16)]


async def test_settled_means_that_nothing_is_in_flight() -> None:
    channel = Channel(window=4, consumers=2)
    assert channel.sender.settled()
    await channel.send(1, 2)
    assert channel.sender.settled() is None
    channel.settle()
    assert channel.sender.settled()


# --- the receiving side


def receiver_with(
    window: int = 4, when_full: WhenFull = "wait"
) -> tuple[MessageReceiver, list[tuple[Identity, int, int, int]]]:
    acks: list[tuple[Identity, int, int, int]] = []
    waiter = Waiter(Status(_native.Status(memory_for(1)).page(0), "consumer-0", 1, 0), False)
    return MessageReceiver("out", window, when_full, waiter, lambda *ack: acks.append(ack)), acks


async def test_a_waiting_consumer_gets_the_next_message() -> None:
    receiver, _ = receiver_with()
    waiting = asyncio.ensure_future(receiver.receive())
    await settle()
    assert not waiting.done()
    receiver.deliver((0, 0), 1, (Number(5),))
    assert await waiting == Number(5)


async def test_a_repeated_message_is_received_once() -> None:
    receiver, acks = receiver_with()
    for sequence in (1, 1, 2, 1, 2):
        receiver.deliver((0, 0), sequence, (Number(sequence),))
    assert [receiver.receive_nowait() for _ in range(3)] == [Number(1), Number(2), None]
    assert acks[-1] == ((0, 0), 2, 0, 4)


async def test_a_gap_was_lost_on_the_way_and_is_said_at_once() -> None:
    receiver, acks = receiver_with()
    receiver.deliver((0, 0), 1, (Number(1),))
    receiver.deliver((0, 0), 4, (Number(4),))
    assert acks == [((0, 0), 0, 2, 4)]
    assert [receiver.receive_nowait() for _ in range(3)] == [Number(1), Number(4), None]
    assert acks[-1] == ((0, 0), 2, 2, 4)


async def test_after_a_loss_drop_oldest_drops_no_more_than_it_must() -> None:
    receiver, acks = receiver_with(window=2, when_full="drop_oldest")
    receiver.deliver((0, 0), 100, (Number(100),))
    receiver.deliver((0, 0), 101, (Number(101),))
    assert [receiver.receive_nowait() for _ in range(3)] == [Number(100), Number(101), None]
    assert acks[-1] == ((0, 0), 2, 99, 2)


async def test_lost_messages_give_their_credit_back() -> None:
    channel = Channel(window=2)
    await channel.send(1, 2)
    del channel.mail[1, 0][0]
    channel.settle()
    assert channel.account == account(2, 1, overflow=1)
    assert await channel.try_send(3)


async def test_producers_have_windows_of_their_own() -> None:
    receiver, acks = receiver_with(window=2, when_full="drop_oldest")
    for sequence in (1, 2, 3):
        receiver.deliver((0, 0), sequence, (Number(sequence),))
        receiver.deliver((7, 0), sequence, (Number(70 + sequence),))
        receiver.deliver((7, 1), sequence, (Number(700 + sequence),))
    received = [receiver.receive_nowait() for _ in range(6)]
    assert received == [Number(value) for value in (2, 72, 702, 3, 73, 703)]
    assert [ack for ack in acks if ack[2]][:3] == [((0, 0), 0, 1, 2), ((7, 0), 0, 1, 2), ((7, 1), 0, 1, 2)]
    assert receiver.receive_nowait() is None


# --- deaths


async def test_what_a_dead_consumer_had_not_acknowledged_is_dropped() -> None:
    channel = Channel(window=4)
    await channel.send(1, 2, 3)
    channel.deliver((1, 0), 2)
    channel.receive((1, 0))
    channel.acknowledge(*channel.acks)
    channel.leave(1)
    assert channel.account == account(3, 2, consumer_died=1)
    assert channel.in_flight() == {}


async def test_the_others_take_over_from_a_dead_consumer() -> None:
    channel = Channel(window=1, consumers=2)
    await channel.send(1, 2)
    waiting = asyncio.ensure_future(channel.sender.send_many((Number(3),)))
    await settle()
    channel.leave(1)
    await settle()
    assert not waiting.done()
    channel.settle()
    await waiting
    assert channel.in_flight() == {2: 1}
    assert channel.account == account(3, 1, in_flight=1, consumer_died=1)


async def test_a_new_incarnation_begins_with_a_window_and_a_sequence_of_its_own() -> None:
    channel = Channel(window=1)
    await channel.send(1)
    waiting = asyncio.ensure_future(channel.sender.send_many((Number(2),)))
    await settle()
    channel.leave(1)
    channel.join(1, 1)
    await waiting
    assert channel.mail[1, 1] == [(0, 1, (Number(2),))]
    channel.settle()
    assert channel.account == account(2, 1, consumer_died=1)


async def test_a_new_incarnation_replaces_one_whose_exit_was_not_reported() -> None:
    channel = Channel(window=4)
    await channel.send(1, 2)
    channel.sender.add_consumer((1, 1), 4)
    assert channel.account == account(2, 0, consumer_died=2)
    channel.sender.acknowledged((1, 0), 2, 0, 4)
    assert channel.account == account(2, 0, consumer_died=2)


async def test_repeated_and_late_news_change_nothing() -> None:
    channel = Channel(window=4)
    channel.sender.add_consumer((1, 3), 4)
    channel.mail[1, 3] = []
    await channel.send(1)
    channel.sender.add_consumer((1, 3), 4)
    channel.sender.add_consumer((1, 2), 4)
    assert channel.account == account(1, 0, in_flight=1)
    channel.sender.left(1)
    channel.sender.left(1)
    channel.sender.left(8)
    assert channel.account == account(1, 0, consumer_died=1)


async def test_a_restarted_producer_drops_the_messages_in_flight() -> None:
    channel = Channel(window=4)
    await channel.send(1, 2, 3)
    channel.deliver((1, 0), 1)
    channel.receive((1, 0))
    channel.acknowledge(*channel.acks)
    late = list(channel.acks)
    channel.start_producer()
    assert channel.account == account(3, 1, process_died=2)
    channel.acknowledge(*late)
    await channel.send(4)
    channel.settle()
    assert channel.account == account(4, 2, process_died=2)
    channel.start_producer()
    assert channel.account == account(4, 2, process_died=2)


class Killed(BaseException):
    """SIGKILL, as far as one process can play it."""


def killed_at_its_next_entry(channel: Channel, counted: bool) -> None:
    """From now on the producer dies in the middle of the first entry that it makes in its account."""
    page = DyingPage(Pages(channel.memory), PRODUCER)

    def die(half: Callable[[bool], None]) -> None:
        half(counted)
        raise Killed

    page.dies, page.die = lambda: True, die
    channel.sender.account.status.add_both = page.add_both


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (lambda c: c.sender.acknowledged((1, 0), 1, 0, 2), {"consumed": 1, "in_flight": 1}),
        (lambda c: c.sender.acknowledged((1, 0), 0, 2, 2), {"overflow": 2}),
        (lambda c: c.sender.left(1), {"consumer_died": 2}),
        (lambda c: c.sender.send_many([Number(3)]), {"produced": 3, "in_flight": 3}),
    ],
    ids=["consumed", "overflow", "died", "sent"],
)
async def test_an_account_adds_up_wherever_its_producer_is_killed(
    entry: Callable[[Channel], Awaitable[None] | None], expected: dict[str, int], counted: bool
) -> None:
    channel = Channel(window=3)
    await channel.send(1, 2)
    killed_at_its_next_entry(channel, counted)

    async def work() -> None:
        if (sending := entry(channel)) is not None:
            await sending

    with pytest.raises(Killed):
        await work()
    channel.pages.page(PRODUCER).complete()
    after = channel.account
    assert holds(after)
    flat = {key: value for key, value in {**after, **after["dropped"]}.items() if key != "dropped"}
    assert flat == {"produced": 2, "consumed": 0, "in_flight": 0, **expected}
    channel.start_producer()
    assert holds(channel.account)
    assert channel.account["in_flight"] == 0


def test_the_account_of_a_channel_is_read_from_its_own_counters() -> None:
    counters = {
        "out:produced": 5.0,
        "out:consumed": 2.0,
        "out:overflow": 3.0,
        "out:stale": 0.0,
        "steps": 9.0,
        "outer:produced": 8.0,
    }
    assert account_of("out", counters) == account(5, 2, overflow=3)
    assert account_of("missing", counters) == account(0, 0)


# --- many at once


async def test_many_leave_in_portions_of_what_there_is_room_for() -> None:
    channel = Channel(window=4, consumers=2)
    sending = asyncio.ensure_future(channel.sender.send_many([*map(Number, range(11))]))
    await settle()
    portions = {consumer: [len(messages) for _, _, messages in mail] for consumer, mail in channel.mail.items()}
    assert portions == {(1, 0): [4], (2, 0): [4]}
    channel.deliver((2, 0))
    assert await channel.receivers[2, 0].receive_many(3) == [*map(Number, range(4, 7))]
    channel.acknowledge(*channel.acks)
    await settle()
    assert channel.mail[2, 0] == [(0, 6, [Number(8), Number(9)])]  # acknowledged: half a window
    assert not sending.done()
    channel.settle()
    await sending
    channel.settle()
    assert channel.account == account(11, 11)


async def test_a_broadcast_of_many_goes_by_the_slowest() -> None:
    channel = Channel("broadcast", "wait", window=4, consumers=2)
    await channel.send(1, 2)
    channel.deliver((1, 0))
    channel.receive((1, 0))
    channel.acknowledge(*channel.acks)
    assert not await channel.try_send(3, 4, 5)
    assert [len(mail) for mail in channel.mail.values()] == [1, 3]
    assert channel.mail[1, 0][0] == (0, 4, [Number(3), Number(4)])


async def test_of_many_the_oldest_are_dropped() -> None:
    channel = Channel("broadcast", "drop_oldest", window=3)
    assert await channel.try_send(*range(8))
    assert [len(messages) for _, _, messages in channel.mail[1, 0]] == [8]
    channel.deliver((1, 0))
    assert channel.receive((1, 0)) == [5, 6, 7]
    channel.acknowledge(*channel.acks)
    assert channel.account == account(8, 3, overflow=5)


async def test_what_has_no_room_fails_and_what_had_room_is_sent() -> None:
    channel = Channel("balance", "fail", window=3)
    with pytest.raises(ChannelFull):
        await channel.try_send(*range(5))
    channel.settle()
    assert channel.account == account(3, 3)


async def test_a_batch_that_is_lost_is_lost_whole() -> None:
    channel = Channel(window=8)
    await channel.try_send(1, 2, 3)
    channel.mail[1, 0].clear()
    await channel.try_send(4, 5)
    channel.deliver((1, 0))
    assert channel.receive((1, 0)) == [4, 5]
    channel.acknowledge(*channel.acks)
    assert channel.account == account(5, 2, overflow=3)


async def test_nothing_is_sent_of_nothing() -> None:
    channel = Channel(window=1)
    await channel.send(1)
    assert await channel.try_send()
    assert len(channel.mail[1, 0]) == 1


# --- whatever happens

ACTIONS = (
    *("send", "deliver", "receive", "acknowledge") * 3,
    *("lose mail", "lose acknowledgement", "repeat acknowledgement", "reorder acknowledgements"),
    *("consumer dies", "consumer is back", "producer restarts"),
)


class Chaos(Channel):
    """A channel between peers that die and come back, over a wire that loses, repeats and delays."""

    def __init__(self, pattern: Pattern, when_full: WhenFull, choice: random.Random) -> None:
        super().__init__(pattern, when_full, window=3, consumers=3)
        self.choice = choice
        self.value = 0
        self.received: dict[Identity, list[int]] = {}

    async def act(self, action: str) -> None:
        consumer = self.choice.choice(list(self.mail) or [None])
        if action == "send":
            first, count = self.value + 1, self.choice.choice((1, 1, 2, 5))
            self.value += count
            with contextlib.suppress(ChannelFull):
                await self.try_send(*range(first, first + count))
        elif action == "producer restarts":
            self.start_producer()
        elif action == "consumer is back":
            if dead := {1, 2, 3} - self.living.keys():
                self.join(min(dead), max((i for c, i in self.joined if c == min(dead)), default=-1) + 1)
        elif consumer is not None:
            self.act_on(action, consumer)

    def act_on(self, action: str, consumer: Identity) -> None:
        if action == "deliver":
            self.deliver(consumer, self.choice.randrange(4))
        elif action == "receive":
            self.consume(consumer, self.choice.randrange(4))
        elif action == "consumer dies":
            self.leave(consumer[0])
        elif action == "lose mail" and self.mail[consumer]:
            self.mail[consumer].pop(self.choice.randrange(len(self.mail[consumer])))
        elif action == "reorder acknowledgements":
            self.choice.shuffle(self.acks)
        elif self.acks and "acknowledge" in action:
            ack = self.acks[0] if action == "repeat acknowledgement" else self.acks.pop(0)
            if action != "lose acknowledgement":
                self.acknowledge(ack)

    def consume(self, consumer: Identity, count: int) -> None:
        portion = self.choice.choice((1, 2, count))
        for taken in [self.receivers[consumer]._take(portion) for _ in range(count)]:
            self.received.setdefault(consumer, []).extend(m.value for m in taken if isinstance(m, Number))

    def check(self) -> None:
        """Check the invariants that hold at any moment."""
        account, in_flight = self.account, self.in_flight()
        assert holds(account), account
        assert account["in_flight"] == sum(in_flight.values())
        assert min([0, *in_flight.values(), *account["dropped"].values()]) == 0
        if self.when_full != "drop_oldest":
            assert max(in_flight.values(), default=0) <= self.window
        for values in self.received.values():
            assert values == sorted(set(values)), "in order, and none twice"

    def check_end(self) -> None:
        """Deliver all messages, after which only messages that were lost last are in flight."""
        for consumer in list(self.mail):
            self.deliver(consumer)
            self.consume(consumer, 1000)
        self.acknowledge(*self.latest_acks.values())
        self.check()
        unheard = {
            number: consumer.sent - self.heard.get((consumer.identity, self.incarnation), 0)
            for number, consumer in self.sender.consumers.items()
        }
        assert self.in_flight() == unheard


@pytest.mark.rotates
@pytest.mark.parametrize("when_full", ["wait", "drop_oldest", pytest.param("fail", marks=pytest.mark.rotates)])
@pytest.mark.parametrize("pattern", ["balance", "broadcast"])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(ACTIONS), min_size=20, max_size=60), st.integers(0, 1000))
def test_the_account_holds_whatever_happens(
    pattern: Pattern, when_full: WhenFull, actions: list[str], seed: int
) -> None:
    async def main() -> None:
        channel = Chaos(pattern, when_full, random.Random(seed))
        for action in actions:
            await channel.act(action)
            channel.check()
        channel.check_end()

    asyncio.run(main())


# --- what a full mailbox loses


def waits_for_room(channel: Channel, lose: Callable[[list[tuple[int, int, Sequence[Message]]]], None]) -> list[int]:
    """Fill the window with two messages, of which `lose` removes some, send a third, and return what was received."""
    received: list[int] = []

    async def main() -> None:
        await channel.send(0, 1)
        lose(channel.mail[1, 0])
        sending = asyncio.ensure_future(channel.sender.send_many((Number(2),)))
        for _ in range(20):
            await asyncio.sleep(RESCAN_S)
            channel.deliver((1, 0))
            received.extend(channel.receive((1, 0)))
            channel.acknowledge(*channel.acks)
            channel.acks.clear()
        assert sending.done()
        await sending
        channel.deliver((1, 0))
        received.extend(channel.receive((1, 0)))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    return received


def test_the_last_messages_of_a_window_are_missed_and_counted() -> None:
    channel = Channel(window=2)
    assert waits_for_room(channel, lambda mail: mail.clear()) == [2]
    channel.settle()
    account = channel.account
    assert (account["produced"], account["consumed"], account["dropped"]) == (3, 1, {"overflow": 2})
    assert holds(account)
    assert account["in_flight"] == 0


def test_one_of_two_is_missed() -> None:
    channel = Channel(window=2)
    assert waits_for_room(channel, lambda mail: mail.__delitem__(-1)) == [0, 2]
    channel.settle()
    assert channel.account["dropped"] == {"overflow": 1}


def test_an_answer_that_was_lost_is_given_again() -> None:
    """The consumer has taken both and its queue is empty: it has nothing more to say by itself."""
    channel = Channel(window=2)

    def lose_the_answers(mail: list[tuple[int, int, Sequence[Message]]]) -> None:
        channel.deliver((1, 0))
        assert channel.receive((1, 0)) == [0, 1]
        assert channel.acks
        channel.acks.clear()

    assert waits_for_room(channel, lose_the_answers) == [2]
    channel.settle()
    account = channel.account
    assert (account["produced"], account["consumed"], account["dropped"]) == (3, 3, {})


def test_a_question_changes_nothing_where_nothing_was_lost() -> None:
    receiver, acks = receiver_with(window=4)
    for sequence in (1, 2):
        receiver.deliver((PRODUCER, 0), sequence, (Number(sequence),))
    receiver.deliver((PRODUCER, 0), 2, ())
    assert acks == [((PRODUCER, 0), 0, 0, 4)]
    receiver.deliver((PRODUCER, 0), 1, ())  # an old one
    assert [receiver.receive_nowait(), receiver.receive_nowait(), receiver.receive_nowait()] == [
        Number(1),
        Number(2),
        None,
    ]
    receiver.deliver((PRODUCER, 0), 3, (Number(3),))
    assert receiver.receive_nowait() == Number(3)


async def test_a_consumer_with_room_receives_no_query() -> None:
    channel = Channel(window=8)
    await channel.send(*range(5))
    assert [messages for _, _, messages in channel.mail[1, 0] if not messages] == []
