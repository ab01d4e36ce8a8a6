"""GWorkerSet: the gradient workers of a run and their updates in step, for a script.

    set.step()     lets the topology of a run make one turn: collectors, gradient workers, learner

The topology is the built-in trainer's (hive.schemes), with the numbers of workers and the modes of the set; its actors
are tasks of this thread, which work only while a `step` waits for them (hive.runtime.inline). So a set has the bytes of
the run with the same config, which it outlasts: it has no goal. Distributed, the gradient workers are replicas, which
make the same update themselves. Several processes, and processes that may be killed, are what a run is for. PyTorchRL
documents the class.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.algorithms import update_parameter
from hive.config import Config
from hive.errors import TopologyError
from hive.facades.collection import MAX_WORKERS, VERSIONS_KEPT, CWorkerSet
from hive.gradients import POLICY, TOP_K, VERSION
from hive.runtime import Actor, Bytes, Inlet, Slot, Subscription
from hive.runtime.inline import InlineRun
from hive.schemes.trainer import assemble
from hive.workers import (
    Blueprint,
    Gradients,
    GradientWorkerActor,
    GWorker,
    LearnerActor,
    Snapshot,
    describe_gradient,
)
from hive.workers.messages import CheckpointDue, Metrics, OptimizerState, Weights
from hive.workers.numerics import Finding

__all__ = ["RESOURCES", "GWorkerSet"]

RESOURCES: Mapping[str, float] = {
    "memory": 5368709120,
    "num_cpus": 1,
    "num_gpus": 0.2,
    "object_store_memory": 2147483648,
}
"""The documented resources of a remote worker, for `remote_config` alone: tasks share what their thread has."""

Info = dict[str, Any]


class GWorkerSet:
    """`num_workers` remote gradient workers, 0 or more, and a local one.

    index_parent: keeps the seeds of several sets apart. local_device: "cpu" or None. The others are as GWorker's.
    Raises TopologyError for what does not go together.
    """

    worker_class = GWorker

    def __init__(
        self,
        num_workers: int,
        index_parent: int,
        local_device: str | None,
        col_execution: str,
        col_communication: str,
        col_workers_factory: Callable[..., CWorkerSet],
        col_fraction_workers: float,
        grad_worker_resources: Mapping[str, float],
        compress_grads_to_send: bool | str = False,
        initial_weights: Snapshot | Mapping[str, Any] | None = None,
    ) -> None:
        if type(num_workers) is not int or not 0 <= num_workers < MAX_WORKERS:
            raise TopologyError(f"num_workers is {num_workers!r}, and must be in 0 ... {MAX_WORKERS - 1}")
        foreign = sorted(set(grad_worker_resources) - set(RESOURCES))
        if foreign:
            raise TopologyError(
                f"grad_worker_resources has no `{foreign[0]}`", hint=f"it may have {', '.join(RESOURCES)}"
            )
        self.num_workers = num_workers
        self.index_parent = index_parent
        self.remote_config = {**RESOURCES, **grad_worker_resources}
        self.worker_params: dict[str, Any] = {
            "col_workers_factory": col_workers_factory,
            "col_communication": col_communication,
            "compress_grads_to_send": compress_grads_to_send,
            "col_execution": col_execution,
            "col_fraction_workers": col_fraction_workers,
            "initial_weights": initial_weights,
            "device": local_device,
        }
        self._first = index_parent * MAX_WORKERS  # number of its first worker, and of its first collector
        self._collectors = col_workers_factory(local_device, initial_weights, self._first)
        total = num_workers * self._collectors.num_workers
        if total > MAX_WORKERS:
            raise TopologyError(f"the set has {total} collectors, and may have {MAX_WORKERS}")
        own = {**self.worker_params, "col_workers_factory": lambda *_: self._collectors}
        self._local = GWorker(self._first, **own)
        self._distributed: bool | None = None  # how updates are made, from the first on
        self._stopped = False
        self._run: InlineRun | None = None
        self._seen = _Seen(0)

    def local_worker(self) -> GWorker:
        """Holds the weights of the last update; it is not part of the topology."""
        return self._local

    def remote_workers(self) -> list[GWorker]:
        """The gradient workers inside the topology, which is made if it is not there yet; made anew, with new workers,
        if the first step is distributed."""
        if not self.num_workers:
            return []
        self._made()
        return [self._seen.workers[index] for index in sorted(self._seen.workers)]

    @property
    def actor_version(self) -> int:
        """Updates so far. As in a run, one whose gradient is not finite counts, and changes nothing."""
        return self._local.actor_version

    def step(self, distribute_gradients: bool = False) -> list[Info]:
        """One synchronous update of everybody; a summary of each worker's part in it.

        It names no times: the parts of several workers are made in turn. Raises what an environment, a worker or the
        learner raises, and RuntimeError after `stop`.
        """
        if self._distributed not in (None, distribute_gradients):
            raise TopologyError(
                "the updates of a set are all distributed, or none is: the optimizer's state is with who makes them",
                hint="make another set, and give it the weights of this one",
            )
        if self._distributed is None and distribute_gradients:
            self._end()
        self._distributed = distribute_gradients
        run, seen = self._made(), self._seen
        seen.asked = seen.turns + 1
        seen.wake.set()
        run.until(lambda: seen.turns >= seen.asked)
        assert seen.weights is not None
        self._local.set_weights(seen.weights)
        return list(seen.infos)

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: object) -> None:
        """Changes one hyper-parameter of every worker, from the next step on. Raises ConfigError, and changes nothing,
        if the algorithm does not have it so."""
        self._local.update_algorithm_parameter(parameter_name, new_parameter_value)
        for worker in self._seen.workers.values():
            worker.update_algorithm_parameter(parameter_name, new_parameter_value)
        for learner in self._seen.learners:
            update_parameter(learner, parameter_name, new_parameter_value)

    def stop(self) -> None:
        """Stops the topology and closes its environments. Again does nothing."""
        self._stopped = True
        self._local.stop()
        self._end()

    def __enter__(self) -> GWorkerSet:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    @classmethod
    def create_factory(
        cls,
        num_workers: int,
        col_workers_factory: Callable[..., CWorkerSet],
        col_fraction_workers: float = 1.0,
        col_execution: str = "Central",
        col_communication: str = "synchronous",
        compress_grads_to_send: bool | str = False,
        grad_worker_resources: Mapping[str, float] = RESOURCES,
    ) -> Callable[[str | None, int], GWorkerSet]:
        """A function of (device, index of the parent) that gives a set; nothing is shared between two of them."""
        resources = dict(grad_worker_resources)

        def factory(device: str | None, index_parent: int) -> GWorkerSet:
            return cls(
                num_workers,
                index_parent,
                device,
                col_execution,
                col_communication,
                col_workers_factory,
                col_fraction_workers,
                resources,
                compress_grads_to_send,
            )

        return factory

    # --- inside

    def _made(self) -> InlineRun:
        if self._stopped:
            raise RuntimeError("this set of gradient workers has been stopped")
        if self._run is None:
            weights = self._local.get_weights()
            self._seen = seen = _Seen(weights.version)
            topology = assemble(_Blueprint(self._config(), weights.block), Path())
            topology["collectors"].parameters["first_source"] = self._first
            topology.replace("gradient-workers", _Worker, seen=seen, first=self._first)
            topology.replace("learner", _Learner, seen=seen)
            topology.replace("recorder", _NoRecorder)
            self._run = InlineRun(topology)
            self._run.until(lambda: seen.ready)
        return self._run

    def _end(self) -> None:
        run, self._run = self._run, None
        self._seen = _Seen(0)
        if run is not None:
            run.stop()

    def _config(self) -> Config:
        """The config of the run with these workers."""
        config, each = self._collectors.blueprint.config, self._collectors.num_workers
        synchronous = self.worker_params["col_communication"] == "synchronous"
        codec = self._local.codec
        count = max(self.num_workers, 1)
        collection = dataclasses.replace(
            config.collection,
            workers=count * max(each, 1),
            communication="synchronous" if synchronous else "asynchronous",
            max_lag=0 if synchronous else 4,
            slots=2,
            ownership="gradient_worker",
            fraction_workers=self.worker_params["col_fraction_workers"],
            fraction_samples=self._collectors.col_fraction_samples,
        )
        gradients = dataclasses.replace(
            config.gradients,
            workers=count,
            communication="synchronous",
            max_lag=0,
            bootstrap_rounds=1,
            decentralised=bool(self._distributed),
            compression=codec.name,
            top_k=config.gradients.top_k if codec.name == config.gradients.compression else TOP_K,
        )
        checkpoint = dataclasses.replace(config.checkpoint, every={})
        evaluation = dataclasses.replace(config.evaluation, every={})
        return dataclasses.replace(
            config,
            collection=collection,
            gradients=gradients,
            checkpoint=checkpoint,
            evaluation=evaluation,
            algorithm=self._local.state.learner.config,  # as it has been changed
        )


class _Seen:
    """What the actors of the topology show to the set. `first`: the version of the weights that they begin with."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.workers: dict[int, GWorker] = {}
        self.learners: list[Any] = []
        self.asked = 0  # turns: the loop runs a little longer than a step needs, and no gradient is made of that
        self.turns = 0
        self.wake = asyncio.Event()
        self.ready = False
        self.infos: list[Info] = []
        self.weights: Snapshot | None = None


