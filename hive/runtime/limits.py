"""What the machine gives a run: memory and descriptors, looked at before anything starts.

Both are cheap to find missing here and expensive in the middle of a run.
"""

from __future__ import annotations

import resource

import psutil

from hive.errors import PlatformError
from hive.runtime.plan import Plan

__all__ = ["check_limits", "raise_descriptor_limit"]

MEMORY_SHARE = 0.9  # of the memory that is free: a plan beyond that would push the machine into its own killer

# Descriptors of the supervisor: two a segment, of which one is what Python's mmap keeps; of each process its pidfd, and
# at both ends of its line an ipc socket and what ZeroMQ keeps to be woken by; and room for files, views and the next
# incarnations.
PER_SEGMENT, PER_PROCESS, SPARE = 2, 6, 100


def raise_descriptor_limit() -> None:
    """As many descriptors as this user may have; actors inherit it. The usual 1024 are a habit, no need of anybody."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        pass  # what there is may be enough, and is checked


def check_limits(plan: Plan) -> None:
    """Raises PlatformError when the plan needs more shared memory or descriptors than there are."""
    free = psutil.virtual_memory().available
    if plan.bytes > MEMORY_SHARE * free:
        raise PlatformError(
            f"this run needs {plan.bytes / 2**30:.1f} GiB of shared memory, {free / 2**30:.1f} GiB are free",
            hint="lower collection.slots, envs or rollout; `hive check` shows what each channel takes",
        )
    needed = PER_SEGMENT * len(plan.segments) + PER_PROCESS * len(plan.processes) + SPARE
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and needed > limit:
        raise PlatformError(
            f"this run needs {needed:,} open files, and a process may have {limit:,}",
            hint="raise the limit (ulimit -n, or nofile in /etc/security/limits.conf), or run fewer workers",
        )
