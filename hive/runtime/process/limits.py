"""Check, before anything starts, that the machine has the memory and file descriptors that a run needs.

A shortage found here is an error message; found later, it ends a run that may have trained for hours.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping

from hive.errors import MemoryShort, PlatformError
from hive.free_memory import FreeMemory, free_memory, size_text
from hive.runtime.topology.plan import Plan

PRIVATE = "private memory"  # the part of a run's memory that is not in its segments

# File descriptors of the supervisor. Per segment: its own and the one that Python's mmap keeps. Per process: its pidfd,
# the ipc sockets of both directions, and the descriptors that ZeroMQ needs for wake-ups. The spare ones are for files,
# views and restarted processes.
PER_SEGMENT, PER_PROCESS, SPARE = 2, 6, 100


def raise_descriptor_limit() -> None:
    """Raise the soft limit on file descriptors to the hard limit; actors inherit it.

    The default of 1024 is too low for many processes, and nothing in hive depends on it (as select() would).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        pass  # the present limit may be enough; check_limits compares


def memory_parts(plan: Plan) -> Mapping[str, int]:
    """Return the bytes of each channel in memory, by name, and of PRIVATE; without what is not expected to be written.

    A block in a file (`Shared.folder`) needs no memory.
    """
    parts: dict[str, int] = {}
    for segment in plan.segments:
        if not segment.folder:
            channel = plan.channel_of.get(segment.name)
            name = segment.name if channel is None else channel.name
            parts[name] = parts.get(name, 0) + segment.plan.bytes - segment.sparse_bytes
    if plan.private_bytes:
        parts[PRIVATE] = plan.private_bytes
    return parts


def check_memory(plan: Plan, free: FreeMemory | None = None) -> None:
    """Raise MemoryShort for a plan that needs more memory than is free here, with the part that takes most of it."""
    free = free or free_memory()
    needed = plan.bytes + plan.private_bytes
    if needed <= free.usable:
        return
    parts = memory_parts(plan)
    name = max(parts, key=lambda name: parts[name])
    segments = [s for s in plan.segments if name in (s.name, getattr(plan.channel_of.get(s.name), "name", ""))]
    if segments:
        first = segments[0]
        unit = {"slab": "slots", "board": "blocks"}.get(first.kind, "block")
        count = sum(s.count for s in segments) if unit != "block" else len(segments)
        what = f"`{name}`, {count:,} {unit} of {size_text(first.item_bytes)}"
    else:
        what = f"{size_text(parts[name])} of networks and gradients in {plan.private_processes:,} processes"
    raise MemoryShort(
        f"this run needs {size_text(needed)} of memory, and {free} are free; most of it is {what}",
        hint="lower collection.slots, envs or rollout; `hive check --draw` shows what each channel takes",
    )


def check_limits(plan: Plan) -> None:
    """Raise PlatformError if the plan needs more file descriptors than a process may have."""
    needed = PER_SEGMENT * len(plan.segments) + PER_PROCESS * len(plan.processes) + SPARE
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and needed > limit:
        raise PlatformError(
            f"this run needs {needed:,} open files, and a process may have {limit:,}",
            hint="raise the limit (ulimit -n, or nofile in /etc/security/limits.conf), or run fewer workers",
        )
