"""GWorkerSet runs the gradient workers of a run and their synchronous updates in a script.

    set.step()     lets the topology of a run make one turn: collectors, gradient workers, learner

The topology is the built-in trainer's (hive.schemes), with the set's numbers of workers and modes. Its actors are tasks
of this thread that only run while a `step` waits for them (hive.runtime.run.inline_run). So a set is bit-identical with
a run of the same config, except that it has no goal and continues until the caller stops. With `distribute_gradients`
the gradient workers are replicas, which make the same updates themselves. Several processes, and recovery of killed
processes, need a run. PyTorchRL documents the class.
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

from hive.algorithms.parameters import update_parameter
from hive.config import Config
from hive.errors import TopologyError
from hive.facades.collection import MAX_WORKERS, VERSIONS_KEPT, CWorkerSet
from hive.gradients import POLICY, TOP_K, VERSION
from hive.runtime import Actor, Bytes, Inlet, Slot, Subscription
from hive.runtime.run.inline_run import InlineRun
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
"""The resources of a remote worker that PyTorchRL documents, shown in `remote_config` only."""

Info = dict[str, Any]


class GWorkerSet:
    """A local gradient worker and `num_workers` remote ones.

    index_parent: distinguishes the seeds of several sets. local_device: "cpu" or None. grad_worker_resources: overrides
    of RESOURCES. The other parameters are those of GWorker.
    Raises TopologyError for numbers out of range, unknown resources and invalid combinations of modes.
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
            raise TopologyError(f"num_workers is {num_workers!r}: expected an integer in 0 ... {MAX_WORKERS - 1}")
        unknown = sorted(set(grad_worker_resources) - set(RESOURCES))
        if unknown:
            raise TopologyError(
                f"grad_worker_resources has an unknown key `{unknown[0]}`", hint=f"the keys are {', '.join(RESOURCES)}"
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
            raise TopologyError(f"the set has {total} collectors, the maximum is {MAX_WORKERS}")
        own = {**self.worker_params, "col_workers_factory": lambda *_: self._collectors}
        self._local = GWorker(self._first, **own)
        self._distributed: bool | None = None  # whether updates are distributed; the first step decides
        self._stopped = False
        self._run: InlineRun | None = None
        self._exchange = _StepExchange(0)

    def local_worker(self) -> GWorker:
        """Return the worker that holds the weights of the last update; it is not part of the topology."""
        return self._local

    def remote_workers(self) -> list[GWorker]:
        """Return the gradient workers of the topology, which the first call or step makes.

        If the first step is distributed, it makes another topology with new workers.
        """
        if not self.num_workers:
            return []
        self._running()
        return [self._exchange.workers[index] for index in sorted(self._exchange.workers)]

    @property
    def actor_version(self) -> int:
        """Number of turns so far. As in a run, a turn whose gradient is not finite counts and changes nothing."""
        return self._local.actor_version

    def step(self, distribute_gradients: bool = False) -> list[Info]:
        """Make one synchronous update of all workers. Return a summary of each worker's gradient (`describe_gradient`).

        The summaries contain no times, because the workers share one thread. Raises what an environment, a worker or
        the learner raises, RuntimeError after `stop`, and TopologyError if `distribute_gradients` changes.
        """
        if self._distributed not in (None, distribute_gradients):
            raise TopologyError(
                "either all updates of a set are distributed or none: they use different copies of the optimizer state",
                hint="make another set with the weights of this one",
            )
        if self._distributed is None and distribute_gradients:
            self._end()
        self._distributed = distribute_gradients
        run, exchange = self._running(), self._exchange
        exchange.requested = exchange.turns + 1
        exchange.wake.set()
        run.until(lambda: exchange.turns >= exchange.requested)
        assert exchange.weights is not None
        self._local.set_weights(exchange.weights)
        return list(exchange.infos)

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: object) -> None:
        """Change one hyper-parameter of every worker, from the next step on.

        Raises ConfigError, and changes nothing, if the algorithm has no such parameter or the value is invalid.
        """
        self._local.update_algorithm_parameter(parameter_name, new_parameter_value)
        for worker in self._exchange.workers.values():
            worker.update_algorithm_parameter(parameter_name, new_parameter_value)
        for learner in self._exchange.learners:
            update_parameter(learner, parameter_name, new_parameter_value)

    def stop(self) -> None:
        """Stop the topology and close its environments. Further calls do nothing."""
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
        """Return a function of (device, index of the parent) that makes a set. Two sets share nothing."""
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

    def _running(self) -> InlineRun:
        if self._stopped:
            raise RuntimeError("this set of gradient workers has been stopped")
        if self._run is None:
            weights = self._local.get_weights()
            self._exchange = exchange = _StepExchange(weights.version)
            topology = assemble(_Blueprint(self._config(), weights.block), Path())
            topology["collectors"].parameters["first_source"] = self._first
            topology.replace("gradient-workers", _Worker, exchange=exchange, first=self._first)
            topology.replace("learner", _Learner, exchange=exchange)
            topology.replace("recorder", _NoRecorder)
            self._run = InlineRun(topology)
            self._run.until(lambda: exchange.ready)
        return self._run

    def _end(self) -> None:
        run, self._run = self._run, None
        self._exchange = _StepExchange(0)
        if run is not None:
            run.stop()

    def _config(self) -> Config:
        """Return the config of the run with these workers."""
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
            decentralized=bool(self._distributed),
            compression=codec.name,
            top_k=config.gradients.top_k if codec.name == config.gradients.compression else TOP_K,
        )
        checkpoint = dataclasses.replace(config.checkpoint, every={})
        evaluation = dataclasses.replace(config.evaluation, every={}, videos=0)
        return dataclasses.replace(
            config,
            collection=collection,
            gradients=gradients,
            checkpoint=checkpoint,
            evaluation=evaluation,
            algorithm=self._local.state.learner.config,  # includes changes by `update_algorithm_parameter`
        )


