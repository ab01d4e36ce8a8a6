"""Measures the costs of a config's parts, in the objects that a run has, one after the other in this process.

    Blueprint -> Collector.collect   environment and policy, for all environments of the run and for half of them
              -> GWorker.compute     gradients of these rollouts (ReplayWorker, with a replay memory)
              -> Learner.turn        updates of one and of two gradients

The rollouts that a slow environment cannot fill within its limit get copies of the steps that it made: their content
does not change the time of a gradient.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.config import Config, ReplayConfig
from hive.envs import StepRow, VectorEnvironment
from hive.experience import LENGTH, Rollout
from hive.networks.weights.flat import aligned_block
from hive.runtime.memory.segments import Arrays
from hive.training import Blueprint, Collector, GWorker, ReplayWorker
from hive.training.update.replay_memory import DrawnRows
from hive.training.update.replica import Replica
from hive.tuning.costs import CostLine, Costs

WARM_S = 0.1  # seconds of steps that warm the caches and are not counted
COLLECT_S = 0.4  # seconds in which rollouts are collected, with and without clocks; a long rollout is cut short
GRADIENTS_S = 0.5  # seconds in which gradients are computed, at least one
UPDATES_S = 0.15  # seconds in which updates are made, at least one
SLOW = 4  # times these limits: a first call that takes longer is not repeated
LEAST_SHARE = 2  # the second point of each line: half of the environments, and so of a gradient's rows
MEASURED_ROWS = 20_000  # most rows of a replay memory that is measured: a whole one may take gigabytes


class RecordedVector:
    """A vector of environments that keeps the calls of the last rollout, so that they can be repeated and timed."""

    def __init__(self, vector: VectorEnvironment) -> None:
        self.vector = vector
        self.count = vector.count
        self.reset, self.close = vector.reset, vector.close
        self.calls: list[tuple[NDArray[Any], StepRow]] = []

    def step(self, actions: NDArray[Any], row: StepRow) -> None:
        """Step the environments, as VectorEnvironment.step."""
        self.calls.append((actions, row))
        self.vector.step(actions, row)

    def repeat(self, seconds: float) -> TimeSpent:
        """Make the recorded calls again and again for so long, at least one. Return what a call takes."""
        clock, made = Stopwatch(), 0
        while not made or clock.spent().wall < seconds:
            self.calls[0][1].finals.count = 0
            for actions, row in self.calls:
                self.vector.step(actions, row)
                made += 1
                if clock.spent().wall > seconds:
                    break
        return clock.spent(made)


@dataclasses.dataclass(frozen=True)
class TimeSpent:
    """Seconds of a part: by the clock on the wall, and of this process on a core.

    Costs are the latter, which other processes of the machine do not change. Only environments may sleep.
    """

    wall: float
    cpu: float


class Stopwatch:
    """Measures the time since it was made."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def spent(self, count: int = 1) -> TimeSpent:
        """Return what one of `count` equal parts has taken since the clock was made."""
        return TimeSpent((time.perf_counter() - self.wall) / count, (time.process_time() - self.cpu) / count)


@dataclasses.dataclass(frozen=True)
class Point:
    """Seconds of the parts where one collector has `envs` environments; updates: of one gradient, and of two."""

    envs: int
    environment: TimeSpent
    policy: float
    gradient: TimeSpent
    updates: tuple[float, float]
    publish: float
    gradients: int
    parameters: int
    is_native: bool


