"""Simulate a run with hosts: the real head, the real agents and the parts of their hosts, and links that part.

The head is the trainer of tests/simulation/trainer.py, whose collectors and evaluators run on one or two hosts. Each
host has an agent and, once it is accepted, a part with its own supervisor. All of them share one loop in virtual time.

`schedule(seed)` draws a config and the faults: processes of any machine are killed, also the agent and a supervisor;
links break, machines are cut off, frozen, or switched off and started again. `run` simulates it and checks:

    rollouts      the head's consumers get each one once, in the order of its collector, with the content that was
                  collected; none is missing unless its consumer was killed
    policies      a rollout is made with the version that the schedule names, which has the same bytes everywhere
    incarnations  a message of an earlier incarnation is counted and changes nothing
    evaluations   each request is answered once, with the value of its own weights
    accounts      hold on every machine, with nothing in flight at the end, and no process leaves a task or a socket

A rollout carries its collector, its number, its version, the first parameter and the joining that it was made in.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import random
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hive.config import Config, load_config
from hive.errors import HiveError, HostLost, VersionGone
from hive.experience import SEQUENCE, SOURCE, VERSION
from hive.hosts.agent import STOP_S, Agent, facts_of
from hive.hosts.arriving_rollouts import ArrivingRollouts
from hive.hosts.files import HostFacts, JoinFile
from hive.hosts.head import HostLink
from hive.hosts.host import RunLink
from hive.hosts.messages import RUN_ENDED, TO_HEAD, Accepted, ActorQuery, ActorReply, Join
from hive.hosts.part import part_of
from hive.hosts.requested_evaluations import RequestedEvaluations
from hive.records import RunDirectory
from hive.runtime import Bytes, Inlet, Slot, Topology
from hive.runtime.memory.segments import Arrays
from hive.runtime.supervise.membership import Settings
from hive.runtime.supervise.supervisor import Supervisor
from hive.runtime.wire.arrays import Frames
from hive.runtime.wire.links import Links
from hive.runtime.wire.messages import decode
from hive.schemes.trainer import assemble
from hive.training.evaluate.evaluator import Played
from hive.training.evaluate.evaluator_actor import EvaluatingActor, EvaluatorActor
from hive.training.messages import Evaluation, EvaluationDue
from hive.training.record.episode_videos import EpisodeVideos
from hive.training.schedule import LATEST
from simulation import Faults, Simulation, simulate, trainer
from simulation.simulated_links import LinkFaults, SimulatedLinks
from simulation.simulated_process import SimulatedProcess, current_process
from simulation.simulator import NO_LIMIT, SimulatedRun
from simulation.trainer import SilentRecorder, World

HOSTS = ("left", "right")
SILENCE_S = 2.0  # the least that a config accepts
WAIT_S = 60.0  # how long an agent tries to join: longer than a head needs to come back
AGAIN_S = 1.0  # longest pause until an agent that was killed is started again
LONG = 0.3  # share of partings and freezes that outlast the silence
ANSWERED_S = 3.0  # longest time for an answer of a host that is attached: several round trips
EVENTS = ("break", "part", "freeze", "off", "agent")
LIMIT_S = 600.0  # virtual seconds after which a run counts as stuck
FOLDER = next((path for path in ("/dev/shm",) if Path(path).is_dir()), None)  # files of a schedule, which are synced


@dataclass(frozen=True)
class Event:
    """A fault of a machine at a number of callbacks. seconds: of a part or a freeze."""

    number: int
    kind: str  # of EVENTS
    host: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Schedule:
    """One config with faults to simulate."""

    seed: int
    sets: tuple[str, ...]  # as for `hive up --set`
    gradients_per_round: int
    faults: Faults
    links: LinkFaults
    events: tuple[Event, ...]

    def __str__(self) -> str:
        return f"seed {self.seed}: {' '.join(self.sets)}; {self.faults}; {self.links}; {self.events}"


def schedule(seed: int) -> Schedule:
    """Draw the schedule of a seed."""
    chance = random.Random(seed)
    names = HOSTS[: chance.randint(1, 2)]
    placed = [*names, *(["head"] if chance.random() < 0.3 else [])]
    collectors, workers = len(placed) + chance.randint(0, 2), chance.choice((1, 1, 2, 3))
    modes = [chance.choice(("synchronous", "pipelined", "pipelined", "asynchronous")) for _ in range(2)]
    quoted = ",".join(f'"{name}"' for name in placed)
    sets = [
        f"hosts.cores={{{','.join(f'{name}=1' for name in names)}}}",
        f"hosts.silence_s={SILENCE_S}",
        f"collection.hosts=[{quoted}]",
        f"collection.workers={collectors}",
        f"gradients.workers={workers}",
        f"run.steps={collectors * chance.choice((3, 6, 12, 12, 100))}",
        f"run.carrier={chance.choice(('slots', 'slots', 'zmq'))}",
        f"checkpoint.every={chance.choice(('{}', '{updates=2}'))}",
    ]
    lags = [0 if mode == "synchronous" else chance.randint(1, 3) for mode in modes]
    for table, mode, lag in zip(("collection", "gradients"), modes, lags, strict=True):
        sets.append(f"{table}.communication={mode}")
        if lag:
            sets.append(f"{table}.max_lag={lag}")
    least = -(-workers // collectors) if modes[0] == "asynchronous" else lags[0] + 2
    sets.append(f"collection.slots={max(2, least) + chance.randint(0, 2)}")
    if chance.random() < 0.5:
        where = [*dict.fromkeys(chance.choice((*names, "head")) for _ in range(2))]
        quoted = ",".join(f'"{name}"' for name in where)
        sets += [
            f"evaluation.every={{updates={chance.randint(1, 2)}}}",
            f"evaluation.hosts=[{quoted}]",
            f"evaluation.workers={len(where) + chance.randint(0, 1)}",
        ]
    most = round(math.exp(chance.uniform(math.log(300), math.log(20_000))))
    faults = Faults(
        deaths=chance.choice((0, 0, 1, 2, 4, 6)),
        after=most,
        torn=0.3,
        preempted=chance.choice((0.0, 0.02)),
        full=chance.choice((0.0, 0.1)),
        lost_starts=chance.choice((0.0, 0.2)),
    )
    links = LinkFaults(delay_s=chance.choice((0.0, 0.005, 0.05)), full=chance.choice((0.0, 0.02)))
    events = tuple(_event(chance, most, names) for _ in range(chance.choice((0, 1, 2, 3, 4))))
    return Schedule(seed, tuple(sets), chance.choice((1, 1, 2)), faults, links, events)


def _event(chance: random.Random, most: int, names: Sequence[str]) -> Event:
    seconds = SILENCE_S * (1.0 + chance.random() if chance.random() < LONG else chance.random())
    return Event(chance.randrange(most), chance.choice(EVENTS), chance.choice(names), seconds)


@dataclass
class Records:
    """What is known of a simulated run with hosts."""

    config: Config
    per_round: int
    turns: World
    wrong: list[str] = field(default_factory=list)
    joined: dict[tuple[str, int], int] = field(default_factory=dict)  # (host, incarnation) -> its number, from 1
    claimed: dict[int, set[int]] = field(default_factory=dict)  # collector -> its rollouts that a consumer has got
    last: dict[tuple[str, int], int] = field(default_factory=dict)  # (consumer, collector) -> the last of them
    values: dict[int, float] = field(default_factory=dict)  # behaviour version -> its first parameter
    late: Counter[str] = field(default_factory=Counter)  # messages of earlier incarnations, by host
    requests: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)
    """(evaluator, turn) -> when it was sent to a host, and when it was answered, in virtual seconds."""
    over_s: float = 0.0  # when the run of the head ended
    history: list[str] = field(default_factory=list)  # faults and the steps of agents
    evaluated: Counter[int] = field(default_factory=Counter)  # turns whose evaluation reached the recorder

    def quiet(self, since_s: float) -> bool:
        """Return whether nothing has happened to any machine from a time on, until its agent left the ended run."""
        lines = (line for line in self.history if not line.endswith(RUN_ENDED))
        return not any(since_s <= float(line.split()[0]) < self.over_s for line in lines)

    def fail(self, text: str) -> None:
        if text not in self.wrong:
            self.wrong.append(text)

    def claim(self, consumer: str, slot: Slot, version: int) -> None:
        """Check a rollout that a consumer on the head has got. version: that it must have, or LATEST."""
        header, source = slot.arrays["header"], slot.producer
        name = f"rollout {slot.sequence} of collector {source}"
        if (int(header[SOURCE]), int(header[SEQUENCE])) != (source, slot.sequence):
            self.fail(f"{name} has the content of rollout {header[SEQUENCE]} of collector {header[SOURCE]}")
        claimed = self.claimed.setdefault(source, set())
        if slot.sequence in claimed:
            self.fail(f"{name} was received twice")
        # Consumers that compete for messages over ZeroMQ may get one that another had refused.
        competing = version == LATEST and self.config.run.carrier == "zmq" and self.config.gradients.workers > 1
        if slot.sequence <= (last := self.last.get((consumer, source), -1)) and not competing:
            self.fail(f"{name} was received by {consumer} after rollout {last}")
        self.last[consumer, source] = slot.sequence
        claimed.add(slot.sequence)
        made, value = int(header[VERSION]), float(slot.arrays["rewards"][0, 0])
        if version not in (LATEST, made):
            self.fail(f"{name} was made with version {made} instead of {version}")
        if self.values.setdefault(made, value) != value:
            self.fail(f"{name} was made with other weights than those of version {made}")


class _Collector(trainer._Collector):
    """Labels rollouts with all that is checked on the head."""

    value = 0.0

    def __init__(self, source: int, joining: int) -> None:
        super().__init__(source)
        self.joining = joining  # 0 on the head

    def bind(self, weights: NDArray[np.uint8]) -> None:
        self.value = float(weights[:4].view(np.float32)[0])

    def collect(
        self, rollout: Arrays, *, sequence: int, version: int, enough: Callable[[int], bool] | None = None
    ) -> None:
        super().collect(rollout, sequence=sequence, version=version, enough=enough)
        rollout["header"][SOURCE], rollout["header"][SEQUENCE] = self.source, sequence
        rollout["rewards"][:], rollout["observations"][:] = self.value, self.joining


class _Evaluator:
    """Evaluates weights to their first parameter, in two steps."""

    due: EvaluationDue | None = None

    def bind(self, weights: NDArray[np.uint8]) -> None:
        self.value = float(weights[:4].view(np.float32)[0])

    def begin(self, due: EvaluationDue) -> None:
        self.due, self.left = due, 2

    def step(self) -> Evaluation | None:
        due, nan = self.due, math.nan
        assert due is not None
        self.left -= 1
        if self.left:
            return None
        # A mean return of NaN is never the best, so no policy is written.
        made = Evaluation(due.turn, due.updates, due.env_steps, 0.0, 1, nan, self.value, nan, nan, 1.0, 0.0)
        self.played = [Played(made, [], [])]
        return made

    def close(self) -> None: ...


class _GradientWorkerActor(trainer._GradientWorkerActor):
    """Checks each rollout that it claims."""

    def g_worker(self) -> Any:
        records = cast("_Blueprint", self.blueprint).records
        claim = self.rollouts.claim

        async def checked(producer: int | None = None, sequence: int = -1) -> Slot:
            slot = await claim(producer, sequence)
            records.claim(self.name, slot, self.schedule.collection.behaviour_version(slot.sequence))
            return slot

        self.rollouts.claim = checked  # type: ignore[method-assign]
        return super().g_worker()


class _Recorder(SilentRecorder):
    """Counts the evaluations."""

    evaluations = Inlet(Evaluation, optional=True)

    def __init__(self, blueprint: _Blueprint, **_: object) -> None:
        super().__init__()
        self.records = blueprint.records

    async def run(self) -> None:
        await asyncio.gather(super().run(), self._count())

    async def _count(self) -> None:
        while self.evaluations.connected:
            self._counted(await self.evaluations.receive())

    def _counted(self, made: Evaluation) -> None:
        self.records.evaluated[made.turn] += 1
        if self.records.evaluated[made.turn] > 1:
            self.records.fail(f"the evaluation of turn {made.turn} arrived twice")

    async def drain(self) -> None:
        while self.evaluations.connected and (made := self.evaluations.receive_nowait()) is not None:
            self._counted(made)
        await super().drain()


class _Blueprint(trainer.SimulatedBlueprint):
    """The blueprint of one machine. joining: 0 on the head."""

    def __init__(self, config: Config, records: Records, joining: int = 0) -> None:
        super().__init__(config, records.per_round, False, records.turns)
        self.records = records
        self.joining = joining

    def collector(self, source: int, *given: Any, **more: Any) -> Any:
        return _Collector(source, self.joining)


class _EvaluatorActor(EvaluatorActor):
    """The real actor with an evaluator that plays nothing."""

    evaluator: Any

    def __init__(self, blueprint: _Blueprint, directory: Path, crew: None = None) -> None:
        EvaluatingActor.__init__(self, blueprint, directory)
        self.evaluator = _Evaluator()
        self.videos = EpisodeVideos(blueprint, RunDirectory.open(directory), self)


def _topology(blueprint: _Blueprint, directory: Path) -> Topology:
    topology = assemble(blueprint, directory)
    topology["recorder"].cls = _Recorder
    topology["gradient-workers"].cls = _GradientWorkerActor
    if "evaluator" in topology and topology["evaluator"].cls is EvaluatorActor:
        topology["evaluator"].cls = _EvaluatorActor
    return topology


class _HostLink(HostLink):
    """The link of the head, which checks what it is given and what it does with it."""

    records: Records

    def __init__(self, link: HostLink, links: Links, records: Records) -> None:
        super().__init__(link.name, link.blueprint, link.collectors, link.evaluators, link.directory, links)
        self.records = records
        self.rollouts = _ArrivingRollouts(self.rollouts.layout, self.rollouts.send)
        self.requests = _RequestedEvaluations(self._send_line)
        self.rollouts.link = self.requests.link = self

    def received(self, client: bytes, frames: Frames) -> None:
        message = decode(frames[:1], TO_HEAD)
        old = not isinstance(message, Join) and message.incarnation != self.incarnation  # type: ignore[attr-defined]
        before = self._state()
        super().received(client, frames)
        if old:
            self.records.late[self.name] += 1
        if self._state()[0] != before[0] + old and not (isinstance(message, Join) and message.incarnation):
            self.records.fail(f"a {type(message).__name__} of host {self.name} was counted wrongly as late")
        if old and self._state()[1:] != before[1:]:
            self.records.fail(f"a {type(message).__name__} of an earlier incarnation of host {self.name} had an effect")

    def _state(self) -> tuple[Any, ...]:
        waiting = [(number, each.lacks, len(each.queue)) for number, each in self.rollouts.incoming.items()]
        return self.late, waiting, self.holds, self.line, self.agent


class _ArrivingRollouts(ArrivingRollouts):
    link: _HostLink

    def taken(self, collector: int) -> None:
        made = self.layout.views(np.frombuffer(self.incoming[collector].queue[0], np.uint8))
        if made["observations"][0] != self.link.records.joined.get((self.link.name, self.link.incarnation), -1):
            self.link.records.fail(f"a rollout of an earlier incarnation of host {self.link.name} was committed")
        super().taken(collector)


class _RequestedEvaluations(RequestedEvaluations):
    link: _HostLink

    async def evaluate(self, due: EvaluationDue, weights: Bytes) -> Evaluation:
        key, expected = (due.evaluator, due.turn), float(weights[:4].view(np.float32)[0])
        begun_s = self.link.now_s()
        self.link.records.requests[key] = begun_s, math.inf
        try:
            made = await super().evaluate(due, weights)
        except VersionGone:  # the host has lost it
            self.link.records.requests[key] = begun_s, self.link.now_s()
            raise
        self.link.records.requests[key] = begun_s, self.link.now_s()
        if (made.turn, made.deviation) != (due.turn, expected):
            self.link.records.fail(f"the evaluation of turn {due.turn} is that of other weights")
        return made


class _RunLink(RunLink):
    """The link of a host, whose agent is simulated."""

    agent: SimulatedProcess

    def agent_exited(self) -> bool:
        return self.agent.dead


class _Part:
    """A part of a run as a simulated run: a `Part` of an agent."""

    def __init__(self, host: _Host, accepted: Accepted) -> None:
        self.host = host
        self.accepted = accepted
        agent = current_process()
        assert agent is not None
        self.agent = agent
        self.over = asyncio.Event()
        self.reason = "its supervisor was killed"
        self.supervisor: Supervisor | None = None

    def start(self) -> None:
        host, records = self.host, self.host.world.records
        facts = facts_of(host.join, self.accepted)
        number = records.joined[host.name, facts.incarnation] = len(records.joined) + 1
        config = _configured(self.accepted.config)
        blueprint = _Blueprint(config, records, number)
        topology = part_of(_topology(blueprint, host.world.directory), blueprint, facts)
        self.process = SimulatedProcess("supervisor", number, host.name)
        self.process.at_exit.append(self._exited)
        self.run = host.world.run.beside(topology, self.process, self._forked(blueprint, facts))
        self.run.begin(self.process, self._main())

    def _forked(self, blueprint: _Blueprint, facts: HostFacts) -> Callable[[Any], Any]:
        def forked(value: Any) -> Any:
            if not isinstance(value, RunLink):
                return value
            link = _RunLink(facts, blueprint, self.host.world.links)
            link.agent = self.agent
            return link

        return forked

    async def _main(self) -> None:
        def watch(supervisor: Supervisor) -> None:
            self.supervisor = supervisor

        outcome = await self.run.supervise(Settings(restarts=NO_LIMIT), watch)
        self.reason = outcome.reason or outcome.error
        self.run.check_end()
        if outcome.state not in ("finished", "stopped"):
            self.host.world.records.fail(f"the part of {self.host.name} ended as {outcome.state}: {outcome.error}")
        for error in self.run.processes.errors:
            self.host.world.records.fail(f"an actor of {self.host.name} raised {error!r}")
        self.process.exit(dead=False)

    def _exited(self) -> None:
        if self.process.dead:
            self.run.power_off()
        self.over.set()

    async def status(self) -> Mapping[str, Any]:
        return {}

    async def answer(self, ask: ActorQuery, incarnation: int) -> ActorReply:
        return ActorReply(incarnation, ask.number, "", (), "")

    def logs(self) -> list[tuple[str, str]]:
        return []

    async def ended(self) -> str | None:
        return self.reason if self.over.is_set() else None

    async def end(self) -> None:
        if self.supervisor is not None and not self.over.is_set():
            self.run.loop.call_soon(self.supervisor.request, "its agent ends it", context=self.process.context.copy())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.over.wait(), STOP_S)
        if not self.over.is_set():
            self.run.power_off()


@functools.lru_cache(32)
def _configured(text: str) -> Config:
    return load_config("accepted.toml", text=text)


class _Host:
    """A machine: its agent, which is started again when it was killed, and its faults."""

    def __init__(self, world: _Hosts, name: str) -> None:
        self.world = world
        self.name = name
        self.join: JoinFile
        self.agents = 0
        self.agent: SimulatedProcess | None = None
        self.parts: list[_Part] = []
        self.done = asyncio.Event()

    def start(self) -> None:
        """Start its agent."""
        self.agent = agent = SimulatedProcess("agent", self.agents, self.name)
        self.agents += 1
        agent.kill = functools.partial(self._kill, agent)
        agent.at_exit.append(functools.partial(self._exited, agent))
        self.world.run.begin(agent, self._main())

    def _kill(self, agent: SimulatedProcess) -> None:
        self.world.history(f"killed {agent}")
        agent.exit()

    def _exited(self, agent: SimulatedProcess) -> None:
        if agent.dead:
            self.world.links.later(self.world.run.chance.random() * AGAIN_S, self.start)
        else:
            self.done.set()

    async def _main(self) -> None:
        agent = self.agent
        assert agent is not None
        path = self.world.directory / "hosts" / f"{self.name}.join"
        while not path.exists():
            await asyncio.sleep(0.1)
        self.join = JoinFile.read(path)
        client = self.world.links.client(self.join.keys, self.join.head, 0, 0.0)
        try:
            await Agent(self.join, WAIT_S, self._report, client, self._part, self.world.run.clock).main()
        except HostLost:
            if not self.world.over:
                self.world.records.fail(f"the agent of {self.name} gave up, and the run goes on")
        except HiveError as error:
            self.world.records.fail(f"the agent of {self.name} gave up: {error}")
        agent.exit(dead=False)

    def _report(self, text: str) -> None:
        self.world.history(f"{self.name} agent: {text}")

    def _part(self, accepted: Accepted) -> _Part:
        self.parts.append(_Part(self, accepted))
        return self.parts[-1]

    # --- faults

    def happen(self, event: Event) -> None:
        """Let a fault happen to this machine."""
        if self.agent is None:
            return
        if event.kind == "break":
            self.world.links.break_off(self.name)
        elif event.kind == "part":
            self.world.links.part(self.name, event.seconds)
        elif event.kind == "agent":
            self.agent.kill()
        elif event.kind == "freeze":
            self._freeze(event.seconds)
        elif event.kind == "off":
            self.world.history(f"{self.name} was switched off")
            self.world.links.vanished(self.name)
            for part in self.parts:
                part.process.exit()
            self.agent.exit()

    def _freeze(self, seconds: float) -> None:
        """Take the processor away from all its processes."""
        self.world.links.part(self.name, seconds)
        for process in self._processes():
            process.preempted = True
            self.world.links.later(seconds, self.world.run.loop.end_preemption, process)

    def _processes(self) -> list[SimulatedProcess]:
        assert self.agent is not None
        runs = [part.run for part in self.parts]
        own = [self.agent, *(part.process for part in self.parts)]
        return [*own, *(process for run in runs for process in run.processes.incarnations.values())]


class _Hosts:
    """The other machines of a run."""

    def __init__(self, planned: Schedule, records: Records, directory: Path) -> None:
        self.planned = planned
        self.records = records
        self.directory = directory
        self.over = False  # the run has ended on the head
        self.run: SimulatedRun
        self.links: SimulatedLinks

    def history(self, text: str) -> None:
        self.run.history.append(f"{self.run.loop.time():.4f} {text}")

    def forked(self, value: Any) -> Any:
        """Return the link of a new process of the head."""
        if not isinstance(value, HostLink):
            return value
        link = _HostLink(value, self.links, self.records)
        for key, (_, answered_s) in [*self.records.requests.items()]:
            if key[0] in value.evaluators and answered_s == math.inf:  # lost with the process before
                del self.records.requests[key]
        return link

    @contextlib.asynccontextmanager
    async def beside(self, run: SimulatedRun) -> AsyncIterator[None]:
        """Let the hosts live while the run of the head does, and then wait until they have ended."""
        self.run = run
        self.records.history = run.history
        self.links = SimulatedLinks(run.loop, self.planned.links, SILENCE_S, run.history)
        config = self.records.config
        names = [
            name for name in config.hosts.cores if config.placement.get(name) or config.evaluator_placement.get(name)
        ]
        hosts = {name: _Host(self, name) for name in names}
        for host in hosts.values():
            host.start()
        for event in self.planned.events:
            if event.host in hosts:
                run.planned.plan(event.number, functools.partial(hosts[event.host].happen, event))
        yield
        self.over, self.records.over_s = True, run.loop.time()
        for host in hosts.values():
            try:
                await asyncio.wait_for(host.done.wait(), 2 * WAIT_S)
            except TimeoutError:
                self.records.fail(f"the agent of {host.name} did not end after the run")
        self._check_left()

    def _check_left(self) -> None:
        """Check that no process that ended in order has left a task or a socket."""
        ended = {
            process.label
            for each in (self.run, *self.run.others)
            for process, task in each.processes.tasks
            if not process.dead and task.done()
        }
        for task in asyncio.all_tasks(self.run.loop):
            if not task.done() and task.get_name() in ended:
                self.records.fail(f"{task.get_name()} has left a task: {task.get_coro()}")
        for process in self.links.open_ends():
            if process in ended:
                self.records.fail(f"{process} has left a socket")


def run(planned: Schedule) -> Simulation:
    """Simulate one schedule. `wrong` of the result lists every broken promise."""
    config = load_config("simulated.toml", planned.sets, text='[run]\nscheme = "a2c"\n[env]\nid = "none"')
    records = Records(config, planned.gradients_per_round, World({}, []))
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix="hive-simulated-") as folder:
        directory = RunDirectory.create(Path(folder), "run").path
        hosts = _Hosts(planned, records, directory)
        topology = _topology(_Blueprint(config, records), directory)
        simulation = simulate(
            topology, planned.seed, planned.faults, limit_s=LIMIT_S, fork=hosts.forked, beside=hosts.beside
        )
    simulation.wrong += records.wrong + records.turns.wrong
    _judge(simulation, planned, records)
    return simulation


def _judge(simulation: Simulation, planned: Schedule, records: Records) -> None:
    """Check the promises about the whole run."""
    wrong, outcome, config = simulation.wrong, simulation.outcome, records.config
    assert outcome is not None
    shown = trainer.Schedule(planned.seed, planned.sets, planned.gradients_per_round, False, planned.faults)
    errors = simulation.errors
    simulation.errors = [error for error in errors if not isinstance(error, HostLost)]
    trainer._judge(simulation, shown, config, records.turns)
    consumers = ("gradient-worker", "learner")
    died = any(word in line for line in simulation.history for word in (f" {name}" for name in consumers))
    # What was dropped at the end of the run may lie before what another consumer got.
    dropped = outcome.channels["rollouts"]["dropped"].get("run_ended", 0)
    missing = [(c, r) for c, claimed in records.claimed.items() for r in range(max(claimed)) if r not in claimed]
    if len(missing) > dropped and not died:
        wrong.append(f"rollouts that no consumer got: {missing[:5]}")
    late_s = records.over_s - ANSWERED_S
    for (evaluator, turn), (asked_s, answered_s) in records.requests.items():
        if answered_s == math.inf and asked_s < late_s and records.quiet(late_s):
            wrong.append(f"evaluator {evaluator} never got the evaluation of turn {turn}")
