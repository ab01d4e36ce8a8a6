"""The board carrier: what readers see, when versions go, two boards with one commit word, and recovery."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from hive import _native
from hive.errors import VersionGone
from hive.runtime.carriers.boards import BoardReader, BoardWriter
from hive.runtime.carriers.waiting import Waiter
from hive.runtime.memory.segments import BoardPlan, BoardView, Bytes, Segment
from hive.runtime.memory.status import PAGE_BYTES, Status, read_status

BYTES = 200


def memory(size: int) -> Bytes:
    segment = Segment.create("test", size)
    segment.close()
    return segment.memory


class Channel:
    """A writer and its readers in one process."""

    def __init__(self, readers: int = 1, keep: int = 1) -> None:
        self.view = make_view(readers, keep)
        self.pages = _native.Status(memory(readers * PAGE_BYTES))
        statuses = [Status(self.pages.page(r), f"reader-{r}", 1, 0) for r in range(readers)]
        self.waiters = [Waiter(status, False) for status in statuses]
        self.writer = BoardWriter(self.view, self.notify)
        self.readers = [BoardReader("weights", self.view, r, waiter) for r, waiter in enumerate(self.waiters)]

    def notify(self) -> None:
        for waiter in self.waiters:
            waiter.wake()

    def publish(self, *versions: int) -> None:
        for version in versions:
            self.writer.begin()[:] = version
            self.writer.publish(version)


def make_view(readers: int, keep: int, commit: BoardView | None = None) -> BoardView:
    plan = BoardPlan(readers + keep + 1, BYTES, readers, keep)
    board = memory(plan.bytes)
    plan.format(board)
    return BoardView(board, plan, commit)


async def test_readers_see_the_latest_in_place() -> None:
    channel = Channel(readers=2)
    channel.publish(0, 1, 2)
    for reader in channel.readers:
        assert reader.latest == channel.writer.latest == 2
        version, block = await reader.pin()
        assert version == 2
        assert block.shape == (BYTES,)
        assert (block == 2).all()
        assert np.shares_memory(block, channel.writer.read(2))


async def test_a_pinned_version_stays_whatever_is_published() -> None:
    channel = Channel(readers=2, keep=2)
    channel.publish(0, 1)
    first, second = channel.readers
    _, old = await first.pin(0)
    for version in range(2, 20):
        channel.publish(version)
        assert (await second.pin(version - 1))[0] == version - 1
        got, block = await second.pin()
        assert got == version
        assert (block == version).all()
        assert (old == 0).all()
    assert (await first.pin(0))[0] == 0
    first.unpin()
    channel.publish(20)
    with pytest.raises(VersionGone, match="version 0 has been overwritten; the latest is 20"):
        await first.pin(0)
    with pytest.raises(VersionGone, match="version 0 has been overwritten"):
        channel.writer.read(0)
    with pytest.raises(VersionGone):
        channel.writer.read(-1)


@pytest.mark.parametrize("wanted", [-1, 3])
async def test_a_reader_waits_for_a_version_that_is_yet_to_come(wanted: int) -> None:
    channel = Channel()
    if wanted > 0:
        channel.publish(*range(wanted))
    task = asyncio.create_task(channel.readers[0].pin(wanted))
    while read_status(channel.pages, 0).phase != "wait weights":
        await asyncio.sleep(0)
    channel.writer.begin()[:] = 3
    await asyncio.sleep(0)
    assert not task.done()
    channel.writer.publish(3)
    version, block = await task
    assert version == 3
    assert (block == 3).all()


def test_versions_never_go_back() -> None:
    channel = Channel()
    channel.publish(5)
    channel.writer.begin()
    for version in (5, 4):
        with pytest.raises(ValueError, match=f"versions must increase: {version} after 5"):
            channel.writer.publish(version)
    channel.writer.publish(9)
    assert channel.writer.latest == 9


def test_too_few_blocks_are_refused() -> None:
    plan = BoardPlan(3, BYTES, readers=2, keep=1)
    with pytest.raises(ValueError, match=r"readers \+ keep \+ 1"):
        plan.format(memory(plan.bytes))


def test_wrong_blocks_and_readers_are_refused() -> None:
    words = Channel().view.words
    for block in (-1, 3):
        with pytest.raises(IndexError):
            words.version(block)
        with pytest.raises(IndexError):
            words.seal(block, 0)
    for reader in (-1, 1):
        with pytest.raises(IndexError):
            words.pin(reader)
        with pytest.raises(IndexError):
            words.unpin(reader)


async def test_a_dead_reader_holds_no_block() -> None:
    channel = Channel()
    channel.publish(0, 1, 2)
    _, block = await channel.readers[0].pin()
    channel.view.words.unpin(0)
    channel.publish(3, 4, 5)
    assert (block == 5).all()


def test_begin_raises_when_sealed_versions_are_not_published() -> None:
    channel = Channel()
    channel.publish(0, 1)
    channel.view.words.pin(0, 0)
    channel.writer.begin()
    channel.writer.seal(2)
    with pytest.raises(RuntimeError, match="every block of a board is pinned or kept"):
        channel.writer.begin()
    channel.view.words.recover_writer()
    channel.publish(2)
    assert (channel.writer.read(2) == 2).all()


# Two boards with one commit word: a learner's weights, which others read, and its moments.


class Learner:
    def __init__(self) -> None:
        self.weights = BoardWriter(make_view(1, 1), lambda: None)
        self.moments = BoardWriter(make_view(0, 2, self.weights.view), lambda: None)

    def update(self, version: int, steps: int = 5) -> None:
        """Begin, seal, begin, seal, publish: the first `steps` of it."""
        for step in range(steps):
            if step in (0, 2):
                (self.weights, self.moments)[step // 2].begin()[:] = version
            elif step == 1:
                self.weights.seal(version)
            elif step == 3:
                self.moments.seal(version)
            else:
                self.weights.publish(version)

    def recover(self) -> None:
        self.weights.view.words.recover_writer()
        self.moments.view.words.recover_writer()


@pytest.mark.parametrize("steps", range(6))
def test_both_boards_change_together_or_not_at_all(steps: int) -> None:
    learner = Learner()
    for version in range(4):
        learner.update(version)
    learner.update(4, steps)  # and then it was killed
    committed = 4 if steps == 5 else 3
    assert learner.weights.latest == learner.moments.latest == committed
    block = learner.weights.view.pin(0)
    assert block is not None
    assert (learner.weights.view.blocks[block] == committed).all()
    for _ in range(2):
        learner.recover()
        for board in (learner.weights, learner.moments):
            assert (board.read(committed) == committed).all()
            if steps < 5:
                with pytest.raises(VersionGone):
                    board.read(4)
    for version in range(committed + 1, 10):
        learner.update(version)
    assert (learner.moments.read(9) == 9).all()
    assert (learner.moments.read(8) == 8).all()
    assert (learner.weights.view.blocks[block] == committed).all()  # still pinned


def test_a_board_keeps_the_memory_of_its_commit_word_alive() -> None:
    moments = Learner().moments
    assert moments.latest == -1
    moments.begin()[:] = 1
    moments.seal(0)
    moments.view.words.publish(0)
    assert moments.latest == 0
    assert (moments.read(0) == 1).all()
