"""Run user code in a child process that is thrown away, in a process that must stay safe to fork.

    fork server ── fork ── child: imports, constructs, sends plain data, exits
                           fork server: waits, ends all that the child started, reads the data

A fork copies only the thread that calls it. A thread pool, an OpenMP team or a lock that another thread holds is dead
in the copy, and whatever waits for it waits forever. So a fork server runs no constructor of a user. `in_child` returns
when the child and every process that it started have exited: what may exist only once on a machine, such as a port, is
free again. What the child prints goes to the output of the parent, up to a limit.

`Holdings` are the threads, children and open files of a process. Only a module whose import leaves all three as they
were is shared by fork: processes that share a socket, a pipe or the position in a file would take each other's data.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import io
import json
import os
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hive import errors
from hive.config.limits import START_LIMIT_S
from hive.runtime.actor.error_location import place_in_dump, signal_name
from hive.runtime.process.user_code.companion import end_with
from hive.runtime.process.user_code.sent_errors import error_data, raise_sent
from hive.runtime.process.user_code.user_exits import leave, raise_on_exit

OUTPUT_BYTES = 1_000_000  # maximum bytes of a child's output that are kept as they come; constructors print little
TAIL_BYTES = 1 << 16  # last bytes of a longer output that are kept too: the stack of a crash is printed last
CHUNK_BYTES = 1 << 16  # bytes read from a pipe at once, its usual capacity
ATTEMPTS = 2  # a crash may be a coincidence once, as for the fork server itself (forked.CRASH_ATTEMPTS)
DUMP_S = 2.0  # time for a child that is late to print its stack
SWEEP_S = 2.0  # time limit for the exit of killed processes
PR_SET_CHILD_SUBREAPER = 36
LENGTH = struct.Struct("<Q")

_forking = 0  # pid of the process that called `keep_safe_to_fork`; processes that are forked from it differ
_leave_behind: Callable[[], object] = int  # does nothing until then


def keep_safe_to_fork(leave_behind: Callable[[], None]) -> None:
    """Mark this process as one that forks others later. leave_behind: called first in each child of `in_child`."""
    global _forking, _leave_behind
    _forking, _leave_behind = os.getpid(), leave_behind


def forks() -> bool:
    """Return whether this process forks others later, so that it must not call constructors of users."""
    return _forking == os.getpid()


def thread_count() -> int:
    """Return the number of threads of this process, including those of native libraries."""
    return len(os.listdir("/proc/self/task"))


def thread_names() -> list[str]:
    """Return the names of the threads besides the main one; native libraries give theirs names of their own."""
    names = []
    for task in sorted(os.listdir("/proc/self/task"), key=int)[1:]:
        with contextlib.suppress(OSError):  # the thread has ended
            names.append(Path(f"/proc/self/task/{task}/comm").read_text().strip())
    return names


def children(pid: int | None = None) -> set[int]:
    """Return the pids of the children of all threads of a process; None: of this one."""
    found: set[int] = set()
    with contextlib.suppress(OSError):  # it has exited, or a thread has ended
        for task in Path("/proc", "self" if pid is None else str(pid), "task").iterdir():
            found.update(map(int, (task / "children").read_text().split()))
    return found


@dataclass(frozen=True)
class Holdings:
    """Number of threads, children and open files (descriptor and target) of a process."""

    threads: int
    children: frozenset[int]
    files: frozenset[tuple[str, str]]

    @classmethod
    def now(cls) -> Holdings:
        """Return those of this process."""
        files = set()
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the descriptor of this listing
                files.add((fd, os.readlink(f"/proc/self/fd/{fd}")))
        return cls(thread_count(), frozenset(children()), frozenset(files))

    def shareable_after(self, before: Holdings) -> bool:
        """Return whether a process may be forked now: it has one thread, and no new child or file."""
        return self.threads == 1 and self.children <= before.children and self.files <= before.files


def in_child(
    work: Callable[[], Any], what: str, limit_s: float = START_LIMIT_S, key: str = "", attempts: int = ATTEMPTS
) -> Any:
    """Return the result of `work`, which a child computes: plain data for JSON, with lists for tuples.

    what: names the code in errors: "the environment `mine:Env`". key: that of the limit in the config. Raises the
    HiveError that `work` raises, with its traceback as the cause, and EnvironmentFailed if the child crashes in all
    attempts, exits, is late, or raises another error.
    """
    how = ""
    for _ in range(attempts):
        child = _Child(work, what)
        try:
            ended = child.wait(limit_s)
        finally:
            child.end()
        if child.result is not None:
            return _value_or_error(child.result)
        place = place_in_dump(child.tail)
        at = f" ({place})" if place else ""
        if not ended:
            raise errors.EnvironmentFailed(
                f"{what} was not constructed within {limit_s:g} s{f' ({key})' if key else ''}{at}",
                hint=f"hive reads its spaces before a run starts; {f'raise {key}' if key else 'it is slow'}, or find "
                "what its constructor waits for",
            )
        if not os.WIFSIGNALED(child.status):
            raise errors.EnvironmentFailed(
                f"{what} ended the process that constructed it with exit code {os.WEXITSTATUS(child.status)}",
                hint="its native code, or a module that it imports, calls exit()",
            )
        how = f"{signal_name(os.WTERMSIG(child.status))}{at}"
    raise errors.EnvironmentFailed(
        f"{what} crashed the process that constructed it: killed by {how}, {attempts} times",
        hint="construct it in Python without hive to find the native code that crashes; SIGKILL may mean that the "
        "machine has too little memory",
    )


class _Child:
    """One child process and the pipes of its result and its output."""

    def __init__(self, work: Callable[[], Any], what: str) -> None:
        self.status = 0
        self.result: bytes | None = None
        self.tail = ""
        self._results = bytearray()
        self._printed = 0
        self._late = bytearray()  # the last bytes of an output that is too long
        self._recent = bytearray()  # the last bytes of the output, which may have the stack of a crash
        self._before = children()
        self._result_fd, result_end = os.pipe()
        self._output_fd, output_end = os.pipe()
        parent = os.getpid()
        _set_subreaper(True)  # what outlives the child becomes a child of this process, and is ended in `end`
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(work, what, parent, result_end, output_end)
        os.close(result_end)
        os.close(output_end)
        os.set_blocking(self._result_fd, False)
        os.set_blocking(self._output_fd, False)
        self._pidfd = os.pidfd_open(self.pid)

    def wait(self, limit_s: float) -> bool:
        """Wait until the child has exited; return False if it was killed for being late."""
        if self._exited(limit_s):
            return True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGABRT)  # faulthandler prints the stack
        self._exited(DUMP_S)
        return False

    def end(self) -> None:
        """Kill the child and all that it has started, wait for their exits, and read what is left in the pipes."""
        for kill in (os.killpg, os.kill):  # not reaped yet, so the pid still belongs to it
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(self.pid, signal.SIGKILL)
        _, self.status = os.waitpid(self.pid, 0)
        _sweep(self._before)
        _set_subreaper(False)
        while self._read():
            pass
        for fd in (self._pidfd, self._result_fd, self._output_fd):
            os.close(fd)
        if self._late:
            dropped = self._printed - OUTPUT_BYTES - len(self._late)
            note = f"\nhive: {dropped:,} bytes of output were dropped here\n".encode() if dropped > 0 else b""
            _print(note + bytes(self._late))
        self.tail = self._recent.decode(errors="replace")
        if len(self._results) >= LENGTH.size:
            size = LENGTH.unpack_from(self._results)[0]
            if len(self._results) == LENGTH.size + size:
                self.result = bytes(self._results[LENGTH.size :])

    def _exited(self, limit_s: float) -> bool:
        """Read the pipes until the child has exited; return whether it has within the limit."""
        poll, deadline = select.poll(), time.monotonic() + limit_s
        for fd in (self._pidfd, self._result_fd, self._output_fd):
            poll.register(fd, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            ready = poll.poll(left * 1e3)
            self._read()
            if any(fd == self._pidfd for fd, _ in ready):
                return True
            for fd, event in ready:
                if event & select.POLLHUP:
                    poll.unregister(fd)
        return False

    def _read(self) -> bool:
        """Read once from both pipes; return whether there was anything."""
        result, output = _chunk(self._result_fd), _chunk(self._output_fd)
        self._results += result
        kept = output[: max(0, OUTPUT_BYTES - self._printed)]
        if kept:
            _print(kept)
        self._late = (self._late + output[len(kept) :])[-TAIL_BYTES:]
        self._recent = (self._recent + output)[-TAIL_BYTES:]
        self._printed += len(output)
        return bool(result or output)


def _become(work: Callable[[], Any], what: str, parent: int, result_end: int, output_end: int) -> NoReturn:
    """Run `work` in the child, send its result or error, and exit without atexit handlers. Never returns."""
    try:
        os.setpgid(0, 0)
        end_with(parent, "hive:spaces")
        _leave_behind()
        os.dup2(output_end, 1)
        os.dup2(output_end, 2)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(line_buffering=True)
        faulthandler.enable(2)
        raise_on_exit()
        try:
            text = json.dumps({"value": work()})
        except BaseException as error:  # SystemExit and KeyboardInterrupt of user code too
            text = json.dumps({"error": error_data(error, f"{what} cannot be examined")})
        body = text.encode(errors="backslashreplace")
        sys.stdout.flush()
        sys.stderr.flush()
        with os.fdopen(result_end, "wb") as pipe:
            pipe.write(LENGTH.pack(len(body)) + body)
        leave(0)
    except BaseException:
        traceback.print_exc()
    finally:
        leave(1)


def _value_or_error(body: bytes) -> Any:
    reply: Mapping[str, Any] = json.loads(body)
    if "error" in reply:
        raise_sent(reply["error"])
    return reply["value"]


def _set_subreaper(on: bool) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)


def _sweep(before: set[int]) -> None:
    """Kill and reap every child of this process that it had not `before`, until none is left."""
    deadline = time.monotonic() + SWEEP_S
    while (left := children() - before) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.001)


def _chunk(fd: int) -> bytes:
    try:
        return os.read(fd, CHUNK_BYTES)
    except BlockingIOError:
        return b""


def _print(data: bytes) -> None:
    with contextlib.suppress(OSError):  # the disk is full
        os.write(1, data)
