"""The checks of this machine and the installation for `hive doctor`: functions that yield what they diagnose.

They change nothing and do not import torch.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hive.cores import LIMIT, cores, cores_limit, cpu_quota
from hive.distribution import HOME, REMEDY, strangers
from hive.errors import HiveError, PlatformError
from hive.free_memory import free_memory
from hive.gpus import Gpu, gpus_here
from hive.native import check_native
from hive.records import RunDirectory, find_runs, home_folder, list_checkpoints, run_state
from hive.runtime.run.folders import check_socket_paths, live_owners, socket_root
from hive.versions import NEEDED, OLDEST, is_old

OK, WARN, BAD = "ok", "warn", "bad"

OPTIONAL = {"tensorboardX": "record.sinks", "ale-py": "Atari", "mujoco": "MuJoCo"}  # package -> feature that needs it
DESCRIPTORS = 1024  # recommended limit of open files and of processes: enough for a run of a hundred actors
MEMORY_GIB = 2.0  # recommended free memory: torch takes half a GiB per run, slots and weights need more
SUPERVISOR = b"hive.runtime.run"  # module that a supervisor's process runs, as in its command line
DISK_GIB = 1.0  # recommended free disk space: checkpoints of a small network, and logs
# Time for leftover processes to vanish: a fork server exits after its supervisor, once it has cleaned up, and an actor
# that is being forked has a different parent for a moment.
GRACE_S = 2.0
FULL_DISK = "free some space: checkpoints cannot be written to a full disk"


@dataclass(frozen=True)
class Diagnosis:
    """The result of one check. `level` is "ok", "warn" or "bad"; `hint` suggests a solution, "" if none is needed."""

    level: str
    subject: str
    text: str
    hint: str = ""


def rated(good: bool, level: str, subject: str, text: str, hint: str = "") -> Diagnosis:
    """Return a diagnosis that is OK, or else of this level with a hint."""
    return Diagnosis(OK, subject, text) if good else Diagnosis(level, subject, text, hint)


def free_disk(path: Path) -> tuple[float, bool]:
    """Return the free GiB of the disk that a path is on, and whether they are enough."""
    free = shutil.disk_usage(path).free / 2**30
    return free, free >= DISK_GIB


def machine_findings() -> Iterator[Diagnosis]:
    """Check this machine and the installation."""
    for check in MACHINE:
        yield from check()


def _system() -> Iterator[Diagnosis]:
    yield Diagnosis(OK, "system", f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield Diagnosis(OK, "python", f"{platform.python_version()} in {sys.executable}")
    usable, quota = cores(), cpu_quota()
    limit = "" if quota is None else f", by a CPU quota of {quota:g} cores"
    limit += "" if cores_limit() is None else f", by {LIMIT}={cores_limit()}"
    text = f"{usable} of {os.cpu_count()}{limit}; every actor computes with one thread unless its group requests more"
    hint = "all actors share one core: collection.workers = 0 and gradients.workers = 0 are fastest"
    yield rated(usable > 1, WARN, "cores", text, hint)


def _native() -> Iterator[Diagnosis]:
    try:
        yield Diagnosis(OK, "native", f"{check_native().__file__}")
    except PlatformError as error:
        yield Diagnosis(BAD, "native", str(error), error.hint)


def _folder() -> Iterator[Diagnosis]:
    others = ", ".join(strangers())
    text = f"another distribution owns files of {HOME}: {others}" if others else f"{HOME}, of no other distribution"
    yield rated(not others, BAD, "folder", text, REMEDY)


def _packages() -> Iterator[Diagnosis]:
    for name in dict.fromkeys((*NEEDED, *OPTIONAL, *OLDEST)):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            if name in NEEDED or name in OPTIONAL:
                needed = f"; only needed for {OPTIONAL[name]}" if name in OPTIONAL else ""
                yield rated(name in OPTIONAL, BAD, name, f"is not installed{needed}", f"pip install {name}")
            continue
        if name in OLDEST and is_old(name, version):
            text, oldest = f"{version} is too old: hive needs {OLDEST[name]} or newer", f"{name}>={OLDEST[name]}"
            yield Diagnosis(BAD if name in NEEDED else WARN, name, text, f"pip install '{oldest}'")
        elif name in NEEDED or name in OPTIONAL:
            yield Diagnosis(OK, name, version)


def _limits() -> Iterator[Diagnosis]:
    for subject, which in (("descriptors", resource.RLIMIT_NOFILE), ("processes", resource.RLIMIT_NPROC)):
        _, hard = resource.getrlimit(which)
        endless = hard == resource.RLIM_INFINITY
        text = "unlimited" if endless else f"at most {hard:,}"
        hint = f"raise the limit to {DESCRIPTORS:,} with ulimit"
        yield rated(endless or hard >= DESCRIPTORS, WARN, subject, text, hint)


def _memory() -> Iterator[Diagnosis]:
    free = free_memory()  # also of the control group, as for the check of a run
    hint = "stop other programs, or use fewer workers"
    yield rated(free.bytes >= MEMORY_GIB * 2**30, WARN, "memory", f"{free} free", hint)


def _gpus() -> Iterator[Diagnosis]:
    here = gpus_here()
    if not here:
        yield Diagnosis(OK, "gpu", 'none that NVIDIA\'s driver shows; only needed for gradients.device = "cuda"')
    yield from gpu_findings(here or ())


def gpu_findings(gpus: Iterable[Gpu]) -> Iterator[Diagnosis]:
    for number, gpu in enumerate(gpus):
        yield Diagnosis(OK, f"gpu {number}", f"{gpu}; driver {gpu.driver}")


def _sockets() -> Iterator[Diagnosis]:
    try:
        check_socket_paths()
        yield Diagnosis(OK, "sockets", f"in {socket_root()}, a private folder of yours")
    except HiveError as error:
        yield Diagnosis(BAD, "sockets", str(error), error.hint)


def _runs() -> Iterator[Diagnosis]:
    home = home_folder()
    place = home if home.exists() else home.absolute().parent
    if not os.access(place, os.W_OK):
        yield Diagnosis(BAD, "runs", f"{place.absolute()} is not writable", "set HIVE_HOME to a writable folder")
        return
    free, enough = free_disk(place)
    yield rated(enough, WARN, "runs", f"in {home.absolute()}, {free:.1f} GiB free", FULL_DISK)
    for run in find_runs(home):
        if run_state(run) == "lost" and run.run_file.exists():
            yield Diagnosis(WARN, run.name, "was lost: its supervisor was killed", resume_command(run))


def resume_command(run: RunDirectory) -> str:
    """Return the command that continues an ended run; "" if the run has no checkpoint."""
    return f"hive resume {run.name}" if list_checkpoints(run.checkpoints) else ""


def _leftovers() -> Iterator[Diagnosis]:
    """Check for actors that outlived their supervisor. There should be none, whichever process was killed."""
    try:
        owners, left = _strays()
        limit = time.monotonic() + GRACE_S
        while left and time.monotonic() < limit:
            time.sleep(GRACE_S / 40)
            owners, now = _strays()
            left &= now
    except HiveError:
        return  # `_sockets` reports this error
    text = f"processes without a run: {', '.join(map(str, sorted(left)))}" if left else f"none; live runs: {owners}"
    yield rated(not left, BAD, "leftovers", text, "kill -9 them")


def _strays() -> tuple[int, set[int]]:
    """Return the number of live runs, and the pids of actors whose parent is not a supervisor."""
    owners = {pid for _, pid in live_owners()}
    return len(owners), {pid for pid, parent in _actors() if parent not in owners and not _supervises(parent)}


def _supervises(pid: int) -> bool:
    """Whether the process is a supervisor. `live_owners` does not list those that were started with another TMPDIR."""
    try:
        return SUPERVISOR in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _actors() -> Iterator[tuple[int, int]]:
    """Yield (pid, pid of the parent) of this user's live actors, whose process names begin with `hive:`."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                name, _, rest = (entry / "stat").read_text(errors="replace").partition("(")[2].rpartition(") ")
                state, parent = rest.split()[:2]
                if name.startswith("hive:") and state not in "ZX":
                    yield int(entry.name), int(parent)
        except (OSError, ValueError):
            continue  # the process exited meanwhile


MACHINE: tuple[Callable[[], Iterator[Diagnosis]], ...] = (
    *(_system, _native, _folder, _packages, _limits, _memory, _gpus, _sockets, _runs, _leftovers),
)
