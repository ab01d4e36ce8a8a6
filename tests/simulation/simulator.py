"""The simulator: a topology under the real supervisor, with real slots, boards and ports, and simulated faults.

    simulation = simulate(topology, seed, Faults(deaths=2, lost=0.2))
    assert simulation.outcome.state == "finished"

Clock, process table and transport are simulated; everything else is the production code. The faults are:

- processes lose the processor for a while, and are killed or stopped at any await;
- processes are killed within a slot's transition or within an entry in an account;
- messages are delayed, notifications are lost or duplicated, mailboxes are full;
- restarts are lost with the fork server.

The seed determines the whole schedule, so every failure can be reproduced. Virtual time makes minutes of waiting cost
nothing. The order in which memory becomes visible is not simulated; the native tests check it with real threads.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import dataclasses
import functools
import logging
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import Any, NoReturn

from hive import _native
from hive.clock import VirtualClock
from hive.runtime.carriers.carrier import PlanChannel
from hive.runtime.carriers.messages import MessageReceiver
from hive.runtime.memory.segments import BoardView, SlabView
from hive.runtime.process.channel_ends import NodeContext
from hive.runtime.process.node import Node
from hive.runtime.process.processes import Exit, OnExit, StartLost
from hive.runtime.process.views import Views
from hive.runtime.supervise.accounting import channel_accounts, holds
from hive.runtime.supervise.membership import Settings
from hive.runtime.supervise.outcome import Journal, Outcome
from hive.runtime.supervise.supervisor import Supervisor
from hive.runtime.topology.plan import Plan
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.messages import Tree
from simulation.fakes import (
    At,
    DyingBoard,
    DyingPage,
    DyingSlab,
    Faults,
    LocalMemory,
    Pages,
    SimulatedTransport,
)
from simulation.planned_faults import PlannedFaults
from simulation.simulated_process import SimulatedLoop, SimulatedProcess, current_process

ADDRESS = "simulated://run/supervisor"
LIMIT_S = 300.0  # virtual seconds after which a run that should end by itself counts as stuck
NO_LIMIT = 1 << 30  # a number of restarts that no simulation reaches
LOST_START_S = 0.05  # virtual seconds until a process exits whose start is lost; by then it has long begun
CHECK_S = 0.03  # mean interval of the checks, in virtual seconds


class SimulatedProcesses:
    """The process table of a simulation."""

    restarts = True
    dedicated = True

    def __init__(self, run: SimulatedRun) -> None:
        self.run = run
        self.on_exit: OnExit = lambda process, incarnation, how: None
        self.incarnations: dict[str, SimulatedProcess] = {}
        self.nodes: dict[str, Node] = {}
        self.tasks: list[tuple[SimulatedProcess, asyncio.Task[None]]] = []
        self.errors: list[BaseException] = []  # exceptions of actors, in order
        self.pids = 0

    async def start(self, process: str, incarnation: int, address: str) -> int:
        run = self.run
        simulated = SimulatedProcess(process, incarnation, run.machine)
        if run.supervisor is not None:  # one machine may have several runs, one after another
            simulated.label = f"{run.supervisor}/{process}-{incarnation}"
        simulated.kill = functools.partial(self.kill, process)
        self.pids += 1
        context = NodeContext(
            topology=run.own_topology(),
            plan=run.plan,
            process=process,
            incarnation=incarnation,
            pid=self.pids,
            address=address,
            supervisor=ADDRESS,
            dedicated=False,
            transport=run.transport,
            clock=run.clock,
            pages=run.memory.pages,
            views=run.views,
            open_log=lambda name: run.log,
        )
        node = simulated.context.run(Node, context)
        task = run.loop.create_task(node.main(), context=simulated.context)
        self.tasks.append((simulated, task))
        if incarnation and run.faults.lost_starts and run.chance.random() < run.faults.lost_starts:
            await self._lose(simulated)
        self.incarnations[process], self.nodes[process] = simulated, node
        task.add_done_callback(lambda task: self._ended(simulated, task), context=run.outside.copy())
        return self.pids

    async def _lose(self, simulated: SimulatedProcess) -> NoReturn:
        """Kill a started process after a while. The supervisor never receives its exit, because the start is lost."""
        await asyncio.sleep(self.run.chance.random() * LOST_START_S)
        simulated.exit()
        self.run.history.append(f"{self.run.loop.time():.4f} lost the start of {simulated}")
        raise StartLost("the fork server died")

    def _ended(self, simulated: SimulatedProcess, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if simulated.dead:
            return
        simulated.exit(dead=False)
        if error is not None:
            self.errors.append(error)
        self.on_exit(simulated.name, simulated.incarnation, Exit(code=1 if error else 0))

    def kill(self, process: str) -> None:
        simulated = self.incarnations[process]
        if not simulated.dead:
            simulated.exit()
            self.run.history.append(f"{self.run.loop.time():.4f} killed {simulated}")
            exits = self.run.chance.random() * self.run.faults.slow_s
            gone = (process, simulated.incarnation, Exit(signal=signal.SIGKILL))
            self.run.loop.call_later(exits, self._gone, *gone, context=self.run.outside.copy())

    def _gone(self, process: str, incarnation: int, how: Exit) -> None:
        self.on_exit(process, incarnation, how)

    def stopped(self) -> list[str]:
        return [name for name, simulated in self.incarnations.items() if simulated.stopped and not simulated.dead]

    async def stacks(self, processes: Sequence[str]) -> Mapping[str, str]:
        return {}

    def facts(self) -> Mapping[str, tuple[int, str]]:
        return {}

    async def close(self) -> None:
        """Cancel the tasks of all processes, after the end of the simulation."""
        for simulated, task in self.tasks:
            simulated.dead = simulated.unwinding = True
            self.run.loop.end_preemption(simulated)
            task.cancel()
        await asyncio.gather(*(task for _, task in self.tasks), return_exceptions=True)


class Simulation:
    """The result of a simulation.

    `errors` are the exceptions of actors, `wrong` the violated invariants. `history` lists the faults of processes and
    `events` the supervisor's events, each line with its virtual time in seconds.
    """

    def __init__(self) -> None:
        self.outcome: Outcome | None = None
        self.errors: list[BaseException] = []
        self.wrong: list[str] = []
        self.history: list[str] = []
        self.events: list[str] = []
        self.callbacks = 0
        self.virtual_s = 0.0


class SimulatedRun:
    """One run of a simulation: a topology under its own supervisor.

    supervisor: the process of the supervisor, which can be killed, too; None: it belongs to no process. fork: called
    for each parameter of the actors of a new process, which has its own copy of what they share.
    """

    def __init__(
        self,
        topology: Topology,
        plan: Plan,
        planned: PlannedFaults,
        result: Simulation,
        supervisor: SimulatedProcess | None = None,
        fork: Callable[[Any], Any] | None = None,
    ) -> None:
        self.topology = topology
        self.plan = plan
        self.planned = planned
        self.faults = planned.faults
        self.loop = loop = planned.loop
        self.chance = loop.chance
        self.supervisor = supervisor
        self.others: list[SimulatedRun] = []  # of other machines
        self.fork = fork
        self.machine = supervisor.machine if supervisor else ""
        self.outside = supervisor.context if supervisor else contextvars.Context()  # of the supervisor
        self.clock = VirtualClock(loop)
        self.memory = LocalMemory(plan)
        self.transport = SimulatedTransport(loop, self.chance, self.faults)
        self.processes = SimulatedProcesses(self)
        self.log = logging.getLogger(f"hive.simulation.{os.getpid()}")
        self.log.disabled = True
        self.result = result
        self.history = result.history
        self.seen: dict[str, int] = {}  # board -> latest version at the last check
        self.views = Views(plan, self.memory.open)
        self.slabs = {s.name: self.memory.views.slab(s.name) for s in plan.segments if s.kind == "slab"}
        hosts = Counter(actor.process for actor in plan.actors)
        self.crowded = {process for process, actors in hosts.items() if actors > 1}
        self.notified: set[tuple[int, SimulatedProcess]] = set()  # actors with a notification on its way
        assert isinstance(self.memory.pages, Pages)
        self.memory.pages.notified = self.notify

    def beside(self, topology: Topology, supervisor: SimulatedProcess, fork: Callable[[Any], Any]) -> SimulatedRun:
        """Return another run in the same loop, that of another machine."""
        run = SimulatedRun(topology, topology.plan(), self.planned, self.result, supervisor, fork)
        self.others.append(run)
        return run

    def begin(self, process: SimulatedProcess, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in a process that its process table does not start."""
        task: asyncio.Task[None] = self.loop.create_task(work, context=process.context)
        self.processes.tasks.append((process, task))
        return task

    def own_topology(self) -> Topology:
        """Return the topology as a new process has it: what its actors share, no other process has."""
        if self.fork is None:
            return self.topology
        made: dict[int, Any] = {}

        def copied(parameters: Mapping[str, Any]) -> dict[str, Any]:
            for value in parameters.values():
                if id(value) not in made:
                    made[id(value)] = self.fork(value) if self.fork else value
            return {name: made[id(value)] for name, value in parameters.items()}

        own = copy.copy(self.topology)
        own.groups = {
            key: dataclasses.replace(
                group,
                parameters=copied(group.parameters),
                substitutes={at: (cls, copied(given)) for at, (cls, given) in group.substitutes.items()},
            )
            for key, group in self.topology.groups.items()
        }
        return own

    async def supervise(self, settings: Settings, watch: Callable[[Supervisor], None]) -> Outcome:
        """Run it to its end, and check meanwhile what must hold at any time. `watch` receives the supervisor."""
        where = f"{self.machine} " if self.machine else ""

        def event(kind: str, text: str, fields: dict[str, Tree]) -> None:
            self.result.events.append(f"{self.loop.time():.4f} {where}{kind}: {text}")

        journal = Journal(event=event, crash=lambda death: "")
        supervisor = Supervisor(
            self.plan, self.processes, self.transport, self.memory, self.clock, settings, journal, ADDRESS
        )
        watch(supervisor)
        checking = asyncio.create_task(self._check_repeatedly())
        try:
            outcome = await supervisor.run()
        finally:
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)
        return outcome

    def power_off(self) -> None:
        """Kill its supervisor and all its processes at once."""
        for simulated in (self.supervisor, *self.processes.incarnations.values()):
            if simulated is not None:
                simulated.exit()

    def plan_kills(self, kills: Sequence[At]) -> None:
        """Register kills at known moments."""
        names = [channel.name for channel in self.plan.channels]
        self.transport.at = {(names.index(kill.channel), kill.number) for kill in kills}
        self.transport.kill = self.processes.kill

    def committed(self, slab: DyingSlab) -> None:
        """Kill the producer of a slot if a fault is planned for this commit."""
        simulated, transport = current_process(), self.transport
        if not transport.at or simulated is None or simulated.dead:
            return
        for channel, planned in enumerate(self.plan.channels):
            if planned.segments and self._is_of(slab, planned):
                number = transport.counts[channel] = transport.counts.get(channel, 0) + 1
                if (channel, number) in transport.at:
                    simulated.kill()

    def _is_of(self, slab: DyingSlab, planned: PlanChannel) -> bool:
        """Whether these are the words of one of the channel's slabs."""
        own = slab.control.ctypes.data
        return any(self.memory.open(name).ctypes.data == own for name in planned.segments)

    def notify(self, actor: int) -> None:
        """Deliver a notification to an actor in a dedicated process. Other actors do not sleep on a notifier."""
        process = self.plan.actors[actor].process
        simulated = self.processes.incarnations.get(process)
        if simulated is None or simulated.inactive or process in self.crowded or (actor, simulated) in self.notified:
            return
        waiter = self.processes.nodes[process].ends.waiters.get(actor)
        if waiter is None or not waiter.asleep or self.chance.random() < self.faults.lost:
            return
        self.notified.add((actor, simulated))
        late = self.chance.random() * self.faults.slow_s if self.chance.random() < self.faults.slow else 0.0
        self.loop.call_later(late, self._wake, actor, simulated, context=simulated.context)

    def _wake(self, actor: int, simulated: SimulatedProcess) -> None:
        self.notified.discard((actor, simulated))
        waiter = self.processes.nodes[self.plan.actors[actor].process].ends.waiters.get(actor)
        if waiter is not None:
            waiter.wake()

    # --- invariants

    def _named(self, name: str) -> str:
        return f"{name} on {self.machine}" if self.machine else name

    def check(self) -> None:
        """Check the invariants that hold between any two callbacks: accounts of slabs, versions of boards, windows."""
        for name, slab in self.slabs.items():
            counts = slab.counts()
            gone = counts["consumed"] + sum(counts["dropped"].values())
            if counts["in_flight"] > slab.words.slots:
                self.result.wrong.append(f"{name} holds {counts['in_flight']} in {slab.words.slots} slots")
            if counts["produced"] < gone:
                self.result.wrong.append(f"{name} has retired more than was produced: {counts}")
        for planned in self.plan.segments:
            if planned.kind == "board" and not planned.commit_with:
                latest = self.memory.views.board(planned.name).latest
                if latest < self.seen.get(planned.name, -1):
                    self.result.wrong.append(f"{planned.name} went back from {self.seen[planned.name]} to {latest}")
                self.seen[planned.name] = latest
        for node in self.processes.nodes.values():
            for (channel, _), receiver in node.ends.targets.items():
                if not isinstance(receiver, MessageReceiver):
                    continue
                for producer, (received, consumed, dropped) in receiver.totals.items():
                    if (held := received - consumed - dropped) > receiver.window:
                        where = f"{self.plan.channels[channel].name} of {node.context.process}"
                        self.result.wrong.append(f"{where} holds {held} messages of {producer}, beyond its window")

    async def _check_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(self.chance.random() * CHECK_S * 2)
            self.check()

    def check_end(self) -> None:
        """Check the invariants that hold at the end of a run: every account adds up, with nothing in flight."""
        self.check()
        for name, account in channel_accounts(self.plan, self.memory).items():
            if not holds(account) or account["in_flight"]:
                self.result.wrong.append(f"the account of {self._named(name)} does not add up: {account}")


