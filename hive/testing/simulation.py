"""The simulator: a topology under the real supervisor, with real slots, boards and ports, in a world that goes wrong.

    simulation = simulate(topology, seed, Faults(deaths=2, lost=0.2))
    assert simulation.outcome.state == "finished"

Clock, process table and transport are simulated; everything between them is what runs in production. Processes lose the
processor for a while, messages take their time, doorbells get lost or come twice, mailboxes are full, processes are
killed and stopped at any await, and in the middle of a slot's transition or of an entry in an account; restarts are
lost with the fork server. All of it follows from the seed: the same seed is the same schedule, so a failure can be had
again. Virtual time makes minutes of waiting cost nothing.

It does not simulate what the native tests show on real threads: the order in which memory becomes visible.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import NoReturn

from hive import _native
from hive.clock import VirtualClock
from hive.runtime.accounting import channel_accounts, holds
from hive.runtime.membership import Settings
from hive.runtime.memory import BoardView, SlabView
from hive.runtime.messages import Tree
from hive.runtime.node import Node, NodeContext
from hive.runtime.outcome import Journal, Outcome
from hive.runtime.plan import Plan, PlanChannel
from hive.runtime.processes import Exit, OnExit, StartLost
from hive.runtime.supervisor import Supervisor
from hive.runtime.topology import Topology
from hive.runtime.views import Views
from hive.testing.fakes import (
    At,
    DyingBoard,
    DyingPage,
    DyingSlab,
    Faults,
    Half,
    LocalMemory,
    Pages,
    SimulatedTransport,
)
from hive.testing.simulated_process import NEVER, SimulatedLoop, SimulatedProcess, current_process

__all__ = ["Simulation", "simulate"]

ADDRESS = "simulated://run/supervisor"
LIMIT_S = 300.0  # of virtual time: beyond it a run that was to end by itself counts as stuck
NO_LIMIT = 1 << 30
MOST_TORN = 32  # deaths in the middle of something, each some 20 calls deep on top of the last; others die at an await
UNSAID_S = 0.05  # of virtual time: how long one lives at most whose start is lost; by then it has long begun
LOOK_S = 0.03  # of virtual time, between two looks at the accounts


class SimulatedProcesses:
    """The process table of a simulation."""

    restarts = True
    dedicated = True

    def __init__(self, world: _World) -> None:
        self.world = world
        self.on_exit: OnExit = lambda process, incarnation, how: None
        self.places: dict[str, SimulatedProcess] = {}
        self.nodes: dict[str, Node] = {}
        self.tasks: list[tuple[SimulatedProcess, asyncio.Task[None]]] = []
        self.errors: list[BaseException] = []  # what actors raised, first first
        self.pids = 0

    async def start(self, process: str, incarnation: int, address: str) -> int:
        world, place = self.world, SimulatedProcess(process, incarnation)
        self.pids += 1
        context = NodeContext(
            topology=world.topology,
            plan=world.plan,
            process=process,
            incarnation=incarnation,
            pid=self.pids,
            address=address,
            supervisor=ADDRESS,
            dedicated=False,
            transport=world.transport,
            clock=world.clock,
            pages=world.memory.pages,
            views=world.views,
            open_log=lambda name: world.log,
        )
        node = place.context.run(Node, context)
        task = world.loop.create_task(node.main(), context=place.context)
        self.tasks.append((place, task))
        if incarnation and world.faults.unsaid and world.chance.random() < world.faults.unsaid:
            await self._lose(place)
        self.places[process], self.nodes[process] = place, node
        task.add_done_callback(lambda task: self._ended(place, task), context=contextvars.Context())
        return self.pids

    async def _lose(self, place: SimulatedProcess) -> NoReturn:
        """What was started lives for a while and dies; nobody was told of it but by itself."""
        await asyncio.sleep(self.world.chance.random() * UNSAID_S)
        place.dead = True
        self.world.story.append(f"{self.world.loop.time():.4f} lost the start of {place}")
        raise StartLost("the fork server died")

    def _ended(self, place: SimulatedProcess, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if place.dead:
            return
        if error is not None:
            self.errors.append(error)
        self.on_exit(place.name, place.incarnation, Exit(code=1 if error else 0))

    def kill(self, process: str) -> None:
        place = self.places[process]
        if not place.dead:
            place.dead = True
            self.world.story.append(f"{self.world.loop.time():.4f} killed {place}")
            exits = self.world.chance.random() * self.world.faults.slow_s
            gone = (process, place.incarnation, Exit(signal=signal.SIGKILL))
            self.world.loop.call_later(exits, self._gone, *gone, context=contextvars.Context())

    def _gone(self, process: str, incarnation: int, how: Exit) -> None:
        self.on_exit(process, incarnation, how)

    def stopped(self) -> list[str]:
        return [name for name, place in self.places.items() if place.stopped and not place.dead]

    async def stacks(self, processes: Sequence[str]) -> Mapping[str, str]:
        return {}

    def facts(self) -> Mapping[str, tuple[int, str]]:
        return {}

    async def close(self) -> None:
        """Takes everything apart; what is done from now on is seen by nobody."""
        for place, task in self.tasks:
            place.dead = place.ghost = True
            self.world.loop.back(place)
            task.cancel()
        await asyncio.gather(*(task for _, task in self.tasks), return_exceptions=True)


class Simulation:
    """What came of it. `wrong` lists broken promises, `story` what happened to whom, in virtual seconds."""

    def __init__(self) -> None:
        self.outcome: Outcome | None = None
        self.errors: list[BaseException] = []
        self.wrong: list[str] = []
        self.story: list[str] = []
        self.events: list[str] = []
        self.callbacks = 0
        self.virtual_s = 0.0


class _World:
    """One simulation while it runs."""

    def __init__(self, topology: Topology, plan: Plan, faults: Faults, loop: SimulatedLoop) -> None:
        self.topology = topology
        self.plan = plan
        self.faults = faults
        self.loop = loop
        self.chance = loop.chance
        self.clock = VirtualClock(loop)
        self.memory = LocalMemory(plan)
        self.transport = SimulatedTransport(loop, self.chance, faults)
        self.processes = SimulatedProcesses(self)
        self.log = logging.getLogger(f"hive.simulation.{os.getpid()}")
        self.log.disabled = True
        self.result = Simulation()
        self.story = self.result.story
        ends = [("stop", False)] * faults.stops
        ends += [("kill", self.chance.random() < faults.torn) for _ in range(faults.deaths)]
        self.ends = sorted(((self.chance.randrange(faults.after), *end) for end in ends), reverse=True)
        self.torn_due = False
        self.torn = 0
        self.seen: dict[str, int] = {}  # board -> latest version seen
        self.views = Views(plan, self.memory.open, topology.layouts)
        self.slabs = {s.name: self.memory.views.slab(s.name) for s in plan.segments if s.kind == "slab"}
        loop.on_turn, loop.next_turn = self._end_here, self._next_end()
        hosts = Counter(actor.process for actor in plan.actors)
        self.crowded = {process for process, actors in hosts.items() if actors > 1}
        self.notified: set[tuple[int, SimulatedProcess]] = (
            set()
        )  # actors whose notifier has notified and was not heard yet
        assert isinstance(self.memory.pages, Pages)
        self.memory.pages.notified = self.notify

    def plan_faults(self, faults: Sequence[At]) -> None:
        """Faults at known moments: of messages by the transport, of slots by the words of a producer's slab."""
        names = [channel.name for channel in self.plan.channels]
        for fault in faults:
            if fault.channel not in names:
                raise ValueError(f"no channel `{fault.channel}` in this topology; it has: {', '.join(names)}")
            channel = names.index(fault.channel)
            if self.plan.channels[channel].carrier != "message" and fault.do != "kill producer":
                raise ValueError(f"`{fault.channel}` carries no messages: only its producer can be killed at a number")
            self.transport.at.setdefault((channel, fault.number), []).append(fault)
        self.transport.kill = self.processes.kill

    def committed(self, slab: DyingSlab) -> None:
        """A slot was committed: if that was the one, its producer dies here."""
        place, transport = current_process(), self.transport
        if not transport.at or place is None or place.dead:
            return
        for channel, planned in enumerate(self.plan.channels):
            if planned.carrier == "slab" and self._is_of(slab, planned):
                number = transport.counts[channel] = transport.counts.get(channel, 0) + 1
                if (channel, number) in transport.at:
                    self.processes.kill(place.name)

    def _is_of(self, slab: DyingSlab, planned: PlanChannel) -> bool:
        """Whether these words are those of one of the channel's slabs."""
        own = slab.control.ctypes.data
        return any(self.memory.open(name).ctypes.data == own for name in planned.segments)

    def notify(self, actor: int) -> None:
        """The notifier on the page of an actor that sleeps alone in its process. Others sleep on no notifier."""
        process = self.plan.actors[actor].process
        place = self.processes.places.get(process)
        if place is None or place.still or process in self.crowded or (actor, place) in self.notified:
            return
        waiter = self.processes.nodes[process].waiters.get(actor)
        if waiter is None or not waiter.asleep or self.chance.random() < self.faults.lost:
            return
        self.notified.add((actor, place))
        late = self.chance.random() * self.faults.slow_s if self.chance.random() < self.faults.slow else 0.0
        self.loop.call_later(late, self._hear, actor, place, context=place.context)

    def _hear(self, actor: int, place: SimulatedProcess) -> None:
        self.notified.discard((actor, place))
        waiter = self.processes.nodes[self.plan.actors[actor].process].waiters.get(actor)
        if waiter is not None:
            waiter.wake()

    def _end_here(self, place: SimulatedProcess) -> int:
        """The process whose turn it is ends here instead; the callback at which the next one does."""
        _, how, torn = self.ends.pop()
        if how == "stop":
            place.stopped = True
            self.story.append(f"{self.loop.time():.4f} stopped {place}")
        elif torn and self.torn < MOST_TORN:
            self.torn_due = True
        else:
            self.processes.kill(place.name)
        return self._next_end()

    def _next_end(self) -> int:
        return self.ends[-1][0] if self.ends else NEVER

    def dies_torn(self) -> bool:
        place = current_process()
        return self.torn_due and place is not None and not place.dead and self.chance.random() < 0.5

    def tear(self, what: str, half: Half) -> NoReturn:
        """The process that runs dies in the middle of a transition, or of an entry in an account."""
        self.torn_due = False
        self.torn += 1
        place = current_process()
        assert place is not None
        half(self.chance.random() < 0.5)
        self.story.append(f"{self.loop.time():.4f} torn {what} of {place}")
        self.processes.kill(place.name)
        try:
            self.loop.leave_here()
        finally:
            place.ghost = True

    # --- promises that hold at every moment

    def look(self) -> None:
        """The accounts of all slabs and the versions of all boards, between any two callbacks."""
        for name, slab in self.slabs.items():
            counts = slab.counts()
            gone = counts["consumed"] + sum(counts["dropped"].values())
            if counts["in_flight"] > slab.words.slots:
                self.result.wrong.append(f"{name} holds {counts['in_flight']} in {slab.words.slots} slots")
            if counts["produced"] < gone:
                self.result.wrong.append(f"{name} has given away more than was produced: {counts}")
        for planned in self.plan.segments:
            if planned.kind == "board" and not planned.commit_with:
                latest = self.memory.views.board(planned.name).latest
                if latest < self.seen.get(planned.name, -1):
                    self.result.wrong.append(f"{planned.name} went back from {self.seen[planned.name]} to {latest}")
                self.seen[planned.name] = latest
        for node in self.processes.nodes.values():
            for (channel, _), receiver in node.receivers.items():
                for producer, (received, consumed, dropped) in receiver.totals.items():
                    if (held := received - consumed - dropped) > receiver.window:
                        where = f"{self.plan.channels[channel].name} of {node.context.process}"
                        self.result.wrong.append(f"{where} holds {held} messages of {producer}, beyond its window")

    def end(self, outcome: Outcome) -> None:
        """And those that hold at the end."""
        self.result.outcome = outcome
        pages = _native.Status(self.memory.open("status"))
        for name, account in channel_accounts(self.plan, self.memory.views, pages).items():
            if not holds(account) or account["in_flight"]:
                self.result.wrong.append(f"the account of {name} does not add up: {account}")


