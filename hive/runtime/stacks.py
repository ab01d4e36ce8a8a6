"""Stacks: what a process is executing right now, without its help.

A forked process hands a signal to Python's `faulthandler`, which writes the stacks of all its threads from inside the
signal handler: also when the process is stuck in native code, in an environment, or in a loop without an await. (Not
when it is stopped, or waits in the kernel without hearing signals.) The text goes to `log/<process>.stacks`; whoever
sent the signal reads what was added there.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
from collections.abc import Mapping
from pathlib import Path

__all__ = ["listen_for_stacks", "read_stacks"]

SIGNAL = signal.SIGUSR2
WAIT_S = 2.0  # for the text of a process that lives: milliseconds, seconds where it does not get the processor
LOOK_S = 0.01
MOST_BYTES = 1 << 20  # read at once: thousands of frames


def stacks_file(folder: Path, process: str) -> Path:
    return folder / f"{process}.stacks"


def listen_for_stacks(folder: Path, process: str) -> None:
    """In the process itself, at its start: from now on the signal makes it write its stacks."""
    fd = os.open(stacks_file(folder, process), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    faulthandler.register(SIGNAL, file=fd, all_threads=True)


async def read_stacks(folder: Path, pids: Mapping[str, int]) -> dict[str, str]:
    """The stacks of these processes, innermost call first; "" of one that did not answer in time."""
    before = {process: _size(stacks_file(folder, process)) for process in pids}
    for pid in pids.values():
        try:
            os.kill(pid, SIGNAL)
        except ProcessLookupError:
            pass
    found = dict.fromkeys(pids, "")
    for _ in range(round(WAIT_S / LOOK_S)):
        await asyncio.sleep(LOOK_S)
        now = {process: _added(stacks_file(folder, process), before[process]) for process in pids}
        complete = all(now.values()) and now == found  # the same twice: nothing is being written any more
        found = now
        if complete:
            break
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _added(path: Path, start: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(MOST_BYTES).decode(errors="backslashreplace").strip()
    except OSError:
        return ""
