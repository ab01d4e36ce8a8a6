"""Check a topology and describe it as data (hive.runtime.topology.plan).

Every port must be connected or optional, carriers and slots must suffice, and no cycle of channels may deadlock. Each
error names the actor and port, and its hint says what to change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hive.errors import TopologyError
from hive.runtime.actor.actor import endpoints_of
from hive.runtime.actor.ports import ports_of
from hive.runtime.topology.plan import Plan, PlanActor, PlanChannel, PlanSegment, check_cycles
from hive.runtime.wire.messages import type_set

if TYPE_CHECKING:
    from hive.runtime.topology.topology import Channel, Group, Topology

__all__ = ["make_plan"]

MAX_ACTORS = 1000  # limit on actors: a slot word has ten bits for its owner
MAX_SLOTS = 4096  # limit on slots of a slab, native kMaxSlots: readers reject a damaged header that exceeds it
MAX_BLOCKS = 65536  # limit on blocks of a board, native kMaxWords, for the same reason


def make_plan(topology: Topology) -> Plan:
    """Check the topology and return its plan. Raises TopologyError."""
    actors = tuple(
        PlanActor(
            name,
            g.key,
            i,
            g.processes[i],
            g.restart,
            g.last,
            g.cls.serves(),
            g.cls.is_source(),
            tuple(sorted(endpoints_of(g.cls))),
        )
        for g in topology.groups.values()
        for i, name in enumerate(g.names)
    )
    if not actors:
        raise TopologyError("the topology has no actors", hint="add one with topology.add(...)")
    if len(actors) > MAX_ACTORS:
        raise TopologyError(f"the topology has {len(actors)} actors; the maximum is {MAX_ACTORS}")
    _check_connected(topology)
    _check_shared_processes(topology)
    numbers = {actor.name: number for number, actor in enumerate(actors)}
    channels, segments = [], []
    for channel in topology.channels.values():
        made, needs = _plan_channel(topology, channel, numbers)
        channels.append(made)
        segments.extend(needs)
    plan = Plan(actors, tuple(channels), tuple(segments), *topology.result_counters, *_digest_segment(topology))
    check_cycles(plan)
    return plan


def _digest_segment(topology: Topology) -> tuple[str, int]:
    key, count = topology.digest_of
    if key and key not in topology.channels:
        raise TopologyError(f"the digest needs `{key}`, which is not connected")
    return (topology.channels[key].name, count) if key else ("", 0)


def _check_connected(topology: Topology) -> None:
    ends = {str(ref) for c in topology.channels.values() for ref in (c.source, *c.targets)}
    for group in topology.groups.values():
        for name, port in ports_of(group.cls).items():
            if group.names and not port.optional and f"{group.key}.{name}" not in ends:
                raise TopologyError(
                    f"port `{name}` ({type(port).__name__}) of `{group.key}` is not connected",
                    hint=f"connect it with topology.connect(...), or declare it optional in {group.cls.__name__}",
                )


def _check_shared_processes(topology: Topology) -> None:
    """Raise TopologyError for groups that share a process but not its cores and threads, which are set per process."""
    first: dict[str, Group] = {}
    for group in topology.groups.values():
        for process in group.processes:
            mine, theirs = group.resources, first.setdefault(process, group).resources
            if (mine.cores, mine.threads) != (theirs.cores, theirs.threads):
                both = f"`{first[process].key}` and `{group.key}`"
                raise TopologyError(
                    f"{both} share process `{process}` but have different cores or threads",
                    hint="give both groups the same cores and threads, or separate processes",
                )


def _plan_channel(
    topology: Topology, channel: Channel, numbers: dict[str, int]
) -> tuple[PlanChannel, list[PlanSegment]]:
    o, name = channel.options, channel.name
    try:
        type_set([channel.source.port.message])
    except (TypeError, NameError) as error:
        raise TopologyError(f"channel `{name}` cannot carry its messages: {error}") from None
    producers = tuple(numbers[n] for n in channel.source.group.names)
    consumers = tuple(numbers[n] for target in channel.targets for n in target.group.names)
    segments: list[PlanSegment] = []
    if channel.carrier == "message" and o["window"] < 1:
        raise TopologyError(f"channel `{name}` has a window of {o['window']} messages", hint="the minimum is 1")
    if channel.carrier == "slab":
        if o["slots"] < 2:
            raise TopologyError(
                f"channel `{name}` has {o['slots']} slots per producer",
                hint="the minimum is 2: one to write and one to read",
            )
        size, owners = topology.layouts[name].bytes, channel.source.group.names
        segments = [PlanSegment(f"{name}:{n}", "slab", o["slots"], size, 0, 0, "", o["first"]) for n in owners]
    elif channel.carrier == "board":
        if o["block_bytes"] <= 0:
            raise TopologyError(
                f"the publication `{channel.source}` has no block size", hint="pass block_bytes=... to connect"
            )
        if o["commit_with"] and not any(
            c.name == o["commit_with"] and c.carrier == "board" for c in topology.channels.values()
        ):
            raise TopologyError(
                f"channel `{name}` commits with `{o['commit_with']}`, which is not a board of this topology"
            )
        readers = len(consumers)
        blocks = readers + o["keep"] + 1  # each reader may pin one, `keep` are held back, one is being written
        segments = [PlanSegment(name, "board", blocks, o["block_bytes"], readers, o["keep"], o["commit_with"])]
    for segment in segments[:1]:  # all segments of a channel have the same size
        _check_count(name, segment)
    port = channel.source.port
    made = PlanChannel(
        name=name,
        carrier=channel.carrier,
        pattern=getattr(port, "pattern", "broadcast"),
        when_full=getattr(port, "when_full", "drop_oldest"),
        by_share=o["by_share"],
        reoffer=o["on_death"] == "reoffer",
        shared=o.get("shared", False),
        in_step=o.get("in_step", False),
        window=o["window"],
        source=str(channel.source),
        targets=tuple(str(target) for target in channel.targets),
        producers=producers,
        consumers=consumers,
        segments=tuple(s.name for s in segments),
    )
    return made, segments


def _check_count(channel: str, segment: PlanSegment) -> None:
    """Raise TopologyError if the native part would refuse to format a segment of this size."""
    unit, limit, option = ("slots", MAX_SLOTS, "slots") if segment.kind == "slab" else ("blocks", MAX_BLOCKS, "keep")
    if segment.count > limit:
        raise TopologyError(
            f"channel `{channel}` needs a {segment.kind} of {segment.count} {unit}; the maximum is {limit}",
            hint=f"connect it with a smaller {option}=...; in a config, lower slots, max_lag or bootstrap_rounds",
        )
