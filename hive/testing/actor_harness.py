"""One actor alone: fed at its inlets, heard at its outlets, in virtual time.

    result = hive.testing.run_actor(Doubler, {"numbers": [Number(1), Number(2)]})
    assert result.sent["doubled"] == [Number(2), Number(4)]

The actor is the real one in a real topology, with a feeder at each of its inlets and an ear at each of its outlets; so
it waits, drains and fails as in a run. It ends when the actor does, when it ends the run, or when it has taken all that
it was fed and says nothing more for a virtual second. What it raises is raised here.

Channels with a layout are fed dictionaries of arrays, and heard as such (copies). A subscription is fed the blocks of
versions 0, 1, ..., a publication heard as a list of (version, block).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hive.runtime import Actor, Inlet, Layout, Outlet, Publication, Subscription, Topology
from hive.runtime.outcome import Journal
from hive.runtime.ports import ports_of
from hive.runtime.supervisor import Supervisor
from hive.testing.inline import run_inline

__all__ = ["ActorResult", "run_actor"]

QUIET_S = 1.0  # virtual: after so long without a word nothing more comes of what was fed
LIMIT_S = 3600.0  # virtual, of one that never gets quiet
BLOCKS_KEPT = 64  # of a publication: an ear in the same loop is never so far behind
NAME = 16  # bytes of a channel's name
COUNTERPARTS = {Inlet: Outlet, Outlet: Inlet, Subscription: Publication, Publication: Subscription}


@dataclass
class ActorResult:
    """What an actor did. `reason`: why it ended the run, "" when it did not; `notes`: (kind, text)."""

    sent: dict[str, list[Any]] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)
    reason: str = ""
    counters: dict[str, float] = field(default_factory=dict)


class _Feeder(Actor):
    """Sends what it is given, then is done."""

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


class _Ear(Actor):
    """Keeps what it hears."""

    role = "ear"

    def __init__(self, heard: list[Any], layout: Layout | None) -> None:
        self.heard = heard
        self.layout = layout

    async def run(self) -> None:
        port, version = getattr(self, "inn"), 0  # noqa: B009
        while True:
            if isinstance(port, Subscription):
                _, block = await port.pin(version)
                self.heard.append((version, block.copy()))
                port.unpin()
                version += 1
            elif self.layout is None:
                self.heard.append(await port.receive())
            else:
                slot = await port.claim()
                self.heard.append({name: array.copy() for name, array in slot.arrays.items()})
                port.retire(slot)


def run_actor(
    actor: type[Actor],
    feed: Mapping[str, Sequence[Any]] | None = None,
    *,
    layouts: Mapping[str, Layout] | None = None,
    block_bytes: Mapping[str, int] | None = None,
    **parameters: Any,
) -> ActorResult:
    """Runs one actor, built with `parameters`, on what `feed` holds for its inlets and subscriptions.

    layouts: of the ports that carry slots. block_bytes: of the boards. Raises what the actor raises, and TopologyError.
    """
    result, feed, layouts = ActorResult(), feed or {}, layouts or {}
    topology = Topology()
    tested = topology.add(actor, **parameters)
    for name, port in ports_of(actor).items():
        layout = layouts.get(name)
        options: dict[str, Any] = {"layout": layout} if layout else {}
        if isinstance(port, (Publication, Subscription)):
            options = {"block_bytes": (block_bytes or {}).get(name, 0), "keep": len(feed.get(name, ())) or BLOCKS_KEPT}
        other = COUNTERPARTS[type(port)](port.message)
        if isinstance(port, (Outlet, Publication)):
            heard = result.sent[name] = []
            cls = type("Ear", (_Ear,), {"inn": other})
            ear = topology.add(cls, group=f"ear {name}"[:NAME], heard=heard, layout=layout)
            topology.connect(getattr(tested, name), ear.inn, name=f"out {name}"[:NAME], **options)
        elif name in feed or not port.optional:
            cls = type("Feeder", (_Feeder,), {"out": other})
            feeder = topology.add(cls, group=f"feed {name}"[:NAME], feed=feed.get(name, ()), layout=layout)
            topology.connect(feeder.out, getattr(tested, name), name=f"in {name}"[:NAME], **options)

    def watch(supervisor: Supervisor) -> None:
        def event(kind: str, text: str, fields: dict[str, Any]) -> None:
            if fields.get("actor") == tested.names[0]:
                result.notes.append((kind, text))

        supervisor.journal = Journal(event, lambda death: "")
        asyncio.get_running_loop().call_later(QUIET_S, _end_when_quiet, supervisor, result, (-1.0, 0), 0.0)

    outcome = run_inline(topology, virtual=True, watch=watch)
    result.reason = outcome.reason if outcome.state == "finished" else ""
    return result


def _end_when_quiet(supervisor: Supervisor, result: ActorResult, before: tuple[float, int], waited_s: float) -> None:
    """Ends the run once nothing has moved for QUIET_S: no message, no phase, nothing heard."""
    result.counters = dict(supervisor.pages.snapshot(0)["counters"])
    now = (sum(result.counters.values()), sum(map(len, result.sent.values())))
    if now == before or waited_s >= LIMIT_S:
        supervisor.request("nothing more comes of what it was fed")
    else:
        loop = asyncio.get_running_loop()
        loop.call_later(QUIET_S, _end_when_quiet, supervisor, result, now, waited_s + QUIET_S)
