"""Read the stacks of a running process from outside, even if it is stuck.

A forked process registers a signal with Python's `faulthandler`, which writes the stacks of all threads from inside the
signal handler. That works while the process is stuck in native code, in an environment, or in a loop without an await,
but not while it is stopped (SIGSTOP) or in an uninterruptible system call.

A second signal has a handler in Python, which adds what the threads do not show: for each task of the event loop, the
chain of calls that it waits for. It runs at the interpreter's next step, so a stuck process writes only the first part.
(`faulthandler` could chain one signal to both handlers, but then it cannot restart interrupted system calls of native
code.)

Both parts are appended to `log/<process>.stacks`, and the sender of the signals reads the new text. Those of its
companions (hive.runtime.process.user_code.companion), such as helpers, are in front of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from hive.records.regular import open_appended
from hive.runtime.process.pidfds import opened, send_signal
from hive.runtime.process.user_code.throwaway import children

THREADS_SIGNAL = signal.SIGUSR2
TASKS_SIGNAL = signal.SIGUSR1
WAIT_S = 2.0  # time limit for an answer: it takes milliseconds, or seconds on a machine that is overloaded
POLL_S = 0.01  # interval between reads of the files
MAX_BYTES = 1 << 20  # limit on the text of one process: thousands of frames
TASKS_S = 0.3  # time limit for the second part after the first: one iteration of an event loop that runs
TASKS = "Tasks (innermost call first):"
OWN = "hive:"  # begins the names of hive's processes; those that user code has started do not know the signal
MAX_CALLS = 100  # limit on the calls of one task: chains are about ten deep, and 100 show a recursion


def stacks_file(folder: Path, process: str) -> Path:
    return folder / f"{process}.stacks"


def listen_for_stacks(folder: Path, process: str) -> None:
    """Make this process write its stacks into `folder` when it receives the two signals. Raises OSError."""
    fd = open_appended(stacks_file(folder, process), 0o644)

    def add_tasks(number: int, frame: FrameType | None) -> None:
        try:
            os.write(fd, f"{tasks_text()}\n".encode(errors="backslashreplace"))
        except Exception:
            pass  # an error here would be raised inside the interrupted code of the actor

    signal.signal(TASKS_SIGNAL, add_tasks)
    signal.siginterrupt(TASKS_SIGNAL, False)  # restart system calls, so that an environment inside `read` is unaffected
    faulthandler.register(THREADS_SIGNAL, file=fd, all_threads=True)


def tasks_text() -> str:
    """Return the tasks of the event loop in this thread as text, each with its chain of awaited calls."""
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        return f"{TASKS} no event loop runs"
    named = sorted((task.get_name(), "\n".join(_calls(task.get_coro()))) for task in tasks)
    return "\n".join([TASKS, *(f"  {name}\n{calls}" for name, calls in named)])


def _calls(waiting: Any) -> list[str]:
    """Return the calls that a coroutine executes or awaits, innermost first, in the format of `faulthandler`."""
    found: list[str] = []
    while waiting is not None and len(found) < MAX_CALLS:
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(waiting, f"{kind}_frame")), None)
        if kind is None:
            break  # a future, or an iterator implemented in C
        frame = getattr(waiting, f"{kind}_frame")
        if frame is not None:
            code = frame.f_code
            found.append(f'    File "{code.co_filename}", line {frame.f_lineno} in {code.co_qualname}')
        waiting = getattr(waiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
    return found[::-1]


async def read_stacks(folder: Path, pids: Mapping[str, int]) -> dict[str, str]:
    """Return process -> its stacks, innermost call first, or "" if it did not answer within WAIT_S seconds."""
    before = {process: _size(stacks_file(folder, process)) for process in pids}
    with contextlib.ExitStack() as open_now:
        held = {process: pidfd for process, pid in pids.items() if (pidfd := opened(pid)) is not None}
        for pidfd in held.values():
            open_now.callback(os.close, pidfd)
        for process in held:
            for companion, name in companions(pids[process]).items():
                await _add_companion(stacks_file(folder, process), companion, name)
        for pidfd in held.values():
            send_signal(pidfd, THREADS_SIGNAL)
            send_signal(pidfd, TASKS_SIGNAL)
    found, polls_left = dict.fromkeys(pids, ""), round(TASKS_S / POLL_S)
    for _ in range(round(WAIT_S / POLL_S)):
        await asyncio.sleep(POLL_S)
        current = {process: _added(stacks_file(folder, process), before[process]) for process in pids}
        complete = all(current.values()) and current == found  # unchanged since the last read: no write is in progress
        polls_left -= 1 if complete else 0
        found = current
        if complete and (polls_left <= 0 or all(TASKS in text for text in found.values())):
            break
    return found


def companions(pid: int) -> dict[int, str]:
    """Return the companions of an actor's process by pid, with their names, such as `helper-1`."""
    return {child: name for child in sorted(children(pid)) if (name := companion_name(child))}


def companion_name(pid: int) -> str:
    """Return the name of a companion, such as `helper-1`; "" for other processes."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # it has exited
        return ""
    return name.removeprefix(OWN) if name.startswith(OWN) else ""


async def _add_companion(path: Path, pid: int, name: str) -> None:
    """Let a companion of a process, which has inherited its file, write its stacks there, below its name."""
    if (pidfd := opened(pid, lambda: companion_name(pid) == name)) is None:  # it has exited
        return
    try:
        with path.open("a") as file:
            file.write(f"{name} (pid {pid}):\n")
        send_signal(pidfd, THREADS_SIGNAL)
    except OSError:
        return
    finally:
        os.close(pidfd)
    await asyncio.sleep(POLL_S)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _added(path: Path, start: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(MAX_BYTES).decode(errors="backslashreplace").strip()
    except OSError:
        return ""
