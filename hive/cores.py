"""Counts the cores that this process may use: those of its affinity, or fewer by the CPU quota of a control group.

A container started with `docker --cpus 2`, a pod with a CPU limit, and a systemd unit with `CPUQuota` see all cores of
the machine, but the kernel stops them for the rest of each period once they have used their quota.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

# Version of control groups -> the files of a quota: `cpu.max` holds both numbers, "max" without a quota. Version 1 has
# a file for each, and -1 without a quota.
FILES = {2: ("cpu.max",), 1: ("cpu.cfs_quota_us", "cpu.cfs_period_us")}
UNLIMITED = ("max", "-1")
CONTROLLER = "cpu"


def cores() -> int:
    """Return the number of cores that this process may keep busy: a quota of 1.5 cores is 2 for part of the time."""
    available, quota = len(os.sched_getaffinity(0)), cpu_quota()
    return available if quota is None else min(available, max(1, math.ceil(quota)))


def cpu_quota(proc: Path = Path("/proc")) -> float | None:
    """Return the lowest CPU quota of this process's control group and the groups above it, in cores; None without one.

    proc: where `self/cgroup` and `self/mountinfo` lie.
    """
    quotas = [quota for folder, version in _groups(proc) if (quota := _quota_of(folder, FILES[version])) is not None]
    return min(quotas, default=None)


def _groups(proc: Path) -> Iterator[tuple[Path, int]]:
    """Yield the folder of each group that this process belongs to, from its own one upwards, and its version."""
    try:
        mounts = [line.split() for line in (proc / "self/mountinfo").read_text().splitlines()]
        lines = [line.split(":", 2) for line in (proc / "self/cgroup").read_text().splitlines()]
    except OSError:
        return
    for words in mounts:
        if "-" not in words or len(words) < words.index("-") + 4:
            continue
        root, mount, kind, options = words[3], Path(words[4]), words[words.index("-") + 1], words[-1].split(",")
        if kind == "cgroup2":
            version, names = 2, [group for _, controllers, group in lines if not controllers]
        elif kind == "cgroup" and CONTROLLER in options:
            version, names = 1, [group for _, controllers, group in lines if CONTROLLER in controllers.split(",")]
        else:
            continue
        for name in names:
            # A container may see its group as the root of the mount, under the name that it has outside.
            below = os.path.relpath(name, root)
            folder = mount if below.startswith("..") else mount / below
            yield from ((one, version) for one in (folder, *folder.parents) if one == mount or mount in one.parents)


def _quota_of(folder: Path, files: tuple[str, ...]) -> float | None:
    try:
        quota, period = " ".join((folder / name).read_text() for name in files).split()
        return None if quota in UNLIMITED or int(period) <= 0 else int(quota) / int(period)
    except (OSError, ValueError):
        return None  # the root group has no such file