def simulate(
    topology: Topology,
    seed: int,
    faults: Faults | None = None,
    *,
    settings: Settings | None = None,
    limit_s: float = LIMIT_S,
    plan: Plan | None = None,
    at: Sequence[At] = (),
    fork: Callable[[Any], Any] | None = None,
    beside: Callable[[SimulatedRun], AbstractAsyncContextManager[None]] | None = None,
) -> Simulation:
    """Run `topology` in virtual time until it ends itself, with the schedule that `seed` determines.

    By default actors are restarted without limit. `at`: kills at known moments, beside the random faults. fork: see
    SimulatedRun. beside: entered before the run and left after it, by what else is in this world, such as other
    machines.

    The result holds the outcome and all violated invariants: accounts of slabs and channels that do not add up, queues
    beyond their window, versions that decrease. A run that does not end within `limit_s` virtual seconds is stopped.
    """
    faults = faults or Faults()
    plan = plan or topology.plan()
    loop = SimulatedLoop(random.Random(seed), faults.preempted, faults.preempted_s)  # type: ignore[abstract]  # has all methods used
    result = Simulation()
    planned = PlannedFaults(loop, faults, result.history)
    run = SimulatedRun(topology, plan, planned, result, fork=fork)
    run.plan_kills(at)
    settings = settings or Settings(restarts=NO_LIMIT)
    with _kills_within_operations(run) if (faults.deaths and faults.torn) or at else nullcontext():
        loop.run_until_complete(_simulate(run, settings, limit_s, beside(run) if beside else nullcontext()))
        for each in (*run.others, run):
            loop.run_until_complete(each.processes.close())
    return result


