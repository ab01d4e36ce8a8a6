"""GWorkerSet: several gradient workers in library mode, and their updates in step.

    local worker (0)      owns the weights; computes by itself if there are no others
    remote workers 1..n   compute at the same time, each in a thread, with collection workers of their own

Threads of this process: backward passes, reductions and environments of NumPy leave the interpreter's lock to others.
Workers in processes, which may die and come back, are what a run is for ([gradients] workers). Every worker begins with
the same weights. `step()` is one synchronous update: all gradients, their mean weighted by samples, the new weights to
everybody; distributed, each worker makes the same update itself and no weights are sent. PyTorchRL documents the class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any

from hive.errors import TopologyError
from hive.workers.c_worker import MAX_WORKERS, CWorkerSet, Snapshot
from hive.workers.exchange import GradientExchange
from hive.workers.g_worker import Gradients, GWorker, Info

__all__ = ["RESOURCES", "GWorkerSet"]

RESOURCES: Mapping[str, float] = {
    "memory": 5368709120,
    "num_cpus": 1,
    "num_gpus": 0.2,
    "object_store_memory": 2147483648,
}
"""The documented resources of a remote worker. Threads share what their process has: `remote_config` only tells."""


class GWorkerSet:
    """`num_workers` remote gradient workers, 0 or more, and a local one.

    index_parent: keeps the seeds of several sets apart. local_device: "cpu" or None. The others are as GWorker's.
    Raises TopologyError for what does not go together, before any thread is started.
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
        self.remote_config = {**RESOURCES, **grad_worker_resources}
        self.worker_params = {
            "col_workers_factory": col_workers_factory,
            "col_communication": col_communication,
            "compress_grads_to_send": compress_grads_to_send,
            "col_execution": col_execution,
            "col_fraction_workers": col_fraction_workers,
            "initial_weights": initial_weights,
            "device": local_device,
        }
        first = index_parent * MAX_WORKERS
        self._local = GWorker(first, **self.worker_params, collects=num_workers == 0)  # type: ignore[arg-type]
        self._remote: list[GWorker] = []
        for index in range(first + 1, first + num_workers + 1):
            self._remote.append(GWorker(index, **self.worker_params))  # type: ignore[arg-type]
        self._pool = ThreadPoolExecutor(num_workers, thread_name_prefix="g-worker") if num_workers else None
        self._distributed: bool | None = None  # how updates are made, from the first on

    def local_worker(self) -> GWorker:
        return self._local

    def remote_workers(self) -> list[GWorker]:
        return list(self._remote)

    @property
    def actor_version(self) -> int:
        """Updates so far."""
        return self._local.actor_version

    def get_grads(self) -> list[tuple[Gradients, Info]]:
        """One gradient of every worker that collects, computed at the same time, in their order."""
        return self._all(lambda worker: worker.step())

    def step(self, distribute_gradients: bool = False) -> list[Info]:
        """One synchronous update of everybody; what each worker has to say of it.

        Raises what a worker raises, when all have ended their part.
        """
        if self._distributed not in (None, distribute_gradients):
            raise TopologyError(
                "the updates of a set are all distributed, or none is: the optimizer's state is with who makes them",
                hint="make another set, and give it the weights of this one",
            )
        if distribute_gradients:
            return self._distributed_step()
        self._distributed = False
        made = self.get_grads()
        self._local.apply_gradients([grads for grads, _ in made])
        weights = self._local.get_weights()
        for worker in self._remote:
            worker.set_weights(weights)
        return [info for _, info in made]

    def _distributed_step(self) -> list[Info]:
        """All peers make the same update; the local worker, which has no gradient, makes it too."""
        if self._pool is None:
            return [self._local.step(distribute_gradients=True)[1]]
        if self._distributed is None:
            exchange = GradientExchange([worker.index_worker for worker in self._remote])
            for worker in self._remote:
                worker.exchange = exchange
            self._distributed = True
        made = self._all(lambda worker: worker.step(distribute_gradients=True))
        self._local.apply_gradients([grads for grads, _ in made])
        return [info for _, info in made]

    def _all(self, part: Callable[[GWorker], tuple[Gradients, Info]]) -> list[tuple[Gradients, Info]]:
        if self._pool is None:
            return [part(self._local)]

        def told(worker: GWorker) -> tuple[Gradients, Info]:
            try:
                return part(worker)
            except BaseException:
                if worker.exchange is not None:
                    worker.exchange.abort()
                raise

        futures = [self._pool.submit(told, worker) for worker in self._remote]
        wait(futures)
        causes = [error for future in futures if (error := future.exception()) is not None]
        for error in causes:
            if "a peer of" not in str(error):
                raise error
        return [future.result() for future in futures]

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: object) -> None:
        """Changes one hyper-parameter of every worker. Raises ConfigError, and changes nothing, if none has it so."""
        for worker in (self._local, *self._remote):
            worker.update_algorithm_parameter(parameter_name, new_parameter_value)

    def stop(self) -> None:
        """Stops every worker and the threads of the set. Again does nothing."""
        for worker in (self._local, *self._remote):
            worker.stop()
        if self._pool is not None:
            self._pool.shutdown()

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
