"""Actors: the classes that users and the trainer itself write.

    class Greeter(hive.Actor):
        guests = hive.Inlet(Guest)

        async def run(self) -> None:
            async for guest in self.guests:
                self.log.info("hello %s", guest.name)

`setup()` finishes in every actor before `run()` starts in any. `run()` does the actor's work, and `teardown()` runs
after it. Inside, `self.name` is for example `collector-3`, `self.index` its number in its group, `self.log` a logger
and `self.status` its status page. When the run drains, `run()` is cancelled at its next await, unless the actor
overrides `drain()`. A pause stops *sources*: actors that send and have no inlet. An actor that has an inlet, but also
sends without having received anything, declares `source = True`.

Methods marked `@hive.endpoint` can be called from other actors through a `Handle`, with a deadline. The topology
function passes plain parameters to an actor's constructor; handles may be among them.
"""

from __future__ import annotations

import asyncio
import logging
import re
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from hive.clock import Clock
from hive.errors import TopologyError
from hive.runtime.actor.ports import InPort, OutPort, ports_of
from hive.runtime.memory.status import PROGRESS_SCORE, PROGRESS_STEPS, WAIT_IN, Status
from hive.runtime.wire.messages import Tree

ENDPOINT = "__hive_endpoint__"  # the attribute that `endpoint` sets on a method
CALL_DEADLINE_S = 5.0  # default deadline of a call: longer than a healthy endpoint takes, short enough to notice a hang

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


def endpoint(method: F) -> F:
    """Mark an `async` method that other actors may call through a handle. Raises TypeError for a plain method."""
    is_async: bool = asyncio.iscoroutinefunction(method)
    if not is_async:
        raise TypeError(f"endpoint `{method.__qualname__}` must be `async def`")
    setattr(method, ENDPOINT, True)
    return method


_ENDPOINTS: weakref.WeakKeyDictionary[type, frozenset[str]] = weakref.WeakKeyDictionary()


def endpoints_of(cls: type) -> frozenset[str]:
    """Return the names of a class's endpoints."""
    known = _ENDPOINTS.get(cls)
    if known is None:
        known = frozenset(name for name in dir(cls) if getattr(getattr(cls, name, None), ENDPOINT, False))
        _ENDPOINTS[cls] = known
    return known


class ActorContext(Protocol):
    """The services that a process offers to one of its actors."""

    def end_run(self, reason: str) -> None:
        """End the run because it has reached its goal."""

    def restart_actor(self, name: str, reason: str) -> None:
        """Have the present incarnation of another actor restarted."""

    def note(self, kind: str, text: str, fields: dict[str, Tree]) -> None:
        """Write a line to the run's event log."""

    def neighbors(self) -> Sequence[Actor]:
        """Return the other actors of the process."""

    @property
    def resumed_ns(self) -> int:
        """Monotonic time at which the last pause ended; 0 if there was none."""

    def cancel(self) -> None:
        """Cancel the actor's `run`, but not its `teardown`."""


