"""Counts the cores that this process may use: those of its affinity, or fewer by the CPU quota of a control group.

The variable HIVE_CORES lowers the number for this process and those that it starts, such as the runs of
`hive up --seeds 1..5 --jobs 2`. It binds no process to a core: only numbers that follow from the cores become smaller.

A container started with `docker --cpus 2`, a pod with a CPU limit, and a systemd unit with `CPUQuota` see all cores of
the machine, but the kernel stops them for the rest of each period once they have used their quota.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hive.errors import UsageError

# Type of a mounted file system of control groups -> the files of a quota: in version 2 `cpu.max` holds both numbers,
# "max" without a quota. Version 1 has a file for each, and -1 without a quota.
FILES = {"cgroup2": ("cpu.max",), "cgroup": ("cpu.cfs_quota_us", "cpu.cfs_period_us")}
UNLIMITED = ("max", "-1")

LIMIT = "HIVE_CORES"


def cores() -> int:
    """Return the number of cores that this process may keep busy: a quota of 1.5 cores is 2 for part of the time.

    Raises UsageError for a HIVE_CORES that is not a positive number.
    """
    quota = cpu_quota()
    available = min(len(os.sched_getaffinity(0)), cores_limit() or sys.maxsize)
    return available if quota is None else min(available, max(1, math.ceil(quota)))


def cores_limit() -> int | None:
    """Return the number in HIVE_CORES; None without one. Raises UsageError."""
    text = os.environ.get(LIMIT, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text)):
        raise UsageError(f"{LIMIT} is `{text}`: expected a whole number >= 1", hint=f"unset {LIMIT} to use all cores")
    return int(text)


@contextmanager
def share_of_cores(shares: int) -> Iterator[None]:
    """Set HIVE_CORES, inside the context, to what each of this many shares of the cores has: at least 1."""
    before, share = os.environ.get(LIMIT), max(1, cores() // shares)
    os.environ[LIMIT] = str(share)
    try:
        yield
    finally:
        if before is None:
            del os.environ[LIMIT]
        else:
            os.environ[LIMIT] = before


def cpu_quota(proc: Path = Path("/proc")) -> float | None:
    """Return the lowest CPU quota of this process's control group and the groups above it, in cores; None without one.

    proc: where `self/cgroup` and `self/mountinfo` lie.
    """
    quotas = [quota for folder, kind in _groups(proc) if (quota := _quota_of(folder, FILES[kind])) is not None]
    return min(quotas, default=None)


def _groups(proc: Path) -> Iterator[tuple[Path, str]]:
    """Yield the folder of each group that this process belongs to, from its own one upwards, and the mount's type."""
    try:
        mounts = [line.partition(" - ") for line in (proc / "self/mountinfo").read_text().splitlines()]
        groups = [line.split(":", 2)[1:] for line in (proc / "self/cgroup").read_text().splitlines()]
    except OSError:
        return
    for place, _, file_system in mounts:
        kind, _, options = file_system.partition(" ")
        if kind not in FILES or (kind == "cgroup" and "cpu" not in re.split("[ ,]", options)):
            continue
        controller = "cpu" if kind == "cgroup" else ""  # the only group of version 2 names no controllers
        root, mount = place.split()[3:5]
        for name in (name for controllers, name in groups if controller in controllers.split(",")):
            yield from ((folder, kind) for folder in _folders(name, root, mount))


def _folders(name: str, root: str, mount: str) -> Iterator[Path]:
    """Yield the folder of a group and those above it, below a mount that shows the groups from `root` on."""
    below = os.path.relpath(name, root)
    # A container may see its group as the root of the mount, under the name that it has outside.
    folder = Path(mount) if below.startswith("..") else Path(mount, below)
    yield from (level for level in (folder, *folder.parents) if level.is_relative_to(mount))


def _quota_of(folder: Path, files: tuple[str, ...]) -> float | None:
    try:
        quota, period = " ".join((folder / name).read_text() for name in files).split()
        return None if quota in UNLIMITED or int(period) <= 0 else int(quota) / int(period)
    except (OSError, ValueError):
        return None  # the root group has no such file
