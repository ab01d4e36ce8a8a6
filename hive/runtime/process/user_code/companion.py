"""A process that is forked from an actor's process and lives as long as that does, to run user code beside it.

    Companion(work)       fork: `work` runs in the child, which exits when it returns
    exited()              how it ended, with the line of a crash, or "" while it runs
    error                 what `work` raised, as data
    end()                 kill it, if it has not exited, and wait for its exit

The child belongs to the process group of the actor's process, and the kernel kills it when that process exits. So it is
gone wherever the actor is. Signals that ask a run to end do nothing in it, as in an actor.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from hive.runtime.actor.error_location import place_in_dump, signal_name
from hive.runtime.process.stop_signals import do_nothing, forking
from hive.runtime.process.user_code.sent_errors import error_data
from hive.runtime.process.user_code.user_exits import leave, raise_on_exit

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
MAX_DUMP_BYTES = 1 << 20  # of the dump of a crash that are read: thousands of frames
CHUNK_BYTES = 1 << 16  # bytes read from the pipe at once, its usual capacity


class Companion:
    """The child in which `work` runs. name: what the system shows, at most 15 bytes. failure: as in `error_data`."""

    def __init__(self, work: Callable[[], None], name: str, failure: str) -> None:
        self._how = ""
        self._dump = os.memfd_create("dump", os.MFD_CLOEXEC)  # where the child writes the lines of a crash
        self._errors, error_end = os.pipe()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        with forking():
            self.pid = os.fork()
        if self.pid == 0:
            os.close(self._errors)
            _become(work, name, failure, parent, error_end, self._dump)
        os.close(error_end)
        self._pidfd = os.pidfd_open(self.pid)

    def exited(self, limit_s: float = 0.0) -> str:
        """Return how the child has ended, "killed by SIGKILL" or "exit code 1"; "" if it still runs after the limit.

        A child that was stopped is killed, as an actor is: whoever waits for it would wait forever.
        """
        if not self._how and state_of(self.pid) == "T":
            self._kill()
            self._reap()
            self._how = "it was stopped (SIGSTOP) and so was killed"
        if not self._how and select.select([self._pidfd], [], [], limit_s)[0]:
            status = self._reap()
            place = self._place()
            self._how = _ending(status) + (f" ({place})" if place else "")
        return self._how

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has exited, and user code has taken its status
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _reap(self) -> int | None:
        """Take the exit status; return None if user code did, such as a handler of SIGCHLD that waits for any child."""
        try:
            return os.waitpid(self.pid, 0)[1]
        except ChildProcessError:
            return None

    def _place(self) -> str:
        """Print what the child has dumped at a crash, and return the line of user code in it."""
        text = os.pread(self._dump, MAX_DUMP_BYTES, 0).decode(errors="backslashreplace")
        sys.stderr.write(text)
        return place_in_dump(text)

    def error(self) -> Mapping[str, Any] | None:
        """Wait until the child has closed its end or exited, and return what `work` raised; None if it raised nothing.

        A process that user code has forked may hold the other end open for longer.
        """
        text, ends = b"", [self._errors, self._pidfd]
        while self._errors in select.select(ends, [], [])[0] and (chunk := os.read(self._errors, CHUNK_BYTES)):
            text += chunk
        found: Mapping[str, Any] | None = None
        with contextlib.suppress(ValueError):  # it was killed while it wrote
            found = json.loads(text)
        return found

    def end(self) -> None:
        """Kill the child if it still runs, and wait for its exit."""
        if not self.exited():
            self._kill()
            while not self.exited(1.0):
                pass
        for fd in (self._pidfd, self._errors, self._dump):
            if fd >= 0:
                os.close(fd)
        self._pidfd = self._errors = self._dump = -1


def _become(work: Callable[[], None], name: str, failure: str, parent: int, error_end: int, dump: int) -> NoReturn:
    """Run `work` in the child, send what it raises, and exit without atexit handlers. It never returns."""
    try:
        signal.set_wakeup_fd(-1)  # it is the one of the parent's event loop
        gc.freeze()  # so that no object of the parent, such as a socket, is collected here
        do_nothing()
        end_with(parent, name)
        faulthandler.enable(dump)
        raise_on_exit()
        try:
            work()
        except BaseException as error:  # SystemExit and KeyboardInterrupt of user code too
            text = json.dumps(error_data(error, failure)).encode(errors="backslashreplace")
            with os.fdopen(error_end, "wb") as pipe:
                pipe.write(text)
            leave(1)
        sys.stdout.flush()
        sys.stderr.flush()
        leave(0)
    except BaseException:
        traceback.print_exc()
    finally:
        leave(1)


def _ending(status: int | None) -> str:
    """Describe an exit status as `waitpid` returns it."""
    if status is None:
        return "exit code unknown (an environment's code has waited for it)"
    if os.WIFSIGNALED(status):
        return f"killed by {signal_name(os.WTERMSIG(status))}"
    return f"exit code {os.WEXITSTATUS(status)}"


def end_with(parent: int, name: str) -> None:
    """Have the kernel kill this process when `parent` exits, and show it as `name`; exit if `parent` has exited."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it exited before the line above took effect
        leave(1)
    libc.prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def state_of(pid: int) -> str:
    """Return the state letter in /proc/<pid>/stat, "" if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
