"""Simulated links between hosts, with the interface of hive.runtime.wire.links: as ZeroMQ over tcp, without a network.

    connected   messages arrive late and in order; a send is refused now and then, as with a full queue
    broken      of the messages on their way some first ones still arrive, even after the next connection began. The
                others are lost. Each end notices it after a while, and until then sends into nothing
    parted      a machine is cut off: messages wait until it is over, or until the silence breaks the connection

A client connects again by itself. Its owner learns of a connection up to a tick later, and may have sent on it before.
A process that exits breaks its connections. One seeded generator makes every choice.
"""

from __future__ import annotations

import contextvars
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from hive.runtime.wire.arrays import Frame, Frames
from hive.runtime.wire.links import TICK_S, KeyPair
from simulation.simulated_process import SimulatedLoop, SimulatedProcess, current_process

FIRST_PORT = 40_000
RETRY_S = 0.5  # longest pause before a new attempt to connect
NOTICED_S = 0.2  # longest time until an end notices that the connection is broken, unless only silence shows it
MOST = 1000  # maximum messages on their way in one direction


@dataclass(frozen=True)
class LinkFaults:
    """The frequency of faults of links. Breaks and partings are planned by their owner."""

    delay_s: float = 0.0  # longest delay of a message
    full: float = 0.0  # chance that a send is refused


class SimulatedLinks:
    """Makes the ends of simulated links: a `Links`. `silent_s`: silence that breaks a connection."""

    def __init__(self, loop: SimulatedLoop, faults: LinkFaults, silent_s: float, history: list[str]) -> None:
        self.loop = loop
        self.chance = loop.chance
        self.faults = faults
        self.silent_s = silent_s
        self.history = history
        self.servers: dict[str, _Server] = {}  # by address
        self.clients: list[_Client] = []
        self.parted: dict[str, float] = {}  # machine -> the time until which it is cut off
        self.ports = itertools.count(FIRST_PORT)
        self.identities = itertools.count(1)

    def server(self, keys: KeyPair, accepted: str, limit_bytes: int, silent_s: float) -> _Server:
        return _Server(self)

    def client(self, keys: KeyPair, server: str, limit_bytes: int, silent_s: float) -> _Client:
        return _Client(self)

    def break_off(self, machine: str) -> None:
        """Break every connection of a machine."""
        self.history.append(f"{self.loop.time():.4f} broke the links of {machine}")
        for connection in self._connections(machine):
            connection.cut()

    def part(self, machine: str, seconds: float) -> None:
        """Cut a machine off for a time."""
        self.history.append(f"{self.loop.time():.4f} parted {machine} for {seconds:.2f} s")
        self.parted[machine] = max(self.parted.get(machine, 0.0), self.loop.time() + seconds)
        if seconds > self.silent_s:
            for connection in self._connections(machine):
                self.later(self.silent_s, connection.cut)

    def vanished(self, machine: str) -> None:
        """Lose what a machine had on its way: it was switched off. Only silence shows it."""
        for connection in self._connections(machine):
            connection.cut(most=0, noticed_s=self.silent_s)

    def open_ends(self) -> list[str]:
        """Return the processes of ends that were not closed although their process has ended in order."""
        ends = [*self.servers.values(), *self.clients]
        return [str(end.process) for end in ends if not end.closed and end.process and not end.process.dead]

    def parted_s(self, machine: str) -> float:
        """Return how long a machine will still be cut off."""
        return max(0.0, self.parted.get(machine, 0.0) - self.loop.time())

    def later(self, seconds: float, function: Callable[..., object], *arguments: object) -> None:
        """Call a function outside of all processes."""
        self.loop.call_later(seconds, function, *arguments, context=contextvars.Context())

    def _connections(self, machine: str) -> list[_Connection]:
        return [client.connection for client in self.clients if client.machine == machine and client.connection]


class _Direction:
    """One direction of a connection: messages on their way to one end."""

    def __init__(self, links: SimulatedLinks, machine: str) -> None:
        self.links = links
        self.machine = machine
        self.last_s = 0.0  # when the last message arrives
        self.waiting: list[list[bool]] = []  # of each message on its way, oldest first: [whether it arrives]
        self.lost = False

    def send(
        self, frames: Frames, arrive: Callable[[list[Frame]], None], process: SimulatedProcess | None, *, stable: bool
    ) -> bool:
        links, chance = self.links, self.links.chance
        if len(self.waiting) >= MOST or (links.faults.full and chance.random() < links.faults.full):
            return False
        if self.lost:
            return True
        parcel: list[Frame] = [bytes(frame) for frame in frames]
        now = links.loop.time()
        due_s = now + links.parted_s(self.machine) + chance.random() * links.faults.delay_s
        self.last_s = max(self.last_s, due_s)
        arrives = [True]
        self.waiting.append(arrives)
        context = process.context.copy() if process else contextvars.Context()
        links.loop.call_at(self.last_s, self._arrive, arrives, parcel, arrive, context=context)
        return True

    def _arrive(self, arrives: list[bool], parcel: list[Frame], arrive: Callable[[list[Frame]], None]) -> None:
        if arrives in self.waiting:
            self.waiting.remove(arrives)
        if arrives[0]:
            arrive(parcel)

    def cut(self, most: int) -> None:
        """Lose all messages on their way but some first ones, at most `most`."""
        self.lost = True
        kept = self.links.chance.randint(0, min(most, len(self.waiting)))
        for arrives in self.waiting[kept:]:
            arrives[0] = False
        self.waiting = []


