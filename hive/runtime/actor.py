"""Actors: what users and the trainer itself write.

    class Greeter(hive.Actor):
        guests = hive.Inlet(Guest)

        async def run(self) -> None:
            async for guest in self.guests:
                self.log.info("hello %s", guest.name)

`setup()` runs before anybody begins, `run()` is the actor's life, `teardown()` its last words. Inside, `self.name` is
for example `collector-3`, `self.index` its number in its group, `self.log` a logger, `self.status` its status page.
An actor that is told to stop has its `run()` cancelled at the next await, unless it overrides `drain()`. A run that
pauses lets *sources*, actors that send and have no inlet, send nothing more; one that has an inlet and sends of its own
accord says `source = True`.

Methods marked `@hive.endpoint` can be called from other actors through a `Handle`, with a deadline. An actor's
constructor takes plain parameters; the topology function passes them, and handles among them.
"""

from __future__ import annotations

import asyncio
import logging
import re
import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from hive.clock import Clock
from hive.errors import TopologyError
from hive.runtime.messages import Tree
from hive.runtime.ports import Inlet, Outlet, ports_of
from hive.runtime.status import WAIT_IN

if TYPE_CHECKING:
    from hive.runtime.node import ActorContext
    from hive.runtime.status import Status

__all__ = ["Actor", "Handle", "endpoint", "endpoints_of"]

ENDPOINT = "__hive_endpoint__"  # the mark that `endpoint` leaves on a method
CALL_DEADLINE_S = 5.0  # longer than any healthy endpoint takes, short enough to notice a hang

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


def endpoint(method: F) -> F:
    """Marks an `async` method that other actors may call through a handle."""
    is_async: bool = asyncio.iscoroutinefunction(method)
    if not is_async:
        raise TypeError(f"`{method.__qualname__}` is an endpoint and so must be `async def`")
    setattr(method, ENDPOINT, True)
    return method


_ENDPOINTS: weakref.WeakKeyDictionary[type, frozenset[str]] = weakref.WeakKeyDictionary()


def endpoints_of(cls: type) -> frozenset[str]:
    """The names of a class's endpoints."""
    known = _ENDPOINTS.get(cls)
    if known is None:
        known = frozenset(name for name in dir(cls) if getattr(getattr(cls, name, None), ENDPOINT, False))
        _ENDPOINTS[cls] = known
    return known


class Actor:
    """Base of every actor. Subclasses declare ports and override `run`."""

    role: ClassVar[str] = ""  # "collector": what its name begins with; by default from the class's name
    numbered: ClassVar[bool] = True  # False: there is one, and its name is its role
    source: ClassVar[bool] = False  # it begins work of its own, whatever inlets it has: a pause stops it
    name: str  # "collector-3"
    index: int  # 3
    incarnation: int  # 0, then one more with every restart
    device: str  # where its networks are to live: "cpu", or as the topology says
    clock: Clock  # read the time here: in a simulation it is virtual, and the same seed gives the same run
    log: logging.Logger
    status: Status
    actor_context: ActorContext  # what the process offers: ending the run, notes; use the methods below

    @classmethod
    def role_name(cls) -> str:
        """`GradientWorker` -> `gradient-worker`, unless `role` says otherwise."""
        return cls.role or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()

    async def setup(self) -> None:
        """Before the run begins: open files, build networks. The others wait for it."""

    @classmethod
    def serves(cls) -> bool:
        """Whether it only answers calls."""
        return cls.run is Actor.run and bool(endpoints_of(cls))

    @classmethod
    def is_source(cls) -> bool:
        """Whether a pause begins with it: it sends, and it needs nobody's messages to do so."""
        ports = ports_of(cls).values()
        return any(isinstance(port, Outlet) for port in ports) and (
            cls.source or not any(isinstance(port, Inlet) for port in ports)
        )

    async def run(self) -> None:
        """The actor's life. When it returns, the actor is done; when all are, so is the run.

        One that has endpoints and no `run` of its own answers calls until the others are done.
        """
        if self.serves():
            self.status.enter(self.status.phase("wait calls", WAIT_IN))
            await asyncio.get_running_loop().create_future()

    async def drain(self) -> None:
        """Told to stop. The default cancels `run`; override it to end in an orderly way, within the deadline."""
        self.actor_context.cancel()

    async def teardown(self) -> None:
        """After `run` has ended, also by an error or by cancellation."""

    def end_run(self, reason: str) -> None:
        """The run has reached its goal: everybody drains and stops; its state will be `finished`."""
        self.actor_context.end_run(reason)

    def note(self, kind: str, text: str, **fields: Tree) -> None:
        """A line of `events.jsonl`, the run's diary."""
        self.actor_context.note(kind, text, fields)


class Handle:
    """A reference to an actor by name, to pass to other actors' constructors.

    `await handle.call("method", 1, deadline_s=2.0)` or `await handle.method(1)` calls one of its endpoints. A remote
    error is raised here as `RemoteError`, with its type, its traceback, and who raised it. TimeoutError when no answer
    came within the deadline.
    """

    def __init__(self, name: str, cls: type[Actor]) -> None:
        self._name = name
        self._cls = cls
        self._call: Callable[[str, str, tuple[Tree, ...], float], Awaitable[Tree]] | None = None

    def bound(self, call: Callable[[str, str, tuple[Tree, ...], float], Awaitable[Tree]]) -> Handle:
        """This handle inside a running process."""
        handle = Handle(self._name, self._cls)
        handle._call = call
        return handle

    def call(self, method: str, *arguments: Tree, deadline_s: float = CALL_DEADLINE_S) -> Awaitable[Tree]:
        if self._call is None:
            raise TopologyError(
                f"`{self._name}` is not running yet",
                hint="a handle can be passed to actors and used inside them, not while the topology is built",
            )
        return self._call(self._name, method, arguments, deadline_s)

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Tree]]:
        if method.startswith("_"):  # also while a copy is made, which has no `_cls` yet
            raise AttributeError(method)
        if method not in endpoints_of(self._cls):
            known = ", ".join(sorted(endpoints_of(self._cls))) or "none"
            raise AttributeError(f"`{self._name}` has no endpoint `{method}`; it has: {known}")
        return lambda *arguments, **options: self.call(method, *arguments, **options)
