"""Simulate the built-in trainer: the real scheme, actors, supervisor and slots, with workers that take no time.

`schedule(seed)` draws a config (modes, lags, counts, placement, resume barriers) and the faults; `run` simulates it and
lists the promises that were broken. Only parts that take time and change no order are replaced: environments, networks
and gradients. A rollout is one step that ends an episode, whose return is the rollout's number. Gradients pass the
returns of episodes on to the learner, which therefore shows the rollouts that each turn was made from.
"""

from __future__ import annotations

import asyncio
import functools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hive.config import Config, TargetConfig, load_config
from hive.envs import Discrete, EnvironmentSpec, ObservationSpec
from hive.experience import LENGTH, Rollout, rollout_layout
from hive.experience import VERSION as ROLLOUT_VERSION
from hive.gradients import ENV_STEPS, EPISODES, PLAIN, POLICY, SAMPLES, clear, gradient_layout, put_episodes
from hive.networks import FlatParameters, NetworkParameters, Spaces
from hive.networks.weights.flat import InitialWeights
from hive.networks.weights.state import StateLayout
from hive.networks.weights.wrapper import NetworkWrapper
from hive.runtime import Actor, Inlet, Layout, Status, Subscription
from hive.runtime.memory.segments import Arrays
from hive.runtime.supervise.ending import LAST_TRIES
from hive.schemes.trainer import assemble
from hive.training import Blueprint, GradientWorkerActor, Learner, Replica
from hive.training.messages import CheckpointDue, Improved, Metrics, OptimizerState, Weights
from hive.training.record.pinned_blocks import held_block
from hive.training.update.learner import Count, LearnerStep
from simulation import Faults, Simulation, simulate

KILLED_AT_THE_END = "recorder failed at the end: it was killed before it had finished"
ROUNDS = 2
MOST = 64  # maximum number of collectors, and of gradient workers
FLOATS = 16  # number of parameters of the network
WITH_TARGET = 0.3  # share of schedules with a target network
OVER_ZMQ = 0.5  # share of schedules whose rollouts and gradients travel over ZeroMQ, of those that allow it
STEP = 0.5  # value of every gradient element: not 0, so that each update moves the weights and targets differ
PER_COLLECTOR = 1 << 16  # rollout r of collector c has number c * PER_COLLECTOR + r, which float32 represents exactly


@dataclass(frozen=True)
class Schedule:
    """One config with faults to simulate."""

    seed: int
    sets: tuple[str, ...]  # as for `hive up --set`
    gradients_per_round: int
    moments: bool
    faults: Faults

    def __str__(self) -> str:
        return f"seed {self.seed}: {' '.join(self.sets)}; {self.gradients_per_round} gradients a round; {self.faults}"


