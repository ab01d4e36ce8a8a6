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

from hive.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
