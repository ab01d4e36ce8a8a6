"""Starts the web server: binds its socket, prints the URL, and serves until Ctrl-C or SIGTERM.

It reads runs as other views do, so its end changes nothing for any run.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import Callable, Iterator, Sequence

import uvicorn

from hive.errors import UsageError
from hive.records import RunDirectory
from hive.web.catalogue import Catalogue
from hive.web.connections import Connection, limit_reading
from hive.web.guard import HEAD_BYTES, Guard, is_loopback
from hive.web.sampler import Samplers
from hive.web.site import Site

PORT = 4483  # default port: "hive" on the keys of a telephone
STOP_S = 2  # seconds that open requests have to end after Ctrl-C


def bind(host: str, port: int | None) -> socket.socket:
    """Return a listening socket: at `port`; with None at PORT, or at a free port if another program has that.

    Raises UsageError where `host` or the given port cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in (PORT, 0) if port is None else (port,):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
        except (OSError, OverflowError) as error:
            listener.close()
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE and port is None and number:
                continue
            reason = getattr(error, "strerror", None) or str(error)
            hint = "give another --port, or none" if port is not None else "give an address of this machine as --host"
            raise UsageError(f"cannot listen at {host}, port {number}: {reason.lower()}", hint=hint) from None
        return listener
    raise AssertionError("the free port of the last try cannot be taken")


class PageServer(uvicorn.Server):
    """A server whose signals the caller handles: uvicorn would raise them again after its end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_server(app: Guard) -> uvicorn.Server:
    """Return a server of this application that limits its connections and logs only errors."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_graceful_shutdown=STOP_S,
    )
    return PageServer(config)


def serve(
    listener: socket.socket, host: str, find: Callable[[], Sequence[RunDirectory]], ready: Callable[[str], object]
) -> None:
    """Serve the runs that `find` returns (newest last) until SIGINT or SIGTERM. `ready` receives the URL."""
    port = listener.getsockname()[1]
    samplers = Samplers()
    guard = Guard(Site(Catalogue(find), samplers).app, host, port)
    server = make_server(guard)
    asyncio.run(serve_until_signal(server, listener, samplers, lambda: ready(_url(host, port, guard.token))))


async def serve_until_signal(
    server: uvicorn.Server, listener: socket.socket, samplers: Samplers, ready: Callable[[], object]
) -> None:
    """Serve until SIGINT, SIGTERM or `should_exit` of the server. `ready` is called once connections are accepted."""

    def stop() -> None:
        server.should_exit = True
        samplers.close()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    limit_reading(listener)
    listener.listen()
    ready()
    await server.serve(sockets=[listener])


def _url(host: str, port: int, token: str) -> str:
    """Return the URL with the token, for a browser of this machine or, if the server is public, of another one."""
    name = f"[{host}]" if ":" in host else host
    if not is_loopback(host) and host in ("0.0.0.0", "::"):
        name = socket.gethostname()
    return f"http://{name}:{port}/?token={token}"
