"""Blocks held by the learner: message and pin, and either without the other, under a virtual clock."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from small_trainer import LIMIT_S

from hive.errors import VersionGone
from hive.runtime import Actor, Board, Inlet, Message, Outlet, Publication, Subscription, Topology
from hive.testing import run_inline
from hive.training.record.pinned_blocks import LOST_AFTER_S, held_block, next_due


class Due(Message):
    turn: int


class State(Message):
    """One board; the other is of the same kind."""


class Writer(Actor):
    """Publishes versions, holds each if it can, says so, and waits `pause_s`. The first messages, `lost`, get lost."""

    due = Outlet(Due, pattern="broadcast")
    one = Publication(State)
    other = Publication(State)

    def __init__(self, versions: int, pause_s: float, lost: int, held: list[int]) -> None:
        self.versions, self.pause_s, self.lost, self.held = versions, pause_s, lost, held

    async def run(self) -> None:
        for version in range(self.versions):
            for board in (self.one.board, self.other.board):
                board.begin()[:] = version
                board.publish(version)
            if self.one.board.hold(0, version):
                assert self.other.board.hold(0, version)
                self.held.append(version)
                if len(self.held) > self.lost:
                    await self.due.send(Due(version))
            await asyncio.sleep(self.pause_s)
        self.end_run("all is said")


class Reader(Actor):
    """Reads the bytes of both boards, some time after they are due."""

    due = Inlet(Due)
    one = Subscription(State)
    other = Subscription(State)

    def __init__(self, takes_s: float, read: list[Any]) -> None:
        self.takes_s, self.read = takes_s, read

    async def run(self) -> None:
        while True:
            due = await next_due(self.due, self.one, self.other)
            try:
                blocks = [held_block(port, due.turn) for port in (self.one, self.other)]
                await asyncio.sleep(self.takes_s)
                self.read.append((due.turn, [int(block[0]) for block in blocks]))
            except VersionGone as error:
                self.read.append((due.turn, str(error)))
            self.other.unpin()
            self.one.unpin()


def exchange(
    versions: int, pause_s: float, takes_s: float = 0.0, lost: int = 0, writing: type[Writer] = Writer
) -> tuple[list[int], list[tuple[int, Any]]]:
    """Return the versions that the writer held, and those that the reader read."""
    t, held, read = Topology(), list[int](), list[tuple[int, Any]]()
    writer = t.add(writing, versions=versions, pause_s=pause_s, lost=lost, held=held)
    reader = t.add(Reader, takes_s=takes_s, read=read)
    t.connect(writer.due, reader.due)
    t.connect(writer.one, reader.one, Board(64))
    t.connect(writer.other, reader.other, Board(64))
    outcome = run_inline(t, seconds=100 * LIMIT_S, virtual=True)
    assert outcome.reason == "all is said"
    return held, read


def test_held_blocks_do_not_change() -> None:
    held, read = exchange(versions=3, pause_s=1.0)
    assert held == [0, 1, 2]
    assert read == [(turn, [turn, turn]) for turn in range(3)]


def test_a_reader_that_is_busy_gets_nothing_else_and_loses_nothing() -> None:
    """A read takes four and a half turns: its last bytes are those held at its beginning."""
    held, read = exchange(versions=14, pause_s=1.0, takes_s=4.5)
    assert held == [0, 5, 10]
    assert read == [(turn, [turn, turn]) for turn in held[: len(read)]]
    assert len(read) >= 2


def test_a_pin_whose_message_was_lost_is_released() -> None:
    """The message of the first pin is lost. All later messages are received."""
    pause = LOST_AFTER_S / 4
    held, read = exchange(versions=20, pause_s=pause, lost=1)
    first, *others = held
    assert first == 0
    assert LOST_AFTER_S <= others[0] * pause <= 3 * LOST_AFTER_S
    assert others == list(range(others[0], 20))
    assert read == [(turn, [turn, turn]) for turn in others]


class Slow(Writer):
    """Holds version 0 after `pause_s` and says so 0.9 looks later; meanwhile it publishes several others."""

    async def run(self) -> None:
        await asyncio.sleep(self.pause_s)
        for version in range(6):
            for board in (self.one.board, self.other.board):
                board.begin()[:] = version
                board.publish(version)
                assert version > 0 or board.hold(0, version)
            await asyncio.sleep(0.15 * LOST_AFTER_S)
        await self.due.send(Due(0))
        await asyncio.sleep(1.0)
        self.end_run("all is said")


@pytest.mark.parametrize("begins", [0.05, 0.5, 0.95])
def test_a_pin_is_kept_while_its_message_is_under_way(begins: float) -> None:
    """Whenever the reader looks in between, which it does in two of these."""
    _, read = exchange(versions=6, pause_s=begins * LOST_AFTER_S, writing=Slow)
    assert read == [(0, [0, 0])]


class Late(Writer):
    """Publishes six versions, then sends messages for the versions 5, 0 and 9, of which it holds none."""

    async def run(self) -> None:
        for version in range(6):
            for board in (self.one.board, self.other.board):
                board.begin()[:] = version
                board.publish(version)
        for version in (5, 0, 9):
            await self.due.send(Due(version))
        await asyncio.sleep(1.0)
        self.end_run("all is said")


def test_a_message_without_its_pin_is_answered_if_the_version_is_there() -> None:
    _, read = exchange(versions=6, pause_s=0.0, writing=Late)
    assert read == [
        (5, [5, 5]),
        (0, "version 0 has been overwritten; the latest is 5"),
        (9, "version 9 does not exist yet; the latest is 5"),
    ]
