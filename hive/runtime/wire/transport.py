"""The transport of messages: each process has one mailbox with an address, to which every process can post frames.

`MemoryTransport` holds all mailboxes of one event loop; `--inline` and `hive.testing` use it. A run with several
processes uses `hive.runtime.wire.sockets.ZmqTransport`. `post` never blocks: it returns False for a full or missing
mailbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from hive.runtime.wire.arrays import Frames

Receive = Callable[[Frames], None]


class Transport(Protocol):
    """The interface through which a process sends and receives messages."""

    def bind(self, address: str, receive: Receive) -> None:
        """Open this process's mailbox. The event loop calls `receive` once per message."""

    def post(self, address: str, frames: Frames, *, stable: bool = False, hint: bool = False) -> bool:
        """Send frames without blocking. Returns False when the mailbox is full or missing.

        `stable`: the frames do not change before they have arrived, or nobody wants them any more when they do. Such
        frames need not be copied. `hint`: the message is one short frame that may be lost or overtake others, and is
        sent in the fastest way.
        """

    def forget(self, address: str) -> None:
        """Drop the messages queued for `address`, whose process has exited."""

    def poll(self) -> None:
        """Deliver the messages that have already arrived, before it returns."""

    def close(self, linger_s: float = 0.0) -> None:
        """Close all connections after at most `linger_s` seconds, in which unsent messages may still be sent."""


class MemoryTransport:
    """All mailboxes of one event loop; its processes share one object."""

    def __init__(self) -> None:
        self.boxes: dict[str, Receive] = {}

    def bind(self, address: str, receive: Receive) -> None:
        self.boxes[address] = receive

    def post(self, address: str, frames: Frames, *, stable: bool = False, hint: bool = False) -> bool:
        receive = self.boxes.get(address)
        if receive is None:
            return False
        # Copied, as a socket does: the sender may change its arrays before the message is received.
        parcel = [bytes(frame) for frame in frames]
        asyncio.get_running_loop().call_soon(self._arrive, address, receive, parcel)
        return True

    def _arrive(self, address: str, receive: Receive, parcel: list[bytes]) -> None:
        if self.boxes.get(address) is receive:
            receive(parcel)

    def forget(self, address: str) -> None:
        self.boxes.pop(address, None)

    def poll(self) -> None:
        """Do nothing: no message waits outside the event loop."""

    def close(self, linger_s: float = 0.0) -> None:
        """Do nothing: each process removes its mailbox with `forget`."""
