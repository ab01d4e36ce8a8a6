"""Boards: versioned values in shared memory, of which readers usually want the latest.

The writer takes a block that no reader has pinned, writes the next version in place and publishes it. A reader pins a
version, reads in place and unpins. Boards that share one commit word (a learner's weights and its optimizer state) are
sealed one by one and published together. native/include/hive/boards.hpp explains why no reader sees a torn version.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hive.errors import TopologyError, VersionGone
from hive.runtime.carriers.carrier import Carrier, End, Line, PlanChannel, PlanSegment, RunMemory
from hive.runtime.carriers.waiting import Waiter
from hive.runtime.memory.segments import BoardView, Bytes
from hive.runtime.memory.status import WAIT_IN
from hive.runtime.wire.messages import Message

MAX_BLOCKS = 65536  # limit on blocks of a board, native kMaxWords: readers reject a damaged header that exceeds it


@dataclass(frozen=True)
class Board(Carrier):
    """Blocks of `block_bytes` bytes in shared memory, one version each, of which the `keep` newest are never
    overwritten.

    commit_with: name of the channel whose commit word it shares, so that one store publishes both.
    """

    block_bytes: int
    keep: int = 1
    commit_with: str = ""

    kind: ClassVar[str] = "board"

    def check(self, channel: str, source: str, message: type[Message], pattern: str, when_full: str) -> None:
        if self.block_bytes <= 0:
            raise TopologyError(
                f"the publication `{source}` has blocks of {self.block_bytes} bytes",
                hint="pass hive.Board(block_bytes) with the size of its data",
            )

    def segments(self, channel: str, producers: Sequence[str], consumers: int) -> list[PlanSegment]:
        blocks = consumers + self.keep + 1  # each reader may pin one, `keep` are held back, one is being written
        if blocks > MAX_BLOCKS:
            raise TopologyError(
                f"channel `{channel}` needs a board of {blocks} blocks; the maximum is {MAX_BLOCKS}",
                hint="connect it with a smaller keep=...; in a config, lower max_lag",
            )
        return [PlanSegment(channel, "board", blocks, self.block_bytes, consumers, self.keep, self.commit_with)]

    def source(self, end: End) -> Line:
        notify = functools.partial(end.host.notify, end.channel.consumers)
        return BoardWriter(end.host.views.board(end.channel.segments[0]), notify, end.channel.consumers)

    def target(self, end: End) -> Line:
        view, position = end.host.views.board(end.channel.segments[0]), end.channel.consumers.index(end.actor)
        return BoardReader(end.channel.name, view, position, end.waiter)

    def reclaim(self, channel: PlanChannel, memory: RunMemory, actor: int, incarnation: int, why: str) -> None:
        """Make blocks that it wrote and did not publish void, or remove its pins."""
        words = memory.views.board(channel.segments[0]).words
        if actor in channel.producers:
            words.recover_writer()
        elif actor in channel.consumers:
            words.unpin(channel.consumers.index(actor))

    def version(self, channel: PlanChannel, memory: RunMemory) -> int:
        return memory.views.board(channel.segments[0]).latest


class BoardWriter(Line):
    """Writes versions. `notify` wakes the readers, the actors `readers`."""

    def __init__(self, view: BoardView, notify: Callable[[], None], readers: Sequence[int] = ()) -> None:
        self.view = view
        self.readers = readers
        self.notify = notify
        self._block = -1

    @property
    def latest(self) -> int:
        """The newest published version, or -1."""
        return self.view.latest

    def begin(self) -> Bytes:
        """Return the memory of an unused block, to write the next version into.

        Raises RuntimeError when every block is pinned or kept.
        """
        self._block = self.view.words.begin()
        if self._block < 0:
            raise RuntimeError("every block of a board is pinned or kept: it was planned with too few blocks")
        return self.view.blocks[self._block]

    def seal(self, version: int) -> None:
        """Mark the block of `begin` as `version`. Readers see it once the shared commit word names that version."""
        self.view.words.seal(self._block, version)

    def publish(self, version: int) -> None:
        """Seal the block of `begin` and make `version` the latest. Raises ValueError unless versions increase."""
        if version <= self.latest:
            raise ValueError(f"versions must increase: {version} after {self.latest}")
        # Sealed before it is published: a reader that sees the new `latest` must find its block.
        self.seal(version)
        self.view.words.publish(version)
        self.notify()

    def hold(self, reader: int, version: int) -> bool:
        """Pin `version` in the name of `reader`, which unpins it after reading. False while it has another one pinned.

        Only the writer can do this before the version is overwritten. The pin belongs to the reader, so that it is
        released when the reader's process exits.
        """
        return not self.view.words.pinned(reader) and self.view.words.pin(reader, version) >= 0

    def read(self, version: int) -> Bytes:
        """Return the block of a version without pinning it: only the caller, the writer, could overwrite it.

        Raises VersionGone when it has been overwritten.
        """
        block = self.view.words.find(version)
        if block < 0:
            raise VersionGone(f"version {version} has been overwritten; the latest is {self.latest}")
        return self.view.blocks[block]


class BoardReader(Line):
    """Reads versions. Each reader can pin one version at a time."""

    def __init__(self, name: str, view: BoardView, reader: int, waiter: Waiter) -> None:
        self.view = view
        self.reader = reader
        self.waiter = waiter
        self.phase = waiter.status.phase(f"wait {name}"[:23], WAIT_IN)

    @property
    def latest(self) -> int:
        """The newest published version, or -1."""
        return self.view.latest

    async def pin(self, version: int = -1) -> tuple[int, Bytes]:
        """Pin `version` (-1: the latest) and return (version, memory). Waits until the version is published.

        Raises VersionGone when it has been overwritten.
        """
        block = await self.waiter.until(lambda: self.view.pin(self.reader, version), self.phase, memory=True)
        return self.view.words.version(block), self.view.blocks[block]

    def unpin(self) -> None:
        self.view.words.unpin(self.reader)
