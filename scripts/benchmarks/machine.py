"""What a bench ran on: a figure without its machine says nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import subprocess
import time
from pathlib import Path

import hive

__all__ = ["CpuMeter", "cores", "load_average", "machine_facts"]

PACKAGES = ("torch", "numpy", "gymnasium", "pyzmq", "uvloop")
ROOT = Path(__file__).resolve().parents[2]


def machine_facts() -> dict[str, object]:
    """Processor, cores, kernel, versions, commit and the load before the bench began."""
    return {
        "cpu": cpu_model(Path("/proc/cpuinfo").read_text()),
        "cores": cores(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "hive": hive.__version__,
        **{name: _version(name) for name in PACKAGES},
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "load_before": load_average(),
    }


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def load_average() -> list[float]:
    """Runnable processes over 1, 5 and 15 minutes; more than 0 before a bench means that something else was running."""
    return [round(value, 2) for value in os.getloadavg()]


class CpuMeter:
    """How much CPU others had: what all processors did, less what this process and its ended children did."""

    def __init__(self) -> None:
        self.start = time.monotonic(), taken_cpu_s(Path("/proc/stat").read_text()), _own_cpu_s()

    def others_cores(self) -> float:
        """CPU seconds per second since the meter was made, those that a hypervisor kept for others included."""
        at, taken, own = self.start
        others = taken_cpu_s(Path("/proc/stat").read_text()) - taken - (_own_cpu_s() - own)
        return max(others, 0.0) / max(time.monotonic() - at, 1e-9)


def taken_cpu_s(stat: str) -> float:
    """CPU seconds since the start of the machine in which a processor was not idle, from /proc/stat."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_cpu_s() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def cpu_model(cpuinfo: str) -> str:
    """The model in /proc/cpuinfo, or what the architecture is called where that names none."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the tree, with `+` where it has changes; None outside a repository."""
    git = ["git", "--no-optional-locks", "-C", str(ROOT)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changes = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+" if changes.stdout.strip() else "")
