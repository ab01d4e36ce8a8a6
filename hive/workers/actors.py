"""The trainer's actors: each wraps one synchronous worker and orders its waits. (The learner's: learner_actor.)

              rollouts (slabs)                 gradients (slabs)
    Collector ────────────────> GWorker ───────────────────────> Learner ──metrics──> Recorder
        ^  behaviour (board, one version a round)                 │ │
        └─────────────────────────────────────────────────────────┘ └── state (board, one version a turn) -> workers

In the deterministic modes who uses which version follows from numbers alone, never from timing. With r the number of a
rollout, g of a gradient, S the gradients that an algorithm makes of a round, K = bootstrap_rounds:

    rollout r    is made with behaviour version  max(c, r // broadcast_interval - collection lag)
    gradient g   is made of the rollouts r = g // S of its share, on state version  max(t, g // K - gradients lag)
    turn t       reduces the gradients t K ... (t + 1) K - 1 of every worker, in (worker, sequence) order

c and t are the versions at the last cut (resume_barriers.py), at first 0. A lag of 0 is synchronous, one of k >= 1
pipelined: everyone is busy, and the run is the same run every time. Asynchronous is whatever is ready: the latest
version, the oldest rollout of anybody, the first K gradients; what is older than `max_lag` versions by then is dropped,
counted as `stale` (gradients: or weighed less, or accepted).

Every actor can be killed anywhere. A collector's successor makes the first rollout that was never committed. A gradient
worker's successor speaks for the dead one: a round that lost rollouts with it is made of those that are left, in the
worst case a gradient of zero samples, so that the learner waits for every worker's every gradient and needs no other
case. The learner's successor reads the last committed turn, frees what that turn had applied, and applies the rest.

Decentralised, a gradient worker itself brings a copy of the state to the turn it asks for (hive.workers.replica), and
the learner's weights serve the behaviour policy, checkpoints and successors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hive.algorithms import Configured, Moments, merged, update_parameter
from hive.envs import VectorEnvironment
from hive.errors import EnvironmentFailed, RecordError, VersionGone
from hive.gradients import ROLLOUTS, SEQUENCE, VERSION
from hive.records import JSON, RunDirectory, write_nan_dump
from hive.runtime import Actor, Bytes, Inlet, Outlet, Slot, Subscription, endpoint
from hive.storage import Rollout, samples_in
from hive.workers.blueprint import Blueprint
from hive.workers.g_worker import GWorker
from hive.workers.messages import Gradient, OptimizerState, RolloutReady, Weights
from hive.workers.numerics import Finding
from hive.workers.replica import Replica

__all__ = ["CollectorActor", "GradientWorkerActor"]

LATEST = -1  # the version to ask for when any will do


class CollectorActor(Actor):
    """Makes rollout after rollout, each with the version that its number asks for."""

    role = "collector"
    source = True
    rollouts = Outlet(RolloutReady)
    behaviour = Subscription(Weights)

    def __init__(self, blueprint: Blueprint, first_source: int = 0) -> None:
        """`first_source`: the number in the run of the first collector of this group."""
        config = blueprint.config
        self.blueprint = blueprint
        self.async_collection = config.collection.communication == "asynchronous"
        self.barriers = blueprint.barriers
        self.started = 0  # the round of the cut that the environments were last reset for
        self.steps = self.status.counter("env_steps")
        # A product that is a whole number but for the last bits is that number.
        self.enough = math.ceil(round(config.collection.fraction_workers * blueprint.collectors, 9))
        self.quota = math.ceil(round(config.collection.fraction_samples * config.collection.rollout, 9))
        self.goes_on = config.supervision.non_finite == "skip"
        source = first_source + self.index
        self.collector = blueprint.collector(source, self.incarnation, self.status, self.vector())

    def vector(self) -> VectorEnvironment:
        """The environments that this collector steps: made when it starts, and anew at every cut. Override it."""
        return self.blueprint.vector()

    async def setup(self) -> None:
        """An environment that cannot even be reset ends the run before it begins."""
        self.started = self.barriers.start(self.rollouts.produced)
        self.collector.reset(self.started)

    async def run(self) -> None:
        while True:
            slot = await self.rollouts.reserve()
            wanted = LATEST if self.async_collection else self.barriers.policy(slot.sequence)
            if self.barriers.start(slot.sequence) != self.started:
                self.started = self.barriers.start(slot.sequence)
                self.collector.rebuild(self.vector(), self.started)
            version, weights = await self.behaviour.pin(wanted)
            self.status.show_version(version, self.behaviour.latest - version)
            self.collector.bind(weights)
            enough = self._enough(slot.sequence)
            try:
                self.collector.collect(slot.arrays, sequence=slot.sequence, version=version, enough=enough)
            except EnvironmentFailed as error:
                error.permanent &= not (error.not_finite and self.goes_on)  # its successor has new environments
                raise
            self.behaviour.unpin()
            self.status.add(self.steps, samples_in(slot.arrays))
            self.rollouts.commit(slot)

    def _enough(self, sequence: int) -> Callable[[int], bool] | None:
        """Whether this rollout ends here, because enough others have finished theirs of the round."""
        if self.enough >= self.blueprint.collectors:
            return None
        return lambda steps: steps >= self.quota and self.rollouts.committed(sequence) >= self.enough

    async def teardown(self) -> None:
        self.collector.close()


class GradientWorkerActor(Actor):
    """Makes the gradients of its share of every round, or asynchronously of whatever rollout is ready."""

    role = "gradient-worker"
    rollouts = Inlet(RolloutReady)
    state = Subscription(Weights)
    optimizer_state = Subscription(OptimizerState, optional=True)
    behaviour = Subscription(Weights, optional=True)
    gradients = Outlet(Gradient)

    def __init__(self, blueprint: Blueprint, directory: Path) -> None:
        config = blueprint.config
        self.blueprint = blueprint
        self.directory = directory
        self.async_collection = config.collection.communication == "asynchronous"
        self.async_gradients = config.gradients.communication == "asynchronous"
        self.lag = config.gradients.max_lag
        self.policy_lag = config.collection.max_lag
        self.workers = range(blueprint.gradient_workers)
        self.bootstrap_rounds = config.gradients.bootstrap_rounds
        self.algorithm = blueprint.algorithm()
        self.per_round = self.algorithm.gradients_per_round
        self.worker = self.g_worker()
        self.replica = blueprint.replica() if config.gradients.decentralised else None
        self.barriers = blueprint.barriers

    def g_worker(self) -> GWorker:
        """What computes the gradients. Override it to compute them otherwise."""
        worker = GWorker.of_run(self.blueprint, self.index, self.status)
        worker.slot.on_not_finite = self._keep
        return worker

    async def run(self) -> None:
        sequence = self.gradients.produced
        first = {} if self.async_collection else self._first_rollouts(sequence)
        started = self.barriers.start(sequence // self.per_round)
        share: list[Slot] = []
        if self.async_gradients and not self.rollouts.producers:
            self.note("idle", f"{self.name} has no collector in its share and is done")
            return  # an empty share owes nothing, and nobody waits for it
        while True:
            number, step = divmod(sequence, self.per_round)
            if step == 0:
                if self.barriers.start(number) != started:
                    started = self.barriers.start(number)
                    self.worker.let_go()
                share = [await self._claim_fresh()] if self.async_collection else await self._claim_round(number, first)
            slot = await self.gradients.reserve()
            moments = await self._moments(sequence) if step == 1 and self.algorithm.asks_for_moments else None
            version, weights = await self._state(sequence)
            self.status.show_version(version, self.state.latest - version)
            self.worker.bind(weights)
            arrays = [rollout.arrays for rollout in share]
            self.worker.compute(arrays, slot.arrays, sequence=sequence, version=version, moments=moments)
            if self.replica is None:
                self.state.unpin()
            last = step == self.per_round - 1
            if last:  # the learner publishes the policy by the rollouts of whole rounds, the lost ones included
                slot.arrays["header"][ROLLOUTS] = len(share) if self.async_collection else len(self.rollouts.producers)
            self.gradients.commit(slot)
            for rollout in share if last else ():
                self.rollouts.retire(rollout)
            share = [] if last else share
            sequence += 1

    @endpoint
    async def update_algorithm_parameter(self, name: str, value: object) -> None:
        """From the next gradient on: this runs between two of them."""
        update_parameter(cast(Configured, self.worker.algo), name, value)  # which says so of one that is not

    def _wanted(self, sequence: int) -> int:
        return LATEST if self.async_gradients else self.blueprint.barriers.state(sequence, self.lag)

    async def _state(self, sequence: int) -> tuple[int, Bytes]:
        """(version, weights) to compute this gradient with: the learner's, pinned, or those of the replica."""
        if self.replica is None:
            return await self.state.pin(self._wanted(sequence))
        if self.replica.turn < 0:
            await self._copy_state(self.replica)
        while self.replica.turn < self._wanted(sequence):
            first = self.replica.turn * self.bootstrap_rounds
            which = [(w, first + n) for w in self.workers for n in range(self.bootstrap_rounds)]
            if not self.replica.advance(await self.gradients.peek(which), [number for _, number in which]):
                await self._copy_state(self.replica)
        return self.replica.turn, self.replica.weights

    async def _copy_state(self, replica: Replica) -> None:
        """The learner's newest state, before the first turn and where gradients are gone."""
        while True:
            turn, optimizer_state = await self.optimizer_state.pin()
            try:
                _, weights = await self.state.pin(turn)
                replica.copy(turn, weights, optimizer_state)
                return
            except VersionGone:  # the learner was faster: there is a newer one
                continue
            finally:
                self.state.unpin()
                self.optimizer_state.unpin()

    def _keep(self, finding: Finding, header: NDArray[np.int64]) -> None:
        """Keeps what a gradient that is not finite was made of, and says where."""
        name = f"{self.name}-{int(header[SEQUENCE]):06d}"
        facts: dict[str, JSON] = {"cause": finding.cause, "text": finding.text, "state_version": int(header[VERSION])}
        try:
            kept = write_nan_dump(RunDirectory(self.directory).nan_dumps, name, finding.arrays, facts)
        except RecordError as error:  # a full disk costs a nan_dump, not the run
            self.log.warning("%s", error)
            kept = None
        where = f"; what made it lies in {kept}" if kept else ""
        self.note("not finite", f"{finding.text}, found by {self.name}{where}", cause=finding.cause)

    async def _moments(self, sequence: int) -> tuple[float, float]:
        """Mean and deviation of this round over all workers: they come with the turn before, whatever the lag."""
        if self.replica is not None:
            parts = await self.gradients.peek([(worker, sequence - 1) for worker in self.workers])
            return merged([Moments(*part["moments"].tolist()) for part in parts])
        _, block = await self.state.pin(sequence // self.bootstrap_rounds)
        mean, deviation = self.blueprint.state.moments(block)
        self.state.unpin()
        return float(mean), float(deviation)

    async def _claim_round(self, number: int, first: dict[int, int]) -> list[Slot]:
        """The rollouts of this worker's share of a round."""
        return [await self.rollouts.claim(p, number) for p in self.rollouts.producers if number >= first[p]]

    async def _claim_fresh(self) -> Slot:
        """Anybody's oldest rollout that is not too old."""
        while True:
            slot = await self.rollouts.claim()
            if self.behaviour.latest - Rollout(slot.arrays).version <= self.policy_lag:
                return slot
            self.rollouts.retire(slot, "stale")

    def _first_rollouts(self, sequence: int) -> dict[int, int]:
        """The first rollout of each producer that is still to be had: an earlier incarnation took some with it.

        A round is made of those of its rollouts that are left, in the worst case of none, which is a gradient of zero
        samples. It still waits for them: the learner must not run ahead of a collector that is behind.
        """
        lines = self.rollouts.lines
        first = {p: lines.first_left(p) for p in lines.producers}
        lost = sum(max(0, mine - sequence // self.per_round) for mine in first.values())
        if lost:
            self.note("lost", f"{lost} rollouts went with the last incarnation of {self.name}", rollouts=lost)
        return first
