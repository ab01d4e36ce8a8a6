"""Ports declare the messages that an actor's class sends and receives.

    class Doubler(hive.Actor):
        numbers = hive.Inlet(Number)
        doubled = hive.Outlet(Number)

On the class a port is a declaration. When the actor is built inside its process, each declaration becomes a bound
port of the instance: `self.doubled.send(...)`. The connection in the topology determines its carrier:

    ports                              carriers                   methods
    Outlet -> Inlet                    Messages, Slots, Zmq       send; receive
    SlotOutlet -> SlotInlet            Slots, Zmq                 also reserve, commit; claim, retire: in place
    Publication -> Subscription        Board                      begin, publish; pin, unpin
    SharedOut -> SharedIn              Shared                     memory, changed in place

Every method of a port that is not connected, or not bound yet, raises TopologyError.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar, get_args

from hive.errors import TopologyError
from hive.runtime.carriers.boards import Board, BoardReader, BoardWriter
from hive.runtime.carriers.carrier import Carrier, Pattern, WhenFull
from hive.runtime.carriers.messages import MessageReceiver, Messages, MessageSender
from hive.runtime.carriers.shared import Shared, SharedBlock
from hive.runtime.carriers.slots import Slot, SlotReceiver, Slots, SlotSender
from hive.runtime.memory.segments import Arrays, Bytes
from hive.runtime.wire.batches import MAX_BATCH
from hive.runtime.wire.messages import Message

M = TypeVar("M", bound=Message)
P = TypeVar("P", bound="Port[Any]")


class Port(Generic[M]):
    """Base of all ports. `message` is the message type; `line` is the bound end of the channel, None before.

    `carriers`: the carriers that its channel may have. `module`: that of the class which declares it.

    Raises TopologyError for a type that is not a Message.
    """

    direction = ""
    carriers: ClassVar[tuple[type[Carrier], ...]] = ()

    def __init__(self, message: type[M], *, optional: bool = False) -> None:
        if not (isinstance(message, type) and issubclass(message, Message)):
            raise TopologyError(f"a port carries a hive.Message class, not {message!r}")
        self.message = message
        self.optional = optional
        self.name = self.module = ""
        self.line: Any = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.module = name, owner.__module__

    def bind(self: P, line: Any) -> P:
        """Return a copy of this declaration that sends or receives through `line`."""
        bound = copy.copy(self)
        bound.line = line
        return bound

    @property
    def connected(self) -> bool:
        """Whether the port is bound to a channel."""
        return self.line is not None

    def _line(self) -> Any:
        if self.line is None:
            raise TopologyError(
                f"port `{self.name}` is not connected",
                hint="connect it in the topology function; ports work in setup() and run(), not in that function",
            )
        return self.line


class OutPort(Port[M]):
    """Base of outlets. With pattern "balance" each message goes to the least loaded consumer, with "broadcast" to all.

    `when_full`: "wait" (default of balance), "drop_oldest" (default of broadcast, counted per consumer) or "fail".
    Raises TopologyError for an unknown pattern or `when_full`.
    """

    direction = "out"
    carriers: ClassVar[tuple[type[Carrier], ...]] = (Messages, Slots)

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
                f"invalid outlet: pattern={pattern!r}, when_full={when_full!r}",
                hint=f"patterns: {', '.join(get_args(Pattern))}; when_full: {', '.join(get_args(WhenFull))}",
            )
        self.pattern: Pattern = pattern
        self.when_full: WhenFull = when_full or ("wait" if pattern == "balance" else "drop_oldest")

    async def send(self, message: M) -> None:
        """Send one message. In a full channel it waits, drops the oldest or raises ChannelFull, as `when_full` says.

        Raises TopologyError for a message of another type than the port's.
        """
        await self.send_many((message,))

    async def send_many(self, messages: Sequence[M]) -> None:
        """Send messages in order, as many at once as there is room for: a tenth of the cost per message of `send`."""
        line: MessageSender | SlotSender = self._line()
        for message in messages:
            if not isinstance(message, self.message):
                raise TopologyError(
                    f"port `{self.name}` carries {self.message.__name__}, not {type(message).__name__}",
                    hint=f"send a {self.message.__name__}, or declare the port with another message",
                )
        await line.send_many(messages)


class Outlet(OutPort[M]):
    """Sends messages, with any carrier of messages."""


class SlotOutlet(OutPort[M]):
    """An outlet that also writes its messages in place, into slots. Its channel needs a carrier with a layout."""

    carriers = (Slots,)

    @property
    def slots(self) -> SlotSender:
        """The bound SlotSender."""
        line: SlotSender = self._line()
        return line

    def reserve(self) -> Awaitable[Slot]:
        """Reserve a free slot, to write it in place; waits for one."""
        return self.slots.reserve()

    def commit(self, slot: Slot) -> int:
        """Hand the slot to the consumers; return its sequence."""
        return self.slots.commit(slot)

    def committed(self, sequence: int) -> int:
        """Count the actors of this group that have committed their message `sequence`."""
        return self.slots.committed(sequence)

    async def peek(self, which: Sequence[tuple[int, int]]) -> list[Arrays]:
        """Return the arrays, in place, of messages of this group; waits until all are committed.

        `which`: (position in the group, sequence) of each message. The carrier must be Slots(..., shared=True).
        """
        return await self.slots.peek(which)

    @property
    def produced(self) -> int:
        """The sequence of the next message, which an earlier incarnation may have advanced."""
        return self.slots.produced


class InPort(Port[M]):
    """Base of inlets. Receives messages: `await inlet.receive()` or `async for message in inlet`."""

    direction = "in"
    carriers: ClassVar[tuple[type[Carrier], ...]] = (Messages, Slots)

    async def receive(self) -> M:
        """Return the next message; waits for it."""
        line: MessageReceiver | SlotReceiver = self._line()
        return await line.receive()  # type: ignore[return-value]

    async def receive_many(self, most: int = MAX_BATCH) -> list[M]:
        """Return the messages that have arrived, in order, at most `most`; waits for the first."""
        line: MessageReceiver | SlotReceiver = self._line()
        return await line.receive_many(most)  # type: ignore[return-value]

    def __aiter__(self) -> AsyncIterator[M]:
        return self

    async def __anext__(self) -> M:
        return await self.receive()

    def receive_nowait(self) -> M | None:
        """Return the next message, or None if none has arrived."""
        line: MessageReceiver | SlotReceiver = self._line()
        return line.receive_nowait()  # type: ignore[return-value]


class Inlet(InPort[M]):
    """Receives messages, with any carrier of messages."""


class SlotInlet(InPort[M]):
    """An inlet that also reads messages in place, from slots. Its channel needs a carrier with a layout."""

    carriers = (Slots,)

    @property
    def lines(self) -> SlotReceiver:
        """The bound SlotReceiver, for consumers that claim in an order of their choice."""
        line: SlotReceiver = self._line()
        return line

    def claim(self, producer: int | None = None, sequence: int = -1) -> Awaitable[Slot]:
        """Claim the slot of `producer` (a position in `producers`) and `sequence`; waits for it.

        By default it claims the oldest slot of any producer.
        """
        return self.lines.claim(producer, sequence)

    @property
    def producers(self) -> Sequence[int]:
        """The positions of the producers that this consumer may claim from."""
        return self.lines.producers

    def retire(self, slot: Slot, reason: str = "consumed") -> None:
        """Give a claimed slot back to its producer, counted under `reason`. Raises ValueError."""
        self.lines.retire(slot, reason)


class Publication(Port[M]):
    """Writes the versions of a board."""

    direction = "out"
    carriers = (Board,)

    @property
    def board(self) -> BoardWriter:
        """The bound BoardWriter."""
        line: BoardWriter = self._line()
        return line

    @property
    def latest(self) -> int:
        """The newest version, which an earlier incarnation may have published; -1 if there is none."""
        return self.board.latest

    def begin(self) -> Bytes:
        """Return the memory of an unused block, to write the next version into. Raises RuntimeError without one."""
        return self.board.begin()

    def publish(self, version: int) -> None:
        """Publish the block of `begin` as `version`. Raises ValueError unless versions increase."""
        self.board.publish(version)


class Subscription(Port[M]):
    """Reads the versions of a board."""

    direction = "in"
    carriers = (Board,)

    @property
    def board(self) -> BoardReader:
        """The bound BoardReader."""
        line: BoardReader = self._line()
        return line

    @property
    def latest(self) -> int:
        """The newest version; -1 if there is none."""
        return self.board.latest

    async def pin(self, version: int = -1) -> tuple[int, Bytes]:
        """Pin `version` (-1: the latest) and return (version, memory); waits until it is published.

        The block does not change until `unpin`. Raises VersionGone when it has been overwritten.
        """
        return await self.board.pin(version)

    def unpin(self) -> None:
        """Release the pinned block."""
        self.board.unpin()


class SharedOut(Port[M]):
    """Changes the memory of a Shared channel in place."""

    direction = "out"
    carriers = (Shared,)

    @property
    def memory(self) -> Bytes:
        """The block, uint8 [block_bytes]."""
        line: SharedBlock = self._line()
        return line.memory


class SharedIn(Port[M]):
    """Reads the memory of a Shared channel."""

    direction = "in"
    carriers = (Shared,)

    @property
    def memory(self) -> Bytes:
        """The block, uint8 [block_bytes]. Its reader must not write to it."""
        line: SharedBlock = self._line()
        return line.memory


_PORTS: weakref.WeakKeyDictionary[type, Mapping[str, Port[Any]]] = weakref.WeakKeyDictionary()


def ports_of(cls: type) -> Mapping[str, Port[Any]]:
    """Return the ports that an actor class and its bases declare, by name."""
    if (known := _PORTS.get(cls)) is not None:
        return known
    ports: dict[str, Port[Any]] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, Port):
                ports[name] = value
            elif name in ports:
                del ports[name]
    _PORTS[cls] = ports
    return ports
