"""CWorkerSet and CollectorThread: the collectors of a run, for one GWorker of a script.

    CollectorThread.step()    publishes the newest weights if they are due, lets the collectors of a run's topology make
                              one collection step, and puts it into `queue`

The collectors are those of every run, with the same numbers, seeds, modes and errors. They are actors of an inline
topology (hive.runtime.inline): tasks of this thread, which work only while a `step` waits for them. PyTorchRL documents
a thread that waits on remote workers; here the name is kept, and nothing runs beside the caller.

    Central, synchronous     one collector, number 0          Parallel, synchronous     rounds of all; may be cut short
    Central, asynchronous    the same, ahead of its weights    Parallel, asynchronous    whatever rollout is ready

One item of `queue` is one collection step: all rollouts of a synchronous round, in the order of their collectors, or
one asynchronous rollout. So a round is trained on as a whole.
"""

from __future__ import annotations

import asyncio
import dataclasses
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.algorithms import update_parameter
from hive.config import Config
from hive.errors import TopologyError
from hive.networks import aligned_block
from hive.runtime import Actor, Inlet, Publication, Slot, Topology
from hive.runtime.inline import InlineRun
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

MAX_WORKERS = 1024  # of a set, so that collectors of different parents never have the same number
ASYNCHRONOUS_LAG = 4  # as in a run: collection.max_lag of asynchronous communication
VERSIONS_KEPT = 4 * MAX_WORKERS  # more than the rollouts that can lie in slots, each made with a version of its own


class CWorker:
    """A collection worker as its GWorker sees it: the newest weights, and a name for a collector.

    index_worker: its number in its set, 0 the local one, which holds the weights. index_parent: of its gradient worker.
    """

    def __init__(self, blueprint: Blueprint, index_worker: int, index_parent: int, weights: Snapshot) -> None:
        self.blueprint = blueprint
        self.index_worker = index_worker
        self.index_parent = index_parent
        self.algo = blueprint.algorithm()
        self._snapshot = weights

    @property
    def actor_version(self) -> int:
        """Updates behind the weights that it has."""
        return self._snapshot.version

    def get_weights(self) -> Snapshot:
        """The newest weights that it was given, or its initial ones."""
        return self._snapshot

    def set_weights(self, actor_weights: Snapshot | Mapping[str, Any]) -> None:
        """The next rollout that begins after a broadcast is made with these. Of a mapping, see `snapshot_of`."""
        self._snapshot = snapshot_of(actor_weights, self.blueprint.flat, self._snapshot.version)

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: object) -> None:
        """Changes one hyper-parameter of its algorithm (hive.algorithms.update_parameter). Raises ConfigError."""
        update_parameter(self.algo, parameter_name, new_parameter_value)  # type: ignore[arg-type]


