"""Check, before anything starts, that the machine has the memory and file descriptors that a run needs.

A shortage found here is an error message; found later, it ends a run that may have trained for hours.
"""

from __future__ import annotations

import resource

import psutil

from hive.errors import PlatformError
from hive.runtime.topology.plan import Plan

__all__ = ["check_limits", "raise_descriptor_limit"]

MEMORY_SHARE = 0.9  # largest share of the free memory that a plan may use; more risks the kernel's out-of-memory killer

# File descriptors of the supervisor. Per segment: its own and the one that Python's mmap keeps. Per process: its pidfd,
# the ipc sockets of both directions, and the descriptors that ZeroMQ needs for wake-ups. The spare ones are for files,
# views and restarted processes.
PER_SEGMENT, PER_PROCESS, SPARE = 2, 6, 100


def _hint(plan: Plan) -> str:
    """Return which keys make the largest segment smaller."""
    if max(plan.segments, key=lambda segment: segment.plan.bytes).kind == "buffer":
        return "lower algorithm.replay_capacity, or set run.replay_folder to a folder on a disk"
    return "lower collection.slots, envs or rollout; `hive check` shows what each channel takes"


def raise_descriptor_limit() -> None:
    """Raise the soft limit on file descriptors to the hard limit; actors inherit it.

    The default of 1024 is too low for many processes, and nothing in hive depends on it (as select() would).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        pass  # the present limit may be enough; check_limits compares


def check_limits(plan: Plan) -> None:
    """Raise PlatformError if the plan needs more shared memory or file descriptors than the machine has."""
    free = psutil.virtual_memory().available
    if plan.bytes > MEMORY_SHARE * free:
        raise PlatformError(
            f"this run needs {plan.bytes / 2**30:.1f} GiB of shared memory, {free / 2**30:.1f} GiB are free",
            hint=_hint(plan),
        )
    needed = PER_SEGMENT * len(plan.segments) + PER_PROCESS * len(plan.processes) + SPARE
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and needed > limit:
        raise PlatformError(
            f"this run needs {needed:,} open files, and a process may have {limit:,}",
            hint="raise the limit (ulimit -n, or nofile in /etc/security/limits.conf), or run fewer workers",
        )
