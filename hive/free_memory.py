"""How much memory a run may still take: that of the machine, and that of the control groups of this process.

    free = min(MemAvailable, limit - usage of every control group from this process's up to the root)

A container or a job of Slurm or systemd has a limit of its own, often far below the machine's memory; the kernel kills
a process beyond it. Page cache that can be dropped is not counted as used, as in MemAvailable.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from hive.errors import MemoryShort

MEMORY_SHARE = 0.9
"""Largest share of the free memory that a run may take: the rest is for activations, environments and Python itself,
and more would risk the kernel's out-of-memory killer."""

UNLIMITED = 1 << 60  # bytes: version 1 has no word for "no limit", but a number near 2^63
RESERVED = 4 << 30  # bytes of addresses that libraries reserve without memory behind them, such as arenas of threads

# Version -> file of the usage, files of limits, and the name in memory.stat of the cache that can be dropped.
FILES = {
    "cgroup2": ("memory.current", ("memory.max", "memory.high"), "inactive_file"),
    "cgroup": ("memory.usage_in_bytes", ("memory.limit_in_bytes",), "total_inactive_file"),
}


@dataclass(frozen=True)
class FreeMemory:
    """bytes: what is free. group: the control group whose limit this is; "": all that the machine has left."""

    bytes: int
    group: str = ""

    @property
    def usable(self) -> int:
        """The bytes that a run may take."""
        return int(MEMORY_SHARE * self.bytes)

    def __str__(self) -> str:
        return size_text(self.bytes) + (f" (limit of the control group {self.group})" if self.group else "")


def free_memory(proc: Path = Path("/proc/self")) -> FreeMemory:
    """Return the free memory of the machine, or of a control group of this process that has less."""
    limits = [FreeMemory(psutil.virtual_memory().available)]
    with suppress(OSError, ValueError):
        paths = _groups((proc / "cgroup").read_text())
        for kind, root, mount in _mounts((proc / "mountinfo").read_text()):
            if kind in paths:
                limits += _left(mount, _below(paths[kind], root), kind)
    return min(limits, key=lambda free: free.bytes)


def size_text(count: float) -> str:
    """Return a number of bytes as text: "312 bytes", "24.1 KiB", "1.50 TiB"."""
    if count < 1024:
        return f"{count:.0f} bytes"
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        count /= 1024
        if count < 1024 or unit == "PiB":
            break
    return f"{count:,.{2 if count < 10 else 1 if count < 100 else 0}f} {unit}"


@contextmanager
def allocation_limit(what: str) -> Iterator[None]:
    """Let code that hive cannot size in advance allocate what is free, and no more.

    Raises MemoryShort, which names `what`, where an allocation fails. Without the limit the kernel would grant more
    than there is, and kill the process when it is written.
    """
    free = free_memory()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = psutil.Process().memory_info().vms + free.bytes + RESERVED
    lower = [bound for bound in (limit, soft, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(lower), hard))
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        text = str(error)
        if isinstance(error, RuntimeError) and not any(sign in text for sign in ("allocate memory", "overflowed")):
            raise
        cause = text.splitlines()[0] if text else "an allocation failed"
        raise MemoryShort(f"{what} needs more memory than is free, {free}: {cause}") from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _groups(text: str) -> dict[str, str]:
    """Return the path of this process's control group by the kind of file system, from /proc/self/cgroup."""
    found = {}
    for line in text.splitlines():
        number, controllers, path = line.split(":", 2)
        if not controllers and number == "0":
            found["cgroup2"] = path
        elif "memory" in controllers.split(","):
            found["cgroup"] = path
    return found


def _mounts(text: str) -> Iterator[tuple[str, str, Path]]:
    """Yield (kind, root, mount point) of the file systems of control groups with memory, from /proc/self/mountinfo."""
    for line in text.splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(",")):
            root, point = fields.split(" ")[3:5]
            yield kind, root, Path(point.replace("\\040", " "))


def _below(path: str, root: str) -> str:
    """Return the group's path below the mount, which shows only the groups from `root` on; "" if that is not above it.

    A container often sees its own group as the root of the mount.
    """
    inside = root == "/" or path == root or path.startswith(root + "/")
    relative = path[len(root) if root != "/" else 0 :].strip("/") if inside else ""
    return "" if ".." in relative.split("/") else relative


def _left(mount: Path, path: str, kind: str) -> Iterator[FreeMemory]:
    """Yield what is left in a control group and in those above it, where they have a limit."""
    usage, limits, cache = FILES[kind]
    folder = mount / path
    for group in (folder, *(parent for parent in folder.parents if parent == mount or mount in parent.parents)):
        for name in limits:
            with suppress(OSError, ValueError):
                limit = int((group / name).read_text())  # ValueError: "max"
                if limit < UNLIMITED:
                    used = int((group / usage).read_text()) - _stat(group, cache)
                    yield FreeMemory(max(0, limit - used), f"/{group.relative_to(mount)}".replace("/.", "/"))


def _stat(group: Path, name: str) -> int:
    """Return a number of the group's memory.stat; 0 if it has none."""
    with suppress(OSError, ValueError):
        for line in (group / "memory.stat").read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
