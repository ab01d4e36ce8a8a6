"""Ports: how an actor's class says what it sends and receives.

    class Doubler(hive.Actor):
        numbers = hive.Inlet(Number)
        doubled = hive.Outlet(Number)

On the class a port is a declaration. When the actor is built inside its process, each declaration becomes a bound
port of the instance: `self.doubled.send(...)`. What carries it was decided where the topology connected it:

    carrier     used for                           sender                      receiver
    slab        messages of one fixed layout       reserve / commit, send      claim / retire, receive
    message     everything else                    send                        receive
    board       Publication -> Subscription        begin / publish             pin / unpin

A port used before its actor runs raises a TopologyError that says so.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args

from hive.errors import TopologyError
from hive.runtime.batches import MAX_BATCH
from hive.runtime.messages import Message

if TYPE_CHECKING:
    from hive.runtime.boards import BoardReader, BoardWriter
    from hive.runtime.channels import MessageReceiver, MessageSender
    from hive.runtime.memory import Arrays, Bytes
    from hive.runtime.slabs import SlabReceiver, SlabSender, Slot

__all__ = ["Inlet", "Outlet", "Port", "Publication", "Subscription", "ports_of"]

M = TypeVar("M", bound=Message)
P = TypeVar("P", bound="Port[Any]")

Pattern = Literal["balance", "broadcast"]
WhenFull = Literal["wait", "drop_oldest", "fail"]


class Port(Generic[M]):
    """What all ports share: the message type and, once bound, the line that carries it."""

    direction = ""

    def __init__(self, message: type[M], *, optional: bool = False) -> None:
        if not (isinstance(message, type) and issubclass(message, Message)):
            raise TopologyError(f"a port carries a hive.Message class, not {message!r}")
        self.message = message
        self.optional = optional
        self.name = ""
        self.line: Any = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def bind(self: P, line: Any) -> P:
        """A copy of this declaration that is carried by `line`."""
        bound = copy.copy(self)
        bound.line = line
        return bound

    @property
    def connected(self) -> bool:
        return self.line is not None

    def _line(self) -> Any:
        if self.line is None:
            raise TopologyError(
                f"port `{self.name}` is not connected",
                hint="connect it in the topology function; ports work inside setup() and run(), not while it is built",
            )
        return self.line


class Outlet(Port[M]):
    """Sends messages. `balance`: each to one consumer, by demand. `broadcast`: each to every consumer.

    `when_full`: "wait" (default of balance), "drop_oldest" (default of broadcast, counted per consumer) or "fail".
    """

    direction = "out"

    def __init__(
        self,
        message: type[M],
        *,
        pattern: Pattern = "balance",
        when_full: WhenFull | None = None,
        optional: bool = False,
    ) -> None:
        super().__init__(message, optional=optional)
        if pattern not in get_args(Pattern) or when_full not in (None, *get_args(WhenFull)):
            raise TopologyError(
                f"an outlet cannot be pattern={pattern!r}, when_full={when_full!r}",
                hint=f"patterns: {', '.join(get_args(Pattern))}; when_full: {', '.join(get_args(WhenFull))}",
            )
        self.pattern: Pattern = pattern
        self.when_full: WhenFull = when_full or ("wait" if pattern == "balance" else "drop_oldest")

    async def send(self, message: M) -> None:
        """Sends one message; waits, drops or raises ChannelFull as `when_full` says."""
        await self.send_many((message,))

    async def send_many(self, messages: Sequence[M]) -> None:
        """Sends messages in order, as many at once as there is room for; a tenth of the cost each of `send`."""
        line: MessageSender | SlabSender = self._line()
        for message in messages:
            if not isinstance(message, self.message):
                raise TopologyError(
                    f"port `{self.name}` carries {self.message.__name__}, not {type(message).__name__}",
                    hint=f"send a {self.message.__name__}, or declare the port with another message",
                )
        await line.send_many(messages)

    def reserve(self) -> Awaitable[Slot]:
        """Slab only: a free slot to write in place."""
        line: SlabSender = self._line()
        return line.reserve()

    def commit(self, slot: Slot) -> int:
        """Slab only: hands the slot to the consumers; returns its sequence."""
        line: SlabSender = self._line()
        return line.commit(slot)

    def committed(self, sequence: int) -> int:
        """Slab only: how many actors of this group have committed their message `sequence`."""
        line: SlabSender = self._line()
        return line.committed(sequence)

    async def peek(self, which: Sequence[tuple[int, int]]) -> list[Arrays]:
        """Slab only, `shared`: what actors of this group committed, (actor, sequence) each; in place, once all is."""
        line: SlabSender = self._line()
        return await line.peek(which)

    @property
    def produced(self) -> int:
        """Slab only: messages committed so far by this producer, over all its incarnations."""
        line: SlabSender = self._line()
        return line.produced


class Inlet(Port[M]):
    """Receives messages: `await inlet.receive()` or `async for message in inlet`."""

    direction = "in"

    async def receive(self) -> M:
        line: MessageReceiver | SlabReceiver = self._line()
        return await line.receive()  # type: ignore[return-value]

    async def receive_many(self, most: int = MAX_BATCH) -> list[M]:
        """The messages that are there, at most so many, in order; waits for the first."""
        line: MessageReceiver | SlabReceiver = self._line()
        return await line.receive_many(most)  # type: ignore[return-value]

    def __aiter__(self) -> AsyncIterator[M]:
        return self

    async def __anext__(self) -> M:
        return await self.receive()

    def receive_nowait(self) -> M | None:
        """Message carrier only: the next message if there is one."""
        line: MessageReceiver = self._line()
        return line.receive_nowait()  # type: ignore[return-value]

    def claim(self, producer: int | None = None, sequence: int = -1) -> Awaitable[Slot]:
        """Slab only: the slot of that producer (its position in `producers`) and sequence, or the oldest of any."""
        line: SlabReceiver = self._line()
        return line.claim(producer, sequence)

    @property
    def producers(self) -> Sequence[int]:
        """Slab only: the positions of the producers that this consumer may claim from."""
        return self.lines.producers

    def retire(self, slot: Slot, reason: str = "consumed") -> None:
        """Slab only: gives a claimed slot back to its producer, counted under `reason`."""
        self.lines.retire(slot, reason)

    @property
    def lines(self) -> SlabReceiver:
        """Slab only: the receiving side itself, for consumers that order their claims (see SlabReceiver)."""
        line: SlabReceiver = self._line()
        return line


class Publication(Port[M]):
    """Latest value wins, versioned: the writing side of a board."""

    direction = "out"

    @property
    def board(self) -> BoardWriter:
        line: BoardWriter = self._line()
        return line

    @property
    def latest(self) -> int:
        """The newest version, also of an earlier incarnation; -1 before there is one."""
        return self.board.latest

    def begin(self) -> Bytes:
        """The memory of a block that no reader can see; write the next version into it."""
        return self.board.begin()

    def publish(self, version: int) -> None:
        """Makes the block of `begin` the latest, under this version."""
        self.board.publish(version)


class Subscription(Port[M]):
    """Latest value wins, versioned: the reading side of a board."""

    direction = "in"

    @property
    def board(self) -> BoardReader:
        line: BoardReader = self._line()
        return line

    @property
    def latest(self) -> int:
        """The newest version; -1 before there is one."""
        return self.board.latest

    async def pin(self, version: int = -1) -> tuple[int, Bytes]:
        """(version, memory) of the block of `version`, or of the latest; waits until it is there.

        The block stays as it is until `unpin`. Raises VersionGone when it was overwritten.
        """
        return await self.board.pin(version)

    def unpin(self) -> None:
        self.board.unpin()


_PORTS: weakref.WeakKeyDictionary[type, Mapping[str, Port[Any]]] = weakref.WeakKeyDictionary()


def ports_of(cls: type) -> Mapping[str, Port[Any]]:
    """The ports that an actor class declares, its bases' included."""
    if (known := _PORTS.get(cls)) is not None:
        return known
    found: dict[str, Port[Any]] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, Port):
                found[name] = value
            elif name in found:
                del found[name]
    _PORTS[cls] = found
    return found