class Actor:
    """Base of every actor. Subclasses declare ports and override `run`."""

    role: ClassVar[str] = ""  # "collector": the first part of its name; derived from the class's name if empty
    numbered: ClassVar[bool] = True  # False: the group has one actor, whose name is its role
    source: ClassVar[bool] = False  # True: a pause stops it although it has an inlet
    name: str  # "collector-3"
    index: int  # 3
    incarnation: int  # number of restarts so far
    device: str  # torch device for its networks: "cpu", or the one that the topology names
    clock: Clock  # read the time here: in a simulation it is virtual, and the same seed gives the same run
    log: logging.Logger
    forked: bool = False  # whether its process was forked for actors alone, so that it may fork others
    status: Status
    actor_context: ActorContext  # services of the process, such as ending the run; use the methods below instead

    @classmethod
    def role_name(cls) -> str:
        """Return `role`, or by default the class's name in kebab case: `GradientWorker` -> `gradient-worker`."""
        return cls.role or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()

    async def setup(self) -> None:
        """Open files, build networks. No actor's `run` starts before every `setup` has returned."""

    @classmethod
    def serves(cls) -> bool:
        """Return whether the actor only answers calls: it has endpoints and does not override `run`."""
        return cls.run is Actor.run and bool(endpoints_of(cls))

    @classmethod
    def private_bytes(cls, parameters: Mapping[str, Any]) -> int:
        """Return the bytes that an actor with these constructor parameters keeps outside of shared memory.

        Only what can be large counts, such as copies of a network. A run whose memory does not suffice is refused
        before it starts. The default is 0.
        """
        return 0

    @classmethod
    def is_source(cls) -> bool:
        """Return whether a pause stops this actor: it sends without having received a message."""
        ports = ports_of(cls).values()
        return any(isinstance(port, OutPort) for port in ports) and (
            cls.source or not any(isinstance(port, InPort) for port in ports)
        )

    async def run(self) -> None:
        """Do the actor's work. When it returns, the actor is done; when all actors are done, so is the run.

        The default of an actor with endpoints answers calls until the other actors are done.
        """
        if self.serves():
            self.status.enter(self.status.phase("wait calls", WAIT_IN))
            await asyncio.get_running_loop().create_future()

    async def drain(self) -> None:
        """Called when the run drains. The default cancels `run`; an override must end it within the drain deadline."""
        self.actor_context.cancel()

    async def teardown(self) -> None:
        """Release what `setup` acquired. Called after `run` has returned, raised or been cancelled."""

    def end_run(self, reason: str) -> None:
        """End the run because it has reached its goal: all actors drain, and the run's state becomes `finished`."""
        self.actor_context.end_run(reason)

    def progress(self, steps: int, score: float | None = None) -> None:
        """Report progress of the run, in topologies without a built-in learner.

        steps: environment steps since the last call; those of earlier incarnations are counted already. score: mean
        return of the latest episodes, or another number that grows as the agent gets better; None keeps the last one.

        All views and the summary then show the sum of the steps of all actors that report, and the highest score. The
        run is finished at `run.steps` steps, and at a score of `run.stop_at_return`. Raises ValueError for negative
        steps.
        """
        if steps < 0:
            raise ValueError(f"{steps} steps were reported: the number since the last call must be 0 or more")
        self.status.count(PROGRESS_STEPS, steps)
        if score is not None:
            self.status.set(self.status.counter(PROGRESS_SCORE), score)

    def restart_actor(self, actor: Handle, reason: str) -> None:
        """Have the process of another actor killed and restarted, with the constructor that the topology calls.

        Such a restart is no failure: it does not count towards `supervision.restarts`. It returns at once, and has no
        effect on an actor that is being restarted already. What it held is treated as after any exit.
        """
        self.actor_context.restart_actor(actor._name, reason)

    def note(self, kind: str, text: str, **fields: Tree) -> None:
        """Write a line to `events.jsonl`, the run's event log."""
        self.actor_context.note(kind, text, fields)


class Handle:
    """A reference to an actor by name, to pass to other actors' constructors.

    `await handle.call("method", 1, deadline_s=2.0)` or `await handle.method(1)` calls one of its endpoints. Raises
    RemoteError when the endpoint raised (with the remote type, traceback and actor), TimeoutError when no reply arrived
    within the deadline, ActorFailed when the actor exited before it replied.
    """

    def __init__(self, name: str, cls: type[Actor]) -> None:
        self._name = name
        self._cls = cls
        self._call: Callable[[str, str, tuple[Tree, ...], float], Awaitable[Tree]] | None = None

    def bound(self, call: Callable[[str, str, tuple[Tree, ...], float], Awaitable[Tree]]) -> Handle:
        """Return a copy of this handle that sends its calls through `call`."""
        handle = Handle(self._name, self._cls)
        handle._call = call
        return handle

    def call(self, method: str, *arguments: Tree, deadline_s: float = CALL_DEADLINE_S) -> Awaitable[Tree]:
        if self._call is None:
            raise TopologyError(
                f"`{self._name}` is not running yet",
                hint="pass the handle to an actor and call it there; it cannot be called while the topology is built",
            )
        return self._call(self._name, method, arguments, deadline_s)

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Tree]]:
        if method.startswith("_"):  # `copy` looks up dunder methods before `_cls` exists
            raise AttributeError(method)
        if method not in endpoints_of(self._cls):
            known = ", ".join(sorted(endpoints_of(self._cls))) or "none"
            raise AttributeError(f"`{self._name}` has no endpoint `{method}`; it has: {known}")
        return lambda *arguments, **options: self.call(method, *arguments, **options)


def target_of(handle: Handle) -> tuple[str, type[Actor]]:
    """Return the name and the class of the actor that a handle refers to."""
    return handle._name, handle._cls
