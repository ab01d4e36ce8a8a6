"""The rollouts that arrive from a host: each waits in the order of its collector until it is committed on the head."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hive.errors import WireError
from hive.experience import check_finals
from hive.hosts.messages import RolloutSent, Taken
from hive.runtime import Layout, Message
from hive.runtime.wire.arrays import Frame, Frames


@dataclass
class Incoming:
    """The rollouts of one collector: those that have arrived and wait, and the first that the head lacks."""

    lacks: int
    queue: deque[Frame] = field(default_factory=deque)
    wanted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def following(self) -> int:
        return self.lacks + len(self.queue)


class ArrivingRollouts:
    """The rollouts of the collectors of one host.

    incoming: by collector. layout: of a rollout. send: sends a message to the link process of the host.
    """

    def __init__(self, layout: Layout, send: Callable[[Message], bool]) -> None:
        self.incoming: dict[int, Incoming] = {}
        self.layout = layout
        self.send = send

    def arrived(self, message: RolloutSent, frames: Frames) -> None:
        """Keep a rollout if it is the next of its collector. Raises WireError for invalid ones."""
        incoming = self.incoming.get(message.collector)
        if incoming is None:
            raise WireError(f"a rollout of collector {message.collector}, which is not on this host")
        if len(frames) != 1 or not self._fits(frames[0]):
            raise WireError(f"rollout {message.sequence} does not have the bytes that its layout and its header demand")
        if message.sequence == incoming.following:
            incoming.queue.append(frames[0])
            incoming.wanted.set()
        elif message.sequence > incoming.following:
            raise WireError(
                f"rollout {message.sequence} of collector {message.collector}: {incoming.following} is next"
            )

    def _fits(self, frame: Frame) -> bool:
        """Return whether these are the bytes in use of a rollout, which end with its last final observation."""
        layout, block = self.layout, np.frombuffer(frame, np.uint8)
        if not layout.dense_bytes <= len(block) <= layout.bytes:
            return False
        arrays = layout.views(block)
        return layout.bytes_in_use(arrays) == len(block) and check_finals(arrays)

    async def first(self, collector: int) -> Frame:
        """Return the bytes of the next rollout of a collector; waits until it has arrived."""
        incoming = self.incoming[collector]
        while not incoming.queue:
            incoming.wanted.clear()
            await incoming.wanted.wait()
        return incoming.queue[0]

    def taken(self, collector: int) -> None:
        """The rollout that `first` has returned is committed."""
        incoming = self.incoming[collector]
        incoming.queue.popleft()
        incoming.lacks += 1
        self.send(Taken(collector, incoming.lacks))

    def acknowledge(self) -> None:
        """Send the host which rollout of each collector is next."""
        for collector, incoming in self.incoming.items():
            self.send(Taken(collector, incoming.lacks))
