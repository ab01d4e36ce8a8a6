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

import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar, overload

from hive.errors import TopologyError
from hive.runtime.actor.actor import Actor
from hive.runtime.actor.ports import (
    Inlet,
    InPort,
    Outlet,
    OutPort,
    Publication,
    SharedIn,
    SharedOut,
    Subscription,
    ports_of,
)
from hive.runtime.carriers.boards import Board
from hive.runtime.carriers.carrier import Carrier
from hive.runtime.carriers.messages import Messages
from hive.runtime.carriers.shared import Shared
from hive.runtime.carriers.slots import Slots
from hive.runtime.topology.groups import Channel, Group, PortRef
from hive.runtime.topology.plan import Plan
from hive.runtime.topology.planning import make_plan
from hive.runtime.topology.resources import resources_of
from hive.runtime.wire.messages import Message

MAX_NAME_BYTES = 40  # limit on an actor's name: it must fit a status page and a socket path
MAX_CHANNEL_BYTES = 16  # limit on a channel's name: the counter "<channel>:consumer_died" may have 31 bytes

BOARD_MODE = ("broadcast", "drop_oldest")  # pattern and `when_full` of a board: every reader may miss versions

M = TypeVar("M", bound=Message)


class Topology:
    """The actors and channels of a run. `results` and `digest` select what the summary shows."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.channels: dict[str, Channel] = {}
        self.result_counters: tuple[str, tuple[str, ...]] = ("", ())  # actor name, names of its counters
        self.digest_of: tuple[str, int] = ("", 0)  # "group.port", number of bytes
        self.inexact: list[str] = []  # why runs of one seed may differ, besides what its channels show

    def add(
        self,
        cls: type[Actor],
        *,
        group: str | None = None,
        role: str | None = None,
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

        `role` names the actors in place of the class's role.
        `group` is the key under which `topology[...]` finds them: by default the role, in the plural if `count` is
        given. `process` names one process for all of them, or is a list with the process of each; by default each actor
        has a process with its own name. With `restart`, a failed actor is restarted; with `last`, it drains after all
        other actors. `cores`, `threads` and `device` are the resources of the processes
        (hive.runtime.topology.resources).

        Raises TopologyError for names that exist already or are too long, and for invalid counts and resources.
        """
        key = group or (cls.role_name() if count is None else f"{cls.role_name()}s")
        if key in self.groups:
            raise TopologyError(f"two groups are called `{key}`", hint="pass group=... to one of them")
        if count is not None and count < 0:
            raise TopologyError(f"`{key}` cannot have {count} actors")
        names = self._new_names(cls, role or cls.role_name(), 1 if count is None else count)
        per_actor = names if process is None else process
        processes = [per_actor] * len(names) if isinstance(per_actor, str) else list(per_actor)
        if len(processes) != len(names):
            raise TopologyError(f"`{key}` has {len(names)} actors and a list of {len(processes)} processes")
        added = Group(key, cls, names, processes, restart, last, parameters, resources_of(key, cores, threads, device))
        _check_class(cls, reserved=_keywords(self.add), attributes=dir(added))
        self.groups[key] = added
        return added

    def _new_names(self, cls: type[Actor], role: str, count: int) -> list[str]:
        """Return the names of `count` further actors of a role. Raises TopologyError for taken or too long ones."""
        taken = {name for group in self.groups.values() for name in group.names}
        start = sum(name.rpartition("-")[0] == role for name in taken)
        names = [f"{role}-{start + i}" if cls.numbered else role for i in range(count)]
        if repeated := next((n for i, n in enumerate(names) if n in taken or n in names[:i]), ""):
            raise TopologyError(
                f"two actors are called `{repeated}`", hint="set another `role` on one of their classes"
            )
        if any(len(name.encode()) > MAX_NAME_BYTES for name in names):
            raise TopologyError(
                f"the name `{names[-1]}` is longer than {MAX_NAME_BYTES} bytes",
                hint="set a shorter `role` on the class",
            )
        return names

    def __getitem__(self, key: str) -> Group:
        if key not in self.groups:
            raise TopologyError(f"no group `{key}` in this topology", hint=f"it has: {', '.join(self.groups)}")
        return self.groups[key]

    def __contains__(self, key: str) -> bool:
        return key in self.groups

    @overload
    def connect(
        self,
        source: PortRef[Outlet[M]],
        target: PortRef[Inlet[M]],
        carrier: Messages | Slots | None = None,
        *,
        name: str | None = None,
    ) -> None: ...
    @overload
    def connect(
        self, source: PortRef[OutPort[M]], target: PortRef[InPort[M]], carrier: Slots, *, name: str | None = None
    ) -> None: ...
    @overload
    def connect(
        self,
        source: PortRef[Publication[M]],
        target: PortRef[Subscription[M]],
        carrier: Board | None = None,
        *,
        name: str | None = None,
    ) -> None: ...
    @overload
    def connect(
        self,
        source: PortRef[SharedOut[M]],
        target: PortRef[SharedIn[M]],
        carrier: Shared | None = None,
        *,
        name: str | None = None,
    ) -> None: ...
    def connect(
        self, source: PortRef[Any], target: PortRef[Any], carrier: Carrier | None = None, *, name: str | None = None
    ) -> None:
        """Connect an outlet to an inlet, or a publication to a subscription. Raises TopologyError if they do not fit.

        `carrier` moves the messages: `Messages` by default, `Slots` or `Zmq` for messages of one layout, `Board` for a
        publication, `Shared` for memory that is changed in place. A broadcast or publication that is connected already
        gets one more target, without a carrier.
        """
        self._check_pair(source, target)
        known = self.channels.get(str(source))
        if known is None:
            self._check_carrier(source, carrier)
            self._check_carrier(target, carrier)  # before the channel is opened: a refused one leaves nothing behind
            self._open(name, source, carrier).targets.append(target)
            return
        self._check_carrier(target, known.carrier)
        if carrier is not None and carrier != known.carrier:
            raise TopologyError(
                f"`{source}` is connected with another carrier: {known.carrier}", hint="leave this one out"
            )
        if isinstance(source.port, OutPort) and source.port.pattern == "balance":
            raise TopologyError(
                f"`{source}` is balanced over one group of consumers and cannot be connected twice",
                hint='use pattern="broadcast"',
            )
        if any(t.group is target.group for t in known.targets):
            raise TopologyError(f"`{source}` is connected to `{target.group.key}` twice")
        known.targets.append(target)

    def replace(self, group: Group | str, cls: type[Actor], **parameters: Any) -> Group:
        """Replace the class of a group, by a subclass or another class that has all connected ports.

        `parameters` override some of the actors' parameters; names and processes stay. Raises TopologyError if a
        connected port is missing.
        """
        group = self[group] if isinstance(group, str) else group
        self._check_replacement(group, cls)
        group.cls = cls
        group.parameters.update(parameters)
        return group

    def substitute(
        self, group: Group, positions: Iterable[int], cls: type[Actor], *, process: str, **parameters: Any
    ) -> None:
        """Have the actors at these positions of a group be of another class, built with `parameters`, in `process`.

        They keep their names and channels. Raises TopologyError if a connected port is missing.
        """
        self._check_replacement(group, cls)
        for position in positions:
            group.substitutes[position] = (cls, parameters)
            group.processes[position] = process

    def renumber(self, group: Group, first: int) -> None:
        """Number the actors of a group from `first` on, as those of a part of a larger group.

        Processes that are called like their actors are renamed, too. Raises TopologyError for a name that exists.
        """
        names = [f"{group.cls.role_name()}-{first + i}" for i in range(len(group.names))]
        if taken := {*names} & {name for other in self.groups.values() if other is not group for name in other.names}:
            raise TopologyError(f"two actors are called `{min(taken)}`")
        renamed = dict(zip(group.names, names, strict=True))
        group.processes[:] = [renamed.get(process, process) for process in group.processes]
        group.names[:], group.first = names, first

    def _check_replacement(self, group: Group, cls: type[Actor]) -> None:
        """Raise TopologyError if a class lacks a connected port of the group."""
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

    def insert(self, source: PortRef[Any], group: Group, inlet: str, outlet: str) -> None:
        """Insert `group` into the channel that begins at `source`; it receives at `inlet` and forwards at `outlet`.

        Both halves have the carrier of the channel. The group can observe, change, delay or drop messages. What one of
        its actors had claimed when it exited is offered to its successor, so that no number is missing behind it.

        Raises TopologyError if `source` is not connected, the group lacks the ports, or it would mix the numbers of
        several producers.
        """
        channel = self.channels.get(str(source))
        if channel is None:
            raise TopologyError(f"`{source}` is not connected", hint="connect it before you insert a group")
        for name in (inlet, outlet):
            if name not in ports_of(group.cls):
                known = ", ".join(ports_of(group.cls)) or "none"
                raise TopologyError(f"{group.cls.__name__} has no port `{name}`; it has: {known}")
        carrier: Any = channel.carrier
        first_half: Any = carrier
        if isinstance(carrier, Slots):
            first_half = dataclasses.replace(carrier, on_death="reoffer")
            if carrier.by_share and len(group.names) != len(source.group.names):
                raise TopologyError(
                    f"`{source}` has {len(source.group.names)} producers whose messages are numbered one by one, and "
                    f"`{group.key}` has {len(group.names)} actor{'s'[: len(group.names) != 1]}",
                    hint=f"add it with count={len(source.group.names)}: one actor behind each producer",
                )
        targets: list[Any] = self.disconnect(source)
        here, there = group.__getattr__(inlet), group.__getattr__(outlet)
        self.connect(source, here, first_half, name=channel.name)
        if isinstance(carrier, Board):  # the forwarding group commits its own versions
            carrier = dataclasses.replace(carrier, commit_with="")
        for target in targets:
            self.connect(there, target, carrier)

    def carrier_of(self, source: PortRef[Any]) -> Carrier:
        """Return the carrier of the channel that begins at `source`. Raises TopologyError if there is none."""
        if str(source) not in self.channels:
            raise TopologyError(f"`{source}` is not connected")
        return self.channels[str(source)].carrier

    def carry(self, source: PortRef[Any], carrier: Carrier) -> None:
        """Replace the carrier of the channel that begins at `source`. Raises TopologyError if it does not fit."""
        self.carrier_of(source)
        channel = self.channels[str(source)]
        for ref in (source, *channel.targets):
            self._check_carrier(ref, carrier)
        self._check_sizes(channel.name, source, carrier)
        channel.carrier = carrier

    def disconnect(self, source: PortRef[Any]) -> list[PortRef[Any]]:
        """Remove the channel that begins at `source` and return its targets. Raises TopologyError if there is none."""
        channel = self.channels.pop(str(source), None)
        if channel is None:
            raise TopologyError(f"`{source}` is not connected")
        return channel.targets

    def publish(self, source: PortRef[Publication[M]], carrier: Board, *, name: str | None = None) -> None:
        """Give a publication a board without subscribers, for state that only its owner's next incarnation reads.

        Raises TopologyError if it is not a publication or already connected.
        """
        if not isinstance(source.port, Publication) or str(source) in self.channels:
            raise TopologyError(f"`{source}` is not a publication, or is already connected")
        self._open(name, source, carrier)

    def _open(self, name: str | None, source: PortRef[Any], carrier: Carrier | None) -> Channel:
        """Create a channel without targets, named `name`, or after its port, or "group.port" if that name is taken."""
        taken = {"status", *(c.name for c in self.channels.values())}  # "status" is the segment of the status pages
        name = name or (source.port.name if source.port.name not in taken else str(source))
        if name in taken:
            raise TopologyError(f"two channels are called `{name}`", hint="pass another name=... to connect")
        if len(name.encode()) > MAX_CHANNEL_BYTES:
            raise TopologyError(
                f"the channel name `{name}` is longer than {MAX_CHANNEL_BYTES} bytes", hint="pass name=... to connect"
            )
        if isinstance(source.port, Publication | SharedOut) and len(source.group.names) != 1:
            raise TopologyError(
                f"`{source}` is a {type(source.port).__name__} and has {len(source.group.names)} writers",
                hint="its memory has exactly one writer",
            )
        self._check_carrier(source, carrier)
        carrier = carrier or Messages()
        self._check_sizes(name, source, carrier)
        channel = self.channels[str(source)] = Channel(name, source, [], carrier)
        return channel

    def _check_sizes(self, name: str, source: PortRef[Any], carrier: Carrier) -> None:
        port = source.port
        pattern, when_full = (port.pattern, port.when_full) if isinstance(port, OutPort) else BOARD_MODE
        carrier.check(name, str(source), port.message, pattern, when_full)

    def _check_carrier(self, ref: PortRef[Any], carrier: Carrier | None) -> None:
        """Raise TopologyError if messages of this port cannot have the carrier."""
        if isinstance(carrier or Messages(), ref.port.carriers):
            return
        kinds = {
            Messages: "hive.Messages()",
            Slots: "hive.Slots(layout)",
            Board: "hive.Board(block_bytes)",
            Shared: "hive.Shared(block_bytes)",
        }
        fitting = " or ".join(text for kind, text in kinds.items() if kind in ref.port.carriers)
        what = "needs a carrier" if carrier is None else f"cannot be carried by {type(carrier).__name__}"
        raise TopologyError(f"`{ref}` ({type(ref.port).__name__}) {what}", hint=f"connect it with {fitting}")

    def _check_pair(self, source: PortRef[Any], target: PortRef[Any]) -> None:
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
        pairs = ((OutPort, InPort), (Publication, Subscription), (SharedOut, SharedIn))
        if not any(isinstance(out, first) and isinstance(into, second) for first, second in pairs):
            raise TopologyError(
                f"`{source}` ({type(out).__name__}) cannot be connected to `{target}` ({type(into).__name__})",
                hint="connect an Outlet to an Inlet, a Publication to a Subscription, or a SharedOut to a SharedIn",
            )
        if out.message is not into.message:
            raise TopologyError(
                f"`{source}` carries {out.message.__name__}, `{target}` accepts {into.message.__name__}"
            )

    def results(self, group: Group, *counters: str) -> None:
        """Show these counters of the group's first actor in the summary."""
        self.result_counters = (group.names[0], counters)

    def digest(self, source: PortRef[Any], count: int) -> None:
        """Show the sha256 of the first `count` bytes of this publication's latest version in the summary."""
        self.digest_of = (str(source), count)

    def plan(self) -> Plan:
        """Check the topology and return it as data. Raises TopologyError."""
        plan = make_plan(self.groups, self.channels, self.result_counters, self.digest_of)
        return dataclasses.replace(plan, inexact=(*plan.inexact, *self.inexact))

    def actor_of(self, number: int) -> tuple[Group, int]:
        """Return the group of actor `number` of the plan, and its index in the group. Raises IndexError."""
        for group in self.groups.values():
            if number < len(group.names):
                return group, number
            number -= len(group.names)
        raise IndexError("no such actor")


