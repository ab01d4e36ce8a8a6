"""The actor system: actors, ports, topologies, and the supervisor that restarts actors. No torch, no learning.

from hive.runtime import Actor, Inlet, Message, Outlet, Topology

A module is imported when one of its names is first used. A command that only inspects a run therefore imports only
the control socket.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = [
    "BUSY",
    "RUNTIME",
    "WAIT_IN",
    "WAIT_OUT",
    "Actor",
    "Bytes",
    "ChannelFull",
    "Group",
    "Handle",
    "Inlet",
    "Layout",
    "Message",
    "Outlet",
    "Plan",
    "PortRef",
    "Publication",
    "Shape",
    "SlabReceiver",
    "Slot",
    "Status",
    "Subscription",
    "Topology",
    "Tree",
    "endpoint",
]
_HOMES = {
    "Actor": "hive.runtime.actor",
    "BUSY": "hive.runtime.status",
    "Bytes": "hive.runtime.memory",
    "ChannelFull": "hive.runtime.channels",
    "Group": "hive.runtime.topology",
    "Handle": "hive.runtime.actor",
    "Inlet": "hive.runtime.ports",
    "Layout": "hive.runtime.memory",
    "Message": "hive.runtime.messages",
    "Outlet": "hive.runtime.ports",
    "Plan": "hive.runtime.plan",
    "PortRef": "hive.runtime.topology",
    "Publication": "hive.runtime.ports",
    "RUNTIME": "hive.runtime.status",
    "Shape": "hive.runtime.arrays",
    "SlabReceiver": "hive.runtime.slabs",
    "Slot": "hive.runtime.slabs",
    "Status": "hive.runtime.status",
    "Subscription": "hive.runtime.ports",
    "Topology": "hive.runtime.topology",
    "Tree": "hive.runtime.messages",
    "WAIT_IN": "hive.runtime.status",
    "WAIT_OUT": "hive.runtime.status",
    "endpoint": "hive.runtime.actor",
}

if TYPE_CHECKING:  # the lazy names of `__getattr__` below, for type checkers and editors
    from hive.runtime.actor import Actor, Handle, endpoint
    from hive.runtime.arrays import Shape
    from hive.runtime.channels import ChannelFull
    from hive.runtime.memory import Bytes, Layout
    from hive.runtime.messages import Message, Tree
    from hive.runtime.plan import Plan
    from hive.runtime.ports import Inlet, Outlet, Publication, Subscription
    from hive.runtime.slabs import SlabReceiver, Slot
    from hive.runtime.status import BUSY, RUNTIME, WAIT_IN, WAIT_OUT, Status
    from hive.runtime.topology import Group, PortRef, Topology
else:

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(importlib.import_module(_HOMES[name]), name)
        raise AttributeError(f"module `hive.runtime` has no attribute `{name}`")
