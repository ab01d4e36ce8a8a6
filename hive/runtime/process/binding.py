"""Bind a new actor's ports, each to its end of a channel."""

from __future__ import annotations

from collections.abc import Iterator

from hive.runtime.actor.actor import Actor
from hive.runtime.actor.ports import ports_of
from hive.runtime.carriers.carrier import End, Host, Line
from hive.runtime.carriers.waiting import Waiter
from hive.runtime.topology.plan import Plan
from hive.runtime.topology.topology import Topology

Bound = tuple[int, bool, Line]  # number of the channel, whether it is the end of a producer, the end


def bind_ports(
    topology: Topology, plan: Plan, host: Host, actor: Actor, number: int, waiter: Waiter
) -> Iterator[Bound]:
    """Set `actor.<port>` to a bound port for every channel that names this actor, and yield the ends."""
    group, ports = plan.actors[number].group, ports_of(type(actor))
    for index, (channel, described) in enumerate(zip(plan.channels, topology.channels.values(), strict=True)):
        end = End(host, index, channel, number, described.source.port.message, waiter)
        if number in channel.producers:
            name = channel.source.partition(".")[2]
            line = described.carrier.source(end)
            setattr(actor, name, ports[name].bind(line))
            yield index, True, line
        for target in channel.targets:
            key, _, name = target.partition(".")
            if key == group and number in channel.consumers:
                line = described.carrier.target(end)
                setattr(actor, name, ports[name].bind(line))
                yield index, False, line
