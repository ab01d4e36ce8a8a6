"""Collection workers in library mode: a collector with weights of its own, and sets of them.

    weights ──Snapshot(version, bytes)──> CWorker.set_weights      any thread; the next rollout is made with them
    CWorker.collect_data() ──────────────> CollectedRollout         one thread at a time

A snapshot is version and bytes in one immutable object, so who reads it never sees the one without the other. A rollout
lies in memory of its own. A set has a local worker, number 0, that holds the newest weights and collects where there is
nobody else; and remote workers 1 ... n, which threads may drive at the same time: each has its own environments and its
own network, and environments and policy leave the interpreter's lock to others most of the time. Processes are the
business of runs (hive.runtime): the same Collector is in both.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hive.algorithms import Algorithm, update_parameter
from hive.errors import NetworkError, TopologyError
from hive.networks import aligned_block
from hive.storage import LENGTH, Rollout
from hive.workers.blueprint import Blueprint
from hive.workers.collector import Collector
from hive.workers.legality import check_device

__all__ = ["CWorker", "CWorkerSet", "CollectedRollout", "Snapshot"]

MAX_WORKERS = 1024  # of a set, so that sources of different parents never meet

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Snapshot:
    """Weights of one version. `block`: uint8 [block_bytes], read-only, laid out as hive.networks.flat draws it."""

    version: int
    block: NDArray[np.uint8]


@dataclass(frozen=True)
class CollectedRollout:
    """One rollout. `data` is drawn in hive.storage.rollouts; `episodes`: returns and lengths of those that ended."""

    data: Arrays
    version_collected: int
    n_samples: int
    worker_id: int
    seq: int
    episodes: tuple[NDArray[np.float32], NDArray[np.int32]] = field(repr=False)
    seconds: float

    @property
    def steps(self) -> int:
        """Steps of each environment; fewer than were asked for where it was stopped."""
        return int(self.data["header"][LENGTH])


class CWorker:
    """One collection worker. Its environments are made with the first rollout.

    blueprint: of the config. index_worker: its number in its set, 0 the local one. index_parent: of the gradient worker
    that it belongs to. Both decide its seeds: no two workers of a blueprint share one.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        index_worker: int = 0,
        index_parent: int = 0,
        initial_weights: Snapshot | Mapping[str, Any] | None = None,
    ) -> None:
        if not 0 <= index_worker < MAX_WORKERS:
            raise TopologyError(f"a set has workers 0 to {MAX_WORKERS - 1}, got {index_worker}")
        self.blueprint = blueprint
        self.index_worker = index_worker
        self.index_parent = index_parent
        self.source = index_parent * MAX_WORKERS + index_worker
        self.algo: Algorithm = blueprint.algorithm()
        self.collected = 0  # rollouts so far: the number of the next
        self.stopped = False
        self._collector: Collector | None = None
        # The collector always sees the same memory, which it remembers; what it is given and what it makes is copied.
        self._weights = aligned_block(blueprint.flat.block_bytes)
        self._memory = aligned_block(blueprint.rollout_layout.bytes)
        self._rollout = blueprint.rollout_layout.views(self._memory)
        block = aligned_block(blueprint.flat.block_bytes)
        blueprint.flat.initialize_into(block)
        self._snapshot = _frozen(0, block)
        if initial_weights is not None:
            self.set_weights(initial_weights)

    @property
    def actor_version(self) -> int:
        """Updates behind the weights that the next rollout is made with."""
        return self._snapshot.version

    def get_weights(self) -> Snapshot:
        """The newest weights that it was given, or its initial ones."""
        return self._snapshot

    def set_weights(self, actor_weights: Snapshot | Mapping[str, Any]) -> None:
        """From the next rollout on. Of a mapping, see `snapshot_of`."""
        self._snapshot = snapshot_of(actor_weights, self.blueprint, self._snapshot.version)

    def collect_data(self, enough: Callable[[int], bool] | None = None) -> CollectedRollout:
        """One rollout with the newest weights. `enough` is asked after every step whether it ends there.

        Raises EnvironmentFailed, and RuntimeError after `stop`.
        """
        if self.stopped:
            raise RuntimeError(f"collection worker {self.index_worker} of {self.index_parent} has been stopped")
        begun = time.perf_counter()
        collector = self._collector or self._new_collector()
        snapshot, number = self._snapshot, self.collected
        self._weights[:] = snapshot.block[: len(self._weights)]
        collector.bind(self._weights)
        collector.collect(self._rollout, sequence=number, version=snapshot.version, enough=enough)
        self.collected = number + 1
        memory = aligned_block(len(self._memory))
        memory[:] = self._memory
        arrays = self.blueprint.rollout_layout.views(memory)
        rollout = Rollout(arrays)
        seconds = time.perf_counter() - begun
        return CollectedRollout(
            arrays, snapshot.version, rollout.samples, self.source, number, rollout.episodes(), seconds
        )

    def _new_collector(self) -> Collector:
        self._collector = self.blueprint.collector(self.source)
        self._collector.reset()
        return self._collector

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: object) -> None:
        """Changes one hyper-parameter of its algorithm (hive.algorithms.update_parameter). Raises ConfigError."""
        update_parameter(self.algo, parameter_name, new_parameter_value)  # type: ignore[arg-type]

    def stop(self) -> None:
        """Closes its environments, if there are any; again does nothing. A rollout in progress must have ended."""
        self.stopped = True
        if self._collector is not None:
            self._collector.close()
            self._collector = None


