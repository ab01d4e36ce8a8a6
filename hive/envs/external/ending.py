"""Stand-in."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

SWEEP_S = 5.0


def end_processes(pid: int, mark: str) -> None:
    """Kill a process with all that it has started, and wait until they are gone."""
    deadline = time.monotonic() + SWEEP_S
    while (left := _of(pid, mark)) and time.monotonic() < deadline:
        for one in left:
            with contextlib.suppress(OSError):
                os.kill(one, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.001)


def _of(pid: int, mark: str) -> set[int]:
    entry = f"HIVE_ENV_MARK={mark}".encode()
    found = set()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if (folder / "stat").read_text().rpartition(")")[2].split()[0] in "ZX" and int(folder.name) != pid:
                continue
            if int(folder.name) == pid or entry in (folder / "environ").read_bytes().split(b"\0"):
                found.add(int(folder.name))
    return found
