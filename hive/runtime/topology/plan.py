"""Describe a topology as data: a plan, the only form of a topology that the supervisor uses.

Actors, channels and segments are numbered by their position. The fork server sends the plan to the supervisor as one
message, and every process of the run has the same plan.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from hive.errors import TopologyError
from hive.runtime.carriers import boards, messages, shared, slots, zmq  # noqa: F401  # the kinds of carriers of a plan
from hive.runtime.carriers.carrier import PlanChannel, PlanSegment
from hive.runtime.wire.messages import Message


class PlanActor(Message):
    """One actor of the plan; its position in `Plan.actors` is its number in all messages and slot words."""

    name: str
    group: str
    index: int
    process: str
    restart: bool
    last: bool  # drains only after all other actors have stopped
    serves: bool = False  # it only answers calls: the run ends when all other actors are done
    source: bool = False  # it sends without being sent to: a pause must stop it
    endpoints: tuple[str, ...] = ()  # names of its endpoints, sorted
    private_bytes: int = 0  # what it keeps outside of shared memory, as far as that can be large


class Plan(Message):
    """A topology as data.

    The summary shows the counters `results` of the actor `results_actor`, and the sha256 of the first `digest_bytes` of
    the board `digest_segment`; either name may be "". `inexact`: why two runs with the same seed may differ.
    """

    actors: tuple[PlanActor, ...]
    channels: tuple[PlanChannel, ...]
    segments: tuple[PlanSegment, ...]
    results_actor: str
    results: tuple[str, ...]
    digest_segment: str
    digest_bytes: int
    inexact: tuple[str, ...] = ()

    @functools.cached_property
    def processes(self) -> dict[str, list[int]]:
        """Process name -> the numbers of its actors, ascending."""
        result: dict[str, list[int]] = {}
        for number, actor in enumerate(self.actors):
            result.setdefault(actor.process, []).append(number)
        return result

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        """Actor name -> its number."""
        return {actor.name: number for number, actor in enumerate(self.actors)}

    @functools.cached_property
    def segment(self) -> dict[str, PlanSegment]:
        """Segment name -> the segment."""
        return {segment.name: segment for segment in self.segments}

    @functools.cached_property
    def channel_of(self) -> dict[str, PlanChannel]:
        """Segment name -> its channel."""
        return {segment: channel for channel in self.channels for segment in channel.segments}

    @property
    def bytes(self) -> int:
        """Size of all segments in memory, without what is not expected to be written."""
        return self.most_bytes - sum(s.sparse_bytes for s in self.segments if not s.folder)

    @property
    def most_bytes(self) -> int:
        """Size of all segments in memory, if every byte is written."""
        return sum(s.plan.bytes for s in self.segments if not s.folder)

    @property
    def sparse_bytes(self) -> int:
        """Size of what is not expected to be written, in memory."""
        return sum(s.sparse_bytes for s in self.segments if not s.folder)

    @property
    def private_bytes(self) -> int:
        """Memory of all actors outside of the segments, as far as it can be large."""
        return sum(actor.private_bytes for actor in self.actors)

    @property
    def private_processes(self) -> int:
        """The number of processes with such memory."""
        return len({actor.process for actor in self.actors if actor.private_bytes})


def check_cycles(plan: Plan) -> None:
    """Raise TopologyError for a cycle of message channels that can deadlock because all of its actors wait for room.

    A cycle is safe if every actor in it can send once before any receives. Slots always allow that, because each
    producer has its own. A channel of messages is required to have a window of at least its number of producers.
    """
    edges: dict[int, set[int]] = {}
    for channel in plan.channels:
        if channel.description.may_block(channel):
            for producer in channel.producers:
                edges.setdefault(producer, set()).update(channel.consumers)
    for start in edges:
        path = next(_cycles(edges, start), None)
        if path:
            names = " -> ".join(plan.actors[number].name for number in path)
            raise TopologyError(
                f'a cycle of channels with when_full="wait" can deadlock: {names}',
                hint='give its channels a window of at least their number of producers, or when_full="drop_oldest"',
            )


def _cycles(edges: dict[int, set[int]], start: int) -> Iterator[list[int]]:
    stack, seen = [(start, [start])], set()
    while stack:
        here, path = stack.pop()
        for following in edges.get(here, ()):
            if following == start:
                yield [*path, start]
            elif following not in seen:
                seen.add(following)
                stack.append((following, [*path, following]))
