"""The parts of a topology: groups of actors, their ports, and the channels between these."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from hive.runtime.actor.actor import Actor, Handle
from hive.runtime.actor.ports import Port, ports_of
from hive.runtime.carriers.carrier import Carrier
from hive.runtime.topology.resources import Resources

P = TypeVar("P", bound=Port[Any])
P_co = TypeVar("P_co", bound=Port[Any], covariant=True)


@dataclass(frozen=True)
class PortRef(Generic[P_co]):
    """A port of a group, as an argument of `connect`; its text is "group.port"."""

    group: Group
    port: P_co

    def __str__(self) -> str:
        return f"{self.group.key}.{self.port.name}"


@dataclass(eq=False)
class Group:
    """Actors of one class. Attributes are their ports, as in `group.results`; `group.handle(0)` refers to one actor.

    `group.port(Worker.results)` is the same port with its type, so that a type checker sees what `connect` gets.
    """

    key: str
    cls: type[Actor]
    names: list[str]
    processes: list[str]  # process name of each actor
    restart: bool
    last: bool
    parameters: dict[str, Any]
    resources: Resources
    first: int = 0  # index of the first actor
    substitutes: dict[int, tuple[type[Actor], dict[str, Any]]] = field(
        default_factory=dict
    )  # position -> see `class_of`

    def class_of(self, position: int) -> tuple[type[Actor], dict[str, Any]]:
        """Return the class and the parameters of the actor at this position: the group's, unless it was substituted."""
        return self.substitutes.get(position, (self.cls, self.parameters))

    def __getattr__(self, name: str) -> PortRef[Any]:
        if name.startswith("__"):  # copy.copy looks these up on an object without `cls`
            raise AttributeError(name)
        ports = ports_of(self.cls)
        if name not in ports:
            raise AttributeError(f"`{self.cls.__name__}` has no port `{name}`; it has: {', '.join(ports) or 'none'}")
        return PortRef(self, ports[name])

    def port(self, declared: P) -> PortRef[P]:
        """Return this port of the group. Raises AttributeError if the group's class has no such port."""
        ref: PortRef[P] = self.__getattr__(declared.name)
        return ref

    def handle(self, index: int = 0) -> Handle:
        """Return a reference to an actor of the group, whose endpoints other actors can call through it."""
        return Handle(self.names[index], self.cls)


@dataclass
class Channel:
    """A connection from one port to one or more, and the carrier of its messages."""

    name: str
    source: PortRef[Any]
    targets: list[PortRef[Any]]
    carrier: Carrier
