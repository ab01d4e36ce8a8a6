"""The runtime's own messages: membership, start and end of actors, and the envelopes of the actors' messages.

    process -> supervisor     Hello · Ready · Done · Failed · RunOver · Renew · Note · EndpointFailed · Answered
    supervisor -> process     Joined · Left · Begin · Drain · Pause · Resume
    process -> process        Deliver (+ the frames of its messages) · Ack · Notify · Call · Reply
    process -> process        Payload (+ the frames of its fields) · Fetch

The supervisor calls endpoints too, under the actor number `SUPERVISOR`. With the call number 0 it wants no reply.

An actor is a member of the run from its `Joined` to its `Left`, in the first incarnation as after a restart. All these
messages are idempotent: they carry incarnations and running totals, so that a repeated message has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hive.runtime.wire.messages import Message, Tree, type_set


class Member(NamedTuple):
    """The current incarnation of an actor, and the address of its process."""

    incarnation: int
    address: str
    dedicated: bool  # its process hosts no other actor, so its notifier wakes it; other actors need a Notify


class Hello(Message):
    """A process has opened its mailbox at `address`."""

    process: str
    incarnation: int
    pid: int
    address: str


class Ready(Message):
    """All actors of a process have returned from `setup`."""

    process: str
    incarnation: int


class Ack(Message):
    """A consumer's running totals of one producer's messages, and the number that it may have in flight (`window`)."""

    channel: int
    producer: int
    consumer: int
    incarnation: int  # the consumer's
    producer_incarnation: int
    consumed: int
    dropped: int
    window: int


class Done(Message):
    """An actor's `run` has returned. `taken` holds its last acknowledgements."""

    actor: int
    incarnation: int
    taken: tuple[Ack, ...] = ()


class Failed(Message):
    """An actor has raised an exception, and its process is about to exit."""

    actor: int
    incarnation: int
    error: str  # name of the exception's type
    text: str
    hint: str
    doing: str  # the actor's phase at that moment
    traceback: str
    permanent: bool  # the error would recur, so the actor is not restarted


class RunOver(Message):
    """An actor ends the run, because it has reached its goal."""

    actor: int
    reason: str


class Renew(Message):
    """A request of `actor` to restart the actor `target`, unless a later incarnation of it runs already."""

    actor: int
    target: int
    incarnation: int
    reason: str


class Note(Message):
    """A line for the run's event log."""

    actor: int
    kind: str
    text: str
    fields: Tree


class EndpointFailed(Message):
    """An endpoint that the supervisor called has raised an exception."""

    actor: int
    method: str
    text: str


class Joined(Message):
    """Actors that have joined: their numbers, and a column for each field of `Member`.

    Every process receives the members of all others, and columns are decoded five times as fast as nested messages.
    """

    actors: tuple[int, ...]
    incarnations: tuple[int, ...]
    addresses: tuple[str, ...]
    dedicated: tuple[bool, ...]

    def __post_init__(self) -> None:
        if not len(self.actors) == len(self.incarnations) == len(self.addresses) == len(self.dedicated):
            raise ValueError("the columns differ in length")

    @classmethod
    def of(cls, members: Mapping[int, Member]) -> Joined:
        columns = zip(*members.values(), strict=True) if members else ((), (), ())
        return cls(tuple(members), *columns)

    @property
    def members(self) -> dict[int, Member]:
        columns = zip(self.incarnations, self.addresses, self.dedicated, strict=True)
        return dict(zip(self.actors, map(Member._make, columns), strict=True))


class Left(Message):
    """An actor has left. `taken` repeats its last acknowledgements, because its Acks may arrive after this message."""

    actor: int
    incarnation: int
    reason: str
    taken: tuple[Ack, ...] = ()
    with_run: bool = False  # the actor stopped because the run ends


class Begin(Message):
    """All actors are ready: start their `run`."""


class Drain(Message):
    """End in an orderly way: drain all actors."""

    reason: str


class Pause(Message):
    """Stop the sources."""


class Resume(Message):
    """Let the sources continue."""


class Deliver(Message):
    """A batch of messages of `channel`, which are the frames after this one; `sequence` numbers the last of them.

    Numbers start at 1 for each pair of incarnations. Without frames it requests an Ack of all up to `sequence`.
    """

    channel: int
    producer: int
    incarnation: int
    consumer: int
    sequence: int


class Payload(Message):
    """The frames after this one are the fields of the message in this slot of its producer."""

    channel: int
    producer: int
    incarnation: int  # the producer's
    consumer: int
    slot: int
    sequence: int


class Fetch(Message):
    """Asks a producer to send the fields of the message in this slot, of which the consumer has none."""

    channel: int
    producer: int
    consumer: int
    slot: int
    sequence: int


class Notify(Message):
    """Shared memory that `actor` may be waiting for has changed. May be lost, repeated or delayed without harm."""

    actor: int


class Call(Message):
    """Calls endpoint `method` of `actor`. `call` numbers the calls of the caller's process."""

    call: int
    caller: int
    actor: int
    method: str
    arguments: Tree


class Reply(Message):
    """The value or the exception of a call."""

    call: int
    caller: int
    value: Tree
    error: str  # name of the remote exception's type, or ""
    text: str
    traceback: str


class Answered(Message):
    """The value of a call of the supervisor, or the text of its exception."""

    call: int
    value: Tree
    error: str  # "" if there was none


SUPERVISOR = -1  # the `caller` of the supervisor's calls
SUPERVISOR_TYPES = type_set([Hello, Ready, Done, Failed, RunOver, Renew, Note, EndpointFailed, Answered])
NODE_TYPES = type_set([Joined, Left, Begin, Drain, Pause, Resume, Deliver, Ack, Payload, Fetch, Notify, Call, Reply])
