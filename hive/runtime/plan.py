"""A plan: a topology as data. It is all of a topology that the supervisor ever sees.

Actors, channels and segments are numbered by their position; a plan travels from the fork server to the supervisor as
one message, and every process of the run has the same one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from hive.errors import TopologyError
from hive.runtime.memory import BoardPlan, SegmentPlan, SlabPlan
from hive.runtime.messages import Message

__all__ = ["Plan", "PlanActor", "PlanChannel", "PlanSegment", "check_cycles"]


class PlanActor(Message):
    """One actor of the plan; its position in `Plan.actors` is its number everywhere."""

    name: str
    group: str
    index: int
    process: str
    restart: bool
    last: bool  # stopped only after all others are gone
    serves: bool = False  # it only answers calls: the run ends when the others are done
    source: bool = False  # it begins work of its own: a paused run lets it send nothing more
    endpoints: tuple[str, ...] = ()


class PlanSegment(Message):
    """One segment of shared memory. `slots` and `slot_bytes` of a slab; blocks, readers and keep of a board."""

    name: str
    kind: str  # "slab" | "board"
    count: int  # slots or blocks
    item_bytes: int
    readers: int
    keep: int
    commit_with: str  # the board segment whose commit word this one shares, or ""
    first: int = 0  # the sequence of a slab's first commit

    @functools.cached_property
    def plan(self) -> SegmentPlan:
        if self.kind == "slab":
            return SlabPlan(self.count, self.item_bytes, self.first)
        return BoardPlan(self.count, self.item_bytes, self.readers, self.keep)


class PlanChannel(Message):
    """One channel. Producers and consumers are actor numbers; `segments` one per producer (a board has one)."""

    name: str
    carrier: str
    pattern: str
    when_full: str
    by_share: bool
    reoffer: bool
    window: int
    source: str  # "group.port"
    targets: tuple[str, ...]
    producers: tuple[int, ...]
    consumers: tuple[int, ...]
    segments: tuple[str, ...]
    shared: bool = False  # its producers read each other's messages
    in_step: bool = False  # a paused run has as many messages of each of its producers


class Plan(Message):
    """A topology as data. `results` names counters of one actor that the summary shows; `digest` a board to hash."""

    actors: tuple[PlanActor, ...]
    channels: tuple[PlanChannel, ...]
    segments: tuple[PlanSegment, ...]
    results_actor: str
    results: tuple[str, ...]
    digest_segment: str
    digest_bytes: int

    @functools.cached_property
    def processes(self) -> dict[str, list[int]]:
        """Process name -> the numbers of its actors, in order."""
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
    def channel_of(self) -> dict[str, str]:
        """Segment name -> the name of the channel that it is of."""
        return {segment: channel.name for channel in self.channels for segment in channel.segments}

    @property
    def bytes(self) -> int:
        return sum(s.plan.bytes for s in self.segments)


def check_cycles(plan: Plan) -> None:
    """Refuses a cycle of waiting channels without room for one full turn.

    One full turn: every actor of the cycle may send once before any receives. A slab has its producer's own slots; a
    message channel lets each producer have `window` messages on the way, so a window of nought blocks the turn.
    """
    edges: dict[int, set[int]] = {}
    for channel in plan.channels:
        if channel.carrier == "message" and channel.when_full == "wait" and channel.window < len(channel.producers):
            for producer in channel.producers:
                edges.setdefault(producer, set()).update(channel.consumers)
    for start in edges:
        path = next(_cycles(edges, start), None)
        if path:
            names = " -> ".join(plan.actors[number].name for number in path)
            raise TopologyError(
                f"a cycle of waiting channels has no room for one full turn: {names}",
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
