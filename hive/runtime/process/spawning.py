"""Start a fork server, with the standard library only, because the supervisor does it before its other imports.

hive.runtime.process.fork_server describes what a fork server does. hive.runtime.run starts the first one of a run,
hive.runtime.process.forked its replacements.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hive.hash_seed import DEFAULT
from hive.runtime.process.stop_signals import blocked

THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
# glibc returns large freed blocks to the system at once, so each array of a network is paged in anew: 20 % of the time
# of a gradient of images. Blocks up to the maximum of 32 MiB now come from the heap, which keeps up to 1 GiB.
# With huge pages for the heap, where the kernel has them, a fork copies 20,000 entries of the page table fewer: 3 ms
# instead of 7.
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}

OUTPUT = "fork-server.out"  # file in the log folder with the server's output
EARLY = "--early"  # option of a supervisor that is started before its run has a directory
SUPERVISOR_OUTPUT = "supervisor.out"  # file in the log folder with the supervisor's output

# Variables in the environment of a supervisor that a Python program has started, which waits for the run.
PROGRAM = "HIVE_PROGRAM"  # pid of the program: its end ends the run
CALLBACKS = "HIVE_CALLBACKS"  # where its callbacks listen (hive.training.callbacks.caller)

MARK = "HIVE_RUN_MARK"  # variable in the environment of a run's processes and of those that user code starts there

# Modules that runs of the built-in trainer import, the last one only in collectors, where each would import it again.
TRAINER = ("hive.schemes.trainer", "gymnasium", "hive.envs.vectors.compiled_vector")

CUSTOM_TOPOLOGY = re.compile(r"""^[^#\n]*\b(topology\s*=|scheme\s*=\s*["'][^"'\n]*:)""", re.MULTILINE)

ForkServer = tuple["subprocess.Popen[bytes]", socket.socket]  # the process, and this end of the connection to it


def modules_to_preload(config: Path) -> tuple[str, ...]:
    """Return the modules that a fork server may import before it is told to build the topology of this config.

    A custom topology or scheme may need no torch, so for these, and for a file that cannot be read, there are none. The
    text is searched and not parsed: a wrong guess costs time and nothing else.
    """
    try:
        return () if CUSTOM_TOPOLOGY.search(config.read_text()) else TRAINER
    except (OSError, ValueError):
        return ()


def start_fork_server(log_folder: Path | None, preload: Sequence[str] = ()) -> ForkServer:
    """Start a fork server in a session of its own, with its output appended to OUTPUT in the log folder.

    log_folder: None if it does not exist yet. The server keeps its output in memory then, until its first build.
    preload: modules that it imports at once, while the caller prepares the request to build.
    """
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-P", "-m", "hive.runtime.process.fork_server", str(theirs.fileno()), *preload]
    output = os.memfd_create(OUTPUT) if log_folder is None else _opened(log_folder / OUTPUT)
    with theirs, os.fdopen(output, "ab") as out, blocked():
        server = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            env={**MALLOC, **DEFAULT, **os.environ, **THREADS, MARK: _mark()},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    return server, ours


def _opened(path: Path) -> int:
    from hive.records.regular import open_appended  # the server is started before this import, where there is no folder

    return open_appended(path, 0o644)


def _mark() -> str:
    """Return the mark of this supervisor, the same for each of its fork servers: its pid and when it began, in ticks.

    By it an actor that is restarted, and the last fork server, find processes from the time of an earlier server.
    """
    began = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    return f"{os.getpid()} {began}"


def is_supervisor(pid: int) -> bool:
    """Return whether a process is the supervisor of a run.

    An actor, such as a tuner, may start runs, which continue after its own has ended.
    """
    try:
        return b"hive.runtime.run" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
