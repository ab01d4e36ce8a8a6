"""`hive doctor`: finds problems with this machine or with one run, and suggests solutions.

    ok      torch        2.7.1
    warn    descriptors  a process may have 1,024; a run of 100 actors needs about 900
    bad     sockets      /tmp/hive-1000 is not a private folder of yours - remove it, or: chmod 700 /tmp/hive-1000

Every check is a function that yields findings. Checks change nothing and do not import torch. The exit code is 1 if a
finding is `bad`, otherwise 0.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.cli.parts.arguments import add_json, add_run
from hive.cli.parts.select_run import named_run
from hive.cores import cores, cpu_quota
from hive.distribution import HOME, REMEDY, strangers
from hive.errors import HiveError, PlatformError
from hive.gpus import gpus_here
from hive.native import check_native
from hive.records import (
    RunDirectory,
    find_runs,
    home_folder,
    is_alive,
    list_checkpoints,
    read_document,
    read_jsonl,
    read_run_facts,
    run_state,
)
from hive.records.crash import StartFailure
from hive.records.documents import json_text
from hive.records.regular import open_regular
from hive.records.run_warnings import RunWarning, warnings_of
from hive.records.summary import Summary
from hive.runtime.process.free_memory import free_memory
from hive.runtime.run.control import OtherProtocol
from hive.runtime.run.folders import check_socket_paths, live_owners, socket_root
from hive.table import table_text

if TYPE_CHECKING:
    from hive.monitor.snapshot import Snapshot

OK, WARN, BAD = "ok", "warn", "bad"

NEEDED = (
    "torch",
    "numpy",
    "pyzmq",
    "msgpack",
    "uvloop",
    "gymnasium",
    "safetensors",
    "psutil",
    "textual",
    "nvidia-ml-py",
)
OPTIONAL = {"tensorboardX": "record.sinks", "ale-py": "Atari", "mujoco": "MuJoCo"}  # package -> feature that needs it
DESCRIPTORS = 1024  # recommended limit of open files and of processes: enough for a run of a hundred actors
MEMORY_GIB = 2.0  # recommended free memory: torch takes half a GiB per run, slots and weights need more
CRASH_LINE_BYTES = 1000  # maximum bytes of the first line of a crash report that are shown
SUPERVISOR = b"hive.runtime.run"  # module that a supervisor's process runs, as in its command line
DISK_GIB = 1.0  # recommended free disk space: checkpoints of a small network, and logs
# Time for leftover processes to vanish: a fork server exits after its supervisor, once it has cleaned up, and an actor
# that is being forked has a different parent for a moment.
GRACE_S = 2.0
STUCK_S = 10.0  # time in one phase after which an actor is reported: healthy steps, updates and saves are shorter


@dataclass(frozen=True)
class Diagnosis:
    """The result of one check. `level` is "ok", "warn" or "bad"; `hint` suggests a solution, "" if none is needed."""

    level: str
    subject: str
    text: str
    hint: str = ""


def add_doctor(commands: Any) -> None:
    doctor = commands.add_parser(
        "doctor",
        description="Find problems with this machine and the installation, or with one run, and suggest solutions. "
        "The exit code is 1 if a finding is bad.",
        epilog="example: hive doctor cartpole-ppo-1",
    )
    add_run(doctor, "this machine instead of a run")
    add_json(doctor, "one JSON array of findings")
    doctor.set_defaults(run=run_doctor)


def run_doctor(options: argparse.Namespace) -> int:
    name = options.run_name
    findings = [*(machine_findings() if name is None else run_findings(named_run(name)))]
    if options.json:
        print(json_text([asdict(finding) for finding in findings], indent=2))
    else:
        print(
            table_text(
                ("", "", ""), [(f.level, f.subject, f.text + (f" - {f.hint}" if f.hint else "")) for f in findings]
            )
        )
    return int(any(finding.level == BAD for finding in findings))


# --- the machine


def machine_findings() -> Iterator[Diagnosis]:
    """Check this machine and the installation."""
    for check in MACHINE:
        yield from check()


def _system() -> Iterator[Diagnosis]:
    yield Diagnosis(OK, "system", f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield Diagnosis(OK, "python", f"{platform.python_version()} in {sys.executable}")
    usable, quota = cores(), cpu_quota()
    limit = "" if quota is None else f", by a CPU quota of {quota:g} cores"
    yield Diagnosis(
        OK if usable > 1 else WARN,
        "cores",
        f"{usable} of {os.cpu_count()}{limit}; every actor computes with one thread unless its group requests more",
        "" if usable > 1 else "all actors share one core: collection.workers = 0 and gradients.workers = 0 are fastest",
    )


def _native() -> Iterator[Diagnosis]:
    try:
        yield Diagnosis(OK, "native", f"{check_native().__file__}")
    except PlatformError as error:
        yield Diagnosis(BAD, "native", str(error), error.hint)


def _folder() -> Iterator[Diagnosis]:
    others = ", ".join(strangers())
    text = f"another distribution owns files of {HOME}: {others}" if others else f"{HOME}, of no other distribution"
    yield Diagnosis(BAD if others else OK, "folder", text, REMEDY if others else "")


def _packages() -> Iterator[Diagnosis]:
    for name in (*NEEDED, *OPTIONAL):
        try:
            yield Diagnosis(OK, name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            if name in NEEDED:
                yield Diagnosis(BAD, name, "is not installed", f"pip install {name}")
            else:
                yield Diagnosis(OK, name, f"is not installed; only needed for {OPTIONAL[name]}")


def _limits() -> Iterator[Diagnosis]:
    for subject, which, need in (
        ("descriptors", resource.RLIMIT_NOFILE, DESCRIPTORS),
        ("processes", resource.RLIMIT_NPROC, DESCRIPTORS),
    ):
        _, hard = resource.getrlimit(which)
        endless = hard == resource.RLIM_INFINITY
        short = not endless and hard < need
        text = "unlimited" if endless else f"at most {hard:,}"
        yield Diagnosis(
            WARN if short else OK, subject, text, f"raise the limit to {need:,} with ulimit" if short else ""
        )


def _memory() -> Iterator[Diagnosis]:
    free = free_memory()  # also of the control group, as for the check of a run
    short = free.bytes < MEMORY_GIB * 2**30
    yield Diagnosis(
        WARN if short else OK,
        "memory",
        f"{free} free",
        "stop other programs, or use fewer workers" if short else "",
    )


def _gpus() -> Iterator[Diagnosis]:
    found = gpus_here()
    if not found:
        yield Diagnosis(OK, "gpu", 'none that NVIDIA\'s driver shows; only needed for gradients.device = "cuda"')
    for number, gpu in enumerate(found or ()):
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
    free = shutil.disk_usage(place).free / 2**30
    short = free < DISK_GIB
    yield Diagnosis(
        WARN if short else OK,
        "runs",
        f"in {home.absolute()}, {free:.1f} GiB free",
        "free some space: checkpoints cannot be written to a full disk" if short else "",
    )
    for run in find_runs(home):
        if run_state(run) == "lost" and run.run_file.exists():
            yield Diagnosis(WARN, run.name, "was lost: its supervisor was killed", _resume_command(run))


def _resume_command(run: RunDirectory) -> str:
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
    if left:
        yield Diagnosis(
            BAD, "leftovers", f"processes without a run: {', '.join(map(str, sorted(left)))}", "kill -9 them"
        )
    else:
        yield Diagnosis(OK, "leftovers", f"none; live runs: {owners}")


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


# --- a run


def run_findings(directory: RunDirectory) -> Iterator[Diagnosis]:
    """Check a run, live or ended."""
    state = run_state(directory)
    yield from _live(directory) if state == "running" else _ended(directory, state)
    saved = list_checkpoints(directory.checkpoints)
    newest = f"{len(saved)}, the newest of update {saved[-1].update:,}" if saved else "none yet"
    hint = "" if saved else "set [checkpoint] every, or use `hive save`"
    yield Diagnosis(OK if saved else WARN, "checkpoints", newest, hint)
    for path in sorted(directory.crashes.glob("*.txt")):
        try:
            with open_regular(path) as file:
                first = file.readline(CRASH_LINE_BYTES).decode(errors="replace").strip()
        except OSError as error:
            first = f"its report cannot be read: {error.strerror}"
        yield Diagnosis(WARN, "crash", first, f"report: {path}")
    if directory.nan_dumps.is_dir() and (kept := [*directory.nan_dumps.iterdir()]):
        yield Diagnosis(WARN, "not finite", f"{len(kept)} gradients were NaN or infinite", f"see {directory.nan_dumps}")


def _ended(directory: RunDirectory, state: str) -> Iterator[Diagnosis]:
    resume = _resume_command(directory)
    if state == "lost":
        yield Diagnosis(BAD, "state", "lost: its supervisor was killed or the machine went down", resume)
        yield from _warned(warnings_of(read_jsonl(directory.events_file)).values())
        return
    if not directory.summary_file.exists():  # as on a full disk
        error = read_document(directory.failure_file, StartFailure).error.partition("\n")[0]
        yield Diagnosis(BAD, "state", f"{state} to start: {error}", f"see {directory.failure_file}")
        return
    summary = Summary.read(directory.summary_file)
    bad = state == "failed"
    text = f"{state}: {summary.error.partition(chr(10))[0]}" if summary.error else summary.ending
    yield Diagnosis(BAD if bad else OK, "state", text, resume if state != "finished" else "")
    yield from _warned(RunWarning.of(warning) for warning in summary.warnings)
    restarts = {name: n for name, n in summary.restarts.items() if n}
    yield from (Diagnosis(WARN, name, f"was restarted {n} times", "hive logs") for name, n in restarts.items())


def _warned(warnings: Iterable[RunWarning]) -> Iterator[Diagnosis]:
    for warning in warnings:
        until = "" if warning.last_steps is None else f" to {warning.last_steps:,}"
        text = f"{warning.text} (steps {warning.first_steps:,}{until})"
        yield Diagnosis(OK if until else WARN, warning.kind, text, "" if until else warning.advice)


def _live(directory: RunDirectory) -> Iterator[Diagnosis]:
    from hive.monitor.poller import poll_once

    facts = read_run_facts(directory)
    try:
        snapshot = poll_once(directory)
    except HiveError as error:
        stopped = is_alive(facts) and not isinstance(error, OtherProtocol)
        yield Diagnosis(BAD, "supervisor", str(error), f"kill -CONT {facts.pid}" if stopped else error.hint)
        return
    if snapshot.supervisor:
        yield Diagnosis(BAD, "supervisor", snapshot.supervisor, f"kill -CONT {facts.pid}")
    for check in LIVE:
        yield from check(directory, snapshot)


def _progress(directory: RunDirectory, snapshot: Snapshot) -> Iterator[Diagnosis]:
    done = f"{snapshot.env_steps:,} of {snapshot.goal_steps:,} steps"
    paused = snapshot.state == "paused"
    hint = f"hive resume {directory.name}" if paused else ""
    yield Diagnosis(WARN if paused else OK, "state", f"{snapshot.state}, {done}", hint)
    yield from _warned(snapshot.warnings)
    if snapshot.bound_by and snapshot.state == "running":
        yield Diagnosis(OK, "bound by", snapshot.bound_by)


def _actors_at_work(directory: RunDirectory, snapshot: Snapshot) -> Iterator[Diagnosis]:
    for row in snapshot.actors:
        if row.state != "running":
            yield Diagnosis(WARN, row.name, f"is {row.state}", f"hive history {directory.name} {row.name}")
        elif row.since_s > STUCK_S and not row.activity.startswith(("wait", "paused", "runtime")):
            text = f"in `{row.activity}` for {row.since_s:.0f} s"
            yield Diagnosis(WARN, row.name, text, f"hive stack {directory.name} {row.name}")
        if row.restarts:
            words = f": {row.last_words}" if row.last_words else ""
            yield Diagnosis(WARN, row.name, f"was restarted {row.restarts} times{words}", "hive logs")


def _dropped(directory: RunDirectory, snapshot: Snapshot) -> Iterator[Diagnosis]:
    for name, channel in snapshot.channels.items():
        if lost := sum(channel.dropped.values()):
            reasons = ", ".join(f"{n:,} {reason}" for reason, n in channel.dropped.items() if n)
            yield Diagnosis(WARN, name, f"{lost:,} of {channel.produced:,} messages were dropped: {reasons}")


def _disk(directory: RunDirectory, snapshot: Snapshot) -> Iterator[Diagnosis]:
    free = shutil.disk_usage(directory.path).free / 2**30
    if free < DISK_GIB:
        hint = "free some space: checkpoints cannot be written to a full disk"
        yield Diagnosis(WARN, "disk", f"{free:.1f} GiB free", hint)


def _gpus_of_run(directory: RunDirectory, snapshot: Snapshot) -> Iterator[Diagnosis]:
    for number, gpu in enumerate(snapshot.gpus):
        yield Diagnosis(OK, f"gpu {number}", f"{gpu}; driver {gpu.driver}")


LIVE: tuple[Callable[[RunDirectory, Snapshot], Iterator[Diagnosis]], ...] = (
    *(_progress, _actors_at_work, _dropped, _gpus_of_run, _disk),
)