class _Blueprint(Blueprint):
    """A blueprint with given initial weights."""

    def __init__(self, config: Config, weights: NDArray[np.uint8]) -> None:
        super().__init__(config)
        self._weights = weights

    def initialize(self, state: NDArray[np.uint8], optimizer_state: NDArray[np.uint8]) -> int:
        turn = super().initialize(state, optimizer_state)
        self.state.weights(state)[:] = self._weights
        if self.state.has_target:
            self.state.begin_target(state)
        return turn


class _Worker(GradientWorkerActor):
    """Shows its GWorker."""

    def __init__(self, blueprint: Blueprint, directory: Path, seen: _Seen, first: int) -> None:
        self.first = first
        self.seen = seen
        super().__init__(blueprint, directory)
        seen.workers[self.index] = self.worker
        if self.replica is not None:
            seen.learners.append(self.replica.learner)

    def g_worker(self) -> GWorker:
        return GWorker.of_run(self.blueprint, self.first + self.index, self.status)

    async def _state(self, sequence: int) -> tuple[int, Bytes]:
        """Waits for the step that gradient `sequence` is part of."""
        while self.seen.asked <= sequence:
            self.seen.wake.clear()
            await self.seen.wake.wait()
        return await super()._state(sequence)

    def _dump(self, finding: Finding, header: NDArray[np.int64]) -> None:
        """A set has no directory where it would keep what the gradient was made of."""
        self.log.warning("%s, found by %s", finding.text, self.name)


