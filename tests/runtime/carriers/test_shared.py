"""The shared carrier: one block that its writer changes in place, and that outlives the writer."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest
from simulation import At, Faults, simulate

from hive.errors import TopologyError
from hive.runtime import Board, Shared, SharedIn, SharedOut, Topology
from hive.runtime.actor.actor import Actor
from hive.runtime.actor.ports import Inlet, Outlet, Publication, Subscription
from hive.runtime.supervise.accounting import holds
from hive.runtime.wire.messages import Message

BYTES = 24  # less than a page
STEPS = 6


class Table(Message):
    """The shared block."""


class Written(Message):
    """Entry `number` is written."""

    number: int


class Writer(Actor):
    """Writes entry after entry, from where its predecessor ended, and sends their numbers."""

    table = SharedOut(Table)
    written = Outlet(Written)
    found: ClassVar[list[int]]

    async def run(self) -> None:
        first = int((self.table.memory > 0).sum())
        self.found.append(first)
        for number in range(first, STEPS):
            self.table.memory[number] = number + 1
            await self.written.send(Written(number))
        await asyncio.sleep(0.5)
        self.end_run("all is written")


class Reader(Actor):
    """Reads the entries whose numbers it receives."""

    table = SharedIn(Table)
    written = Inlet(Written)
    read: ClassVar[list[tuple[int, int]]]

    async def run(self) -> None:
        assert self.table.memory.shape == (BYTES,)
        async for message in self.written:
            self.read.append((message.number, int(self.table.memory[message.number])))


def topology(carrier: Shared) -> Topology:
    Writer.found, Reader.read = [], []
    t = Topology()
    writer, reader = t.add(Writer), t.add(Reader, count=2)
    t.connect(writer.table, reader.table, carrier)
    t.connect(writer.written, reader.written)
    return t


def test_readers_see_what_is_written_in_place() -> None:
    simulation = simulate(topology(Shared(BYTES)), 1)
    assert simulation.wrong == []
    assert sorted(Reader.read) == [(number, number + 1) for number in range(STEPS)]


def test_a_successor_finds_the_block_as_it_was() -> None:
    faults = Faults(preempted=0.0)
    simulation = simulate(topology(Shared(BYTES)), 1, faults, at=[At("written", 3)])
    assert simulation.outcome is not None
    assert simulation.outcome.state == "finished"
    assert Writer.found[0] == 0
    assert Writer.found[1] >= 3
    assert all(value == number + 1 for number, value in Reader.read)


def test_the_block_of_a_channel_has_no_account_of_messages() -> None:
    plan = topology(Shared(BYTES, sparse_bytes=8)).plan()
    (segment,) = [segment for segment in plan.segments if segment.name == "table"]
    assert (segment.kind, segment.plan.bytes, segment.sparse_bytes) == ("buffer", BYTES, 8)
    outcome = simulate(topology(Shared(BYTES)), 2).outcome
    assert outcome is not None
    assert all(holds(account) for account in outcome.channels.values())
    assert outcome.channels.get("table", {}).get("produced", 0) == 0


def test_bytes_that_are_never_written_need_no_memory() -> None:
    whole, sparse = (topology(Shared(BYTES, sparse)).plan() for sparse in (0, 20))
    assert whole.bytes - sparse.bytes == 20


def test_a_block_has_bytes() -> None:
    with pytest.raises(TopologyError, match=r"the publication `writer\.table` has a block of 0 bytes") as caught:
        topology(Shared(0)).plan()
    assert "hive.Shared(block_bytes)" in str(caught.value.hint)


class Publisher(Actor):
    """Publishes a table."""

    value = Publication(Table)


class Subscriber(Actor):
    """Subscribes to a table."""

    value = Subscription(Table)


def test_shared_ports_and_boards_do_not_mix() -> None:
    t = Topology()
    writer, subscriber = t.add(Writer), t.add(Subscriber)
    with pytest.raises(TopologyError):
        t.connect(writer.table, subscriber.value)  # type: ignore[call-overload]
    with pytest.raises(TopologyError):
        t.connect(t.add(Publisher).value, t.add(Reader).table, Board(8))  # type: ignore[call-overload]