def measure(config: Config) -> Costs:
    """Measure the costs of a config, whose total number of environments stays.

    Raises what a Blueprint raises, and EnvironmentFailed.
    """
    total = config.collectors * config.collection.envs
    many = _point(_alone(config, total))
    few = _point(_alone(config, max(1, total // LEAST_SHARE), LEAST_SHARE)) if total > 1 else many
    native = many.is_native and config.network.backend == "auto"
    torch = _point(_alone(config, total, backend="torch")) if native else None
    share = few.envs / total if not isinstance(config.algorithm, ReplayConfig) else 1 / LEAST_SHARE
    at_hand = min(1.0, many.gradient.cpu / many.gradient.wall)  # computing never sleeps: the rest went to others
    least, most = (_lasting(point.environment, at_hand) for point in (few, many))
    return Costs(
        environment=CostLine.through((few.envs, least), (total, most)),
        busy=many.environment.cpu / most,
        policy=CostLine.through((few.envs, few.policy), (total, many.policy)),
        gradient=CostLine.through((share, few.gradient.cpu), (1.0, many.gradient.cpu)),
        gradients=many.gradients,
        update=CostLine.through((1, many.updates[0]), (2, many.updates[1])),
        publish=many.publish,
        parameters=many.parameters,
        at_hand=at_hand,
        torch_gradient=torch.gradient.cpu if torch else 0.0,
        torch_policy=torch.policy if torch else 0.0,
    )


def _lasting(environment: TimeSpent, at_hand: float) -> float:
    """Return the seconds of a step on a core of its own: work, and what cannot be explained by waiting for a core."""
    return environment.cpu + max(0.0, environment.wall - environment.cpu / at_hand)


def _alone(config: Config, envs: int, divisor: int = 1, backend: str | None = None) -> Config:
    """Return the config of one collector with `envs` environments, and of one of `divisor` shares of a batch."""
    collection = dataclasses.replace(config.collection, workers=0, envs=envs)
    gradients = dataclasses.replace(config.gradients, workers=0, decentralized=False)
    # Orthogonal weights of wide layers take seconds to make, and cost as much as others when they are used.
    network = dataclasses.replace(config.network, initialization="uniform", backend=backend or config.network.backend)
    algorithm = config.algorithm
    if isinstance(algorithm, ReplayConfig):
        algorithm = dataclasses.replace(
            algorithm,
            batch_size=max(1, algorithm.batch_size // divisor),
            replay_capacity=min(algorithm.replay_capacity, MEASURED_ROWS),
            learning_starts=0,
        )
    return dataclasses.replace(
        config, collection=collection, gradients=gradients, network=network, algorithm=algorithm, automatic=()
    )


def _point(config: Config) -> Point:
    """Measure with all environments of this config in one collector, and all of its rows in each gradient."""
    blueprint = Blueprint(config)
    vector = RecordedVector(blueprint.vector())
    collector = blueprint.collector(0, vector=vector)
    try:
        replica = Replica(blueprint.learner(), blueprint.state.bytes)
        replica.begin(blueprint)
        rollout = blueprint.rollout_layout.views(aligned_block(blueprint.rollout_layout.bytes))
        environment, policy = _collect(collector, vector, replica, rollout)
    finally:
        vector.close()
    slots = [blueprint.gradient_layout(1).views(aligned_block(blueprint.gradient_layout(1).bytes)) for _ in range(2)]
    parts = _replayed if blueprint.replays else _trained
    gradient, gradients = parts(blueprint, replica, rollout, slots)
    updates = [_per_call(partial(replica.apply, slots[:n]), UPDATES_S).cpu for n in (1, 2)]
    copy = replica.weights[: blueprint.flat.block_bytes].copy()
    publish = _per_call(lambda: np.copyto(copy, replica.weights[: len(copy)]), UPDATES_S / 3).cpu
    return Point(
        envs=config.collection.envs,
        environment=environment,
        policy=policy,
        gradient=gradient,
        updates=(updates[0], updates[1]),
        publish=publish,
        gradients=gradients,
        parameters=blueprint.flat.parameter_elements,
        is_native=any(getattr(module, "dense", None) is not None for module in collector.policy.modules()),
    )


def _collect(
    collector: Collector, vector: RecordedVector, replica: Replica, rollout: Arrays
) -> tuple[TimeSpent, float]:
    """Fill the rollout; return what a step of the environments takes, and the seconds of the rest of a step."""
    collector.bind(replica.weights)
    collector.reset()
    _collect_for(WARM_S, collector, rollout)
    environment = vector.repeat(COLLECT_S)
    collector.vector = vector.vector
    whole = _collect_for(COLLECT_S, collector, rollout)
    _fill(rollout)
    return environment, max(0.0, whole.cpu - environment.cpu)


def _collect_for(seconds: float, collector: Collector, rollout: Arrays) -> TimeSpent:
    """Collect for so long, at least one step; return what a step takes."""
    clock, steps = Stopwatch(), 0
    while not steps or clock.spent().wall < seconds:
        if isinstance(collector.vector, RecordedVector):
            collector.vector.calls.clear()
        collector.collect(rollout, sequence=0, version=0, enough=lambda _: clock.spent().wall > seconds)
        steps += int(rollout["header"][LENGTH])
    return clock.spent(steps)


def _fill(rollout: Arrays) -> None:
    """Copy the rows of a rollout that was cut short into the rest of it."""
    length, steps = int(rollout["header"][LENGTH]), len(rollout["rewards"])
    if length == steps:
        return
    for name, array in rollout.items():
        if name == "observations":
            array[length + 1 :] = array[1 + np.arange(steps - length) % length]
        elif name not in ("header", "final_observations", "state", "history") and len(array) == steps:
            array[length:] = array[np.arange(steps - length) % length]
    rollout["header"][LENGTH] = steps


def _trained(blueprint: Blueprint, replica: Replica, rollout: Arrays, slots: Sequence[Arrays]) -> tuple[TimeSpent, int]:
    """Return what a gradient of this rollout takes, and the gradients of a round."""
    worker = GWorker.of_run(blueprint, 0)
    worker.bind(replica.weights)
    made = 0

    def compute() -> None:
        nonlocal made
        worker.compute([rollout], slots[made % 2], sequence=made, version=replica.turn)
        made += 1

    return _per_call(compute, GRADIENTS_S), worker.algo.gradients_per_round


def _replayed(
    blueprint: Blueprint, replica: Replica, rollout: Arrays, slots: Sequence[Arrays]
) -> tuple[TimeSpent, int]:
    """Return what a gradient takes whose rows are drawn from a replay memory, and the gradients of a round."""
    memory = np.zeros(blueprint.memory_layout.bytes, np.uint8)
    replay = blueprint.replay.memory(memory)
    ledgers = [blueprint.ledger_layout.views(aligned_block(blueprint.ledger_layout.bytes)) for _ in range(2)]
    plan = blueprint.plan_layout.views(aligned_block(blueprint.plan_layout.bytes))
    ledgers[0]["counters"][:] = 0
    while int(ledgers[0]["written"][0]) < blueprint.replay.config.n_step + 1 + blueprint.config.collection.rollout:
        replay.admit([Rollout(rollout)], ledgers[0], ledgers[1], 0)
        ledgers.reverse()
    replica.learner.replace_statistics(ledgers[0], replica.weights)
    worker = ReplayWorker(blueprint, 0, memory)
    worker.bind(replica.weights)
    made = 0

    def compute() -> None:
        nonlocal made
        if made % blueprint.gradients_per_batch == 0:
            replay.draw(made, ledgers[0], plan)
        slot = slots[made % 2]
        batch = worker.gather(DrawnRows.of(plan, 0, blueprint.replay.config.loss_exponent), slot, made)
        worker.compute(batch, slot, sequence=made, version=replica.turn)
        made += 1

    return _per_call(compute, GRADIENTS_S), worker.algo.gradients_per_round


def _per_call(call: Callable[[], object], seconds: float) -> TimeSpent:
    """Return what a call takes, repeated for so long, at least once; the first call is not counted if it is short."""
    clock = Stopwatch()
    call()
    if clock.spent().wall > SLOW * seconds:  # then its warm-up hardly matters
        return clock.spent()
    clock, count = Stopwatch(), 0
    while not count or clock.spent().wall < seconds:
        call()
        count += 1
    return clock.spent(count)