def schedule(seed: int, most: int = MOST) -> Schedule:
    """Draw the schedule of a seed, with at most `most` collectors and gradient workers."""
    chance = random.Random(seed)
    collectors, workers = (round(math.exp(chance.uniform(0.0, math.log(most)))) for _ in range(2))
    modes = [chance.choice(("synchronous", "pipelined", "asynchronous")) for _ in range(2)]
    sets = [f"collection.communication={modes[0]}", f"gradients.communication={modes[1]}"]
    sets.append("gradients.native_rounds=false")  # a simulated kill needs the words in Python
    placement = chance.random()
    if placement < 0.1:
        collectors, workers = (0, workers) if placement < 0.05 else (collectors, 0)
    if workers and collectors % workers == 0 and chance.random() < 0.5:
        sets.append("collection.ownership=gradient_worker")
    sets += [f"collection.workers={collectors}", f"gradients.workers={workers}"]
    for table, mode in zip(("collection", "gradients"), modes, strict=True):
        if mode != "synchronous":
            sets.append(f"{table}.max_lag={chance.randint(1, 3)}")
    moments = modes[1] != "asynchronous" and workers > 1 and chance.random() < 0.3
    per_round = chance.choice((1, 1, 2, 4)) + moments
    if not moments and chance.random() < 0.3:
        sets.append("gradients.bootstrap_rounds=2")
    if chance.random() < 0.3:
        sets.append("collection.broadcast_interval=2")
    if modes[0] == "asynchronous" and modes[1] != "asynchronous":  # see hive.schemes.trainer: a rollout for each worker
        sets.append(f"collection.slots={max(2, -(-max(workers, 1) // (collectors or max(workers, 1))))}")
    if modes[1] != "asynchronous" and workers and chance.random() < 0.4:
        sets.append("gradients.decentralized=true")
    if modes[0] != "asynchronous" and chance.random() < 0.2:
        sets.append("collection.fraction_workers=0.5")
    every = f"{{updates={chance.randint(1, 3)}}}" if chance.random() < 0.5 else "{}"
    sets.append(f"checkpoint.every={every}")
    total = (collectors or max(workers, 1)) * ROUNDS
    sets.append(f"run.steps={total}")
    deaths = chance.choice((0, 0, 1, 2, 4))
    faults = Faults(
        deaths=deaths,
        stops=int(chance.random() < 0.1),
        after=round(math.exp(chance.uniform(math.log(20), math.log(200 + 60 * total * per_round)))),
        full=chance.choice((0.0, 0.0, 0.1)),
        preempted=chance.choice((0.0, 0.02, 0.2)),
        lost_starts=chance.choice((0.0, 0.2)),
    )
    if chance.random() < WITH_TARGET:  # drawn last, so that seeds keep the choices that they gave before it was added
        sets += ["algorithm.name=nstep-q", f"algorithm.target_interval={chance.randint(1, 3)}"]
        if chance.random() < 0.5:
            sets.append("algorithm.target_rate=0.25")
    if "gradients.decentralized=true" not in sets and chance.random() < OVER_ZMQ:
        sets.append("run.carrier=zmq")
    return Schedule(seed, tuple(sets), per_round, moments, faults)


@dataclass
class World:
    """The records of the simulated workers."""

    turns: dict[tuple[int, ...], list[int]]  # gradients applied before a turn, by worker -> the turn's rollouts
    wrong: list[str]

    @property
    def rollouts(self) -> set[int]:
        """The numbers of the rollouts of all turns."""
        return {rollout for ids in self.turns.values() for rollout in ids}


class _Collector:
    """Fills rollouts with one labelled step, without an environment."""

    vector = None  # of environments, which show nothing

    def __init__(self, source: int) -> None:
        self.source = source

    def bind(self, weights: NDArray[np.uint8]) -> None: ...

    def reset(self, start: int = 0) -> None: ...

    def rebuild(self, vector: object, start: int) -> None: ...

    def collect(
        self, rollout: Arrays, *, sequence: int, version: int, enough: Callable[[int], bool] | None = None
    ) -> None:
        rollout["header"][ROLLOUT_VERSION], rollout["header"][LENGTH] = version, 1
        rollout["valid"][:], rollout["final_index"][:] = 1, -1
        if enough is not None:
            enough(1)
        rollout["episode_returns"][:] = self.source * PER_COLLECTOR + sequence
        rollout["episode_lengths"][:] = 1

    def close(self) -> None: ...


class _Algorithm:
    """Makes the scheduled number of gradients per round."""

    statistics = ("loss",)
    behaviour_log_probs = False

    def __init__(self, per_round: int, moments: bool) -> None:
        self.gradients_per_round = per_round
        self.asks_for_moments = moments


class _GradientWorker:
    """Makes constant gradients, labelled with their rollouts."""

    def __init__(self, algorithm: _Algorithm) -> None:
        self.algorithm = algorithm

    def bind(self, weights: NDArray[np.uint8]) -> None: ...

    def clear_residual(self) -> None: ...

    def compute(
        self,
        rollouts: Sequence[Arrays],
        out: Arrays,
        *,
        sequence: int,
        version: int,
        moments: tuple[float, float] | None = None,
    ) -> None:
        clear(out, version, sequence)
        step = sequence % self.algorithm.gradients_per_round
        samples = len(rollouts)
        if step == 0:
            views = [Rollout(arrays) for arrays in rollouts]
            put_episodes(out, [view.episodes() for view in views])
            out["header"][ENV_STEPS] = samples
            out["header"][POLICY] = min((view.version for view in views), default=-1)
        if step == 0 and self.algorithm.asks_for_moments:
            out["moments"][:] = samples, 0.0, samples
        else:
            out["header"][SAMPLES] = samples
            out["gradient"][:] = STEP


