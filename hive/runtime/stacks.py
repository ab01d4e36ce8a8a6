"""Stacks: what a process is executing right now, without its help.

A forked process hands a signal to Python's `faulthandler`, which writes the stacks of all its threads from inside the
signal handler: also when the process is stuck in native code, in an environment, or in a loop without an await. (Not
when it is stopped, or waits in the kernel without hearing signals.) A second signal has a handler in Python, which adds
what the threads do not show: for what every task of the event loop waits, call by call. It comes when the interpreter
next takes a step, so of a process that is stuck there is the first part only. (One signal for both, handed on by
`faulthandler`, would interrupt system calls of native code: it cannot ask for their restart and for that.)

The text goes to `log/<process>.stacks`; whoever sent the signals reads what was added there.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["listen_for_stacks", "read_stacks"]

THREADS_SIGNAL = signal.SIGUSR2
TASKS_SIGNAL = signal.SIGUSR1
WAIT_S = 2.0  # for the text of a process that lives: milliseconds, seconds where it does not get the processor
LOOK_S = 0.01
MOST_BYTES = 1 << 20  # read at once: thousands of frames
TASKS_S = 0.3  # for the second part, once the first is there: a turn of a loop that runs
TASKS = "Tasks (innermost call first):"
MOST_CALLS = 100  # of a task: chains are some ten deep, a recursion is recognised


def stacks_file(folder: Path, process: str) -> Path:
    return folder / f"{process}.stacks"


def listen_for_stacks(folder: Path, process: str) -> None:
    """In the process itself, at its start: from now on the signals make it write its stacks."""
    fd = os.open(stacks_file(folder, process), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def add_tasks(number: int, frame: FrameType | None) -> None:
        try:
            os.write(fd, f"{tasks_text()}\n".encode(errors="backslashreplace"))
        except Exception:
            pass  # it interrupts whatever runs here, and must not end it

    signal.signal(TASKS_SIGNAL, add_tasks)
    signal.siginterrupt(TASKS_SIGNAL, False)  # looking changes nothing, not even for an environment inside of `read`
    faulthandler.register(THREADS_SIGNAL, file=fd, all_threads=True)


def tasks_text() -> str:
    """The tasks of the loop that runs in this thread, each with the calls that wait for one another."""
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        return f"{TASKS} no event loop runs"
    told = sorted((task.get_name(), "\n".join(_calls(task.get_coro()))) for task in tasks)
    return "\n".join([TASKS, *(f"  {name}\n{calls}" for name, calls in told)])


def _calls(waiting: Any) -> list[str]:
    """What a coroutine executes or waits for, innermost first, as `faulthandler` writes frames."""
    found: list[str] = []
    while waiting is not None and len(found) < MOST_CALLS:
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(waiting, f"{kind}_frame")), None)
        if kind is None:
            break  # a future, or an iterator of C
        frame = getattr(waiting, f"{kind}_frame")
        if frame is not None:
            code = frame.f_code
            found.append(f'    File "{code.co_filename}", line {frame.f_lineno} in {code.co_qualname}')
        waiting = getattr(waiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
    return found[::-1]


async def read_stacks(folder: Path, pids: Mapping[str, int]) -> dict[str, str]:
    """The stacks of these processes, innermost call first; "" of one that did not answer in time."""
    before = {process: _size(stacks_file(folder, process)) for process in pids}
    for pid in pids.values():
        try:
            os.kill(pid, THREADS_SIGNAL)
            os.kill(pid, TASKS_SIGNAL)
        except ProcessLookupError:
            pass
    found, patience = dict.fromkeys(pids, ""), round(TASKS_S / LOOK_S)
    for _ in range(round(WAIT_S / LOOK_S)):
        await asyncio.sleep(LOOK_S)
        now = {process: _added(stacks_file(folder, process), before[process]) for process in pids}
        complete = all(now.values()) and now == found  # the same twice: nothing is being written any more
        patience -= 1 if complete else 0
        found = now
        if complete and (patience <= 0 or all(TASKS in text for text in found.values())):
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
