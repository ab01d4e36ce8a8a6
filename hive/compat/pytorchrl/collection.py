"""CWorkerSet: the collection workers of one GWorker, and the weights that they collect with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hive.algorithms.parameters import update_parameter
from hive.compat.pytorchrl.weights import Snapshot, snapshot_of
from hive.errors import TopologyError
from hive.networks.weights.flat import aligned_block
from hive.training import Blueprint

MAX_WORKERS = 1024  # maximum workers of a set, and stride of collector numbers, so that no two parents share a number

Weights = Snapshot | Mapping[str, Any]


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

    def set_weights(self, actor_weights: Weights) -> None:
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
        initial_weights: Weights | None = None,
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
        self.first_source = index_parent * MAX_WORKERS  # number of its first collector, which determines its seeds
        self.collectors = max(num_workers, 1)  # also those of other sets with which it shares rounds and exploration
        block = aligned_block(blueprint.flat.block_bytes)
        blueprint.flat.initialize_into(block)
        weights = Snapshot.of(0, block)
        if initial_weights is not None:
            weights = snapshot_of(initial_weights, blueprint.flat, 0)
        workers = [CWorker(blueprint, index, index_parent, weights) for index in range(num_workers + 1)]
        self._local, self._remote = workers[0], workers[1:]

    def local_worker(self) -> CWorker:
        """Return the worker that holds the newest weights."""
        return self._local

    def remote_workers(self) -> list[CWorker]:
        """Return the workers that collect in parallel, a new list."""
        return list(self._remote)

    @classmethod
    def create_factory(
        cls, blueprint: Blueprint, num_workers: int = 0, col_fraction_samples: float = 0.0
    ) -> Callable[[str | None, Weights | None, int], CWorkerSet]:
        """Return the factory that a GWorker takes: a function of (device, initial weights, index of the parent)."""

        def factory(device: str | None, initial_weights: Weights | None, index_parent: int) -> CWorkerSet:
            check_device(device)
            return cls(blueprint, num_workers, index_parent, initial_weights, col_fraction_samples)

        return factory


def check_device(device: str | None) -> None:
    """Raise TopologyError for a device other than the CPU."""
    if device not in (None, "cpu"):
        raise TopologyError(
            f"gradients cannot be computed on `{device}`", hint="leave it out, and set gradients.device in the config"
        )
