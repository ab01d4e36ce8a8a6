"""CollectorThread: the collectors of a run, for one GWorker of a script.

    execution     Central: one collector, number 0                   Parallel: those of the remote workers
    communication synchronous: `step` in the caller's thread         asynchronous: `run` in a thread of its own

    Central, synchronous     no remote worker        Parallel, synchronous     1 remote worker or more, may end early
    Central, asynchronous    no remote worker        Parallel, asynchronous    1 remote worker or more

The collectors are those of every run, with the same numbers, seeds and errors: actors of an inline topology
(hive.runtime.run.inline_run), that is, tasks of one thread that only run while a `step` waits for them. Each has its
own network, and a collection step is handed over as copies, so the caller's training and the thread share no array.
One item of `queue` is one collection step: all rollouts of a synchronous round, in the order of their collectors, or
one asynchronous rollout. So a round is always trained on as a whole.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import queue
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.compat.pytorchrl.collection import MAX_WORKERS, CWorker
from hive.compat.pytorchrl.weights import Snapshot
from hive.config import Config
from hive.errors import TopologyError
from hive.experience import LENGTH, Rollout
from hive.networks.weights.flat import aligned_block
from hive.runtime import Actor, Board, Publication, Slot, SlotInlet, Slots, Topology
from hive.runtime.memory.segments import Arrays
from hive.runtime.run.inline_run import InlineRun
from hive.training import Blueprint, CollectorActor, RolloutReady, Weights

EXECUTIONS = ("Central", "Parallel")
COMMUNICATIONS = ("synchronous", "asynchronous")
QUEUE_STEPS = 2  # collection steps that may wait in the queue: each is older weights; a stopping thread needs 2 places
STOP_S = 30.0  # a step of an environment should return within it; a thread that does not end keeps its environments
ASYNCHRONOUS_LAG = 4  # maximum lag in versions, the default of collection.max_lag in asynchronous runs
VERSIONS_KEPT = 4 * MAX_WORKERS  # versions remembered; more than the rollouts in slots, each with its own version


@dataclass(frozen=True)
class CollectedRollout:
    """One rollout.

    data: its arrays, with the layout in hive.experience.rollouts. version_collected: version of the weights that acted.
    n_samples: valid steps. worker_id: number of its collector in the run. seq: number of the rollout. episodes: returns
    float32 [E] and lengths int32 [E] of the finished episodes. seconds: its collection time.
    """

    data: Arrays
    version_collected: int
    n_samples: int
    worker_id: int
    seq: int
    episodes: tuple[NDArray[np.float32], NDArray[np.int32]] = field(repr=False)
    seconds: float

    @property
    def steps(self) -> int:
        """Steps of each environment, fewer than configured if the rollout ended early."""
        return int(self.data["header"][LENGTH])


class CollectorThread(threading.Thread):
    """Receives rollouts of the collection workers and puts them into `queue`.

    index_worker: number of its gradient worker. local_worker: holds the newest weights. remote_workers: the workers
    that collect; if empty, the local worker collects. col_fraction_workers: fraction of the collectors that must finish
    before a synchronous round ends. broadcast_interval: collection steps between two broadcasts of the local worker's
    weights. fraction_samples: fraction of its rollout that each collector finishes even if the round ends early.
    first_source: number of the first collector; default: from the number of the gradient worker. collectors: number of
    collectors, also of other threads, that make a round and share exploration; default: those of this thread.

    `get` collects in the caller's thread if collection is synchronous, and starts this thread if it is asynchronous.
    `step`, `run` and `start` may also be called directly.

    A started thread is not reproducible: which weights a rollout is made with depends on the speed of both threads. It
    also shares the process's generators of NumPy, Python and torch with the caller, so numbers that environments or
    networks (dropout) draw from these vary, and so do those of the script. Steps in the caller's thread, and runs of
    any kind of communication, which have processes, do not share them.

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
        first_source: int | None = None,
        collectors: int | None = None,
    ) -> None:
        count = len(remote_workers)
        check_modes(col_execution, col_communication, count, col_fraction_workers, broadcast_interval)
        super().__init__(name=f"collector-thread-{index_worker}", daemon=True)
        self.index_worker = index_worker
        self.local_worker = local_worker
        self.remote_workers = list(remote_workers)
        self.num_workers = count
        self.col_communication = col_communication
        self.col_execution = col_execution
        self.broadcast_interval = broadcast_interval
        self.num_sent_since_broadcast = 0
        self._stopped = False
        self.queue: queue.Queue[list[CollectedRollout]] = queue.Queue(QUEUE_STEPS)
        self._first_source = local_worker.index_parent * MAX_WORKERS if first_source is None else first_source
        self._collecting = max(count, 1)
        self._collectors = collectors or self._collecting
        self._fractions = col_fraction_workers, fraction_samples
        self._exchange = _Exchange(local_worker.get_weights(), synchronous=col_communication == "synchronous")
        self._run: InlineRun | None = None
        self._end: weakref.finalize[[], CollectorThread] | None = None
        self._failure: BaseException | None = None

    @property
    def stopped(self) -> bool:
        """Whether the thread ends after this step. Setting it frees a thread that waits for room in its queue."""
        return self._stopped

    @stopped.setter
    def stopped(self, value: bool) -> None:
        self._stopped = value
        if value and self.is_alive() and threading.current_thread() is not self:
            self._drop_steps()  # the thread puts 2 more items at most, for which there is room now

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
        """Make one collection step and put it into the queue.

        The thread waits while the queue is full. A caller would wait forever, and gets a RuntimeError; also after
        `stop` and while the thread runs. Raises what environments raise.
        """
        if self.stopped:
            raise RuntimeError(f"the collection of gradient worker {self.index_worker} has been stopped")
        if threading.current_thread() is not self:
            if self.is_alive():
                raise RuntimeError("the thread makes the collection steps itself: take them with `get`")
            if self.queue.full():
                raise RuntimeError(f"{QUEUE_STEPS} collection steps wait in the queue: take one with `get` first")
        if self._run is None:
            self.broadcast_new_weights()
            self._run = InlineRun(self._topology())
            # Without `stop`, the run ends with this object or at exit. A thread of its own still uses it at exit.
            self._end = weakref.finalize(self, self._run.stop)
            self._end.atexit = threading.current_thread() is not self
        elif self.should_broadcast():
            self.broadcast_new_weights()
        exchange = self._exchange
        exchange.requested = exchange.made + 1  # not += 1, so a step that was interrupted is not made twice
        exchange.wake.set()
        self._run.until(lambda: self.stopped or exchange.made >= exchange.requested)
        if exchange.made >= exchange.requested:
            self.num_sent_since_broadcast += 1
            self.queue.put(exchange.step)

    def run(self) -> None:
        """Collect until `stop` is called or a step raises. In the thread, the next `get` raises that exception."""
        own = threading.current_thread() is self
        try:
            while not self.stopped:
                self.step()
        except BaseException as error:
            if not own:
                raise
            self._failure = error
        finally:
            if own:
                self.queue.put([])  # an empty step is the last one

    def get(self) -> list[CollectedRollout]:
        """Return the oldest collection step; wait for the thread to make it, or make it in synchronous collection.

        Raises what `step` raises, here or in the thread.
        """
        if self.col_communication == "asynchronous" and self.ident is None and not self.stopped:
            self.start()
        if self.ident is None:
            if self.queue.empty():
                self.step()
            return self.queue.get_nowait()
        if step := self.queue.get():
            return step
        self.queue.put([])  # for the next call
        raise self._failure or RuntimeError(f"the collection of gradient worker {self.index_worker} has been stopped")

    def stop(self) -> None:
        """Stop collecting and close the environments. Further calls do nothing.

        A started thread is joined, and what it has collected is dropped. Raises RuntimeError if it does not end within
        STOP_S, because an environment's step does not return; it then ends with the process.
        """
        self.stopped = True
        if threading.current_thread() is self:
            return
        if self.ident is not None:
            self.join(STOP_S)
            if self.is_alive():
                raise RuntimeError(f"{self.name} has not ended for {STOP_S:.0f} s: an environment does not return")
            self._drop_steps()
            self.queue.put([])
        self._run = None
        if self._end is not None:
            self._end()
            self._end = None

    def _drop_steps(self) -> None:
        while not self.queue.empty():
            self.queue.get_nowait()

    def _topology(self) -> Topology:
        """Make a topology of a run's collectors, with one actor that replaces the gradient workers and the learner."""
        config = self._config(self.local_worker.blueprint.config)
        blueprint = Blueprint(config)
        t = Topology()
        collectors = t.add(CollectorActor, count=self._collecting, blueprint=blueprint, first_source=self._first_source)
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
        fraction, fraction_samples = self._fractions
        # The run ends a round once enough of all collectors have finished: those of the other threads never do.
        enough = math.ceil(round(fraction * self._collecting, 9))
        collection = dataclasses.replace(
            config.collection,
            workers=self._collectors,
            communication=self.col_communication,
            max_lag=0 if synchronous else ASYNCHRONOUS_LAG,
            slots=2,
            ownership="pool",
            broadcast_interval=1,
            fraction_workers=enough / self._collectors,
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


def check_modes(
    execution: str,
    communication: str,
    remote_workers: int,
    fraction_workers: float = 1.0,
    broadcast_interval: int = 1,
) -> None:
    """Raise TopologyError for an invalid combination of modes; the message names it."""
    _check_word("col_execution", execution, EXECUTIONS)
    _check_word("col_communication", communication, COMMUNICATIONS)
    if execution == "Parallel" and not remote_workers:
        raise TopologyError(
            "col_execution is Parallel, but the set has no remote collection worker",
            hint='set num_workers >= 1 for the collection workers, or col_execution="Central"',
        )
    if execution == "Central" and remote_workers:
        raise TopologyError(
            f"col_execution is Central, so the {remote_workers} remote collection workers would be idle",
            hint='set num_workers=0 for the collection workers, or col_execution="Parallel"',
        )
    if not 0.0 < fraction_workers <= 1.0:
        raise TopologyError(f"col_fraction_workers is {fraction_workers}: expected a number in (0, 1]")
    if fraction_workers < 1.0 and (execution, communication) != ("Parallel", "synchronous"):
        raise TopologyError(
            f"col_fraction_workers is {fraction_workers}, but {execution} {communication} collection has no rounds of "
            "several workers to end early",
            hint='it requires col_execution="Parallel" and col_communication="synchronous"',
        )
    if type(broadcast_interval) is not int or broadcast_interval < 1:
        raise TopologyError(f"broadcast_interval is {broadcast_interval!r}: expected an integer of at least 1")


def _check_word(name: str, value: object, words: tuple[str, ...]) -> None:
    """Raise TopologyError unless `value` is one of `words`. The hint names the closest one."""
    if value not in words:
        near = [word for word in words if isinstance(value, str) and word.lower().startswith(value.lower()[:4])]
        hint = f"did you mean `{near[0]}`?" if near and value else f"one of: {', '.join(words)}"
        if value == "pipelined":
            hint = "only runs can be pipelined: set `communication` in [collection] of a config"
        raise TopologyError(f"{name} is {value!r}: expected {' or '.join(words)}", hint=hint)
