"""Tests one actor in virtual time: messages are fed to its inlets and collected from its outlets.

    result = hive.testing.run_actor(Doubler, {"numbers": [Number(1), Number(2)]})
    assert result.sent["doubled"] == [Number(2), Number(4)]

The actor runs in a real topology, with a feeder at each inlet and a sink at each outlet, so it waits, drains and fails
as in a run. The run ends when the actor does, when the actor ends it, or when the actor has consumed its feed and has
been inactive for a virtual second.

Channels with a layout receive and return dictionaries of arrays (copies). A subscription receives the blocks of
versions 0, 1, ...; a publication returns a list of (version, block).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hive.runtime import (
    Actor,
    Board,
    Inlet,
    Layout,
    Messages,
    Outlet,
    Publication,
    SlotInlet,
    SlotOutlet,
    Slots,
    Subscription,
    Topology,
)
from hive.runtime.actor.ports import OutPort, ports_of
from hive.runtime.supervise.outcome import Journal
from hive.runtime.supervise.supervisor import Supervisor
from hive.testing.inline import run_inline

QUIET_S = 1.0  # virtual seconds of inactivity after which the run ends
LIMIT_S = 3600.0  # maximum virtual seconds of a run that is never inactive
BLOCKS_KEPT = 64  # versions of a publication that are kept: a sink in the same loop is never that far behind
NAME = 16  # maximum characters of a channel's name
COUNTERPARTS = {
    Inlet: Outlet,
    Outlet: Inlet,
    SlotInlet: SlotOutlet,
    SlotOutlet: SlotInlet,
    Subscription: Publication,
    Publication: Subscription,
}
IN_PLACE = {Inlet: SlotOutlet, Outlet: SlotInlet}  # counterparts of ports whose channel has a layout


@dataclass
class ActorResult:
    """The output of an actor that `run_actor` has run."""

    sent: dict[str, list[Any]] = field(default_factory=dict)  # messages, arrays or (version, block) by port
    notes: list[tuple[str, str]] = field(default_factory=list)  # (kind, text) of each note
    reason: str = ""  # the reason with which it ended the run; "" if it did not
    counters: dict[str, float] = field(default_factory=dict)  # final counters of its status page


class _Feeder(Actor):
    """Sends the items of `feed`."""

    role = "feeder"

    def __init__(self, feed: Sequence[Any], layout: Layout | None) -> None:
        self.feed = feed
        self.layout = layout

    async def run(self) -> None:
        for item in self.feed:
            if isinstance(port := getattr(self, "out"), Publication):  # noqa: B009  # declared by `_with`
                port.begin()[:] = item
                port.publish(port.latest + 1)
                await asyncio.sleep(0)
            elif self.layout is None:
                await port.send(item)
            else:
                slot = await port.reserve()
                for name, array in item.items():
                    np.copyto(slot.arrays[name], array, casting="same_kind")
                port.commit(slot)


class _Sink(Actor):
    """Appends all messages that it receives to a list."""

    role = "sink"

    def __init__(self, received: list[Any], layout: Layout | None) -> None:
        self.received = received
        self.layout = layout

    async def run(self) -> None:
        port, version = getattr(self, "inn"), 0  # noqa: B009
        while True:
            if isinstance(port, Subscription):
                _, block = await port.pin(version)
                self.received.append((version, block.copy()))
                port.unpin()
                version += 1
            elif self.layout is None:
                self.received.append(await port.receive())
            else:
                slot = await port.claim()
                self.received.append({name: array.copy() for name, array in slot.arrays_in_use.items()})
                port.retire(slot)


def run_actor(
    actor: type[Actor],
    feed: Mapping[str, Sequence[Any]] | None = None,
    *,
    layouts: Mapping[str, Layout] | None = None,
    block_bytes: Mapping[str, int] | None = None,
    **parameters: Any,
) -> ActorResult:
    """Run one actor, built with `parameters`, on the messages that `feed` maps its inlets and subscriptions to.

    layouts: the layout of each port that carries slots. block_bytes: the block size of each board. Raises the actor's
    exception, and TopologyError.
    """
    result, feed, layouts = ActorResult(), feed or {}, layouts or {}
    topology = Topology()
    tested = topology.add(actor, **parameters)
    for name, port in ports_of(actor).items():
        layout = layouts.get(name)
        carrier: Any = Slots(layout) if layout else Messages()
        if isinstance(port, (Publication, Subscription)):
            carrier = Board((block_bytes or {}).get(name, 0), keep=len(feed.get(name, ())) or BLOCKS_KEPT)
        other = (COUNTERPARTS | (IN_PLACE if layout else {}))[type(port)](port.message)
        if isinstance(port, (OutPort, Publication)):
            received = result.sent[name] = []
            cls = type("Sink", (_Sink,), {"inn": other})
            sink = topology.add(cls, group=f"sink {name}"[:NAME], received=received, layout=layout)
            topology.connect(getattr(tested, name), sink.inn, carrier, name=f"out {name}"[:NAME])
        elif name in feed or not port.optional:
            cls = type("Feeder", (_Feeder,), {"out": other})
            feeder = topology.add(cls, group=f"feed {name}"[:NAME], feed=feed.get(name, ()), layout=layout)
            topology.connect(feeder.out, getattr(tested, name), carrier, name=f"in {name}"[:NAME])

    def watch(supervisor: Supervisor) -> None:
        def event(kind: str, text: str, fields: dict[str, Any]) -> None:
            if fields.get("actor") == tested.names[0]:
                result.notes.append((kind, text))

        supervisor.effects.journal = Journal(event, lambda death: "")
        asyncio.get_running_loop().call_later(QUIET_S, _end_when_quiet, supervisor, result, (-1.0, 0), 0.0)

    outcome = run_inline(topology, virtual=True, watch=watch)
    result.reason = outcome.reason if outcome.state == "finished" else ""
    return result


def _end_when_quiet(supervisor: Supervisor, result: ActorResult, before: tuple[float, int], waited_s: float) -> None:
    """End the run once neither the actor's counters nor its output have changed for QUIET_S."""
    result.counters = dict(supervisor.memory.pages.snapshot(0)["counters"])
    now = (sum(result.counters.values()), sum(map(len, result.sent.values())))
    if now == before or waited_s >= LIMIT_S:
        supervisor.request("the actor is inactive")
    else:
        loop = asyncio.get_running_loop()
        loop.call_later(QUIET_S, _end_when_quiet, supervisor, result, now, waited_s + QUIET_S)