def simulate(
    topology: Topology,
    seed: int,
    faults: Faults | None = None,
    *,
    settings: Settings | None = None,
    limit_s: float = LIMIT_S,
    plan: Plan | None = None,
    at: Sequence[At] = (),
) -> Simulation:
    """Runs `topology` until it ends itself, in virtual time, on the schedule of `seed`. ExitHandler are restarted.

    `at`: faults at known moments, beside those that the seed deals out. Raises ValueError for one that cannot be.

    The result says how it ended, and which promises were broken on the way: accounts of slabs and channels, bounds of
    queues, versions that went back, and a run that came to no end within `limit_s`.
    """
    faults = faults or Faults()
    plan = plan or topology.plan()
    chance = random.Random(seed)
    loop = SimulatedLoop(chance, faults.away, faults.away_s)  # type: ignore[abstract]  # it has what asyncio asks for
    world = _World(topology, plan, faults, loop)
    world.plan_faults(at)
    with _changes_that_tear(world) if (faults.deaths and faults.torn) or at else nullcontext():
        result: Simulation = loop.run_until_complete(_simulate(world, settings or Settings(restarts=NO_LIMIT), limit_s))
        loop.run_until_complete(world.processes.close())
    return result


@contextmanager
def _changes_that_tear(world: _World) -> Iterator[None]:
    """Slot words and status pages ask the world, while it lasts, whether their caller dies."""
    words = SlabView.Words
    dies = staticmethod(world.dies_torn)
    hooks = {
        "dies": dies,
        "die": staticmethod(functools.partial(world.tear, "a transition")),
        "done": staticmethod(world.committed),
    }
    entries = {"dies": dies, "die": staticmethod(functools.partial(world.tear, "an entry"))}
    assert isinstance(world.memory.pages, Pages)
    world.memory.pages.page_type = type("DyingPage", (DyingPage,), entries)
    SlabView.Words = type("DyingSlab", (DyingSlab, words) if words is not _native.Slab else (DyingSlab,), hooks)
    boards, stores = BoardView.Words, {"dies": dies, "die": staticmethod(functools.partial(world.tear, "a store"))}
    BoardView.Words = type("DyingBoard", (DyingBoard,), stores)
    try:
        yield
    finally:
        SlabView.Words, BoardView.Words = words, boards


async def _simulate(world: _World, settings: Settings, limit_s: float) -> Simulation:
    result, loop = world.result, world.loop

    def event(kind: str, text: str, fields: dict[str, Tree]) -> None:
        result.events.append(f"{loop.time():.4f} {kind}: {text}")

    journal = Journal(event=event, crash=lambda death: "")
    supervisor = Supervisor(
        world.plan, world.processes, world.transport, world.memory, world.clock, settings, journal, ADDRESS
    )
    loop.call_later(limit_s, supervisor.request, f"it did not end within {limit_s:g} virtual seconds")
    looking = asyncio.create_task(_keep_looking(world))
    outcome = await supervisor.run()
    looking.cancel()
    world.look()
    world.end(outcome)
    result.errors = world.processes.errors
    result.wrong += loop.problems
    result.callbacks, result.virtual_s = loop.ran, loop.time()
    return result


async def _keep_looking(world: _World) -> None:
    while True:
        await asyncio.sleep(world.chance.random() * LOOK_S * 2)
        world.look()
