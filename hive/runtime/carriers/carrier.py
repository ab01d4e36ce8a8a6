"""What every carrier provides. A carrier is the way in which a channel moves its messages; each has a module here.

A carrier is described by a frozen dataclass, an argument of `Topology.connect`: `Slots(layout, slots=4)`. The same
description serves three places:

    building     `check` refuses what cannot work; `segments` says which shared memory the channel needs
    processes    `source` and `target` make the ends of the channel, which the actors' ports use (`Line`)
    supervisor   `reclaim` repairs the channel after an exit, `drain` empties it, `accounts` counts its messages

Of a plan, the supervisor knows only `kind` and `options`. It never imports user code, so a subclass that users write
inherits the kind of a carrier of hive, and with it the supervisor's part.
"""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from hive import _native
from hive.errors import WireError
from hive.runtime.carriers.waiting import Waiter
from hive.runtime.memory.segments import (
    BoardPlan,
    BoardView,
    BufferPlan,
    Bytes,
    Layout,
    SegmentPlan,
    SlabPlan,
    SlabView,
)
from hive.runtime.wire.arrays import Frames
from hive.runtime.wire.messages import Message, Tree
from hive.runtime.wire.protocol import Ack

Pattern = Literal["balance", "broadcast"]
WhenFull = Literal["wait", "drop_oldest", "fail"]
ActorIdentity = tuple[int, int]  # actor number, incarnation
AccountDict = dict[str, Any]  # produced, consumed, dropped: {reason: n}, in_flight
C = TypeVar("C", bound="Carrier")


class PlanSegment(Message):
    """One segment of shared memory: a slab of slots, a board of blocks, or a buffer. Only boards have all fields."""

    name: str
    kind: str  # "slab" | "board" | "buffer"
    count: int  # number of slots or blocks
    item_bytes: int  # size of a slot or block, or of the whole buffer
    readers: int  # number of readers of a board, each of which may pin one block
    keep: int  # number of newest versions that a board does not overwrite
    commit_with: str  # name of the board segment whose commit word this one shares, or ""
    first: int = 0  # sequence number of a slab's first commit
    sparse_bytes: int = 0  # bytes of a buffer that are not expected to be written
    folder: str = ""  # folder of the file that holds a buffer; "": it lies in memory

    @functools.cached_property
    def plan(self) -> SegmentPlan:
        if self.kind == "slab":
            return SlabPlan(self.count, self.item_bytes, self.first)
        if self.kind == "buffer":
            return BufferPlan(self.item_bytes)
        return BoardPlan(self.count, self.item_bytes, self.readers, self.keep)


class PlanChannel(Message):
    """One channel of a plan. Producers and consumers are actor numbers.

    `segments`: for slots, that of each producer comes first.
    """

    name: str
    carrier: str  # kind of the carrier
    options: Tree  # its description as data
    pattern: str
    when_full: str
    source: str  # "group.port"
    targets: tuple[str, ...]
    producers: tuple[int, ...]
    consumers: tuple[int, ...]
    segments: tuple[str, ...]

    @functools.cached_property
    def description(self) -> Carrier:
        """The carrier as the supervisor knows it. Raises KeyError for an unknown kind."""
        return KINDS[self.carrier].of_options(self.options)


class SegmentViews(Protocol):
    """The memory of a run, by the name of its segment."""

    def slab(self, segment: str) -> SlabView: ...
    def board(self, segment: str) -> BoardView: ...
    def buffer(self, segment: str) -> Bytes: ...


class RunMemory(Protocol):
    """The shared memory of a run: its slabs and boards, and the status pages of its actors."""

    @property
    def views(self) -> SegmentViews: ...
    @property
    def pages(self) -> _native.Status: ...


class Host(Protocol):
    """What the process of an actor offers to the ends of its channels."""

    @property
    def incarnation(self) -> int: ...
    @property
    def views(self) -> SegmentViews: ...
    @property
    def draining(self) -> bool:
        """Whether the run ends."""

    def notify(self, actors: Sequence[int]) -> None:
        """Wake these actors after a change of shared memory."""

    def notify_one(self, actors: Sequence[int], channel: int, first: int) -> None:
        """Wake one of these actors for a message of `channel`: the first from position `first` that requested it."""

    def pages_of(self, actors: Sequence[int]) -> list[_native.StatusPage] | None:
        """Return the pages of these actors, through which native code wakes them.

        None if one has not joined, or shares its process: only a message wakes that one.
        """

    def send(self, actor: int, message: Message, frames: Frames = (), *, stable: bool = False) -> None:
        """Send a message, and frames after it, to the process of an actor; dropped while the actor has not joined.

        `stable`: as for Transport.post.
        """

    def joined(self, actor: int) -> int:
        """Return the incarnation of an actor that has joined, or -1."""

    def source(self, channel: int, actor: int) -> Line | None:
        """Return the end of a producer in this process."""

    def target(self, channel: int, actor: int) -> Line | None:
        """Return the end of a consumer in this process."""


