"""How many threads a gradient worker computes with, where the config leaves it to hive.

The bytes of native passes do not depend on it (native/include/hive/team.hpp), so it may follow from the machine. Those
of torch do, since torch divides sums among its threads: with "auto" it has one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from hive.config import Config

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
    """Return the threads of a gradient worker; with "auto" its share of the cores.

    Collectors need some of these cores. But where gradients take longer than collecting, collectors wait for them, and
    otherwise the run waits for collectors, and gradients only need the cores now and then.
    """
    if given := config.gradients.threads:
        return Threads(given, given)
    share = len(os.sched_getaffinity(0)) // max(1, config.gradients.workers)
    return Threads(1, min(max(1, share), MOST_CHOSEN))
