"""CWorkerSet and CollectorThread: the collectors of a run, for one GWorker of a script.

    CollectorThread.step()    publishes the newest weights if they are due, lets the collectors of a run's topology make
                              one collection step, and puts it into `queue`

The collectors are those of every run, with the same numbers, seeds, modes and errors. They are actors of an inline
topology (hive.runtime.run.inline_run), that is, tasks of this thread that only run while a `step` waits for them.
PyTorchRL documents a thread that waits for remote workers; this class keeps the name but starts no thread.

    Central, synchronous     one collector, number 0          Parallel, synchronous     rounds of all; may end early
    Central, asynchronous    the same, ahead of its weights    Parallel, asynchronous    any rollout that is ready

One item of `queue` is one collection step: all rollouts of a synchronous round, in the order of their collectors, or
one asynchronous rollout. So a round is always trained on as a whole.
"""

from __future__ import annotations

import asyncio
import dataclasses
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from hive.algorithms.parameters import update_parameter
from hive.config import Config
from hive.errors import TopologyError
from hive.networks.flat import aligned_block
from hive.runtime import Actor, Board, Publication, Slot, SlotInlet, Slots, Topology
from hive.runtime.run.inline_run import InlineRun
from hive.storage import Rollout
from hive.workers import (
    Blueprint,
    CollectedRollout,
    CollectorActor,
    RolloutReady,
    Snapshot,
    Weights,
    snapshot_of,
)
from hive.workers.validate_modes import check_device, check_modes

__all__ = ["CWorker", "CWorkerSet", "CollectorThread"]

MAX_WORKERS = 1024  # maximum workers of a set, and stride of collector numbers, so that no two parents share a number
ASYNCHRONOUS_LAG = 4  # maximum lag in versions, the default of collection.max_lag in asynchronous runs
VERSIONS_KEPT = 4 * MAX_WORKERS  # versions remembered; more than the rollouts in slots, each with its own version


class CWorker:
    """A collection worker as its GWorker sees it. It stands for a collector and holds the newest weights.

    index_worker: its number in the set; 0 is the local one, whose weights are broadcast. index_parent: the number of
    its gradient worker.
    """

    def __init__(self, blueprint: Blueprint, index_worker: int, index_parent: int, weights: Snapshot) -> None:
        self.blueprint = blueprint
        self.index_worker = index_worker
        self.index_parent = index_parent
        self.algo = blueprint.algorithm()
        self._snapshot = weights

    @property
    def actor_version(self) -> int:
        """Version of its weights: the number of updates that made them."""
        return self._snapshot.version

    def get_weights(self) -> Snapshot:
        """Return the weights set last, or the initial ones."""
        return self._snapshot

    def set_weights(self, actor_weights: Snapshot | Mapping[str, Any]) -> None:
        """Use these weights for rollouts that begin after the next broadcast.

        Accepts a Snapshot or a mapping as for `snapshot_of`, and raises the same NetworkError.
        """
        self._snapshot = snapshot_of(actor_weights, self.blueprint.flat, self._snapshot.version)

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: object) -> None:
        """Change one hyper-parameter of its algorithm (hive.algorithms.update_parameter). Raises ConfigError."""
        update_parameter(self.algo, parameter_name, new_parameter_value)  # type: ignore[arg-type]


