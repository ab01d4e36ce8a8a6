"""Describe a topology: the actors of a run, the channels between them, and the processes in which they run.

    t = Topology()
    workers = t.add(Worker, count=4)
    sink = t.add(Sink)
    t.connect(workers.results, sink.results)

`plan()` checks the topology and describes it as data (`Plan`, a message), which is all that the supervisor uses. The
classes and their parameters stay in the process that built the topology. That process forks the actors, so nothing is
pickled.

`add` and `connect` check names, message types and patterns at once; `plan()` checks the rest
(hive.runtime.topology.planning).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hive.errors import TopologyError
from hive.runtime.actor.actor import Actor, Handle
from hive.runtime.actor.ports import Inlet, Outlet, Port, Publication, Subscription, ports_of
from hive.runtime.memory.segments import Layout
from hive.runtime.topology.plan import Plan
from hive.runtime.topology.planning import make_plan
from hive.runtime.topology.resources import Resources, resources_of

__all__ = ["Group", "PortRef", "Topology"]

MAX_NAME_BYTES = 40  # limit on an actor's name: it must fit a status page and a socket path
MAX_CHANNEL_BYTES = 16  # limit on a channel's name: the counter "<channel>:consumer_died" may have 31 bytes

Carrier = Literal["message", "slab", "board"]
OnDeath = Literal["drop", "reoffer"]


@dataclass(frozen=True)
class PortRef:
    """A port of a group, as an argument of `connect`; its text is "group.port"."""

    group: Group
    port: Port[Any]

    def __str__(self) -> str:
        return f"{self.group.key}.{self.port.name}"


@dataclass(eq=False)
class Group:
    """Actors of one class. Attributes are their ports, as in `group.results`; `group.handle(0)` refers to one actor."""

    key: str
    cls: type[Actor]
    names: list[str]
    processes: list[str]  # process name of each actor
    restart: bool
    last: bool
    parameters: dict[str, Any]
    resources: Resources

    def __getattr__(self, name: str) -> PortRef:
        if name.startswith("__"):  # copy.copy looks these up on an object without `cls`
            raise AttributeError(name)
        ports = ports_of(self.cls)
        if name not in ports:
            raise AttributeError(f"`{self.cls.__name__}` has no port `{name}`; it has: {', '.join(ports) or 'none'}")
        return PortRef(self, ports[name])

    def handle(self, index: int = 0) -> Handle:
        """Return a reference to an actor of the group, whose endpoints other actors can call through it."""
        return Handle(self.names[index], self.cls)


@dataclass
class Channel:
    """A connection from one port to one or more; `options` are the keyword arguments of `connect`."""

    name: str
    source: PortRef
    targets: list[PortRef]
    carrier: Carrier
    options: dict[str, Any] = field(default_factory=dict)


class Topology:
    """The actors and channels of a run. `results` and `digest` select what the summary shows."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.channels: dict[str, Channel] = {}
        self.layouts: dict[str, Layout] = {}  # channel name -> layout of its slots, for slabs
        self.result_counters: tuple[str, tuple[str, ...]] = ("", ())  # actor name, names of its counters
        self.digest_of: tuple[str, int] = ("", 0)  # "group.port", number of bytes

    def add(
        self,
        cls: type[Actor],
        *,
        group: str | None = None,
        count: int | None = None,
        process: str | Sequence[str] | None = None,
        restart: bool = True,
        last: bool = False,
        cores: Sequence[int] | None = None,
        threads: int | None = None,
        device: str = "cpu",
        **parameters: Any,
    ) -> Group:
        """Add `count` actors of `cls`, each built with `parameters`, and return their group.

        `group` is the key under which `topology[...]` finds them: by default the role, in the plural if `count` is
        given. `process` names one process for all of them, or is a list with the process of each; by default each actor
        has a process with its own name. With `restart`, a failed actor is restarted; with `last`, it drains after all
        other actors. `cores`, `threads` and `device` are the resources of the processes
        (hive.runtime.topology.resources).

        Raises TopologyError for names that exist already or are too long, and for invalid counts and resources.
        """
        role = cls.role_name()
        key = group or (role if count is None else f"{role}s")
        if key in self.groups:
            raise TopologyError(f"two groups are called `{key}`", hint="pass group=... to one of them")
        if count is not None and count < 0:
            raise TopologyError(f"`{key}` cannot have {count} actors")
        taken = {name for g in self.groups.values() for name in g.names}
        start = sum(name.rpartition("-")[0] == role for name in taken)
        names = [f"{role}-{start + i}" if cls.numbered else role for i in range(1 if count is None else count)]
        if repeated := next((n for i, n in enumerate(names) if n in taken or n in names[:i]), ""):
            raise TopologyError(
                f"two actors are called `{repeated}`", hint="set another `role` on one of their classes"
            )
        if any(len(name.encode()) > MAX_NAME_BYTES for name in names):
            raise TopologyError(
                f"the name `{names[-1]}` is longer than {MAX_NAME_BYTES} bytes",
                hint="set a shorter `role` on the class",
            )
        processes = names if process is None else [process] * len(names) if isinstance(process, str) else list(process)
        if len(processes) != len(names):
            raise TopologyError(f"`{key}` has {len(names)} actors and a list of {len(processes)} processes")
        if clash := _keywords(cls) & _keywords(self.add):
            raise TopologyError(
                f"the constructor of {cls.__name__} has a parameter `{min(clash)}`, which Topology.add uses itself",
                hint="give the parameter another name",
            )
        added = Group(key, cls, names, processes, restart, last, parameters, resources_of(key, cores, threads, device))
        if clash := ports_of(cls).keys() & {*dir(added), *dir(Actor), *Actor.__annotations__}:
            raise TopologyError(
                f"the port `{min(clash)}` of {cls.__name__} has the name of an attribute of every group or actor",
                hint="give the port another name",
            )
        self.groups[key] = added
        return added

    def __getitem__(self, key: str) -> Group:
        if key not in self.groups:
            raise TopologyError(f"no group `{key}` in this topology", hint=f"it has: {', '.join(self.groups)}")
        return self.groups[key]

    def __contains__(self, key: str) -> bool:
        return key in self.groups

    def connect(
        self,
        source: PortRef,
        target: PortRef,
        *,
        name: str | None = None,
        layout: Layout | None = None,
        slots: int = 2,
        by_share: bool = False,
        on_death: OnDeath = "drop",
        first: int = 0,
        shared: bool = False,
        in_step: bool = False,
        window: int = 16,
        block_bytes: int = 0,
        keep: int = 1,
        commit_with: str = "",
    ) -> None:
        """Connect an outlet to an inlet, or a publication to a subscription. Raises TopologyError if they do not fit.

        Without `layout`, an outlet sends messages, at most `window` in flight from one producer to one consumer. With
        `layout`, its messages are slots in shared memory, `slots` per producer. Then `by_share` lets consumer w of W
        receive from the producers c with c mod W = w; `on_death` decides about the slots that a consumer had claimed
        when it exited; `first` is the first sequence number; producers of a `shared` channel read each other's
        messages; in a paused run, all producers of an `in_step` channel have sent the same number of messages.

        A publication is a board of blocks of `block_bytes` bytes, which never overwrites its `keep` newest versions;
        it shares the commit word of the channel `commit_with`, so that one store publishes both.
        """
        self._check_pair(source, target)
        if layout is not None:
            _check_layout(source, layout)
        carrier: Carrier = "board" if isinstance(source.port, Publication) else "slab" if layout else "message"
        known = self.channels.get(str(source))
        if known is not None:
            if carrier == "slab" or (carrier == "message" and getattr(source.port, "pattern", "") == "balance"):
                raise TopologyError(
                    f"`{source}` is balanced over one group of consumers and cannot be connected twice",
                    hint='use pattern="broadcast"',
                )
            if any(t.group is target.group for t in known.targets):
                raise TopologyError(f"`{source}` is connected to `{target.group.key}` twice")
            known.targets.append(target)
            return
        options = {
            "slots": slots,
            "by_share": by_share,
            "on_death": on_death,
            "first": first,
            "shared": shared,
            "in_step": in_step,
            "window": window,
            "block_bytes": block_bytes,
            "keep": keep,
            "commit_with": commit_with,
        }
        channel = self._open(name, source, carrier, options)
        channel.targets.append(target)
        if layout is not None:
            self.layouts[channel.name] = layout

    def replace(self, group: Group | str, cls: type[Actor], **parameters: Any) -> Group:
        """Replace the class of a group, by a subclass or another class that has all connected ports.

        `parameters` override some of the actors' parameters; names and processes stay. Raises TopologyError if a
        connected port is missing.
        """
        group = self[group] if isinstance(group, str) else group
        ports = ports_of(cls)
        for channel in self.channels.values():
            for ref in (channel.source, *channel.targets):
                if ref.group is not group:
                    continue
                port = ports.get(ref.port.name)
                if port is None or type(port) is not type(ref.port) or port.message is not ref.port.message:
                    raise TopologyError(
                        f"{cls.__name__} cannot replace {group.cls.__name__}: it has no port "
                        f"`{ref.port.name}` ({type(ref.port).__name__} of {ref.port.message.__name__})",
                        hint=f"derive it from {group.cls.__name__}, or declare the port",
                    )
        group.cls = cls
        group.parameters.update(parameters)
        return group

    def insert(self, source: PortRef, group: Group, inlet: str, outlet: str) -> None:
        """Insert `group` into the channel that begins at `source`; it receives at `inlet` and forwards at `outlet`.

        Both halves have the carrier and options of the channel. The group can observe, change, delay or drop messages.
        Raises TopologyError if `source` is not connected.
        """
        channel = self.channels.get(str(source))
        if channel is None:
            raise TopologyError(f"`{source}` is not connected", hint="connect it before you insert a group")
        layout = self.layouts.pop(channel.name, None)
        targets, options = self.disconnect(source), channel.options
        here, there = PortRef(group, ports_of(group.cls)[inlet]), PortRef(group, ports_of(group.cls)[outlet])
        self.connect(source, here, name=channel.name, layout=layout, **options)
        for target in targets:
            self.connect(there, target, layout=layout, **(options | {"commit_with": ""}))

    def disconnect(self, source: PortRef) -> list[PortRef]:
        """Remove the channel that begins at `source` and return its targets. Raises TopologyError if there is none."""
        channel = self.channels.pop(str(source), None)
        if channel is None:
            raise TopologyError(f"`{source}` is not connected")
        self.layouts.pop(channel.name, None)
        return channel.targets

    def publish(
        self, source: PortRef, *, block_bytes: int, keep: int = 1, commit_with: str = "", name: str | None = None
    ) -> None:
        """Give a publication a board without subscribers, for state that only its owner's next incarnation reads.

        The options are those of `connect`. Raises TopologyError if it is not a publication or already connected.
        """
        options = {
            "slots": 0,
            "by_share": False,
            "on_death": "drop",
            "window": 1,
            "block_bytes": block_bytes,
            "keep": keep,
            "commit_with": commit_with,
        }
        if not isinstance(source.port, Publication) or str(source) in self.channels:
            raise TopologyError(f"`{source}` is not a publication, or is already connected")
        self._open(name, source, "board", options)

    def _open(self, name: str | None, source: PortRef, carrier: Carrier, options: dict[str, Any]) -> Channel:
        """Create a channel without targets, named `name`, or after its port, or "group.port" if that name is taken."""
        taken = {"status", *(c.name for c in self.channels.values())}  # "status" is the segment of the status pages
        name = name or (source.port.name if source.port.name not in taken else str(source))
        if name in taken:
            raise TopologyError(f"two channels are called `{name}`", hint="pass another name=... to connect")
        if len(name.encode()) > MAX_CHANNEL_BYTES:
            raise TopologyError(
                f"the channel name `{name}` is longer than {MAX_CHANNEL_BYTES} bytes", hint="pass name=... to connect"
            )
        if carrier == "board" and len(source.group.names) != 1:
            raise TopologyError(
                f"`{source}` is a publication and has {len(source.group.names)} writers",
                hint="a board has exactly one writer",
            )
        if (
            isinstance(source.port, Outlet)
            and carrier == "slab"
            and (source.port.pattern, source.port.when_full) != ("balance", "wait")
        ):
            raise TopologyError(
                f'`{source}` has a layout, which requires pattern="balance" and when_full="wait"',
                hint="connect it without a layout",
            )
        channel = self.channels[str(source)] = Channel(name, source, [], carrier, options)
        return channel

    def _check_pair(self, source: PortRef, target: PortRef) -> None:
        out, into = source.port, target.port
        for ref in (source, target):
            if self.groups.get(ref.group.key) is not ref.group:
                raise TopologyError(f"`{ref}` belongs to another topology")
        if any(
            str(target) == str(known) and str(source) != key for key, c in self.channels.items() for known in c.targets
        ):
            raise TopologyError(
                f"`{target}` is connected to two sources", hint="declare a second port; each accepts one source"
            )
        fits = (isinstance(out, Outlet) and isinstance(into, Inlet)) or (
            isinstance(out, Publication) and isinstance(into, Subscription)
        )
        if not fits:
            raise TopologyError(
                f"`{source}` ({type(out).__name__}) cannot be connected to `{target}` ({type(into).__name__})",
                hint="connect an Outlet to an Inlet, or a Publication to a Subscription",
            )
        if out.message is not into.message:
            raise TopologyError(
                f"`{source}` carries {out.message.__name__}, `{target}` accepts {into.message.__name__}"
            )

    def results(self, group: Group, *counters: str) -> None:
        """Show these counters of the group's first actor in the summary."""
        self.result_counters = (group.names[0], counters)

    def digest(self, source: PortRef, count: int) -> None:
        """Show the sha256 of the first `count` bytes of this publication's latest version in the summary."""
        self.digest_of = (str(source), count)

    def plan(self) -> Plan:
        """Check the topology and return it as data. Raises TopologyError."""
        return make_plan(self)

    def actor_of(self, number: int) -> tuple[Group, int]:
        """Return the group of actor `number` of the plan, and its index in the group. Raises IndexError."""
        for group in self.groups.values():
            if number < len(group.names):
                return group, number
            number -= len(group.names)
        raise IndexError("no such actor")


def _keywords(function: Callable[..., Any]) -> set[str]:
    """Return the names of the parameters that can be passed by keyword."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name for name, parameter in inspect.signature(function).parameters.items() if parameter.kind in kinds}


def _check_layout(source: PortRef, layout: Layout) -> None:
    """Raise TopologyError if the layout has no room for the port's messages."""
    message = source.port.message
    if fault := layout.fault(message):
        raise TopologyError(
            f"the layout of `{source}` does not fit {message.__name__}: {fault}",
            hint=f"Layout.of({message.__name__}, ...) makes one that fits",
        )
