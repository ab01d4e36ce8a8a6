"""Limits of connections, so that a program that holds many of them, or sends or reads slowly, cannot shut out others.

    count      a connection beyond MOST_CONNECTIONS is closed at once
    head       a connection that has not sent the whole head of a request within HEAD_S is closed
    reading    a connection whose other end takes no data for UNREAD_S is closed by the kernel

A stream of samples counts as being read: it sends at least a comment every few seconds.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 256  # 64 streams, and some requests of each page
HEAD_S = 10.0  # a browser sends a head in one piece; slow networks need some seconds
UNREAD_S = 30.0  # longer than a network is usually gone


def limit_reading(listener: socket.socket) -> None:
    """Let the kernel close connections of a listener whose other end takes no data for UNREAD_S."""
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * UNREAD_S))


class Connection(H11Protocol):
    """A connection of uvicorn with a limit of their number, and of the time without a request."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.deadline: asyncio.TimerHandle | None = None  # while no request is being answered

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._limit_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._limit_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._limit_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.deadline is not None:
            self.deadline.cancel()

    def _limit_head(self) -> None:
        """Begin the time for a head where a request is awaited. Parts of a head do not extend it."""
        waiting = self.cycle is None or self.cycle.response_complete
        if not waiting and self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None
        elif waiting and self.deadline is None:
            self.deadline = self.loop.call_later(HEAD_S, self.transport.abort)