class CWorkerSet:
    """A local worker and `num_workers` remote workers. If there is no remote worker, the local one collects.

    index_parent: number of its gradient worker. initial_weights: as for `CWorker.set_weights`; default: those of the
    config's seed. col_fraction_samples: fraction of its rollout that each collector finishes even if the round ends
    early, in [0, 1]. Raises TopologyError for numbers out of range.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        num_workers: int = 0,
        index_parent: int = 0,
        initial_weights: Snapshot | Mapping[str, Any] | None = None,
        col_fraction_samples: float = 0.0,
    ) -> None:
        if not 0 <= num_workers < MAX_WORKERS:
            raise TopologyError(f"num_workers is {num_workers}: expected 0 ... {MAX_WORKERS - 1}")
        if not 0.0 <= col_fraction_samples <= 1.0:
            raise TopologyError(f"col_fraction_samples is {col_fraction_samples}: expected a number in [0, 1]")
        self.blueprint = blueprint
        self.num_workers = num_workers
        self.index_parent = index_parent
        self.col_fraction_samples = col_fraction_samples
        block = aligned_block(blueprint.flat.block_bytes)
        blueprint.flat.initialize_into(block)
        weights = Snapshot.of(0, block)
        if initial_weights is not None:
            weights = snapshot_of(initial_weights, blueprint.flat, 0)
        workers = [CWorker(blueprint, index, index_parent, weights) for index in range(num_workers + 1)]
        self._local, self._remote = workers[0], workers[1:]
        self._tasks: list[CollectorThread] = []

    def local_worker(self) -> CWorker:
        """Return the worker that holds the newest weights."""
        return self._local

    def remote_workers(self) -> list[CWorker]:
        """Return the workers that collect in parallel, a new list."""
        return list(self._remote)

    def task(
        self, index_worker: int, fraction_workers: float, communication: str, execution: str, interval: int
    ) -> CollectorThread:
        """Make the task that delivers the rollouts of these collectors to gradient worker `index_worker`."""
        task = CollectorThread(
            index_worker,
            self._local,
            self._remote,
            fraction_workers,
            communication,
            execution,
            interval,
            fraction_samples=self.col_fraction_samples,
        )
        self._tasks.append(task)
        return task

    def stop(self) -> None:
        """Stop every task of the set. Further calls do nothing."""
        for task in self._tasks:
            task.stop()

    @classmethod
    def create_factory(
        cls, blueprint: Blueprint, num_workers: int = 0, col_fraction_samples: float = 0.0
    ) -> Callable[[str | None, Snapshot | Mapping[str, Any] | None, int], CWorkerSet]:
        """Return the factory that a GWorker takes: a function of (device, initial weights, index of the parent)."""

        def factory(
            device: str | None, initial_weights: Snapshot | Mapping[str, Any] | None, index_parent: int
        ) -> CWorkerSet:
            check_device(device)
            return cls(blueprint, num_workers, index_parent, initial_weights, col_fraction_samples)

        return factory


class CollectorThread:
    """Makes collection steps on demand; see the module.

    index_worker: number of its gradient worker. local_worker: holds the newest weights. remote_workers: the workers
    that collect; if empty, the local worker collects. col_fraction_workers: fraction of the collectors that must finish
    before a synchronous round ends. broadcast_interval: collection steps between two broadcasts of the local worker's
    weights. fraction_samples: fraction of its rollout that each collector finishes even if the round ends early.

    Raises TopologyError for an invalid combination of modes.
    """

    def __init__(
        self,
        index_worker: int,
        local_worker: CWorker,
        remote_workers: Sequence[CWorker],
        col_fraction_workers: float = 1.0,
        col_communication: str = "synchronous",
        col_execution: str = "Central",
        broadcast_interval: int = 1,
        *,
        fraction_samples: float = 0.0,
    ) -> None:
        count = len(remote_workers)
        check_modes(col_execution, col_communication, count, col_fraction_workers, broadcast_interval)
        self.index_worker = index_worker
        self.local_worker = local_worker
        self.remote_workers = list(remote_workers)
        self.num_workers = count
        self.col_communication = col_communication
        self.col_execution = col_execution
        self.broadcast_interval = broadcast_interval
        self.num_sent_since_broadcast = 0
        self.stopped = False
        self.queue: queue.Queue[list[CollectedRollout]] = queue.Queue()
        self._fractions = col_fraction_workers, fraction_samples
        self._exchange = _Exchange(local_worker.get_weights(), synchronous=col_communication == "synchronous")
        self._run: InlineRun | None = None

    def should_broadcast(self) -> bool:
        """Return whether `broadcast_interval` collection steps have been made since the last broadcast."""
        return self.num_sent_since_broadcast >= self.broadcast_interval

    def broadcast_new_weights(self) -> None:
        """Use the local worker's weights for all rollouts that begin from now on."""
        self._exchange.weights = weights = self.local_worker.get_weights()
        for worker in self.remote_workers:
            worker.set_weights(weights)
        self.num_sent_since_broadcast = 0

    def step(self) -> None:
        """Make one collection step. Raises what environments raise, and RuntimeError after `stop`."""
        if self.stopped:
            raise RuntimeError(f"the collection of gradient worker {self.index_worker} has been stopped")
        if self._run is None:
            self.broadcast_new_weights()
            self._run = InlineRun(self._topology())
        elif self.should_broadcast():
            self.broadcast_new_weights()
        exchange = self._exchange
        exchange.requested = exchange.made + 1  # not += 1, so a step that was interrupted is not made twice
        exchange.wake.set()
        self._run.until(lambda: exchange.made >= exchange.requested)
        self.num_sent_since_broadcast += 1
        self.queue.put(exchange.step)

    def run(self) -> None:
        """Collect in the caller's thread, until a step raises or `stop` is called."""
        while not self.stopped:
            self.step()

    def get(self) -> list[CollectedRollout]:
        """Return the oldest collection step in the queue; if it is empty, make one. Raises what `step` raises."""
        if self.queue.empty():
            self.step()
        return self.queue.get_nowait()

    def stop(self) -> None:
        """Stop collecting and close the environments. Further calls do nothing."""
        self.stopped = True
        run, self._run = self._run, None
        if run is not None:
            run.stop()

    def _topology(self) -> Topology:
        """Make a topology of a run's collectors, with one actor that replaces the gradient workers and the learner."""
        config = self._config(self.local_worker.blueprint.config)
        blueprint = Blueprint(config)
        first = self.local_worker.index_parent * MAX_WORKERS
        t = Topology()
        collectors = t.add(CollectorActor, count=blueprint.collectors, blueprint=blueprint, first_source=first)
        receiver = t.add(_RoundReceiver, exchange=self._exchange, blueprint=blueprint)
        synchronous = self._exchange.synchronous
        t.connect(
            collectors.rollouts,
            receiver.rollouts,
            Slots(blueprint.rollout_layout, slots=config.collection.slots, by_share=synchronous, in_step=synchronous),
        )
        t.connect(
            receiver.behaviour,
            collectors.behaviour,
            Board(blueprint.flat.block_bytes, keep=config.collection.max_lag + 1),
        )
        return t

    def _config(self, config: Config) -> Config:
        """Return the config of a run that collects in this mode. A collection step is a round and a version."""
        synchronous = self.col_communication == "synchronous"
        fraction_workers, fraction_samples = self._fractions
        lag = 0 if synchronous else ASYNCHRONOUS_LAG
        collection = dataclasses.replace(
            config.collection,
            workers=max(self.num_workers, 1),
            communication=self.col_communication,
            max_lag=lag,
            slots=2,
            ownership="pool",
            broadcast_interval=1,
            fraction_workers=fraction_workers,
            fraction_samples=fraction_samples,
        )
        gradients = dataclasses.replace(
            config.gradients, workers=1, communication="synchronous", max_lag=0, decentralized=False
        )
        checkpoint = dataclasses.replace(config.checkpoint, every={})
        return dataclasses.replace(config, collection=collection, gradients=gradients, checkpoint=checkpoint)