class CWorkerSet:
    """A local worker and `num_workers` remote ones; without any, the local one collects.

    col_fraction_samples: of its rollout that each collector finishes even when its round is cut short, in [0, 1].
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
            raise TopologyError(f"num_workers is {num_workers}, and must be in 0 ... {MAX_WORKERS - 1}")
        if not 0.0 <= col_fraction_samples <= 1.0:
            raise TopologyError(f"col_fraction_samples is {col_fraction_samples}, and must be in [0, 1]")
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
        return self._local

    def remote_workers(self) -> list[CWorker]:
        return list(self._remote)

    def task(
        self, index_worker: int, fraction_workers: float, communication: str, execution: str, interval: int
    ) -> CollectorThread:
        """What brings the rollouts of these collectors to gradient worker `index_worker`."""
        made = CollectorThread(
            index_worker,
            self._local,
            self._remote,
            fraction_workers,
            communication,
            execution,
            interval,
            fraction_samples=self.col_fraction_samples,
        )
        self._tasks.append(made)
        return made

    def stop(self) -> None:
        """Stops every task of the set. Again does nothing."""
        for task in self._tasks:
            task.stop()

    @classmethod
    def create_factory(
        cls, blueprint: Blueprint, num_workers: int = 0, col_fraction_samples: float = 0.0
    ) -> Callable[[str | None, Snapshot | Mapping[str, Any] | None, int], CWorkerSet]:
        """What a GWorker makes its collectors with: a function of (device, initial weights, its index)."""

        def factory(
            device: str | None, initial_weights: Snapshot | Mapping[str, Any] | None, index_parent: int
        ) -> CWorkerSet:
            check_device(device)
            return cls(blueprint, num_workers, index_parent, initial_weights, col_fraction_samples)

        return factory


class CollectorThread:
    """One collection step after the other, on demand. See the module.

    index_worker: of its gradient worker. local_worker: holds the newest weights. remote_workers: collect if there are
    any. col_fraction_workers: share of the collectors that ends a synchronous round. broadcast_interval: collection
    steps between two broadcasts of the local worker's weights. fraction_samples: of its rollout that each collector
    finishes even then.

    Raises TopologyError for modes that do not go together.
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
        self._desk = _Desk(local_worker.get_weights(), synchronous=col_communication == "synchronous")
        self._run: InlineRun | None = None

    def should_broadcast(self) -> bool:
        """Whether `broadcast_interval` collection steps have been made since the last broadcast."""
        return self.num_sent_since_broadcast >= self.broadcast_interval

    def broadcast_new_weights(self) -> None:
        """Rollouts that begin from now on are made with the local worker's weights."""
        self._desk.weights = weights = self.local_worker.get_weights()
        for worker in self.remote_workers:
            worker.set_weights(weights)
        self.num_sent_since_broadcast = 0

    def step(self) -> None:
        """One collection step. Raises what environments raise, and RuntimeError after `stop`."""
        if self.stopped:
            raise RuntimeError(f"the collection of gradient worker {self.index_worker} has been stopped")
        if self._run is None:
            self.broadcast_new_weights()
            self._run = InlineRun(self._topology())
        elif self.should_broadcast():
            self.broadcast_new_weights()
        desk = self._desk
        desk.asked = desk.made + 1  # an interrupted step is not made up for
        desk.wake.set()
        self._run.until(lambda: desk.made >= desk.asked)
        self.num_sent_since_broadcast += 1
        self.queue.put(desk.step)

    def run(self) -> None:
        """Collects until something stops it: a step raises, or calls `stop`. In the caller's thread."""
        while not self.stopped:
            self.step()

    def get(self) -> list[CollectedRollout]:
        """The oldest collection step; one is made if there is none. Raises what `step` raises."""
        if self.queue.empty():
            self.step()
        return self.queue.get_nowait()

    def stop(self) -> None:
        """Ends collection and closes environments. Again does nothing."""
        self.stopped = True
        run, self._run = self._run, None
        if run is not None:
            run.stop()

    def _topology(self) -> Topology:
        """The collectors of a run, and in the place of gradient workers and learner one actor that asks for rounds."""
        config = self._config(self.local_worker.blueprint.config)
        blueprint = Blueprint(config)
        first = self.local_worker.index_parent * MAX_WORKERS
        t = Topology()
        collectors = t.add(CollectorActor, count=blueprint.collectors, blueprint=blueprint, first_source=first)
        taker = t.add(_Taker, desk=self._desk, blueprint=blueprint)
        synchronous = self._desk.synchronous
        t.connect(
            collectors.rollouts,
            taker.rollouts,
            layout=blueprint.rollout_layout,
            slots=config.collection.slots,
            by_share=synchronous,
            in_step=synchronous,
        )
        t.connect(
            taker.behaviour,
            collectors.behaviour,
            block_bytes=blueprint.flat.block_bytes,
            keep=config.collection.max_lag + 1,
        )
        return t

    def _config(self, config: Config) -> Config:
        """The config of a run that collects so. A collection step is a round, and a version of the policy."""
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
            config.gradients, workers=1, communication="synchronous", max_lag=0, decentralised=False
        )
        checkpoint = dataclasses.replace(config.checkpoint, every={})
        return dataclasses.replace(config, collection=collection, gradients=gradients, checkpoint=checkpoint)


class _Desk:
    """What the task and the actor that serves it share: weights one way, rollouts the other."""

    def __init__(self, weights: Snapshot, *, synchronous: bool) -> None:
        self.weights = weights
        self.synchronous = synchronous
        self.asked = 0  # collection steps that were asked for
        self.made = 0
        self.step: list[CollectedRollout] = []  # the latest
        self.wake = asyncio.Event()


class _Taker(Actor):
    """Publishes weights and takes rollouts, one collection step whenever one is asked for."""

    role = "taker"
    rollouts = Inlet(RolloutReady)
    behaviour = Publication(Weights)

    def __init__(self, desk: _Desk, blueprint: Blueprint) -> None:
        self.desk = desk
        self.layout = blueprint.rollout_layout
        self.published: dict[int, int] = {}  # version of the board -> version of the weights
        self.newest: Snapshot | None = None

    async def run(self) -> None:
        desk, started = self.desk, time.perf_counter()
        while True:
            while desk.made >= desk.asked:
                desk.wake.clear()
                await desk.wake.wait()
                started = time.perf_counter()
            self._publish(desk.made)
            slots = await self._claim(desk.made)
            seconds = (time.perf_counter() - started) / len(slots)
            desk.step = [self._step_record(slot, seconds) for slot in slots]
            desk.made += 1
            for slot in slots:
                self.rollouts.retire(slot)
            started = time.perf_counter()

    async def _claim(self, number: int) -> list[Slot]:
        if self.desk.synchronous:
            return [await self.rollouts.claim(producer, number) for producer in self.rollouts.producers]
        return [await self.rollouts.claim()]

    def _publish(self, step: int) -> None:
        """A synchronous round waits for the version of its number; otherwise only new weights are published."""
        weights = self.desk.weights
        if not self.desk.synchronous and weights is self.newest:
            return
        version = step if self.desk.synchronous else self.behaviour.latest + 1
        self.behaviour.begin()[:] = weights.block
        self.behaviour.publish(version)
        self.newest, self.published[version] = weights, weights.version
        self.published.pop(version - VERSIONS_KEPT, None)

    def _step_record(self, slot: Slot, seconds: float) -> CollectedRollout:
        memory = aligned_block(self.layout.bytes)
        arrays: dict[str, NDArray[Any]] = self.layout.views(memory)
        for name, array in slot.arrays.items():
            np.copyto(arrays[name], array)
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
