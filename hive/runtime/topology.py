"""Topologies: which actors there are, what connects them, and where they run.

    t = Topology()
    workers = t.add(Worker, count=4)
    sink = t.add(Sink)
    t.connect(workers.results, sink.results)

`plan()` checks it and describes it as data (`Plan`, a message): that is all the supervisor ever sees. The classes and
their parameters stay in the process that built the topology, which forks the actors: nothing is pickled.

What can be judged at once is: message types, patterns, names. The rest is checked by `plan()` (hive.runtime.planning).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hive.errors import TopologyError
from hive.runtime.actor import Actor, Handle
from hive.runtime.memory import Layout
from hive.runtime.plan import Plan
from hive.runtime.planning import make_plan
from hive.runtime.ports import Inlet, Outlet, Port, Publication, Subscription, ports_of
from hive.runtime.resources import Resources, resources_of

__all__ = ["Group", "PortRef", "Topology"]

MAX_NAME_BYTES = 40  # fits a status page and a socket path
MAX_CHANNEL_BYTES = 16  # "<channel>:consumer_died" is a counter name of at most 31 bytes

Carrier = Literal["message", "slab", "board"]
OnDeath = Literal["drop", "reoffer"]


@dataclass(frozen=True)
class PortRef:
    """A port of a group, as `connect` takes it."""

    group: Group
    port: Port[Any]

    def __str__(self) -> str:
        return f"{self.group.key}.{self.port.name}"


@dataclass(eq=False)
class Group:
    """Actors of one class: `group.results` is a port of theirs, `group.handle(0)` a reference to one."""

    key: str
    cls: type[Actor]
    names: list[str]
    processes: list[str]  # of each of them
    restart: bool
    last: bool
    parameters: dict[str, Any]
    resources: Resources

    def __getattr__(self, name: str) -> PortRef:
        if name.startswith("__"):  # also while a copy is made, which has no `cls` yet
            raise AttributeError(name)
        ports = ports_of(self.cls)
        if name not in ports:
            raise AttributeError(f"`{self.cls.__name__}` has no port `{name}`; it has: {', '.join(ports) or 'none'}")
        return PortRef(self, ports[name])

    def handle(self, index: int = 0) -> Handle:
        return Handle(self.names[index], self.cls)


@dataclass
class Channel:
    name: str
    source: PortRef
    targets: list[PortRef]
    carrier: Carrier
    options: dict[str, Any] = field(default_factory=dict)


class Topology:
    """See the module. `results` and `digest` say what of this run the summary shows."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.channels: dict[str, Channel] = {}
        self.layouts: dict[str, Layout] = {}  # of slab channels, by channel name
        self.result_counters: tuple[str, tuple[str, ...]] = ("", ())
        self.digest_of: tuple[str, int] = ("", 0)

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
        """Adds `count` actors of `cls`, each built with `parameters`.

        `group` is the key under which `topology[...]` finds them: by default the role, in the plural when `count` is
        given. `process` puts them all into one process of that name, or each into its own of a list; by default each
        has a process of its own name. `restart`: brought back after a failure. `last`: stopped after all others.
        `cores`, `threads`, `device`: what these processes may use, see hive.runtime.resources.
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
        if twice := next((n for i, n in enumerate(names) if n in taken or n in names[:i]), ""):
            raise TopologyError(f"two actors are called `{twice}`", hint="set another `role` on one of their classes")
        if any(len(name.encode()) > MAX_NAME_BYTES for name in names):
            raise TopologyError(
                f"the name `{names[-1]}` is longer than {MAX_NAME_BYTES} bytes",
                hint="set a shorter `role` on the class",
            )
        homes = names if process is None else [process] * len(names) if isinstance(process, str) else list(process)
        if len(homes) != len(names):
            raise TopologyError(f"`{key}` has {len(names)} actors and a list of {len(homes)} processes")
        if clash := _named(cls) & _named(self.add):
            raise TopologyError(
                f"the constructor of {cls.__name__} has a parameter `{min(clash)}`, as Topology.add itself has",
                hint="give the parameter another name",
            )
        added = Group(key, cls, names, homes, restart, last, parameters, resources_of(key, cores, threads, device))
        if clash := ports_of(cls).keys() & {*dir(added), *dir(Actor), *Actor.__annotations__}:
            raise TopologyError(
                f"a port of {cls.__name__} is called `{min(clash)}`, as something of every group or actor is",
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
        """Connects an outlet to an inlet, or a publication to a subscription.

        With `layout` an outlet's messages lie in slabs of `slots` slots per producer; `by_share` gives consumer w the
        producers c with c mod W = w; `on_death` says what becomes of slots that a dead consumer held; sequences begin
        at `first`; the producers of a `shared` one read each other's messages; when the run pauses, those of an
        `in_step` one have sent as many each. Without, they travel as messages, at most `window` in flight from a
        producer to a consumer. A publication is a board of blocks of `block_bytes` that holds back its `keep` newest
        versions; `commit_with` names the channel whose commit word it shares.
        """
        self._check_pair(source, target)
        if layout is not None:
            _check_layout(source, layout)
        carrier: Carrier = "board" if isinstance(source.port, Publication) else "slab" if layout else "message"
        known = self.channels.get(str(source))
        if known is not None:
            if carrier == "slab" or (carrier == "message" and getattr(source.port, "pattern", "") == "balance"):
                raise TopologyError(
                    f"`{source}` is balanced between one group of consumers and is connected twice",
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
        """Puts another class in the place of a group's: a subclass, or one with the ports that are connected.

        `parameters` change some of those that its actors are built with. Names and placement stay.
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
                        f"{cls.__name__} cannot take the place of {group.cls.__name__}: it has no port "
                        f"`{ref.port.name}` ({type(ref.port).__name__} of {ref.port.message.__name__})",
                        hint=f"derive it from {group.cls.__name__}, or declare the port",
                    )
        group.cls = cls
        group.parameters.update(parameters)
        return group

    def insert(self, source: PortRef, group: Group, inlet: str, outlet: str) -> None:
        """Puts `group` into the channel that begins at `source`: it receives at `inlet` and sends on at `outlet`.

        Both halves carry as the channel did, with its options. It can look (a tap), change, hold back or drop.
        """
        channel = self.channels.get(str(source))
        if channel is None:
            raise TopologyError(f"`{source}` is not connected", hint="connect it first; insert goes between")
        layout = self.layouts.pop(channel.name, None)
        targets, options = self.disconnect(source), channel.options
        here, there = PortRef(group, ports_of(group.cls)[inlet]), PortRef(group, ports_of(group.cls)[outlet])
        self.connect(source, here, name=channel.name, layout=layout, **options)
        for target in targets:
            self.connect(there, target, layout=layout, **(options | {"commit_with": ""}))

    def disconnect(self, source: PortRef) -> list[PortRef]:
        """Takes away the channel that begins at `source`; where it led to."""
        channel = self.channels.pop(str(source), None)
        if channel is None:
            raise TopologyError(f"`{source}` is not connected")
        self.layouts.pop(channel.name, None)
        return channel.targets

    def publish(
        self, source: PortRef, *, block_bytes: int, keep: int = 1, commit_with: str = "", name: str | None = None
    ) -> None:
        """A publication that no actor subscribes to: state that only its owner's next incarnation reads."""
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
            raise TopologyError(f"`{source}` is not a publication, or is connected already")
        self._open(name, source, "board", options)

    def _open(self, name: str | None, source: PortRef, carrier: Carrier, options: dict[str, Any]) -> Channel:
        """A new channel without targets. Its name is its port's, or "group.port" where that is taken."""
        taken = {"status", *(c.name for c in self.channels.values())}  # the status pages are a segment too
        name = name or (source.port.name if source.port.name not in taken else str(source))
        if name in taken:
            raise TopologyError(f"two channels are called `{name}`", hint="pass another name=... to connect")
        if len(name.encode()) > MAX_CHANNEL_BYTES:
            raise TopologyError(
                f"the channel name `{name}` is longer than {MAX_CHANNEL_BYTES} bytes", hint="pass name=... to connect"
            )
        if carrier == "board" and len(source.group.names) != 1:
            raise TopologyError(
                f"`{source}` is a publication and has {len(source.group.names)} writers", hint="a board has exactly one"
            )
        if (
            isinstance(source.port, Outlet)
            and carrier == "slab"
            and (source.port.pattern, source.port.when_full) != ("balance", "wait")
        ):
            raise TopologyError(
                f"`{source}` has a layout and so must balance and wait", hint="connect it without a layout"
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
                f"`{target}` is connected to two sources", hint="declare a second port; each takes one source"
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
        """The summary shows these counters of the group's first actor."""
        self.result_counters = (group.names[0], counters)

    def digest(self, source: PortRef, count: int) -> None:
        """The summary shows the sha256 of the first `count` bytes of this publication's latest version."""
        self.digest_of = (str(source), count)

    def plan(self) -> Plan:
        """Checks the topology and describes it as data. Raises TopologyError."""
        return make_plan(self)

    def actor_of(self, number: int) -> tuple[Group, int]:
        """The group of actor `number` of the plan, and its index there."""
        for group in self.groups.values():
            if number < len(group.names):
                return group, number
            number -= len(group.names)
        raise IndexError("no such actor")


def _named(function: Callable[..., Any]) -> set[str]:
    """The parameters that can be given by name."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name for name, parameter in inspect.signature(function).parameters.items() if parameter.kind in kinds}


def _check_layout(source: PortRef, layout: Layout) -> None:
    """Raises TopologyError for a layout that has no room for what the port sends."""
    message = source.port.message
    if fault := layout.fault(message):
        raise TopologyError(
            f"the layout of `{source}` does not fit {message.__name__}: {fault}",
            hint=f"Layout.of({message.__name__}, ...) makes one that does",
        )