class _Exchange:
    """Passes weights from the CollectorThread to its actor, and rollouts back."""

    def __init__(self, weights: Snapshot, *, synchronous: bool) -> None:
        self.weights = weights
        self.synchronous = synchronous
        self.requested = 0  # collection steps requested so far
        self.made = 0  # collection steps made so far
        self.step: list[CollectedRollout] = []  # rollouts of the latest collection step
        self.wake = asyncio.Event()  # set when a step is requested


class _RoundReceiver(Actor):
    """Publishes weights and receives rollouts, one collection step per request."""

    role = "receiver"
    rollouts = SlotInlet(RolloutReady)
    behaviour = Publication(Weights)

    def __init__(self, exchange: _Exchange, blueprint: Blueprint) -> None:
        self.exchange = exchange
        self.layout = blueprint.rollout_layout
        self.published: dict[int, int] = {}  # version of the board -> version of the weights
        self.newest: Snapshot | None = None

    async def run(self) -> None:
        exchange, started = self.exchange, time.perf_counter()
        while True:
            while exchange.made >= exchange.requested:
                exchange.wake.clear()
                await exchange.wake.wait()
                started = time.perf_counter()
            self._publish(exchange.made)
            slots = await self._claim(exchange.made)
            seconds = (time.perf_counter() - started) / len(slots)
            exchange.step = [self._copy(slot, seconds) for slot in slots]
            exchange.made += 1
            for slot in slots:
                self.rollouts.retire(slot)
            started = time.perf_counter()

    async def _claim(self, number: int) -> list[Slot]:
        if self.exchange.synchronous:
            return [await self.rollouts.claim(producer, number) for producer in self.rollouts.producers]
        return [await self.rollouts.claim()]

    def _publish(self, step: int) -> None:
        """Publish the weights. A synchronous round waits for its version; others need only new ones."""
        weights = self.exchange.weights
        if not self.exchange.synchronous and weights is self.newest:
            return
        version = step if self.exchange.synchronous else self.behaviour.latest + 1
        self.behaviour.begin()[:] = weights.block
        self.behaviour.publish(version)
        self.newest, self.published[version] = weights, weights.version
        self.published.pop(version - VERSIONS_KEPT, None)

    def _copy(self, slot: Slot, seconds: float) -> CollectedRollout:
        memory = aligned_block(self.layout.bytes)
        arrays: dict[str, NDArray[Any]] = self.layout.views(memory)
        for name, array in slot.arrays_in_use.items():
            arrays[name][: len(array)] = array
        rollout = Rollout(arrays)
        return CollectedRollout(
            arrays,
            self.published[rollout.version],
            rollout.samples,
            rollout.source,
            rollout.sequence,
            rollout.episodes(),
            seconds,
        )
