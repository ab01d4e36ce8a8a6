"""What a group's processes may use: cores, threads of numeric libraries, a device.

    t.add(Learner, cores=[0, 1], threads=2, device="cuda:0")

A process takes its cores and threads right after it was forked, before it builds its actors. The device is a word that
actors find in `self.device`: they build their networks there, hive moves nothing. With `--inline` all actors share one
process, which keeps what it has.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from hive.errors import TopologyError

__all__ = ["Resources", "resources_of"]

DEVICE = re.compile(r"cpu|cuda(:\d+)?")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # read by libraries when they are loaded


@dataclass(frozen=True)
class Resources:
    """`cores`: the processors it may run on, none for all. `threads`: 0 leaves the libraries as they are."""

    cores: tuple[int, ...] = ()
    threads: int = 0
    device: str = "cpu"

    def take(self) -> None:
        """Restricts this process. Raises OSError for cores that are gone since the topology was built."""
        if self.cores:
            os.sched_setaffinity(0, self.cores)
        if self.threads:
            os.environ |= dict.fromkeys(THREADS, str(self.threads))
            if (torch := sys.modules.get("torch")) is not None:  # this floor does not import it
                torch.set_num_threads(self.threads)


def resources_of(group: str, cores: Sequence[int] | None, threads: int | None, device: str) -> Resources:
    """What `group` asks for. Raises TopologyError for what this machine does not have."""
    there = os.sched_getaffinity(0)
    if cores is not None and (not cores or not there.issuperset(cores)):
        raise TopologyError(
            f"`{group}` is to run on cores {', '.join(map(str, cores)) or 'none'}",
            hint=f"this process may use {', '.join(map(str, sorted(there)))}",
        )
    if threads is not None and threads < 1:
        raise TopologyError(
            f"`{group}` is to have {threads} threads", hint="one is the least; leave it out for the default"
        )
    if not DEVICE.fullmatch(device):
        raise TopologyError(f"`{group}` is to use device `{device}`", hint='devices are "cpu", "cuda" and "cuda:0"')
    return Resources(tuple(sorted({*cores} if cores else ())), threads or 0, device)
