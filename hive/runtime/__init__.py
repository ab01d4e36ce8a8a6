"""The actor system: actors, ports, topologies, and the supervisor that keeps them alive. No torch, no learning.

from hive.runtime import Actor, Inlet, Message, Outlet, Topology
"""

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
