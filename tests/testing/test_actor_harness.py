"""One actor alone does what it does in a run: with messages, slots, boards, notes, errors, and time that jumps."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from hive.errors import TopologyError
from hive.runtime import Actor, Inlet, Layout, Message, Outlet, Publication, SlotInlet, SlotOutlet, Subscription
from hive.testing import run_actor


class Number(Message):
    value: int


class Vector(Message):
    """Three floats."""


LAYOUT = Layout({"x": ("float32", (3,)), "n": ("int64", ())})


class Doubler(Actor):
    numbers = Inlet(Number)
    doubled = Outlet(Number)
    spare = Inlet(Number, optional=True)

    def __init__(self, factor: int = 2) -> None:
        self.factor = factor
        self.seen = self.status.counter("seen")

    async def run(self) -> None:
        async for number in self.numbers:
            if number.value < 0:
                raise ValueError(f"{number.value} is negative")
            if number.value == 100:
                self.end_run("a hundred")
            self.status.add(self.seen, 1)
            self.note("doubling", str(number.value))
            await asyncio.sleep(0.4)  # virtual
            await self.doubled.send(Number(self.factor * number.value))


class Scales(Actor):
    vectors = SlotInlet(Vector)
    scaled = SlotOutlet(Vector)

    async def run(self) -> None:
        while True:
            slot = await self.vectors.claim()
            out = await self.scaled.reserve()
            out.arrays["x"][:] = 3 * slot.arrays["x"]
            out.arrays["n"][...] = slot.arrays["n"] + 1
            self.scaled.commit(out)
            self.vectors.retire(slot)


class Mirror(Actor):
    weights = Subscription(Number)
    copies = Publication(Number)

    async def run(self) -> None:
        for version in range(3):
            _, block = await self.weights.pin(version)
            self.copies.begin()[:] = block[::-1]
            self.weights.unpin()
            self.copies.publish(version)


def test_messages_go_in_and_come_out_in_order() -> None:
    result = run_actor(Doubler, {"numbers": [Number(value) for value in range(40)]}, factor=3)
    assert result.sent == {"doubled": [Number(3 * value) for value in range(40)]}
    assert result.notes == [("doubling", str(value)) for value in range(40)]
    assert result.counters["seen"] == 40
    assert result.reason == ""


def test_fed_nothing_it_says_nothing() -> None:
    assert run_actor(Doubler).sent == {"doubled": []}


def test_what_it_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="-1 is negative"):
        run_actor(Doubler, {"numbers": [Number(1), Number(-1)]})


def test_it_may_end_the_run() -> None:
    result = run_actor(Doubler, {"numbers": [Number(1), Number(100), Number(2)]})
    assert result.reason == "a hundred"
    assert result.sent["doubled"][:1] == [Number(2)]


def test_slots_are_fed_and_collected_as_arrays() -> None:
    fed = [{"x": np.full(3, value, np.float32), "n": value} for value in range(9)]
    result = run_actor(Scales, {"vectors": fed}, layouts={"vectors": LAYOUT, "scaled": LAYOUT})
    assert [(arrays["x"].tolist(), int(arrays["n"])) for arrays in result.sent["scaled"]] == [
        ([3.0 * value] * 3, value + 1) for value in range(9)
    ]


def test_boards_are_fed_and_collected_as_versions() -> None:
    blocks = [np.arange(version, version + 8, dtype=np.uint8) for version in range(3)]
    result = run_actor(Mirror, {"weights": blocks}, block_bytes={"weights": 8, "copies": 8})
    heard: list[Any] = result.sent["copies"]
    assert [version for version, _ in heard] == [0, 1, 2]
    for (_, block), fed in zip(heard, blocks, strict=True):
        np.testing.assert_array_equal(block, fed[::-1])


def test_a_board_needs_its_size() -> None:
    with pytest.raises(TopologyError, match="has blocks of 0 bytes"):
        run_actor(Mirror)


def test_it_takes_no_real_time() -> None:
    """A day of virtual seconds would not pass otherwise."""

    class Slow(Doubler):
        async def run(self) -> None:
            await self.numbers.receive()
            for _ in range(100):
                self.status.add(self.seen, 1)
                await asyncio.sleep(0.9)
            await self.doubled.send(Number(1))

    assert run_actor(Slow, {"numbers": [Number(1)]}).sent["doubled"] == [Number(1)]
