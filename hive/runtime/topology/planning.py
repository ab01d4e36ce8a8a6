"""Check a topology and describe it as data (hive.runtime.topology.plan).

Every port must be connected or optional, carriers and slots must suffice, and no cycle of channels may deadlock. Each
error names the actor and port, and its hint says what to change.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from hive.errors import TopologyError
from hive.runtime.actor.actor import endpoints_of
from hive.runtime.actor.ports import ports_of
from hive.runtime.carriers.boards import Board
from hive.runtime.carriers.carrier import PlanChannel, PlanSegment
from hive.runtime.topology.exactness import why_inexact
from hive.runtime.topology.groups import Channel, Group
from hive.runtime.topology.plan import Plan, PlanActor, check_cycles
from hive.runtime.wire.messages import type_set

MAX_ACTORS = 1000  # limit on actors: a slot word has ten bits for its owner


Groups = Mapping[str, Group]
Channels = Mapping[str, Channel]  # "group.port" of the source -> channel


def make_plan(
    groups: Groups, channels: Channels, results: tuple[str, tuple[str, ...]], digest: tuple[str, int]
) -> Plan:
    """Check a topology and return its plan. Raises TopologyError.

    results: actor name and names of its counters. digest: "group.port" of a board and a number of bytes.
    """
    actors = tuple(
        PlanActor(
            name,
            g.key,
            g.first + i,
            g.processes[i],
            g.restart,
            g.last,
            cls.serves(),
            cls.is_source(),
            tuple(sorted(endpoints_of(cls))),
            cls.private_bytes(parameters),
        )
        for g in groups.values()
        for i, name in enumerate(g.names)
        for cls, parameters in [g.class_of(i)]
    )
    if not actors:
        raise TopologyError("the topology has no actors", hint="add one with topology.add(...)")
    if len(actors) > MAX_ACTORS:
        raise TopologyError(f"the topology has {len(actors)} actors; the maximum is {MAX_ACTORS}")
    _check_connected(groups, channels)
    _check_shared_processes(groups)
    _check_parameters(groups)
    numbers = {actor.name: number for number, actor in enumerate(actors)}
    planned = [_plan_channel(channel, channels, numbers) for channel in channels.values()]
    segments = tuple(segment for _, needs in planned for segment in needs)
    summary = *results, *_digest_segment(channels, *digest)
    inexact = why_inexact(groups, channels, digest[0])
    plan = Plan(actors, tuple(made for made, _ in planned), segments, *summary, inexact)
    check_cycles(plan)
    return plan


def _digest_segment(channels: Channels, key: str, count: int) -> tuple[str, int]:
    if key and key not in channels:
        raise TopologyError(f"the digest needs `{key}`, which is not connected")
    return (channels[key].name, count) if key else ("", 0)


def _check_connected(groups: Groups, channels: Channels) -> None:
    ends = {str(ref) for c in channels.values() for ref in (c.source, *c.targets)}
    for group in groups.values():
        for name, port in ports_of(group.cls).items():
            if group.names and not port.optional and f"{group.key}.{name}" not in ends:
                raise TopologyError(
                    f"port `{name}` ({type(port).__name__}) of `{group.key}` is not connected",
                    hint=f"connect it with topology.connect(...), or declare it optional in {group.cls.__name__}",
                )


def _check_shared_processes(groups: Groups) -> None:
    """Raise TopologyError for groups that share a process but not its cores and threads, which are set per process."""
    first: dict[str, Group] = {}
    for group in groups.values():
        for process in group.processes:
            mine, theirs = group.resources, first.setdefault(process, group).resources
            if (mine.cores, mine.threads) != (theirs.cores, theirs.threads):
                both = f"`{first[process].key}` and `{group.key}`"
                raise TopologyError(
                    f"{both} share process `{process}` but have different cores or threads",
                    hint="give both groups the same cores and threads, or separate processes",
                )


def _check_parameters(groups: Groups) -> None:
    """Raise TopologyError for parameters that do not fit the constructor of a group's class."""
    kinds = [(g, *kind) for g in groups.values() for kind in [(g.cls, g.parameters), *g.substitutes.values()]]
    for group, cls, parameters in kinds:
        function = cls.__init__
        try:
            if function is object.__init__ and parameters:
                raise TypeError(f"got an unexpected keyword argument '{min(parameters)}'")
            inspect.signature(function).bind(None, **parameters)
        except TypeError as error:
            given = ", ".join(parameters) or "none"
            raise TopologyError(
                f"`{group.key}` cannot be built, because its parameters do not fit {cls.__name__}: {error}",
                hint=f"the parameters that it was added with: {given}",
            ) from None


def _plan_channel(
    channel: Channel, channels: Channels, numbers: dict[str, int]
) -> tuple[PlanChannel, list[PlanSegment]]:
    name, port, carrier = channel.name, channel.source.port, channel.carrier
    try:
        type_set([port.message])
    except (TypeError, NameError) as error:
        raise TopologyError(f"channel `{name}` cannot carry its messages: {error}") from None
    shared = carrier.commit_with if isinstance(carrier, Board) else ""
    if shared and not any(c.name == shared and isinstance(c.carrier, Board) for c in channels.values()):
        raise TopologyError(f"channel `{name}` commits with `{shared}`, which is not a board of this topology")
    producers = channel.source.group.names
    consumers = tuple(numbers[n] for target in channel.targets for n in target.group.names)
    segments = carrier.segments(name, producers, len(consumers))
    made = PlanChannel(
        name=name,
        carrier=carrier.kind,
        options=carrier.options(),
        pattern=getattr(port, "pattern", "broadcast"),
        when_full=getattr(port, "when_full", "drop_oldest"),
        source=str(channel.source),
        targets=tuple(str(target) for target in channel.targets),
        producers=tuple(numbers[n] for n in producers),
        consumers=consumers,
        segments=tuple(s.name for s in segments),
    )
    return made, segments