class _Connection:
    """A connection of a client to a server."""

    def __init__(self, links: SimulatedLinks, client: _Client, server: _Server) -> None:
        self.links = links
        self.client = client
        self.server = server
        self.identity = next(links.identities).to_bytes(5, "big")
        self.to_server = _Direction(links, client.machine)
        self.to_client = _Direction(links, client.machine)
        self.broken = False

    def cut(self, most: int = MOST, noticed_s: float = NOTICED_S) -> None:
        """Break it."""
        if self.broken:
            return
        self.broken = True
        self.to_server.cut(most)
        self.to_client.cut(most)
        chance = self.links.chance
        self.links.later(chance.random() * noticed_s, self._noticed)
        self.links.later(chance.random() * noticed_s, self.server.connections.pop, self.identity, None)

    def _noticed(self) -> None:
        if self.client.connection is self:
            self.client.connection = None
            self.client.retry()


class _End:
    """An end of links, and the process that made it."""

    def __init__(self, links: SimulatedLinks) -> None:
        self.links = links
        self.process = current_process()
        self.closed = False
        self.sent_bytes = self.received_bytes = 0
        if self.process is not None:
            self.process.at_exit.append(self._exited)

    @property
    def machine(self) -> str:
        return self.process.machine if self.process else ""

    def _exited(self) -> None:
        """The process has exited, and with it its sockets."""


class _Server(_End):
    """A `ServerEnd`."""

    refused = 0
    accepted = b""

    def __init__(self, links: SimulatedLinks) -> None:
        super().__init__(links)
        self.report: Callable[[str], None] = lambda text: None  # nobody without the key connects
        self.address = ""
        self.connections: dict[bytes, _Connection] = {}

    def bind(self, address: str, receive: Callable[[bytes, list[Frame]], None]) -> str:
        self.receive = receive
        host, _, port = address.rpartition(":")
        self.address = f"{host}:{next(self.links.ports) if port == '*' else port}"
        assert self.address not in self.links.servers, f"{self.address} is in use"
        self.links.servers[self.address] = self
        return self.address

    def send(self, client: bytes, frames: Frames, *, stable: bool = False) -> bool:
        connection = self.connections.get(client)
        if self.closed or connection is None:
            return False
        self.sent_bytes += sum(map(len, frames))
        end = connection.client
        return connection.to_client.send(frames, end.received, end.process, stable=stable)

    def received(self, client: bytes, frames: list[Frame]) -> None:
        if not self.closed:
            self.received_bytes += sum(map(len, frames))
            self.receive(client, frames)

    def close(self, linger_s: float = 0.0) -> None:
        """Close the connections; what was sent still arrives."""
        self.closed = True
        if self.links.servers.get(self.address) is self:
            del self.links.servers[self.address]
        for connection in [*self.connections.values()]:
            last = max(0.0, connection.to_client.last_s - self.links.loop.time())
            self.links.later(min(last, linger_s) + 1e-6, connection.cut)

    def _exited(self) -> None:
        if not self.closed:
            self.close()


class _Client(_End):
    """A `ClientEnd`."""

    def __init__(self, links: SimulatedLinks) -> None:
        super().__init__(links)
        self.connections = 0
        self.connection: _Connection | None = None
        links.clients.append(self)

    def connect(self, address: str, receive: Callable[[list[Frame]], None], connected: Callable[[], None]) -> None:
        self.address = address
        self.receive = receive
        self.connected = connected
        self.retry()

    def retry(self) -> None:
        """Connect after a pause, and once the machine is not cut off."""
        if not self.closed:
            pause_s = self.links.chance.random() * RETRY_S + self.links.parted_s(self.machine)
            self.links.later(pause_s, self._try)

    def _try(self) -> None:
        server = self.links.servers.get(self.address)
        if self.closed or self.connection is not None:
            return
        if server is None or self.links.parted_s(self.machine):
            self.retry()
            return
        self.connection = connection = _Connection(self.links, self, server)
        server.connections[connection.identity] = connection
        context = self.process.context.copy() if self.process else contextvars.Context()
        self.links.loop.call_later(self.links.chance.random() * TICK_S, self._made, context=context)

    def _made(self) -> None:
        """Tell the owner. The connection may be broken again by now, as far as it can know."""
        if not self.closed:
            self.connections += 1
            self.connected()

    def send(self, frames: Frames, *, stable: bool = False) -> bool:
        connection = self.connection
        if self.closed or connection is None:
            return False
        server, identity = connection.server, connection.identity
        self.sent_bytes += sum(map(len, frames))
        return connection.to_server.send(
            frames, lambda parcel: server.received(identity, parcel), server.process, stable=stable
        )

    def received(self, frames: list[Frame]) -> None:
        if not self.closed:
            self.received_bytes += sum(map(len, frames))
            self.receive(frames)

    def close(self, linger_s: float = 0.0) -> None:
        self.closed = True
        if self.connection is not None:
            connection, self.connection = self.connection, None
            connection.cut(MOST if linger_s else 0)

    def _exited(self) -> None:
        if not self.closed:
            self.closed = True
            if self.connection is not None:
                self.connection.cut()