def _check_class(cls: type[Actor], reserved: Collection[str], attributes: Iterable[str]) -> None:
    """Raise TopologyError for a class that a topology cannot build or run.

    reserved: names of parameters that its constructor cannot have. attributes: those of its group, which a port would
    hide.
    """
    if clash := _keywords(cls) & {*reserved}:
        raise TopologyError(
            f"the constructor of {cls.__name__} has a parameter `{min(clash)}`, which Topology.add uses itself",
            hint="give the parameter another name",
        )
    if clash := ports_of(cls).keys() & {*attributes, *dir(Actor), *Actor.__annotations__}:
        raise TopologyError(
            f"the port `{min(clash)}` of {cls.__name__} has the name of an attribute of every group or actor",
            hint="give the port another name",
        )
    for name in ("setup", "run", "drain", "teardown"):
        if not inspect.iscoroutinefunction(getattr(cls, name)):
            raise TopologyError(
                f"`{name}` of {cls.__name__} is a plain function",
                hint=f"write `async def {name}(self) -> None`; it may await the ports of the actor",
            )


def _keywords(function: Callable[..., Any]) -> set[str]:
    """Return the names of the parameters that can be passed by keyword."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name for name, parameter in inspect.signature(function).parameters.items() if parameter.kind in kinds}