class Line:
    """One end of a channel, bound to an actor. Its process passes on what happens to the other ends.

    settle_s: how long an actor that is done waits, at most, until `settled`; None: without limit.
    """

    settle_s: float | None = 2.0  # the last acknowledgements take microseconds unless the consumer lacks a processor

    def received(self, message: Message, frames: Frames) -> None:
        """Handle a message of the carrier from the other end. Raises WireError for one that does not belong here."""
        raise WireError(f"{type(self).__name__} receives no {type(message).__name__}")

    def joined(self, members: Mapping[int, int]) -> None:
        """Actors have joined: number -> incarnation."""

    def left(self, actor: int, why: str) -> None:
        """An actor has left. `why`, one of REASONS, is the reason under which its unfinished messages are dropped."""

    def conclude(self) -> Sequence[Ack]:
        """Return the last acknowledgements of an actor that is done."""
        return ()

    def settled(self) -> bool | None:
        """Return True once the actor may be reported as done; an `attempt` for `Waiter.until`."""
        return True


@dataclass(frozen=True)
class End:
    """The place of a line: an actor of a channel, in its process. A carrier's `source` and `target` receive it.

    host: the services of the process; `host.views.slab(...)` maps a segment of `channel.segments`. channel: the
    channel in the plan, with `producers`, `consumers` and `segments`. actor: its number, as in these. message: the
    class of the channel's messages.
    """

    host: Host
    number: int  # of the channel in the plan
    channel: PlanChannel
    actor: int
    message: type[Message]
    waiter: Waiter

    @property
    def identity(self) -> ActorIdentity:
        return self.actor, self.host.incarnation


@dataclass(frozen=True)
class Carrier(ABC):
    """Base of all descriptions."""

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            KINDS[cls.kind] = cls

    def options(self) -> Tree:
        """Return the fields of the carrier's kind as data."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(KINDS[self.kind])}
        return {name: value.as_data() if isinstance(value, Layout) else value for name, value in values.items()}

    @classmethod
    def of_options(cls: type[C], options: Mapping[str, Tree]) -> C:
        """Return the description that `options` was made of."""
        return cls(**{k: Layout.of_data(v) if k == "layout" else v for k, v in options.items()})

    @abstractmethod
    def check(self, channel: str, source: str, message: type[Message], pattern: str, when_full: str) -> None:
        """Raise TopologyError for a channel from `source`, "group.port", that cannot work."""

    def segments(self, channel: str, producers: Sequence[str], consumers: int) -> list[PlanSegment]:
        """Return the segments of shared memory that a channel with these producers needs."""
        return []

    def may_block(self, channel: PlanChannel) -> bool:
        """Return whether a producer may have to wait before it can send its first message after all others sent one."""
        return False

    @abstractmethod
    def source(self, end: End) -> Line:
        """Return the end of a producer."""

    @abstractmethod
    def target(self, end: End) -> Line:
        """Return the end of a consumer."""

    @abstractmethod
    def reclaim(self, channel: PlanChannel, memory: RunMemory, actor: int, incarnation: int, why: str) -> None:
        """Repair the channel after the confirmed exit of one of its actors. `why`, one of REASONS, is that of drops."""

    def drain(self, channel: PlanChannel, memory: RunMemory) -> None:  # noqa: B027  # a board has no messages to drop
        """Drop all messages in flight as `run_ended`, after all actors have exited."""

    def accounts(self, channel: PlanChannel, memory: RunMemory) -> list[AccountDict]:
        """Return the account of each producer; none if messages are not counted."""
        return []

    def produced(self, channel: PlanChannel, memory: RunMemory) -> list[int]:
        """Return the number of messages that each producer has sent; none if messages are not counted."""
        return []

    def capacity(self, channel: PlanChannel) -> int:
        """Return the number of messages that may be in flight; 0 without a limit."""
        return 0

    def version(self, channel: PlanChannel, memory: RunMemory) -> int:
        """Return the newest version of a board; -1 before any, and for other carriers."""
        return -1


KINDS: dict[str, type[Carrier]] = {}