class _GradientWorkerActor(GradientWorkerActor):
    """The real actor with a worker that computes nothing."""

    blueprint: SimulatedBlueprint

    def __init__(self, blueprint: SimulatedBlueprint, directory: Path) -> None:
        super().__init__(blueprint, directory)
        if self.replica is not None:  # its turns are not those that the world records
            config = blueprint.config
            workers = blueprint.gradient_workers
            learner = Learner(config.algorithm, blueprint.wrapper(), config.run.steps, workers=workers)
            self.replica = Replica(learner, blueprint.state.bytes)

    def g_worker(self) -> Any:
        return _GradientWorker(self.blueprint.algorithm())


class _Learner(Learner):
    """The real learner, which also records the rollouts of each turn."""

    world: World

    def turn(self, gradients: Sequence[Arrays], weights: Any, optimizer_state: Any, *more: Any) -> LearnerStep:
        before = tuple(int(n) for n in self.views(optimizer_state)["applied"])
        ids = [int(i) for g in gradients for i in g["episode_returns"][: int(g["header"][EPISODES])]]
        self.world.turns[before] = ids
        turn = super().turn(gradients, weights, optimizer_state, *more)
        self._judge_target(turn, weights, *more[:2])
        return turn

    def _judge_target(self, turn: LearnerStep, before: Any, after: Any, optimizer_state: Any) -> None:
        """Check that the target moves only at the updates of its schedule, also after kills."""
        layout, config = self.network.state, self.config
        if not isinstance(config, TargetConfig):
            return
        updates, size = int(self.views(optimizer_state)["counters"][Count.updates]), layout.flat.parameter_bytes
        old, new = (layout.target(block)[:size].view(np.float32) for block in (before, after))
        due = turn.applied and updates % config.target_interval == 0
        rate = np.float32(config.target_rate if due else 0.0)
        expected = (np.float32(1.0) - rate) * old + rate * layout.parameters(after)
        version = 1 + updates // config.target_interval * config.target_interval
        if not np.allclose(new, expected, rtol=1e-5) or layout.target_version(after).item() != version:
            self.world.wrong.append(f"the target after update {updates} does not follow its schedule")


class SilentRecorder(Actor):
    """Receives the recorder's messages and unpins the blocks that the learner holds for it, without writing files."""

    role = "recorder"
    numbered = False
    metrics = Inlet(Metrics)
    checkpoints = Inlet(CheckpointDue)
    improved = Inlet(Improved, optional=True)
    weights = Subscription(Weights)
    optimizer_state = Subscription(OptimizerState)

    def __init__(self, **_: object) -> None:
        self.lines = 0

    async def run(self) -> None:
        await asyncio.gather(self._record(), self._save(), self._compare())

    async def _record(self) -> None:
        async for _ in self.metrics:
            self.lines += 1

    async def _save(self) -> None:
        async for due in self.checkpoints:
            held_block(self.weights, due.turn)
            held_block(self.optimizer_state, due.turn)
            self.weights.unpin()
            self.optimizer_state.unpin()

    async def _compare(self) -> None:
        while self.improved.connected:
            await self.improved.receive()
            self.lines += 1

    async def drain(self) -> None:
        while self.improved.connected and self.improved.receive_nowait() is not None:
            self.lines += 1
        while self.metrics.receive_nowait() is not None or self.checkpoints.receive_nowait() is not None:
            self.lines += 1
        await super().drain()


@functools.cache
def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(FLOATS - 1, 1)


