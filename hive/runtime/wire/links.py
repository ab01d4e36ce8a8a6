"""Links between hosts: ZeroMQ over tcp, encrypted and authenticated by CURVE (https://rfc.zeromq.org/spec/26).

    head   LinkServer   one per host, bound to one address; knows the public key of that host, and refuses all others
    host   LinkClient   one per process of that host that talks to the head; knows the public key of the head

Both ends know each other's public key before they connect, so neither talks to a stranger: a client without keys, with
other keys, or that does not speak ZeroMQ fails in the handshake, and is counted and logged. The payload is encrypted.

A link does not promise that a message arrives: what was on its way when a connection broke is lost, and the next
connection begins with nothing. `connections` counts the connections of a client, so that its owner can begin anew. The
messages that travel here are numbered, and their owners repeat what was not acknowledged.

`Links` makes the ends. `SOCKETS` makes those of this module; the simulator makes others (tests/simulation).

Reading follows hive.runtime.wire.sockets: the descriptor of a socket is edge-triggered, and here the same socket also
sends, which can swallow an edge. So every send is followed by a look at the socket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import zmq
import zmq.auth.thread
import zmq.utils.monitor

from hive.errors import PlatformError, UsageError
from hive.runtime.wire.arrays import MAX_FRAMES, Frame, Frames

KEY_LENGTH = 40  # characters of a key in Z85, the text form of 32 bytes (https://rfc.zeromq.org/spec/32)
QUEUE_MESSAGES = 1000  # maximum queued messages per connection: more are the sign of an owner that does not wait
PORTION = 64  # maximum messages read before the loop may run other callbacks
TICK_S = 0.05  # interval of the polling tick: the longest delay by a lost edge
HANDSHAKE_MS = 3000  # limit of a handshake; another attempt follows
PING_MS = 1000  # interval at which ZeroMQ itself tests an idle connection
RECONNECT_MS = 100  # first pause before a new attempt to connect; it doubles up to
RECONNECT_MAX_MS = 2000
BACKLOG = 16  # connections that wait to be accepted; a host has two

REFUSED = zmq.Event.HANDSHAKE_FAILED_AUTH | zmq.Event.HANDSHAKE_FAILED_PROTOCOL | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
LOG = logging.getLogger("hive.runtime")


@dataclass(frozen=True)
class KeyPair:
    """A CURVE key pair, as text of KEY_LENGTH characters each."""

    public: str
    secret: str

    @classmethod
    def new(cls) -> KeyPair:
        """Make a key pair. Raises PlatformError if this ZeroMQ was built without CURVE."""
        if not zmq.has("curve"):
            raise PlatformError(
                "this installation of pyzmq has no CURVE encryption, which hosts need",
                hint="install pyzmq from its wheel: pip install --force-reinstall pyzmq",
            )
        public, secret = zmq.curve_keypair()
        return cls(public.decode(), secret.decode())

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r})"  # the secret must not reach a log


class ServerEnd(Protocol):
    """The head's end of the links of one host. `LinkServer` documents the methods."""

    accepted: bytes
    report: Callable[[str], None]
    refused: int
    sent_bytes: int
    received_bytes: int

    def bind(self, address: str, receive: Callable[[bytes, list[Frame]], None]) -> str: ...

    def send(self, client: bytes, frames: Frames, *, stable: bool = False) -> bool: ...

    def close(self, linger_s: float = 0.0) -> None: ...


class ClientEnd(Protocol):
    """The end of a process of the host. `LinkClient` documents the methods."""

    connections: int

    def connect(self, address: str, receive: Callable[[list[Frame]], None], connected: Callable[[], None]) -> None: ...

    def send(self, frames: Frames, *, stable: bool = False) -> bool: ...

    def close(self, linger_s: float = 0.0) -> None: ...


class Links(Protocol):
    """Makes the ends of links. Arguments as those of `LinkServer` and `LinkClient`."""

    def server(self, keys: KeyPair, accepted: str, limit_bytes: int, silent_s: float) -> ServerEnd: ...

    def client(self, keys: KeyPair, server: str, limit_bytes: int, silent_s: float) -> ClientEnd: ...


