"""How many threads a gradient worker and how many helpers a collector has, where the config leaves it to hive.

Neither changes a byte, of a native pass (native/include/hive/team.hpp) or of a rollout
(hive.envs.processes.helped_vector), so both may follow from the machine. torch divides sums among its threads, which
changes their last bits: with "auto" it has one thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from hive.config import Config, ReplayConfig
from hive.cores import cores

# Threads for native passes: passes of usual size have no more parts that are worth it, and a machine has other runs.
MOST_CHOSEN = 4
# With a replay memory one gradient follows another, and collectors take little of the time: a thread that looks for the
# next pass for as long as the work between two passes takes is there at once. An update of SAC takes 1.1 ms less.
SPIN_REPLAY_US = 500


@dataclass(frozen=True)
class Threads:
    """The threads of one process that compute its gradients: those of torch, and those of native networks.

    spin_us: how long the latter look for the next pass before they sleep.
    """

    torch: int
    native: int
    spin_us: int = 20


ONE_THREAD = Threads(1, 1)


def threads_of(config: Config) -> Threads:
    """Return the threads of a gradient worker; with "auto" its share of the cores.

    Collectors need some of these cores. But where gradients take longer than collecting, collectors wait for them, and
    otherwise the run waits for collectors, and gradients only need the cores now and then.
    """
    spin_us = SPIN_REPLAY_US if isinstance(config.algorithm, ReplayConfig) else Threads.spin_us
    if given := config.gradients.threads:
        return Threads(given, given, spin_us)
    share = cores() // max(1, config.gradients.workers)
    return Threads(1, min(max(1, share), MOST_CHOSEN), spin_us)


def helpers_of(config: Config, collectors: int | None = None, workers: int | None = None, count: int = 0) -> int:
    """Return the helpers of each collector on this host; with "auto" its share of the cores that are left.

    A synchronous run does not train while it collects, so all cores but those of the collectors are left.
    collectors, workers: numbers of collectors and gradient workers, if not those of the config. count: of cores.
    """
    collection = config.collection
    if collection.helpers is not None:
        return collection.helpers
    collectors = collectors or -(-config.collectors // max(1, len(collection.hosts)))
    workers = config.gradients.workers if workers is None else workers
    training = 0 if collection.max_lag == 0 else max(1, workers)
    return max(0, (count or cores()) - collectors - training) // collectors
