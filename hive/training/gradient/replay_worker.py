"""ReplayWorker computes the gradients of one worker from a replay memory, and its actor decides when.

    plan, weights -> gather -> algorithm.gradient(batch) -> backward -> one copy into the gradient slot, with errors

A gradient is a function of its number, its plan, the rows of the plan and one version of the weights. All of these
are there until the gradient has arrived. So the successor of a worker that was killed makes the same gradient again,
with the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from hive.algorithms.parameters import Configured, update_parameter
from hive.algorithms.replaying import Batch, ReplayAlgorithm, batch_of
from hive.experience import Replay
from hive.gradients import clear
from hive.learning import SharedTarget
from hive.learning.described import UNDESCRIBED, Described, describes
from hive.networks.rows.normalization import NormalizedNetwork, Scales, statistic_places
from hive.runtime import Actor, CachedViews, SharedIn, SlotOutlet, Status, Subscription, endpoint
from hive.runtime.memory.segments import Arrays
from hive.training.actors import NanDumps, gradient_worker_bytes
from hive.training.blueprint import Blueprint, blueprint_in
from hive.training.callbacks.changes import ChangedKeys
from hive.training.callbacks.messages import RunChanges
from hive.training.callbacks.start import changes_at_start
from hive.training.gradient.devices import begin_device, pin, seed_forward
from hive.training.gradient.gradient_slot import GradientSlot
from hive.training.messages import Gradient, ReplayPlan, ReplayRows, Weights
from hive.training.run_start import schedule_of
from hive.training.update.native_rounds import NativeRounds
from hive.training.update.replay_memory import DrawnRows


class ReplayWorker:
    """Computes gradients of plans. `memory`: the block of the replay memory, uint8."""

    def __init__(
        self, blueprint: Blueprint, index_worker: int, memory: NDArray[np.uint8], status: Status | None = None
    ) -> None:
        self.index_worker = index_worker
        self.seed = blueprint.config.run.seed
        self.networks = blueprint.wrapper(blueprint.device)
        network = self.networks.online_network
        self.slot = GradientSlot(network.flat, blueprint.codec, blueprint.threads)
        self.algo = cast(ReplayAlgorithm, blueprint.algorithm())
        target = self.networks.target_network
        self.normalized = network.module if isinstance(network.module, NormalizedNetwork) else None
        online = learning(network.module)
        shared = SharedTarget(online, learning(target.module), self.slot.device) if target else None
        self.algo.connect(online, self.slot, shared)
        self.rows = Replay(
            blueprint.memory_layout.views(memory),
            stack=blueprint.replay.size.stack,
            statistics=statistic_places(network.flat),
        )
        self._described: tuple[Any, Described | str] | None = None  # with the keys that it has
        self.status = status
        self.phases = (status.phase("gather"), status.phase("gradient")) if status else (0, 0)

    def bind(self, state: NDArray[np.uint8]) -> None:
        """Compute with this block of the learner's state from now on: uint8 [state.bytes], read in place."""
        self.networks.bind(state)
        self.slot.rebound()

    def clear_residual(self) -> None:
        """Discard the codec's residual, at a resume barrier: checkpoints do not contain it."""
        self.slot.residual[:] = 0.0

    def gather(self, drawn: DrawnRows, out: Arrays, number: int) -> Batch | None:
        """Return the batch of gradient `number`, whose slot `out` takes the errors; None if no rows were drawn.

        Rows are normalized by the statistics of the bound weights. Also None before these count a row: a gradient of
        raw rows would be of another scale than all later ones, and the optimizer's moments would keep it for long.
        """
        self._enter(0)
        count = len(drawn.positions)
        scales = Scales() if self.normalized is None else self.normalized.scales()
        if not count or scales is None:
            return None
        config = self.algo.config
        rows = self.rows.gather(drawn.positions, n_step=config.n_step, discount=config.discount, scales=scales)
        return batch_of(rows, drawn.importance, out["errors"][:count], number)

    def compute(self, batch: Batch | None, out: Arrays, *, sequence: int, version: int) -> None:
        """Write gradient `sequence` into the slot `out`. version: that of the bound state."""
        self._enter(1)
        clear(out, version, sequence)
        if batch is not None:
            seed_forward(self.seed, self.index_worker, sequence, self.slot.device)
            what = f"a batch of {len(batch):,} transitions"
            with self.slot.filling(out, (), lambda: what, "a smaller algorithm.batch_size"):
                self.algo.gradient(batch)
        if self.status:
            self.status.enter(self.status.runtime)

    def described(self) -> Described | str:
        """Return the gradients of plans for hive._native, or why `compute` makes them."""
        algorithm: Any = self.algo
        if not describes(algorithm):
            return UNDESCRIBED
        if self._described is None or self._described[0] is not self.algo.config:
            self._described = self.algo.config, algorithm.described(self.rows)
        return self._described[1]

    def _enter(self, phase: int) -> None:
        if self.status:
            self.status.enter(self.phases[phase])