class _Link:
    """A socket of one event loop. `limit_bytes`: maximum bytes of a frame; a longer one closes its connection."""

    def __init__(self, kind: int, limit_bytes: int, silent_s: float) -> None:
        self.context = zmq.Context(io_threads=1)
        self.socket: zmq.Socket[bytes] = self.context.socket(kind)
        self.socket.set(zmq.LINGER, 0)
        self.socket.set(zmq.SNDHWM, QUEUE_MESSAGES)
        self.socket.set(zmq.RCVHWM, QUEUE_MESSAGES)
        self.socket.set(zmq.MAXMSGSIZE, limit_bytes)
        self.socket.set(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        # A connection whose other end is silent is closed, and then made again.
        self.socket.set(zmq.HEARTBEAT_IVL, PING_MS)
        self.socket.set(zmq.HEARTBEAT_TIMEOUT, max(int(silent_s * 1000), PING_MS))
        self.receive: Callable[[list[Frame]], None] | None = None
        self.monitor: zmq.Socket[bytes] | None = None
        self.tick: asyncio.TimerHandle | None = None
        self.again: asyncio.Handle | None = None
        self.sent_bytes = self.received_bytes = 0

    def _begin(self, receive: Callable[[list[Frame]], None], events: int) -> None:
        """Read from now on: `receive` gets the frames of each message."""
        self.receive = receive
        self.monitor = self.socket.get_monitor_socket(events)
        asyncio.get_running_loop().add_reader(int(self.socket.get(zmq.FD)), self._readable)
        self._tick()

    def _tick(self) -> None:
        self.tick = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        while self.monitor is not None and int(self.monitor.get(zmq.EVENTS)) & zmq.POLLIN:
            self._happened(zmq.utils.monitor.recv_monitor_message(self.monitor)["event"])
        self._readable()

    def _happened(self, event: int) -> None:
        """Handle an event of a connection."""

    def _readable(self) -> None:
        if self.again is not None:
            self.again.cancel()
            self.again = None
        for _ in range(PORTION):
            if self.receive is None:
                return
            try:
                frames = self._received()
            except zmq.Again:
                return
            if len(frames) <= MAX_FRAMES:
                self.receive(frames)
        self._look_again()

    def _look_again(self) -> None:
        if self.again is None and self.receive is not None:
            self.again = asyncio.get_running_loop().call_soon(self._readable)

    def _received(self) -> list[Frame]:
        """Return the frames of the next message, long ones in the memory of ZeroMQ. Raises zmq.Again without one.

        No more than MAX_FRAMES are kept, and one more as the sign that there were.
        """
        frames: list[Frame] = []
        while True:
            frame = self.socket.recv(zmq.NOBLOCK, copy=False)
            self.received_bytes += len(frame)
            if len(frames) <= MAX_FRAMES:
                frames.append(frame.buffer if len(frame) >= zmq.COPY_THRESHOLD else frame.bytes)
            if not frame.more:
                return frames

    def _send(self, frames: Frames, stable: bool) -> bool:
        try:
            self.socket.send_multipart(frames, zmq.NOBLOCK, copy=not stable)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EAGAIN, zmq.EHOSTUNREACH):  # a full queue; a client that has left
                return False
            raise
        self.sent_bytes += sum(map(len, frames))
        self._look_again()
        return True

    def close(self, linger_s: float = 0.0) -> None:
        """Close the socket after at most `linger_s` seconds, in which unsent messages may still be sent."""
        if self.receive is not None:
            asyncio.get_running_loop().remove_reader(int(self.socket.get(zmq.FD)))
            self.receive = None
        for handle in (self.tick, self.again):
            if handle is not None:
                handle.cancel()
        if self.monitor is not None:
            self.socket.disable_monitor()
            self.monitor.close(linger=0)
            self.monitor = None
        self.socket.close(linger=int(linger_s * 1000))
        self.context.term()