@contextmanager
def _kills_within_operations(run: SimulatedRun) -> Iterator[None]:
    """Replace slot words, status pages and board words by classes that can kill their caller."""
    before, planned = (SlabView.Words, BoardView.Words, Pages.page_type), run.planned
    dies = staticmethod(planned.dies_torn)

    def hooks(what: str) -> dict[str, Any]:
        return {"dies": dies, "die": staticmethod(functools.partial(planned.tear, what))}

    words, committed = before[0], {"done": staticmethod(run.committed)}
    of_slab = (DyingSlab, words) if words is not _native.Slab else (DyingSlab,)
    SlabView.Words = type("DyingSlab", of_slab, hooks("a transition") | committed)
    BoardView.Words = type("DyingBoard", (DyingBoard,), hooks("a store"))
    Pages.page_type = type("DyingPage", (DyingPage,), hooks("an entry"))
    try:
        yield
    finally:
        SlabView.Words, BoardView.Words, Pages.page_type = before


async def _simulate(
    run: SimulatedRun, settings: Settings, limit_s: float, beside: AbstractAsyncContextManager[None]
) -> None:
    result, loop = run.result, run.loop

    def watch(supervisor: Supervisor) -> None:
        loop.call_later(limit_s, supervisor.request, f"it did not end within {limit_s:g} virtual seconds")

    async with beside:
        result.outcome = await run.supervise(settings, watch)
    run.check_end()
    result.errors = run.processes.errors
    result.wrong += loop.problems
    result.callbacks, result.virtual_s = loop.ran, loop.time()