def learning(network: nn.Module) -> nn.Module:
    """Return the network that gradients are made with: the one within the normalizer, which batches have passed."""
    return network.network if isinstance(network, NormalizedNetwork) else network


class ReplayWorkerActor(Actor):
    """Makes one gradient after another, each of the plan and on the version that the schedule names."""

    role = "gradient-worker"
    memory = SharedIn(ReplayRows)
    plans = Subscription(ReplayPlan)
    state = Subscription(Weights)
    changes = Subscription(RunChanges, optional=True)
    gradients = SlotOutlet(Gradient)
    rounds: NativeRounds | None = None  # set by the learner of this process

    def __init__(self, blueprint: Blueprint, directory: Path) -> None:
        self.blueprint = blueprint
        self.schedule = schedule_of(blueprint)
        if blueprint.device is not None:
            begin_device(self, blueprint.config, blueprint.device)
        self.worker = ReplayWorker(blueprint, self.index, self.memory.memory, self.status)
        self.per_batch = self.worker.algo.gradients_per_batch
        self.importance_exponent = blueprint.replay.config.loss_exponent
        self.plan_views = CachedViews(blueprint.plan_layout)
        self.worker.slot.on_not_finite = NanDumps(self, directory)
        self.changed = ChangedKeys(self.changes, changes_at_start(blueprint))

    @classmethod
    def private_bytes(cls, parameters: Mapping[str, Any]) -> int:
        """Return the bytes of its networks."""
        return blueprint_in(parameters, gradient_worker_bytes)

    async def run(self) -> None:
        barriers = self.schedule.barriers
        barrier = barriers.last(barriers.round_of(self.gradients.produced))
        while True:
            if self.rounds is not None and await self.rounds.offer(self._described):
                continue
            slot = await self.gradients.reserve()  # before the pins, so nothing is held while waiting for a slot
            number = slot.sequence
            if barriers.last(barriers.round_of(number)) != barrier:
                barrier = barriers.last(barriers.round_of(number))
                self.worker.clear_residual()
            _, plan = await self.plans.pin(number // self.per_batch)
            self._use_changes(number)  # after the pin: the plan follows the changes
            drawn = DrawnRows.of(self.plan_views(plan), self.index, self.importance_exponent)
            self.plans.unpin()
            version, weights = await self.state.pin(self.schedule.gradients.state_version(number))
            self.status.show_version(version, self.schedule.gradients.lag(number, version, self.state.latest))
            if self.forked:  # as in GradientWorkerActor
                pin(self.blueprint.config, self.blueprint.device, weights, slot.arrays.get("gradient"))
            self.worker.bind(weights)
            batch = self.worker.gather(drawn, slot.arrays, number)
            self.worker.compute(batch, slot.arrays, sequence=number, version=version)
            self.state.unpin()
            self.gradients.commit(slot)

    def _described(self, turn: int) -> Described | str:
        self._use_changes(turn)
        return self.worker.described()

    def _use_changes(self, gradient: int) -> None:
        """Use the keys that callbacks have changed for the round of a gradient."""
        if self.changed.connected and self.changed.apply(
            self.schedule.barriers.round_of(gradient), cast(Configured, self.worker.algo)
        ):
            self.importance_exponent = self.worker.algo.config.loss_exponent

    @endpoint
    async def update_algorithm_parameter(self, name: str, value: object) -> None:
        """Change one hyper-parameter from the next gradient on. Endpoints run between two gradients.

        Raises ConfigError, also for an algorithm that is not Configured.
        """
        update_parameter(cast(Configured, self.worker.algo), name, value)
        self.importance_exponent = self.worker.algo.config.loss_exponent
