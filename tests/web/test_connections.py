"""Attacks with real connections: idle ones, many, slow readers. The limits are shortened."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from typing import TYPE_CHECKING

import pytest

from hive.web import connections, site
from hive.web.connections import Connection
from hive.web.guard import Guard
from hive.web.server import bind, make_server, serve_until_signal

if TYPE_CHECKING:
    from conftest import Web

LIMIT_S = 20.0
Talk = Callable[[int], Awaitable[None]]


def during_service(web: Web, talk: Talk) -> None:
    """Serve at a free port, and call `talk` with it."""

    async def main() -> None:
        with closing(bind("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            server, ready = make_server(Guard(web.site.app, "127.0.0.1", port)), asyncio.Event()
            serving = asyncio.create_task(serve_until_signal(server, listener, web.samplers, ready.set))
            await ready.wait()
            try:
                await asyncio.wait_for(talk(port), LIMIT_S)
            finally:
                server.should_exit = True
                web.samplers.close()
                await serving

    asyncio.run(main())


@asynccontextmanager
async def connected(port: int, sent: bytes = b"") -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


@pytest.mark.parametrize("sent", [b"", b"GET /api/ru", b"\r\n", get("/api/session") + b"GET / HTTP/1.1\r\nHost:"])
def test_a_connection_that_does_not_send_a_whole_request_is_closed(
    web: Web, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.02)

    async def talk(port: int) -> None:
        async with connected(port, sent) as (reader, _):
            with suppress(ConnectionResetError):
                await reader.read()  # until the server closes the connection

    during_service(web, talk)


def test_a_stream_stays_open_longer_than_a_request_may_take(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.02)
    monkeypatch.setattr(site, "SILENT_S", 0.04)
    web.run()

    async def talk(port: int) -> None:
        async with connected(port, get("/api/stream?run=cartpole-1")) as (reader, _):
            await reader.readuntil(b'"run": "cartpole-1"')
            for _ in range(2):
                await reader.readuntil(b": nothing new")

    during_service(web, talk)


def test_connections_beyond_the_limit_are_closed_and_the_others_are_served(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 3)

    async def talk(port: int) -> None:
        async with AsyncExitStack() as stack:
            first = [await stack.enter_async_context(connected(port)) for _ in range(3)]
            for _ in range(20):
                async with connected(port, get("/api/session")) as (reader, _):
                    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                        await reader.readexactly(12)
            for reader, writer in first:
                writer.write(get("/api/session"))
                assert await reader.readexactly(12) == b"HTTP/1.1 200"

    during_service(web, talk)


def test_a_client_that_does_not_read_is_disconnected_and_its_stream_ends(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "UNREAD_S", 0.2)
    directory = web.run()
    event = '{"t": 1.7e9, "kind": "note", "text": "%s"}\n' % ("x" * 100_000)
    directory.events_file.write_text(event * 100)  # more than the buffers of a connection
    monkeypatch.setattr("hive.web.sampler.EVENTS_BACK", 1 << 24)
    lost = asyncio.Event()
    monkeypatch.setattr(Connection, "connection_lost", lambda *_, end=Connection.connection_lost: (end(*_), lost.set()))

    async def talk(port: int) -> None:
        with closing(socket.socket()) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", port))
            client.sendall(get("/api/stream?run=cartpole-1"))
            await lost.wait()
        while web.samplers.viewers:
            await asyncio.sleep(0)  # the task of the request ends

    during_service(web, talk)
