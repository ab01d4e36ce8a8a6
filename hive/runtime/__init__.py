"""The actor system: actors, ports, topologies, and the supervisor that restarts actors. No torch, no learning.

from hive.runtime import Actor, Inlet, Message, Outlet, Topology

Each sub-package owns one part, and imports only from those above it in this list:

    wire        messages, their frames, and the transports that carry frames between processes
    memory      segments of shared memory, layouts, slots, boards, and the status pages of actors
    carriers    how a channel moves messages between actors, and how an actor waits for them
    actor       what users write: actors with ports, and handles to other actors
    topology    a run described as data: groups of actors, channels, and the plan that is made of them
    process     the processes of a run: how they are forked, and how their actors are bound and called
    supervise   the supervisor: start, exit, repair, restart, pause and end
    run         a whole run: its directory, stages, control socket, and the data that views show

A module is imported when one of its names is first used. A command that only inspects a run therefore imports only
the control socket.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = [
    "BUSY",
    "RUNTIME",
    "START",
    "WAIT_IN",
    "WAIT_OUT",
    "Actor",
    "Board",
    "Bytes",
    "CachedViews",
    "Carrier",
    "ChannelFull",
    "End",
    "Group",
    "Handle",
    "Inlet",
    "Layout",
    "Line",
    "Message",
    "Messages",
    "Outlet",
    "Packed",
    "Plan",
    "PortRef",
    "Publication",
    "Shape",
    "Shared",
    "SharedIn",
    "SharedOut",
    "Slot",
    "SlotInlet",
    "SlotOutlet",
    "SlotReceiver",
    "SlotSender",
    "Slots",
    "Status",
    "Subscription",
    "Topology",
    "Tree",
    "Zmq",
    "check_memory",
    "endpoint",
    "free_memory",
    "size_text",
]
_HOMES = {
    "Actor": "hive.runtime.actor.actor",
    "BUSY": "hive.runtime.memory.status",
    "Board": "hive.runtime.carriers.boards",
    "Bytes": "hive.runtime.memory.segments",
    "Carrier": "hive.runtime.carriers.carrier",
    "ChannelFull": "hive.runtime.carriers.messages",
    "End": "hive.runtime.carriers.carrier",
    "Group": "hive.runtime.topology.groups",
    "Handle": "hive.runtime.actor.actor",
    "Inlet": "hive.runtime.actor.ports",
    "CachedViews": "hive.runtime.memory.segments",
    "Layout": "hive.runtime.memory.segments",
    "Packed": "hive.runtime.memory.segments",
    "Line": "hive.runtime.carriers.carrier",
    "Message": "hive.runtime.wire.messages",
    "Messages": "hive.runtime.carriers.messages",
    "Outlet": "hive.runtime.actor.ports",
    "Plan": "hive.runtime.topology.plan",
    "PortRef": "hive.runtime.topology.groups",
    "Publication": "hive.runtime.actor.ports",
    "RUNTIME": "hive.runtime.memory.status",
    "START": "hive.runtime.memory.status",
    "Shape": "hive.runtime.wire.arrays",
    "Shared": "hive.runtime.carriers.shared",
    "SharedIn": "hive.runtime.actor.ports",
    "SharedOut": "hive.runtime.actor.ports",
    "Slot": "hive.runtime.carriers.slots",
    "SlotInlet": "hive.runtime.actor.ports",
    "SlotOutlet": "hive.runtime.actor.ports",
    "SlotReceiver": "hive.runtime.carriers.slots",
    "SlotSender": "hive.runtime.carriers.slots",
    "Slots": "hive.runtime.carriers.slots",
    "Status": "hive.runtime.memory.status",
    "Subscription": "hive.runtime.actor.ports",
    "Topology": "hive.runtime.topology.topology",
    "Tree": "hive.runtime.wire.messages",
    "WAIT_IN": "hive.runtime.memory.status",
    "WAIT_OUT": "hive.runtime.memory.status",
    "Zmq": "hive.runtime.carriers.zmq",
    "check_memory": "hive.runtime.process.limits",
    "endpoint": "hive.runtime.actor.actor",
    "free_memory": "hive.runtime.process.free_memory",
    "size_text": "hive.runtime.process.free_memory",
}

if TYPE_CHECKING:  # the lazy names of `__getattr__` below, for type checkers and editors
    from hive.runtime.actor.actor import Actor, Handle, endpoint
    from hive.runtime.actor.ports import (
        Inlet,
        Outlet,
        Publication,
        SharedIn,
        SharedOut,
        SlotInlet,
        SlotOutlet,
        Subscription,
    )
    from hive.runtime.carriers.boards import Board
    from hive.runtime.carriers.carrier import Carrier, End, Line
    from hive.runtime.carriers.messages import ChannelFull, Messages
    from hive.runtime.carriers.shared import Shared
    from hive.runtime.carriers.slots import Slot, SlotReceiver, Slots, SlotSender
    from hive.runtime.carriers.zmq import Zmq
    from hive.runtime.memory.segments import Bytes, CachedViews, Layout, Packed
    from hive.runtime.memory.status import BUSY, RUNTIME, START, WAIT_IN, WAIT_OUT, Status
    from hive.runtime.process.free_memory import free_memory, size_text
    from hive.runtime.process.limits import check_memory
    from hive.runtime.topology.groups import Group, PortRef
    from hive.runtime.topology.plan import Plan
    from hive.runtime.topology.topology import Topology
    from hive.runtime.wire.arrays import Shape
    from hive.runtime.wire.messages import Message, Tree
else:

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(importlib.import_module(_HOMES[name]), name)
        raise AttributeError(f"module `hive.runtime` has no attribute `{name}`")
