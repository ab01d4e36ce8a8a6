"""The trainer's actors. Each wraps a synchronous worker and awaits its inputs. (The learner's is in learner_actor.)

              rollouts (slabs)                 gradients (slabs)
    Collector ────────────────> GWorker ───────────────────────> Learner ──metrics──> Recorder
        ^  behaviour (board, one version a round)                 │ │
        └─────────────────────────────────────────────────────────┘ └── state (board, one version a turn) -> workers

In the deterministic modes each actor computes from numbers alone, never from timing, which version it uses. Let r be
the number of a rollout, g of a gradient, S the gradients that an algorithm makes of a round, K = bootstrap_rounds:

    rollout r    is made with behaviour version  max(c, r // broadcast_interval - collection lag)
    gradient g   is made of the rollouts r = g // S of its share, on state version  max(t, g // K - gradients lag)
    turn t       reduces the gradients t K ... (t + 1) K - 1 of every worker, in (worker, sequence) order

c and t are the versions at the last resume barrier (resume_barriers.py), 0 before the first. A lag of 0 is synchronous.
A lag of k >= 1 is pipelined: all actors work at the same time, and every run is bit-identical. Asynchronous actors use
what is ready: the latest version, the oldest rollout of any collector, the first K gradients. Rollouts and gradients
more than `max_lag` versions old are dropped and counted as `stale`; gradients may also be scaled down or accepted.

Every actor can be killed at any instruction. A collector's successor makes the first rollout that was never committed.
A gradient worker's successor makes every gradient that its predecessor owed: of the rollouts that are left of a round,
or of zero samples if none is. So the learner waits for every gradient of every worker and needs no other case. The
learner's successor reads the last committed turn, retires the gradients applied in it, and applies the rest.

In decentralised mode each gradient worker advances a copy of the state to the turn it needs (hive.workers.replica). The
learner's weights then serve the behaviour policy, checkpoints and successors.
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
from hive.runtime import Actor, Bytes, Slot, SlotInlet, SlotOutlet, Subscription, endpoint
from hive.storage import Rollout, samples_in
from hive.workers.blueprint import Blueprint
from hive.workers.g_worker import GWorker
from hive.workers.messages import Gradient, OptimizerState, RolloutReady, Weights
from hive.workers.numerics import Finding
from hive.workers.replica import Replica

__all__ = ["CollectorActor", "GradientWorkerActor"]

LATEST = -1  # requests the newest version of a board


class CollectorActor(Actor):
    """Collects one rollout after another, each with the behaviour version that its number determines."""

    role = "collector"
    source = True
    rollouts = SlotOutlet(RolloutReady)
    behaviour = Subscription(Weights)

    def __init__(self, blueprint: Blueprint, first_source: int = 0) -> None:
        """`first_source`: the number, within the run, of the first collector of this group."""
        config = blueprint.config
        self.blueprint = blueprint
        self.async_collection = config.collection.communication == "asynchronous"
        self.barriers = blueprint.barriers
        self.reset_round = 0  # round of the resume barrier that the environments were last reset at
        self.steps = self.status.counter("env_steps")
        # Rounded first: 0.07 * 100 is 7.000000000000001, and its ceiling would be 8.
        self.enough = math.ceil(round(config.collection.fraction_workers * blueprint.collectors, 9))
        self.quota = math.ceil(round(config.collection.fraction_samples * config.collection.rollout, 9))
        self.skips_not_finite = config.supervision.non_finite == "skip"
        source = first_source + self.index
        self.collector = blueprint.collector(source, self.incarnation, self.status, self.vector())

    def vector(self) -> VectorEnvironment:
        """Return new environments, at the start and at every resume barrier. Subclasses may override."""
        return self.blueprint.vector()

    async def setup(self) -> None:
        """Reset the environments, so that an environment that fails to reset ends the run before it begins."""
        self.reset_round = self.barriers.last(self.rollouts.produced)
        self.collector.reset(self.reset_round)

    async def run(self) -> None:
        while True:
            slot = await self.rollouts.reserve()  # before the pin: the slot's number determines the version
            wanted = LATEST if self.async_collection else self.barriers.behaviour_version(slot.sequence)
            if self.barriers.last(slot.sequence) != self.reset_round:
                self.reset_round = self.barriers.last(slot.sequence)
                self.collector.rebuild(self.vector(), self.reset_round)
            version, weights = await self.behaviour.pin(wanted)
            self.status.show_version(version, self.behaviour.latest - version)
            self.collector.bind(weights)
            enough = self._enough(slot.sequence)
            try:
                self.collector.collect(slot.arrays, sequence=slot.sequence, version=version, enough=enough)
            except EnvironmentFailed as error:
                # A value that is not finite is worth a restart where such gradients are skipped: the successor makes
                # new environments.
                error.permanent &= not (error.not_finite and self.skips_not_finite)
                raise
            self.behaviour.unpin()
            self.status.add(self.steps, samples_in(slot.arrays))
            self.rollouts.commit(slot)

    def _enough(self, sequence: int) -> Callable[[int], bool] | None:
        """Return a function that ends a rollout early once enough collectors have finished theirs; None: never."""
        if self.enough >= self.blueprint.collectors:
            return None
        return lambda steps: steps >= self.quota and self.rollouts.committed(sequence) >= self.enough

    async def teardown(self) -> None:
        self.collector.close()


class GradientWorkerActor(Actor):
    """Makes the gradients of its share of every round, or, asynchronously, of any rollout that is ready."""

    role = "gradient-worker"
    rollouts = SlotInlet(RolloutReady)
    state = Subscription(Weights)
    optimizer_state = Subscription(OptimizerState, optional=True)
    behaviour = Subscription(Weights, optional=True)
    gradients = SlotOutlet(Gradient)

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
        """Make the worker that computes the gradients. Subclasses may override."""
        worker = GWorker.of_run(self.blueprint, self.index, self.status)
        worker.slot.on_not_finite = self._dump
        return worker

    async def run(self) -> None:
        sequence = self.gradients.produced
        first = {} if self.async_collection else self._first_rollouts(sequence)
        barrier = self.barriers.last(sequence // self.per_round)
        share: list[Slot] = []
        if self.async_gradients and not self.rollouts.producers:
            self.note("idle", f"{self.name} has no collector in its share, so it makes no gradients")
            return  # an asynchronous learner does not wait for the gradients of a particular worker
        while True:
            number, step = divmod(sequence, self.per_round)
            if step == 0:
                if self.barriers.last(number) != barrier:
                    barrier = self.barriers.last(number)
                    self.worker.clear_residual()
                share = [await self._claim_fresh()] if self.async_collection else await self._claim_round(number, first)
            slot = await self.gradients.reserve()  # before the pin, so no version is held while waiting for a slot
            moments = await self._moments(sequence) if step == 1 and self.algorithm.asks_for_moments else None
            version, weights = await self._state(sequence)
            self.status.show_version(version, self.state.latest - version)
            self.worker.bind(weights)
            arrays = [rollout.arrays for rollout in share]
            self.worker.compute(arrays, slot.arrays, sequence=sequence, version=version, moments=moments)
            if self.replica is None:
                self.state.unpin()
            last = step == self.per_round - 1
            if last:  # the learner counts the rollouts of whole rounds, lost ones included, to publish the policy
                slot.arrays["header"][ROLLOUTS] = len(share) if self.async_collection else len(self.rollouts.producers)
            self.gradients.commit(slot)
            for rollout in share if last else ():  # only now: all gradients of the round read these rollouts in place
                self.rollouts.retire(rollout)
            share = [] if last else share
            sequence += 1

    @endpoint
    async def update_algorithm_parameter(self, name: str, value: object) -> None:
        """Change one hyper-parameter from the next gradient on. Endpoints run between two gradients.

        Raises ConfigError, also for an algorithm that is not Configured.
        """
        update_parameter(cast(Configured, self.worker.algo), name, value)

    def _wanted(self, sequence: int) -> int:
        return LATEST if self.async_gradients else self.blueprint.barriers.state_version(sequence, self.lag)

    async def _state(self, sequence: int) -> tuple[int, Bytes]:
        """Return (version, state) to compute this gradient with: the learner's, pinned, or the replica's."""
        if self.replica is None:
            return await self.state.pin(self._wanted(sequence))
        if self.replica.turn < 0:
            await self._copy_state(self.replica)
        while self.replica.turn < self._wanted(sequence):
            first = self.replica.turn * self.bootstrap_rounds
            which = [(w, first + n) for w in self.workers for n in range(self.bootstrap_rounds)]
            if not self.replica.advance(await self.gradients.peek(which), [number for _, number in which]):
                await self._copy_state(self.replica)  # a gradient was overwritten: the other replicas are ahead
        return self.replica.turn, self.replica.weights

    async def _copy_state(self, replica: Replica) -> None:
        """Copy the learner's newest state, before the first turn and after gradients were overwritten."""
        while True:
            turn, optimizer_state = await self.optimizer_state.pin()
            try:
                _, weights = await self.state.pin(turn)
                replica.copy(turn, weights, optimizer_state)
                return
            except VersionGone:  # the learner has overwritten these weights meanwhile: retry with its newest turn
                continue
            finally:
                self.state.unpin()
                self.optimizer_state.unpin()

    def _dump(self, finding: Finding, header: NDArray[np.int64]) -> None:
        """Write the rollouts, inputs and weights of a gradient that is not finite to a dump, and log its path."""
        name = f"{self.name}-{int(header[SEQUENCE]):06d}"
        facts: dict[str, JSON] = {"cause": finding.cause, "text": finding.text, "state_version": int(header[VERSION])}
        try:
            kept = write_nan_dump(RunDirectory(self.directory).nan_dumps, name, finding.arrays, facts)
        except RecordError as error:  # the run continues without the dump, e.g. on a full disk
            self.log.warning("%s", error)
            kept = None
        where = f"; its rollouts, inputs and weights are in {kept}" if kept else ""
        self.note("not finite", f"{finding.text}, found by {self.name}{where}", cause=finding.cause)

    async def _moments(self, sequence: int) -> tuple[float, float]:
        """Return mean and standard deviation of this round over all workers, from the turn before, whatever the lag."""
        if self.replica is not None:
            parts = await self.gradients.peek([(worker, sequence - 1) for worker in self.workers])
            return merged([Moments(*part["moments"].tolist()) for part in parts])
        _, block = await self.state.pin(sequence // self.bootstrap_rounds)
        mean, deviation = self.blueprint.state.moments(block)
        self.state.unpin()
        return float(mean), float(deviation)

    async def _claim_round(self, number: int, first: dict[int, int]) -> list[Slot]:
        """Claim the rollouts of this worker's share of a round."""
        return [await self.rollouts.claim(p, number) for p in self.rollouts.producers if number >= first[p]]

    async def _claim_fresh(self) -> Slot:
        """Claim the oldest rollout within the collection's `max_lag`, from any collector. Older ones are dropped."""
        while True:
            slot = await self.rollouts.claim()
            if self.behaviour.latest - Rollout(slot.arrays).version <= self.policy_lag:
                return slot
            self.rollouts.retire(slot, "stale")

    def _first_rollouts(self, sequence: int) -> dict[int, int]:
        """Return the first rollout of each producer that no earlier incarnation has claimed.

        Rollouts that an earlier incarnation had claimed are lost. Their round is made of the rollouts that are left; if
        none is, its gradients have zero samples. The worker still waits for the rollouts that are left, because the
        learner must not run ahead of a collector that is behind.
        """
        lines = self.rollouts.lines
        first = {p: lines.first_left(p) for p in lines.producers}
        lost = sum(max(0, mine - sequence // self.per_round) for mine in first.values())
        if lost:
            self.note("lost", f"the previous incarnation of {self.name} lost {lost} rollouts", rollouts=lost)
        return first
