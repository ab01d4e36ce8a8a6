"""The messages between the head and a host.

    agent -> head         Join · HostStatus · HostLog · HostEnded · ActorReply
    head -> agent         Accepted · Refused · EndPart · ActorQuery
    link process -> head  Attach · RolloutSent (+ the slot) · Holds · Evaluated (+ the evaluation) · Ping
    head -> link process  Taken · PolicyBlock (+ the block) · Evaluate (+ the request and the weights) · Pong · EndPart

Every message of a host names its incarnation, that of the `Accepted`. The head ignores and counts those of another one.

    RolloutSent     repeated after a new connection, until a Taken says that the head has committed it
    Taken           the first rollout of a collector that the head lacks; repeated for each Attach and each Ping
    PolicyBlock     repeated after a new connection, until a Holds names it or a later version
    Evaluate        repeated after a new connection, until an Evaluated answers it; that is repeated, too
"""

from __future__ import annotations

from hive.runtime.wire.messages import Message, Tree, type_set

RUN_ENDED = "the run has ended on the head"  # the reason of an EndPart after which there is nothing to join
PROTOCOL = 3  # version of these messages; increased with every change that another version would misread


class Join(Message):
    """Asks for work. `incarnation`: 0, or that of an earlier `Accepted` after the connection was lost."""

    protocol: int
    version: str  # of hive
    incarnation: int
    machine: str  # its name for people
    pid: int  # of the agent
    cores: int


class Accepted(Message):
    """The work of a host: the config of the run, and which part of it runs there (hive.hosts.shape)."""

    incarnation: int
    config: str
    part: Tree


class Refused(Message):
    """The host cannot join. `final`: asking again does not help."""

    reason: str
    final: bool


class EndPart(Message):
    """The part of the run on this host ends. `rejoin`: the run goes on, and the host may join it again."""

    reason: str
    rejoin: bool


class HostStatus(Message):
    """The status document of the host's own run, once a second (hive.runtime.run.status_document); {} before it."""

    incarnation: int
    status: Tree


class HostLog(Message):
    """Lines that an actor of the host has logged."""

    incarnation: int
    actor: str
    text: str


class HostEnded(Message):
    """The host's own run has ended, although the head did not ask for it; or the confirmation of an EndPart."""

    incarnation: int
    reason: str


class ActorQuery(Message):
    """Asks for the stacks and the history of an actor, or with `kill` to kill its process."""

    number: int
    actor: str
    stack: bool
    kill: bool
    by_hand: bool


class ActorReply(Message):
    """The answer to an ActorQuery. `error`: why there is none, or ""."""

    incarnation: int
    number: int
    stack: str
    transitions: tuple[str, ...]
    error: str


class Attach(Message):
    """The link process is connected. `shape` describes rollouts and policy, which both ends must agree on."""

    incarnation: int
    shape: str


class RolloutSent(Message):
    """A rollout; the bytes of its slot follow as a frame, so both ends must have the same layout (`Attach.shape`)."""

    incarnation: int
    collector: int
    sequence: int


class Holds(Message):
    """The newest version of the policy that the host has."""

    incarnation: int
    version: int


class Ping(Message):
    """The link process is alive. `sent_ns`: its clock."""

    incarnation: int
    sent_ns: int
    round_trip_ns: int  # the last that it measured; 0 before
    waiting: int  # rollouts that wait on the host for the head


class Pong(Message):
    """The head is alive."""

    sent_ns: int


class Taken(Message):
    """The head has all rollouts of a collector before number `first`."""

    collector: int
    first: int


class PolicyBlock(Message):
    """A version of the behaviour policy; its block follows as a frame."""

    version: int


class Evaluate(Message):
    """Asks for an evaluation of the weights of a turn. An EvaluationDue and the block of the weights follow."""

    evaluator: int
    turn: int


class Evaluated(Message):
    """The Evaluation of a turn follows; nothing follows if it was lost with its evaluator."""

    incarnation: int
    evaluator: int
    turn: int


TO_HEAD = type_set([Join, HostStatus, HostLog, HostEnded, ActorReply, Attach, RolloutSent, Holds, Evaluated, Ping])
TO_HOST = type_set([Accepted, Refused, EndPart, ActorQuery, Taken, PolicyBlock, Evaluate, Pong])
