"""Shared: one block of memory that its only writer changes in place, and that any number of actors read.

It has no versions, pins or messages. The actors know from numbers that travel on other channels which of its bytes are
written and will not change while they are read. It outlives its writer, whose successor finds it as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hive.errors import TopologyError
from hive.runtime.carriers.carrier import Carrier, End, Line, PlanChannel, PlanSegment, RunMemory
from hive.runtime.memory.segments import Bytes
from hive.runtime.wire.messages import Message


@dataclass(frozen=True)
class Shared(Carrier):
    """A block of `block_bytes` bytes, all zero at first.

    sparse_bytes: bytes of it that are never written, as far as is known; the machine need not have room for them.
    folder: "": the block lies in memory. Otherwise it lies in a file in this folder, which has no name and is gone with
    the run; the kernel keeps in memory what is in use.
    """

    block_bytes: int
    sparse_bytes: int = 0
    folder: str = ""

    kind: ClassVar[str] = "shared"

    def check(self, channel: str, source: str, message: type[Message], pattern: str, when_full: str) -> None:
        if self.block_bytes <= 0:
            raise TopologyError(
                f"the publication `{source}` has a block of {self.block_bytes} bytes",
                hint="pass hive.Shared(block_bytes) with the size of its data",
            )

    def segments(self, channel: str, producers: Sequence[str], consumers: int) -> list[PlanSegment]:
        whole = PlanSegment(channel, "buffer", 1, self.block_bytes, consumers, 0, "", 0, self.sparse_bytes, self.folder)
        return [whole]

    def source(self, end: End) -> Line:
        return SharedBlock(end.host.views.buffer(end.channel.segments[0]))

    target = source

    def reclaim(self, channel: PlanChannel, memory: RunMemory, actor: int, incarnation: int, why: str) -> None:
        """Do nothing: what a killed writer left half written is known to its successor only."""


class SharedBlock(Line):
    """The memory of the block, uint8 [block_bytes]."""

    def __init__(self, memory: Bytes) -> None:
        self.memory = memory
