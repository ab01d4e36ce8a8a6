"""The board carrier: latest value wins, versioned (native/include/hive/boards.hpp tells how it is never torn).

The writer asks for a block that nobody reads, writes the next version in place, publishes. A reader pins a version,
reads in place, unpins. Boards that share one commit word (a learner's weights and its moments) are sealed one by one
and published together.
"""

from __future__ import annotations

from collections.abc import Callable

from hive.errors import VersionGone
from hive.runtime.memory import BoardView, Bytes
from hive.runtime.status import WAIT_IN
from hive.runtime.waiting import Waiter

__all__ = ["BoardReader", "BoardWriter"]


class BoardWriter:
    """The writing side. `notify` wakes the readers."""

    def __init__(self, view: BoardView, notify: Callable[[], None]) -> None:
        self.view = view
        self.notify = notify
        self._block = -1

    @property
    def latest(self) -> int:
        return self.view.latest

    def begin(self) -> Bytes:
        self._block = self.view.words.begin()
        if self._block < 0:
            raise RuntimeError("every block of a board is pinned or kept: it was planned with too few blocks")
        return self.view.blocks[self._block]

    def seal(self, version: int) -> None:
        """The block of `begin` holds `version`; readers see it once the shared commit word says so."""
        self.view.words.seal(self._block, version)

    def publish(self, version: int) -> None:
        """Seals and makes `version` the latest."""
        if version <= self.latest:
            raise ValueError(f"versions never go back: {version} after {self.latest}")
        self.seal(version)
        self.view.words.publish(version)
        self.notify()

    def hold(self, reader: int, version: int) -> bool:
        """Keeps `version` for that reader, which unpins it when it has read it; False while it still holds another.

        The writer alone knows that a version is wanted before it is overwritten; the pin is the reader's, so that it
        goes with the reader's death.
        """
        return not self.view.words.pinned(reader) and self.view.words.pin(reader, version) >= 0

    def read(self, version: int) -> Bytes:
        """The writer's own look at a version, without a pin: only it could overwrite the block."""
        block = self.view.words.find(version)
        if block < 0:
            raise VersionGone(f"version {version} has been overwritten; the latest is {self.latest}")
        return self.view.blocks[block]


class BoardReader:
    """The reading side: one pin."""

    def __init__(self, name: str, view: BoardView, reader: int, waiter: Waiter) -> None:
        self.view = view
        self.reader = reader
        self.waiter = waiter
        self.phase = waiter.status.phase(f"wait {name}"[:23], WAIT_IN)

    @property
    def latest(self) -> int:
        return self.view.latest

    async def pin(self, version: int = -1) -> tuple[int, Bytes]:
        """(version, memory); waits for a version that is yet to come. Raises VersionGone."""
        block = await self.waiter.until(lambda: self.view.pin(self.reader, version), self.phase, memory=True)
        return self.view.words.version(block), self.view.blocks[block]

    def unpin(self) -> None:
        self.view.words.unpin(self.reader)
