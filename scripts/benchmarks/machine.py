"""Describe the machine of a bench, without which its figures have no meaning."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import subprocess
import time
from pathlib import Path

import hive

PACKAGES = ("torch", "numpy", "gymnasium", "pyzmq", "uvloop")
ROOT = Path(__file__).resolve().parents[2]


def machine_facts() -> dict[str, object]:
    """Return processor, cores, kernel, versions, commit and the load before the bench began."""
    return {
        "cpu": cpu_model(Path("/proc/cpuinfo").read_text()),
        "cores": cores(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "hive": hive.__version__,
        **{name: _version(name) for name in PACKAGES},
        "commit": commit_of_tree(),
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "load_before": load_average(),
    }


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def load_average() -> list[float]:
    """Return the mean number of runnable processes over 1, 5 and 15 minutes; above 0 before a bench, others ran."""
    return [round(value, 2) for value in os.getloadavg()]


class CpuMeter:
    """Measures the CPU time of other programs: of all processors, less this process and its ended children."""

    def __init__(self) -> None:
        self.start = time.monotonic(), taken_cpu_s(Path("/proc/stat").read_text()), _own_cpu_s()

    def others_cores(self) -> float:
        """Return CPU seconds per second since the meter was created, including time that the hypervisor withheld."""
        at, taken, own = self.start
        others = taken_cpu_s(Path("/proc/stat").read_text()) - taken - (_own_cpu_s() - own)
        return max(others, 0.0) / max(time.monotonic() - at, 1e-9)


def taken_cpu_s(stat: str) -> float:
    """Return the CPU seconds since boot in which a processor was not idle. `stat`: text of /proc/stat."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_cpu_s() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def cpu_model(cpuinfo: str) -> str:
    """Return the model name in the text of /proc/cpuinfo, or the architecture where it has none."""
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


def commit_of_tree() -> str | None:
    """Return the commit of the tree, with `+` if it has changes other than results; None outside a repository."""
    git = ["git", "--no-optional-locks", "-C", str(ROOT)]
    status = [*git, "status", "--porcelain", "--", ".", ":!examples/results"]
    try:
        head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changes = subprocess.run(status, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+" if changes.stdout.strip() else "")
