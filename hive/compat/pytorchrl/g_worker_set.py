"""GWorkerSet: several gradient workers of a script, and their synchronous updates.

    set.step()     each worker collects and computes a gradient; one update by their mean; the same weights everywhere

Each worker collects for itself, from a CWorkerSet of its own, as a GWorker without a set does. They take turns in the
caller's thread; collection is in threads of its own if it is asynchronous. A set whose workers have one collector each
makes the bytes of a run with as many gradient workers and collectors, as long as each worker normalizes advantages by
its own samples (a run normalizes them over all workers). Processes, and recovery of killed ones, need a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from hive.compat.pytorchrl.collection import MAX_WORKERS, CWorkerSet, Weights
from hive.compat.pytorchrl.g_worker import GWorker
from hive.compat.pytorchrl.gradients import Info
from hive.errors import NotFinite, TopologyError

RESOURCES: Mapping[str, float] = {
    "memory": 5368709120,
    "num_cpus": 1,
    "num_gpus": 0.2,
    "object_store_memory": 2147483648,
}
"""The resources of a remote worker that PyTorchRL documents, shown in `remote_config` only."""


class GWorkerSet:
    """A local gradient worker, which has the weights of the last update, and `num_workers` remote ones.

    If there is no remote worker, the local one computes the gradients.

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
        initial_weights: Weights | None = None,
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
        self._local = self._worker(0)
        total = num_workers * self._local.col_workers.num_workers
        if total > MAX_WORKERS:
            raise TopologyError(f"the set has {total} collectors, the maximum is {MAX_WORKERS}")
        self._remote = [self._worker(index) for index in range(num_workers)]

    def _worker(self, index: int) -> GWorker:
        """Make a worker whose collectors follow those of the workers before it, as in a run."""
        first = self.index_parent * MAX_WORKERS  # number of the set's first worker, and of its first collector

        def collectors(*arguments: Any) -> CWorkerSet:
            made: CWorkerSet = self.worker_params["col_workers_factory"](*arguments)
            made.first_source = first + index * made.collectors
            made.collectors *= max(self.num_workers, 1)
            return made

        return self.worker_class(first + index, **{**self.worker_params, "col_workers_factory": collectors})

    def local_worker(self) -> GWorker:
        """Return the worker that has the weights of the last update. It only collects if there is no remote one."""
        return self._local

    def remote_workers(self) -> list[GWorker]:
        """Return the workers that compute the gradients of `step`, a new list."""
        return list(self._remote)

    @property
    def actor_version(self) -> int:
        """Number of updates so far."""
        return self._local.actor_version

    def step(self, distribute_gradients: bool = False) -> list[Info]:
        """Make one synchronous update of all workers. Return a summary of each worker's gradient (Gradients.describe).

        distribute_gradients: each worker makes the update itself, from the gradients of all, instead of receiving the
        local worker's weights and optimizer state. Both give the same bytes.

        A gradient that is not finite changes nothing, and with `supervision.non_finite = "stop"` raises NotFinite. Also
        raises what an environment or a worker raises, and RuntimeError after `stop`.
        """
        infos, gradients = [], []
        for worker in self._remote or [self._local]:
            grads, info = worker.step()
            gradients.append(grads)
            infos.append(info)
        local = self._local
        update = local.apply_gradients(gradients)
        for worker in self._remote:
            if distribute_gradients:
                worker.apply_gradients(gradients)
            else:
                worker.state.copy(local.state.turn, local.state.weights, local.state.optimizer_state)
                worker.bind(worker.state.weights)
        if update.cause and local.blueprint.config.supervision.non_finite == "stop":
            raise NotFinite(
                f"the {update.cause} of update {local.actor_version + 1} was not finite",
                hint="lower algorithm.learning_rate, or set algorithm.clip_gradients",
            )
        return infos

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: object) -> None:
        """Change one hyper-parameter of every worker, from the next step on.

        Raises ConfigError, and changes nothing, if the algorithm has no such parameter or the value is invalid.
        """
        for worker in (self._local, *self._remote):
            worker.update_algorithm_parameter(parameter_name, new_parameter_value)

    def stop(self) -> None:
        """Stop all workers and close their environments. Further calls do nothing."""
        for worker in (self._local, *self._remote):
            worker.stop()

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
