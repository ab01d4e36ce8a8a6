"""A pool: several consumers that may all take any message. One is woken for each, and nobody sleeps over one."""

from __future__ import annotations

import asyncio
import itertools

from hive.runtime import Actor, Layout, Message, SlotInlet, SlotOutlet, Slots, Topology
from hive.runtime.carriers.waiting import RESCAN_S
from hive.testing import run_inline

SHORT_S = RESCAN_S / 10  # virtual: whoever is not woken sleeps on


class Number(Message):
    """Written in place."""


LAYOUT = Layout({"value": ("int64", ())})
Log = list[tuple[int, int]]  # (consumer, what it took or -1 when it looked in vain)


class Producer(Actor):
    numbers = SlotOutlet(Number)

    def __init__(self, bursts: tuple[int, ...], log: Log, marks: list[int]) -> None:
        self.bursts = bursts
        self.log = log
        self.marks = marks

    async def run(self) -> None:
        await asyncio.sleep(SHORT_S)  # all consumers sleep by then
        self.marks.append(len(self.log))
        sent = 0
        for burst in self.bursts:
            for _ in range(burst):
                slot = await self.numbers.reserve()
                slot.arrays["value"][...] = sent
                self.numbers.commit(slot)
                sent += 1
            await asyncio.sleep(SHORT_S)
            self.marks.append(len(self.log))
        self.end_run("all is sent")


class Consumer(Actor):
    numbers = SlotInlet(Number)

    def __init__(self, log: Log, certain: bool) -> None:
        self.log = log
        self.wanted = self.index if certain else -1
        look = self.numbers.lines.claim_nowait

        def looked(producer: int | None = None, sequence: int = -1) -> object:
            slot = look(producer, sequence)
            self.log.append((self.index, -1 if slot is None else int(slot.arrays["value"])))
            return slot

        self.numbers.lines.claim_nowait = looked  # type: ignore[method-assign, assignment]

    async def run(self) -> None:
        while True:
            slot = await (self.numbers.claim(0, self.wanted) if self.wanted >= 0 else self.numbers.claim())
            self.numbers.retire(slot)
            self.wanted += 4 * (self.wanted >= 0)


def pool(bursts: tuple[int, ...], consumers: int = 4, certain: bool = False) -> tuple[Log, list[int]]:
    log: Log = []
    marks: list[int] = []
    t = Topology()
    producer = t.add(Producer, bursts=bursts, log=log, marks=marks)
    t.connect(
        producer.numbers, t.add(Consumer, count=consumers, log=log, certain=certain).numbers, Slots(LAYOUT, slots=8)
    )
    run_inline(t, virtual=True)
    return log, marks


def taken(log: Log) -> list[int]:
    return [value for _, value in log if value >= 0]


def test_one_message_wakes_one() -> None:
    log, (before, after) = pool((1,))
    assert taken(log[:before]) == []
    who = {consumer for consumer, _ in log[before:after]}
    assert len(who) == 1, "the others slept on"
    assert taken(log[before:after]) == [0]


def test_messages_that_come_together_are_taken_together() -> None:
    log, marks = pool((3, 4, 2))
    for burst, (begin, end) in zip((3, 4, 2), itertools.pairwise(marks), strict=True):
        assert len(taken(log[begin:end])) == burst, "nobody slept over one"
    assert sorted(taken(log)) == [*range(9)]


def test_more_messages_than_consumers_are_taken_all_the_same() -> None:
    log, marks = pool((8, 8), consumers=3)
    assert [len(taken(log[begin:end])) for begin, end in itertools.pairwise(marks)] == [8, 8]


def test_it_is_another_ones_turn_every_time() -> None:
    log, marks = pool((1,) * 8)
    who = [next(c for c, value in log[begin:end] if value >= 0) for begin, end in itertools.pairwise(marks)]
    assert sorted(who) == sorted([0, 1, 2, 3] * 2)


def test_who_waits_for_a_certain_message_gets_it_at_once() -> None:
    log, marks = pool((4, 1, 3), certain=True)
    assert [len(taken(log[begin:end])) for begin, end in itertools.pairwise(marks)] == [4, 1, 3]
    assert all(value < 0 or value % 4 == consumer for consumer, value in log)