class _StepExchange:
    """Passes requests from the set to the actors of its topology, and results back.

    first: the version of the weights that the topology begins with.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self.workers: dict[int, GWorker] = {}
        self.learners: list[Any] = []
        self.requested = 0  # turns requested; workers wait for it, as the loop may run longer than a step needs
        self.turns = 0  # turns made
        self.wake = asyncio.Event()  # set when a turn is requested
        self.ready = False  # whether the learner runs
        self.infos: list[Info] = []  # summaries of the gradients of the latest turn
        self.weights: Snapshot | None = None  # weights of the latest turn


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
    """A gradient worker that registers its GWorker with the set and waits for requests."""

    def __init__(self, blueprint: Blueprint, directory: Path, exchange: _StepExchange, first: int) -> None:
        self.first = first
        self.exchange = exchange
        super().__init__(blueprint, directory)
        exchange.workers[self.index] = self.worker
        if self.replica is not None:
            exchange.learners.append(self.replica.learner)

    def g_worker(self) -> GWorker:
        return GWorker.of_run(self.blueprint, self.first + self.index, self.status)

    async def _state(self, sequence: int) -> tuple[int, Bytes]:
        """Wait until the turn of gradient `sequence` is requested."""
        while self.exchange.requested <= sequence:
            self.exchange.wake.clear()
            await self.exchange.wake.wait()
        return await super()._state(sequence)

    def _dump(self, finding: Finding, header: NDArray[np.int64]) -> None:
        """Log the finding. A set has no directory for a dump."""
        self.log.warning("%s, found by %s", finding.text, self.name)


class _Learner(LearnerActor):
    """A learner that passes the summaries and weights of each turn to the set."""

    def __init__(self, blueprint: Blueprint, exchange: _StepExchange) -> None:
        super().__init__(blueprint)
        self.exchange = exchange
        self.turn_of: dict[int, int] = {}  # behaviour version -> turn whose weights it has
        self.collected_with: dict[int, int] = {}  # worker -> turn whose weights collected its round
        exchange.learners.append(self.learner)

    async def run(self) -> None:
        self.exchange.ready = True
        await super().run()

    def _turn(self, claimed: list[Slot]) -> None:
        infos = [self._info(slot) for slot in claimed]
        super()._turn(claimed)
        exchange, block = self.exchange, self.weights.board.read(self.turn)
        exchange.infos, exchange.weights = (
            infos,
            Snapshot.of(exchange.first + self.turn, self.blueprint.state.weights(block)),
        )

    def _check_finite(self) -> None:
        super()._check_finite()
        self.exchange.turns += 1  # after the check, so that `step` raises its error

    def _info(self, slot: Slot) -> Info:
        worker, header = self.exchange.workers[slot.producer], slot.arrays["header"]
        worker.iter += 1
        turn, policy = int(header[VERSION]), int(header[POLICY])
        if policy >= 0:  # the first gradient of a round
            self.collected_with[slot.producer] = self.turn_of[policy]
        collected_with = self.collected_with.get(slot.producer, turn)
        first = self.exchange.first
        return describe_gradient(
            worker.algo, Gradients(worker, slot.arrays, first + turn), collected_with=first + collected_with
        )

    def _publish_behaviour(self, claimed: list[Slot]) -> None:
        super()._publish_behaviour(claimed)
        latest = self.behaviour.latest
        self.turn_of.setdefault(latest, self.turn)
        self.turn_of.pop(latest - VERSIONS_KEPT, None)

    def _stop_reason(self) -> None:
        """Return None: a set has no goal."""


class _NoRecorder(Actor):
    """Receives the messages of a recorder and discards them: a set writes nothing."""

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