class SimulatedBlueprint(Blueprint):
    """A blueprint whose workers use neither environments nor real networks."""

    def __init__(self, config: Config, per_round: int, moments: bool, world: World) -> None:
        self.config = config
        self.resume = self.given = None
        self.device = None
        self.world = world
        self.environment = EnvironmentSpec("simulated", ObservationSpec((1,), "float32"), Discrete(2))
        self._algorithm = _Algorithm(per_round, moments)
        self._count_rounds()
        self._count_gradients(cast(Any, self._algorithm))
        self.distribution = cast(Any, None)  # its actors draw no actions
        network = _network()
        self.codec = PLAIN
        self.flat = InitialWeights(network, lambda: FlatParameters(network))
        self.state = StateLayout(self.flat, has_target=isinstance(config.algorithm, TargetConfig))
        self.optimizer_state_bytes = self.learner().layout.bytes
        self.rollout_layout = rollout_layout(1, 1, ((1,), "float32"), ((), "int64"), 1)

    def algorithm(self, *, alone: bool = False) -> Any:
        return self._algorithm

    # Further arguments of the real methods have no effect here.

    def vector_in(self, *given: Any, **more: Any) -> Any:
        return None

    def collector(self, source: int, *given: Any, **more: Any) -> Any:
        return _Collector(source)

    def wrapper(self, device: Any = None) -> NetworkWrapper:
        return NetworkWrapper(NetworkParameters(), Spaces({}, Discrete(2)), self.state, torch.Generator())

    def learner(self, status: Status | None = None) -> Learner:
        config = self.config
        learner = _Learner(config.algorithm, self.wrapper(), config.run.steps, workers=self.gradient_workers)
        learner.world = self.world
        return learner

    def gradient_layout(self, collectors: int) -> Layout:
        return gradient_layout(self.flat.parameter_elements, len(self.flat.parameters), 1, collectors)


def run(planned: Schedule) -> Simulation:
    """Simulate one schedule. `wrong` of the result lists every broken promise."""
    config = load_config("simulated.toml", planned.sets, text='[run]\nscheme = "a2c"\n[env]\nid = "none"')
    world = World({}, [])
    blueprint = SimulatedBlueprint(config, planned.gradients_per_round, planned.moments, world)
    topology = assemble(blueprint, Path())
    topology["recorder"].cls = SilentRecorder
    topology["gradient-workers"].cls = _GradientWorkerActor
    simulation = simulate(topology, planned.seed, planned.faults)
    simulation.wrong += world.wrong
    _judge(simulation, planned, config, world)
    return simulation


def _recorder_failed_every_try(simulation: Simulation) -> bool:
    """Return whether the recorder was killed in every try to save at the end; the run must then fail."""
    outcome = simulation.outcome
    assert outcome is not None
    killed = sum(f" {word} recorder-" in line for line in simulation.history for word in ("killed", "start of"))
    return outcome.error == KILLED_AT_THE_END and killed > LAST_TRIES


def _judge(simulation: Simulation, planned: Schedule, config: Config, world: World) -> None:
    """Check the promises that every schedule must keep, whatever faults it had."""
    wrong, outcome = simulation.wrong, simulation.outcome
    assert outcome is not None
    if outcome.state != "finished" and not _recorder_failed_every_try(simulation):
        wrong.append(f"the run ended as {outcome.state}: {outcome.reason} {outcome.error}")
        return
    wrong += [f"an actor raised {error!r}" for error in simulation.errors]
    results = outcome.results
    if results["env_steps"] < config.run.steps and config.run.stop_at_return is None:
        wrong.append(f"{results['env_steps']:g} steps of {config.run.steps}")
    used = Counter(rollout for ids in world.turns.values() for rollout in ids)
    twice = sorted(rollout for rollout, times in used.items() if times > 1)
    if twice:
        wrong.append(f"rollouts that were applied twice: {twice[:5]}")
    exact = "asynchronous" not in (config.collection.communication, config.gradients.communication)
    if exact and outcome.exact:
        collectors = config.collection.workers or max(config.gradients.workers, 1)
        rounds = 1 + max(rollout % PER_COLLECTOR for rollout in used)
        expected = {c * PER_COLLECTOR + r for c in range(collectors) for r in range(rounds)}
        if used.keys() != expected:
            wrong.append(f"rollouts that were not applied: {sorted(expected - used.keys())[:5]}")