class _Learner(LearnerActor):
    """Shows what each turn was made of."""

    def __init__(self, blueprint: Blueprint, seen: _Seen) -> None:
        super().__init__(blueprint)
        self.seen = seen
        self.turn_of: dict[int, int] = {}  # version of the policy -> turn whose weights it has
        self.collected_with: dict[int, int] = {}  # worker -> turn of the policy that its round was collected with
        seen.learners.append(self.learner)

    async def run(self) -> None:
        self.seen.ready = True
        await super().run()

    def _turn(self, claimed: list[Slot]) -> None:
        infos = [self._info(slot) for slot in claimed]
        super()._turn(claimed)
        seen, block = self.seen, self.weights.board.read(self.turn)
        seen.infos, seen.weights = infos, Snapshot.of(seen.first + self.turn, self.blueprint.state.weights(block))

    def _check_finite(self) -> None:
        super()._check_finite()
        self.seen.turns += 1  # only now: a step raises what its turn raises

    def _info(self, slot: Slot) -> Info:
        worker, header = self.seen.workers[slot.producer], slot.arrays["header"]
        worker.iter += 1
        turn, policy = int(header[VERSION]), int(header[POLICY])
        if policy >= 0:  # the first gradient of a round
            self.collected_with[slot.producer] = self.turn_of[policy]
        collected_with = self.collected_with.get(slot.producer, turn)
        first = self.seen.first
        return describe_gradient(
            worker.algo, Gradients(worker, slot.arrays, first + turn), collected_with=first + collected_with
        )

    def _publish_behaviour(self, claimed: list[Slot]) -> None:
        super()._publish_behaviour(claimed)
        latest = self.behaviour.latest
        self.turn_of.setdefault(latest, self.turn)
        self.turn_of.pop(latest - VERSIONS_KEPT, None)

    def _stop_reason(self) -> None:
        """A set has no goal of its own."""


class _NoRecorder(Actor):
    """Takes what a recorder takes: a set writes nothing."""

    role = "recorder"
    numbered = False
    metrics = Inlet(Metrics)
    checkpoints = Inlet(CheckpointDue)
    weights = Subscription(Weights)
    optimizer_state = Subscription(OptimizerState)

    def __init__(self, blueprint: Blueprint, directory: Path) -> None: ...

    async def run(self) -> None:
        async for _ in self.metrics:
            pass