class LinkServer(_Link):
    """The head's end of the links of one host, whose public key is `accepted`.

    `refused` counts the connections that failed in the handshake: those of strangers. `report` gets a line about them.
    """

    def __init__(self, keys: KeyPair, accepted: str, limit_bytes: int, silent_s: float) -> None:
        super().__init__(zmq.ROUTER, limit_bytes, silent_s)
        self.report: Callable[[str], None] = LOG.warning
        self.accepted = accepted.encode()
        self.refused = 0
        self.greeting = 0  # connections whose handshake has not ended
        self.socket.set(zmq.ROUTER_MANDATORY, 1)  # a message to a client that has left is an error, not lost silently
        self.socket.set(zmq.BACKLOG, BACKLOG)
        self.socket.set(zmq.CURVE_SERVER, 1)
        self.socket.set(zmq.CURVE_PUBLICKEY, keys.public.encode())
        self.socket.set(zmq.CURVE_SECRETKEY, keys.secret.encode())
        self.authenticator = zmq.auth.thread.ThreadAuthenticator(self.context, log=_Quiet())
        self.authenticator.start()
        self.authenticator.configure_curve_callback(credentials_provider=self)

    def callback(self, domain: str, key: bytes) -> bool:
        """Return whether the client with this public key may connect; the authenticator's thread calls it."""
        return key == self.accepted

    def bind(self, address: str, receive: Callable[[bytes, list[Frame]], None]) -> str:
        """Accept connections at `address`, "tcp://host:port" (port 0: any), and return the address with its port.

        `receive` gets a client's identity and the frames of each message. Raises UsageError if it cannot be bound.
        """
        try:
            self.socket.bind(address)
        except zmq.ZMQError as error:
            raise UsageError(
                f"{address} cannot be bound: {error.strerror}",
                hint="hosts.address must be an address of this machine, and the port free",
            ) from None
        events = REFUSED | zmq.Event.ACCEPTED | zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED
        self._begin(lambda frames: receive(bytes(frames[0]), frames[1:]), events)
        return self.socket.get_string(zmq.LAST_ENDPOINT)

    def _happened(self, event: int) -> None:
        if event == zmq.Event.ACCEPTED:
            self.greeting += 1
            return
        if not self.greeting:
            return  # a connection of before has ended
        self.greeting -= 1
        if event == zmq.Event.HANDSHAKE_SUCCEEDED:
            return
        # Either ZeroMQ says that the handshake failed, or the connection ended in it: the other end speaks no ZeroMQ.
        self.refused += 1
        if self.refused.bit_count() == 1:  # 1, 2, 4, 8, ...: a flood takes a few lines
            self.report(f"refused {self.refused} connections without the key of this host so far")

    def send(self, client: bytes, frames: Frames, *, stable: bool = False) -> bool:
        """Send a message to a client without blocking. Returns False if it has left, or its queue is full.

        `stable`: the frames do not change before they have been sent.
        """
        return self._send([client, *frames], stable)

    def close(self, linger_s: float = 0.0) -> None:
        self.authenticator.stop()
        super().close(linger_s)


class LinkClient(_Link):
    """The end of a process of the host. `server`: the head's public key. `connections`: how many there have been."""

    def __init__(self, keys: KeyPair, server: str, limit_bytes: int, silent_s: float) -> None:
        super().__init__(zmq.DEALER, limit_bytes, silent_s)
        self.connections = 0
        self.socket.set(zmq.CURVE_SERVERKEY, server.encode())
        self.socket.set(zmq.CURVE_PUBLICKEY, keys.public.encode())
        self.socket.set(zmq.CURVE_SECRETKEY, keys.secret.encode())
        self.socket.set(zmq.RECONNECT_IVL, RECONNECT_MS)
        self.socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        self.socket.set(zmq.IMMEDIATE, 1)  # nothing is queued for a connection that does not exist

    def connect(self, address: str, receive: Callable[[list[Frame]], None], connected: Callable[[], None]) -> None:
        """Connect to the head, and again whenever the connection breaks. `connected` is called for each connection."""
        self.connected = connected
        self.socket.connect(address)
        self._begin(receive, zmq.Event.HANDSHAKE_SUCCEEDED)

    def _happened(self, event: int) -> None:
        self.connections += 1
        self.connected()

    def send(self, frames: Frames, *, stable: bool = False) -> bool:
        """Send a message without blocking. Returns False without a connection, or if its queue is full."""
        return self._send(frames, stable)


class SocketLinks:
    """Makes the ends of real links."""

    def server(self, keys: KeyPair, accepted: str, limit_bytes: int, silent_s: float) -> LinkServer:
        return LinkServer(keys, accepted, limit_bytes, silent_s)

    def client(self, keys: KeyPair, server: str, limit_bytes: int, silent_s: float) -> LinkClient:
        return LinkClient(keys, server, limit_bytes, silent_s)


SOCKETS = SocketLinks()


class _Quiet(logging.LoggerAdapter[logging.Logger]):
    """The authenticator's log without its lines for every connection; refusals are counted and logged here."""

    def __init__(self) -> None:
        super().__init__(LOG, {})

    def isEnabledFor(self, level: int) -> bool:
        return False