class CWorkerSet:
    """A local worker and `num_workers` remote ones: none is a set that collects in its parent's thread.

    col_fraction_samples: of its rollout that each worker may finish even when its round is cut short, in [0, 1].
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
        self.quota = math.ceil(round(col_fraction_samples * blueprint.config.collection.rollout, 9))
        workers = [CWorker(blueprint, index, index_parent, initial_weights) for index in range(num_workers + 1)]
        self._local, self._remote = workers[0], workers[1:]

    def local_worker(self) -> CWorker:
        return self._local

    def remote_workers(self) -> list[CWorker]:
        return list(self._remote)

    def stop(self) -> None:
        """Stops every worker."""
        for worker in (self._local, *self._remote):
            worker.stop()

    @classmethod
    def create_factory(
        cls, blueprint: Blueprint, num_workers: int = 0, col_fraction_samples: float = 0.0
    ) -> Callable[[str | None, Snapshot | Mapping[str, Any] | None, int], CWorkerSet]:
        """What a GWorker makes its collection workers with: a function of (device, initial weights, its index)."""

        def factory(
            device: str | None, initial_weights: Snapshot | Mapping[str, Any] | None, index_parent: int
        ) -> CWorkerSet:
            check_device(device)
            return cls(blueprint, num_workers, index_parent, initial_weights, col_fraction_samples)

        return factory


def snapshot_of(weights: Snapshot | Mapping[str, Any], blueprint: Blueprint, version: int) -> Snapshot:
    """A snapshot of {"version": int, "weights": {name: tensor or array}}, or of the inner mapping with this version.

    Raises NetworkError where names, shapes or dtypes are not those of the network.
    """
    if isinstance(weights, Snapshot):
        if len(weights.block) < blueprint.flat.block_bytes:
            raise NetworkError(f"{len(weights.block)} bytes are no weights of this network")
        return weights
    given: Any = weights.get("weights", weights)
    number = int(weights["version"]) if "weights" in weights and "version" in weights else version
    block = aligned_block(blueprint.flat.block_bytes)
    own = blueprint.flat.arrays(block)
    if set(given) != set(own):
        differ = ", ".join(sorted(set(given) ^ set(own))[:4])
        raise NetworkError("these are not the weights of this network", hint=f"they differ in {differ}")
    for name, array in own.items():
        tensor = given[name]
        values = tensor.detach().cpu().numpy() if isinstance(tensor, torch.Tensor) else np.asarray(tensor)
        if values.shape != array.shape or values.dtype != array.dtype:
            found, wanted = f"{values.dtype} {list(values.shape)}", f"{array.dtype} {list(array.shape)}"
            raise NetworkError(f"`{name}` is {found}, this network has {wanted}")
        array[...] = values
    return _frozen(number, block)


def _frozen(version: int, block: NDArray[np.uint8]) -> Snapshot:
    block.flags.writeable = False
    return Snapshot(version, block)
