"""The arrangements of collectors and gradient workers that the tuner may choose, and the keys that make each.

The total number of environments and so the steps of a round stay those of the config: more collectors have fewer
environments each. Everything else that decides what is learned (lag, minibatches, rollout) stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hive.config import Config, PPOConfig, ReplayConfig

# Below this size of the network, compressed gradients and decentralized updates were slower than plain ones in all of
# hive's measurements: a codec and a second optimizer cost more than the memory traffic that they save (issue 22).
WHOLESALE_PARAMETERS = 25_000_000
COLLECTORS_PER_CORE = 8  # most collectors for each core: more only pays where environments sleep, and each is a process


@dataclass(frozen=True)
class Placement:
    """One arrangement: the two numbers of workers, the environments of each collector, and how gradients travel."""

    collection_workers: int
    gradient_workers: int
    envs: int
    decentralized: bool = False
    compression: str = "none"
    backend: str = "auto"

    @property
    def collectors(self) -> int:
        """Number of collectors, also of those that share the processes of gradient workers."""
        return self.collection_workers or max(self.gradient_workers, 1)

    @property
    def processes(self) -> int:
        """Number of processes that collect or train."""
        return self.collection_workers + self.gradient_workers + 1

    def values(self, config: Config) -> dict[str, Any]:
        """Return the keys whose values in the config this placement changes, or which are "auto"."""
        mine = {
            "collection.workers": self.collection_workers,
            "collection.envs": self.envs,
            "gradients.workers": self.gradient_workers,
            "gradients.decentralized": self.decentralized,
            "gradients.compression": self.compression,
            "network.backend": self.backend,
        }
        return {name: new for name, new in mine.items() if name in config.automatic or config.value(name) != new}


def default_placement(config: Config) -> Placement:
    """Return the placement of the config, in which keys that are "auto" have their defaults."""
    collection, gradients = config.collection, config.gradients
    return Placement(
        collection.workers,
        gradients.workers,
        collection.envs,
        gradients.decentralized,
        gradients.compression,
        config.network.backend,
    )


def placements(config: Config, automatic: tuple[str, ...], cores: int) -> list[Placement]:
    """Return all placements that may be chosen for the keys `automatic`, the default one first."""
    default = default_placement(config)
    total = config.collectors * config.collection.envs
    found = [default]
    for collectors in _collection_workers(config, automatic, total, cores):
        for workers in _gradient_workers(config, automatic, cores):
            count = collectors or max(workers, 1)
            if "collection.workers" in automatic:
                envs, rest = divmod(total, count)
            else:
                envs, rest = config.collection.envs, 0
            made = Placement(collectors, workers, envs, default.decentralized, default.compression, default.backend)
            if envs and not rest and made not in found and _is_possible(config, made):
                found.append(made)
    return found


def _collection_workers(config: Config, automatic: tuple[str, ...], total: int, cores: int) -> list[int]:
    if "collection.workers" not in automatic:
        return [config.collection.workers]
    return [n for n in range(min(total, COLLECTORS_PER_CORE * cores) + 1) if n == 0 or total % n == 0]


def _gradient_workers(config: Config, automatic: tuple[str, ...], cores: int) -> list[int]:
    return [*range(cores + 1)] if "gradients.workers" in automatic else [config.gradients.workers]


def _is_possible(config: Config, made: Placement) -> bool:
    """Return whether every gradient worker has an equal share, and sequences and batches can be divided."""
    workers, collection, algorithm = max(made.gradient_workers, 1), config.collection, config.algorithm
    asynchronous = collection.communication == "asynchronous"
    owned = not asynchronous or collection.ownership == "gradient_worker"
    if owned and made.collectors % workers:
        return False
    all_together = config.gradients.communication != "asynchronous"  # every update needs a rollout for each worker
    if asynchronous and all_together and collection.slots * made.collectors < workers:
        return False
    if made.decentralized and not made.gradient_workers:
        return False
    if isinstance(algorithm, ReplayConfig):
        return algorithm.batch_size % workers == 0
    if isinstance(algorithm, PPOConfig) and config.network.memory != "none":
        share = 1 if asynchronous else made.collectors // workers
        return algorithm.minibatches <= share * made.envs
    return True
