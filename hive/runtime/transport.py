"""Mailboxes: the third seam. A process has one inbox at an address; anyone can post frames to an address.

`MemoryTransport` keeps all mailboxes of one event loop and is what `--inline`, `hive.testing` and the simulator use;
`hive.runtime.wire.ZmqTransport` is the real one. Posting never blocks: a full or missing mailbox says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from hive.runtime.messages import Frames

__all__ = ["MemoryTransport", "Receive", "Transport"]

Receive = Callable[[Frames], None]


class Transport(Protocol):
    """One process's door to the others."""

    def bind(self, address: str, receive: Receive) -> None:
        """Opens this process's inbox; `receive` is called in the event loop, once per message."""

    def post(self, address: str, frames: Frames) -> bool:
        """Sends; False when the mailbox is full or gone. Never blocks."""

    def forget(self, address: str) -> None:
        """The peer at `address` is dead: what is queued for it is thrown away."""

    def poll(self) -> None:
        """Delivers whatever has already arrived, now."""

    def close(self, linger_s: float = 0.0) -> None:
        """Closes everything; `linger_s` is how long unsent messages may still leave."""


class MemoryTransport:
    """All mailboxes of one event loop. `Post office` and door at once: every process shares the same object."""

    def __init__(self) -> None:
        self.boxes: dict[str, Receive] = {}

    def bind(self, address: str, receive: Receive) -> None:
        self.boxes[address] = receive

    def post(self, address: str, frames: Frames) -> bool:
        receive = self.boxes.get(address)
        if receive is None:
            return False
        # Copied as a wire would, so that a sender who goes on writing its arrays changes nothing on the way.
        parcel = [bytes(frame) for frame in frames]
        asyncio.get_running_loop().call_soon(self._arrive, address, receive, parcel)
        return True

    def _arrive(self, address: str, receive: Receive, parcel: list[bytes]) -> None:
        if self.boxes.get(address) is receive:
            receive(parcel)

    def forget(self, address: str) -> None:
        self.boxes.pop(address, None)

    def poll(self) -> None:
        """Nothing waits outside the loop."""

    def close(self, linger_s: float = 0.0) -> None:
        """Boxes are forgotten one by one, by address."""
