"""How many threads a gradient worker computes with, where the config leaves it to hive.

The number changes no byte of a native pass (native/include/hive/team.hpp), so it may follow from the machine. torch
divides sums among its threads, which changes their last bits: with "auto" it has one thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from hive.config import Config, ReplayConfig
from hive.cores import cores

__all__ = ["ONE_THREAD", "Threads", "threads_of"]

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
