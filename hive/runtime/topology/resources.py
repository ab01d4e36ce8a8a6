"""Assign resources to the processes of a group: cores, threads of numeric libraries, a device.

    t.add(Learner, cores=[0, 1], threads=2, device="cuda:0")

A process applies its cores and threads right after the fork, before it builds its actors. The device is a string that
actors read from `self.device`. They build their networks on it; hive moves no tensors. With `--inline` all actors share
one process, whose cores and threads stay unchanged.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from hive.errors import TopologyError

DEVICE = re.compile(r"cpu|cuda(:\d+)?")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # variables that libraries read when loaded


@dataclass(frozen=True)
class Resources:
    """The resources of one process: core numbers, () for all; threads, 0 to keep the default; a torch device."""

    cores: tuple[int, ...] = ()
    threads: int = 0
    device: str = "cpu"

    def apply(self) -> None:
        """Restrict this process to its cores and threads.

        Raises OSError if none of the cores is available any more.
        """
        if self.cores:
            os.sched_setaffinity(0, self.cores)
        if self.threads:
            os.environ |= dict.fromkeys(THREADS, str(self.threads))
            if (torch := sys.modules.get("torch")) is not None:  # this layer does not import torch itself
                torch.set_num_threads(self.threads)


def resources_of(group: str, cores: Sequence[int] | None, threads: int | None, device: str) -> Resources:
    """Return the resources of the processes of `group`; None means the default.

    Raises TopologyError for cores that this process may not use, fewer than one thread, or an unknown device.
    """
    available = os.sched_getaffinity(0)
    if cores is not None and (not cores or not available.issuperset(cores)):
        raise TopologyError(
            f"`{group}` cannot run on cores {', '.join(map(str, cores)) or 'none'}",
            hint=f"this process may use {', '.join(map(str, sorted(available)))}",
        )
    if threads is not None and threads < 1:
        raise TopologyError(
            f"`{group}` cannot have {threads} threads", hint="the minimum is 1; leave it out for the default"
        )
    if not DEVICE.fullmatch(device):
        raise TopologyError(f"`{group}` has an unknown device `{device}`", hint='use "cpu", "cuda" or "cuda:0"')
    return Resources(tuple(sorted({*cores} if cores else ())), threads or 0, device)
