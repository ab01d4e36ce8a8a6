"""How many threads a gradient worker computes with, where the config leaves it to hive.

The bytes of native passes do not depend on it (native/include/hive/team.hpp), so it may follow from the machine. Those
of torch do, since torch divides sums among its threads: with "auto" it has one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from hive.config import Config, ReplayConfig

__all__ = ["ONE_THREAD", "Threads", "threads_of"]

# Threads for native passes: passes of usual size have no more parts that are worth it, and a machine has other runs.
MOST_CHOSEN = 4


@dataclass(frozen=True)
class Threads:
    """The threads of one process that compute its gradients: those of torch, and those of native networks."""

    torch: int
    native: int


ONE_THREAD = Threads(1, 1)


def threads_of(config: Config) -> Threads:
    """Return the threads of a gradient worker; with "auto" its share of the cores on which no collector works.

    The collectors of a replay memory and those that wait for the newest policy idle while gradients are made.
    """
    if given := config.gradients.threads:
        return Threads(given, given)
    free = len(os.sched_getaffinity(0))
    idle = isinstance(config.algorithm, ReplayConfig) or config.collection.communication == "synchronous"
    if not idle:
        free -= config.collection.workers
    return Threads(1, min(max(1, free // max(1, config.gradients.workers)), MOST_CHOSEN))
