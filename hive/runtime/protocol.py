"""The messages of the runtime itself: membership, life and death, and the envelopes around actors' own messages.

    process -> supervisor     Hello · Ready · Done · Failed · RunOver · Note · EndpointFailed
    supervisor -> process     Joined · Left · Begin · Drain · Pause · Resume
    process -> process        Deliver (+ the message's own frames) · Ack · Doorbell · Call · Reply

The supervisor calls endpoints too, as nobody's actor (`SUPERVISOR`).

Start, restart and live scaling are the same messages: an actor is there from its `Joined` to its `Left`. Everything
in them is idempotent: incarnations and running totals, so that a repeat changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hive.runtime.messages import Message, Tree, type_set

__all__ = [
    "NODE_TYPES",
    "SUPERVISOR",
    "SUPERVISOR_TYPES",
    "Ack",
    "Begin",
    "Call",
    "Deliver",
    "Done",
    "Doorbell",
    "Drain",
    "EndpointFailed",
    "Failed",
    "Hello",
    "Joined",
    "Left",
    "Member",
    "Note",
    "Pause",
    "Ready",
    "Reply",
    "Resume",
    "RunOver",
]


class Member(NamedTuple):
    """One living actor: which incarnation, and where its process listens."""

    incarnation: int
    address: str
    dedicated: bool  # alone in its process: wakes by its notifier; others need a Doorbell


class Hello(Message):
    """A process listens at `address`."""

    process: str
    incarnation: int
    pid: int
    address: str


class Ready(Message):
    """All actors of a process are set up."""

    process: str
    incarnation: int


class Ack(Message):
    """Running totals of what `consumer` took and dropped of this producer's messages; it may have `window` at once."""

    channel: int
    producer: int
    consumer: int
    incarnation: int  # the consumer's
    producer_incarnation: int
    consumed: int
    dropped: int
    window: int


class Done(Message):
    """An actor's `run` has returned. `taken` is what it has said last of the messages to it."""

    actor: int
    incarnation: int
    taken: tuple[Ack, ...] = ()


class Failed(Message):
    """An actor raised; its process is about to exit."""

    actor: int
    incarnation: int
    error: str  # the exception's type
    text: str
    hint: str
    doing: str
    traceback: str
    permanent: bool  # a restart cannot help


class RunOver(Message):
    """An actor says that the run has reached its goal."""

    actor: int
    reason: str


class Note(Message):
    """A line for the run's diary."""

    actor: int
    kind: str
    text: str
    fields: Tree


class EndpointFailed(Message):
    """An endpoint that the supervisor called has raised."""

    actor: int
    method: str
    text: str


class Joined(Message):
    """Actors that are there from now on: their numbers, and a column for each field of `Member`.

    Every process is told of every other: columns of numbers and texts are read five times as fast as messages.
    """

    actors: tuple[int, ...]
    incarnations: tuple[int, ...]
    addresses: tuple[str, ...]
    dedicated: tuple[bool, ...]

    def __post_init__(self) -> None:
        if not len(self.actors) == len(self.incarnations) == len(self.addresses) == len(self.dedicated):
            raise ValueError("its columns differ in length")

    @classmethod
    def of(cls, members: Mapping[int, Member]) -> Joined:
        columns = zip(*members.values(), strict=True) if members else ((), (), ())
        return cls(tuple(members), *columns)

    @property
    def members(self) -> dict[int, Member]:
        columns = zip(self.incarnations, self.addresses, self.dedicated, strict=True)
        return dict(zip(self.actors, map(Member._make, columns), strict=True))


class Left(Message):
    """An actor is gone. `taken`: its last acknowledgements, which come another way and may come later than this."""

    actor: int
    incarnation: int
    reason: str
    taken: tuple[Ack, ...] = ()
    with_run: bool = False  # it stopped because the run ends: nothing died


class Begin(Message):
    """Everybody is ready: run."""


class Drain(Message):
    """Come to an orderly end."""

    reason: str


class Pause(Message):
    """The run is to pause: sources begin nothing more."""


class Resume(Message):
    """The run goes on."""


class Deliver(Message):
    """The frames after this one are a batch over `channel`. `sequence` is that of its last message.

    It counts from 1 per pair of incarnations. Without a batch it asks for an Ack of all up to `sequence`.
    """

    channel: int
    producer: int
    incarnation: int
    consumer: int
    sequence: int


class Doorbell(Message):
    """Something in shared memory changed for `actor`. Safe to lose, repeat or delay."""

    actor: int


class Call(Message):
    call: int
    caller: int
    actor: int
    method: str
    arguments: Tree


class Reply(Message):
    call: int
    caller: int
    value: Tree
    error: str  # type of the remote exception, or ""
    text: str
    traceback: str


SUPERVISOR = -1  # the caller of a Call that no actor makes
SUPERVISOR_TYPES = type_set([Hello, Ready, Done, Failed, RunOver, Note, EndpointFailed])
NODE_TYPES = type_set([Joined, Left, Begin, Drain, Pause, Resume, Deliver, Ack, Doorbell, Call, Reply])
