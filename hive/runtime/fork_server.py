"""The fork server: a process that has imported torch and built the topology, and forks actors from that state.

    supervisor -> fork server     Build · Fork · Adopt
    fork server -> supervisor     Built | BuildFailed · Forked | NotForked

A forked actor inherits classes, parameters and imported modules: nothing is pickled, it starts in milliseconds and
shares pages. Before it forks, this process has no thread, no ZeroMQ context, no event loop and no backward pass; its
parent has set OMP and BLAS threads to 1 before numpy loads.

It forks twice, so that the actor's parent becomes the supervisor (a child subreaper), which then learns how it died:

    fork server ── fork ── middle ── fork ── actor        middle reports the actor's pid and exits
                                              actor waits until the supervisor is its parent, sets PR_SET_PDEATHSIG
                                              and looks again: whoever dies in between is noticed

When the supervisor dies the line ends (EOF): the fork server kills every actor's process group (their own children
too), removes the socket folder and exits. It has no PDEATHSIG itself, or nobody would be left to do that.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import importlib
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from hive.errors import HiveError
from hive.runtime.messages import Message, type_set
from hive.runtime.output import redirect_output
from hive.runtime.plan import Plan
from hive.runtime.process_main import host
from hive.runtime.stacks import listen_for_stacks
from hive.runtime.stream import receive, send
from hive.runtime.topology import Topology

__all__ = ["REPLIES", "Adopt", "Build", "BuildFailed", "Built", "Fork", "Forked", "NotForked"]

PR_SET_NAME, PR_SET_PDEATHSIG = 15, 1
ADOPTION_S = 5.0  # for the middle process to exit; it has nothing to do but that


class Build(Message):
    """Load `factory` ("package.module:function"), call it with `argument`, and answer with the plan."""

    factory: str
    argument: str
    supervisor: int  # pid
    socket_folder: str
    log_folder: str


class Adopt(Message):
    """Process groups that an earlier fork server made; this one must kill them if the supervisor dies."""

    pids: tuple[int, ...]


class Fork(Message):
    """Start one process of the plan. `segments` are descriptors of the supervisor."""

    process: str
    incarnation: int
    address: str
    supervisor_address: str
    segments: dict[str, int]


class Built(Message):
    plan: Plan


class BuildFailed(Message):
    text: str
    hint: str
    exit_code: int
    traceback: str


class Forked(Message):
    process: str
    incarnation: int
    pid: int


class NotForked(Message):
    """The machine has no process, memory or descriptor left for it."""

    process: str
    incarnation: int
    text: str


REQUESTS = type_set([Build, Adopt, Fork])
REPLIES = type_set([Built, BuildFailed, Forked, NotForked])


class _Server:
    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.build: Build | None = None
        self.topology: Topology | None = None
        self.plan: Plan | None = None
        self.groups: list[int] = []

    def serve(self) -> None:
        """Answers requests until the supervisor is gone; then sweeps."""
        try:
            while (request := receive(self.line, REQUESTS)) is not None:
                if isinstance(request, Build):
                    self._build(request)
                elif isinstance(request, Adopt):
                    self.groups.extend(request.pids)
                elif isinstance(request, Fork):
                    self._fork(request)
        except OSError:
            pass
        self._sweep()

    def _build(self, request: Build) -> None:
        self.build = request
        gc.unfreeze()  # what an earlier topology leaves
        try:
            module, _, function = request.factory.partition(":")
            self.topology = getattr(importlib.import_module(module), function)(request.argument)
            assert self.topology is not None
            self.plan = self.topology.plan()
        except Exception as error:
            text = (
                str(error)
                if isinstance(error, HiveError)
                else f"{type(error).__name__} while building the topology: {error}"
            )
            hint, code = (error.hint, error.exit_code) if isinstance(error, HiveError) else ("", 1)
            send(self.line, BuildFailed(text, hint, code, "".join(traceback.format_exception(error))))
            return
        gc.collect()
        gc.freeze()  # so that the collector does not touch, and so copy, the pages that actors share
        send(self.line, Built(self.plan))

    def _fork(self, request: Fork) -> None:
        try:
            pid = self._fork_twice(request)
        except OSError as error:
            send(self.line, NotForked(request.process, request.incarnation, error.strerror or str(error)))
            return
        self.groups = [pid, *(group for group in self.groups if _exists(group))]
        send(self.line, Forked(request.process, request.incarnation, pid))

    def _fork_twice(self, request: Fork) -> int:
        """The actor's pid. Raises OSError when the machine has no room for it."""
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb", buffering=0) as answer, os.fdopen(writing, "wb", buffering=0) as told:
            middle = os.fork()
            if middle == 0:
                try:
                    number = os.fork()
                except OSError as error:
                    number = -(error.errno or errno.EAGAIN)
                if number == 0:
                    answer.close()
                    told.close()
                    self._become(request)
                told.write(number.to_bytes(4, "little", signed=True))
                os._exit(0)
            told.close()
            number = int.from_bytes(answer.read(4), "little", signed=True)
        os.waitpid(middle, 0)
        if number == 0:
            raise OSError(errno.EINTR, "Killed before it was there")
        if number < 0:
            raise OSError(-number, os.strerror(-number))
        return number

    def _become(self, request: Fork) -> NoReturn:
        """The actor's process. Never returns into the fork server's code."""
        code = 1
        try:
            assert self.build is not None
            assert self.topology is not None
            assert self.plan is not None
            self.line.close()
            _tie_to(self.build.supervisor)
            log_folder = Path(self.build.log_folder)
            redirect_output(log_folder / f"{request.process}.out")
            listen_for_stacks(log_folder, request.process)
            _name_process(request.process)
            code = host(
                self.topology,
                self.plan,
                request.process,
                request.incarnation,
                request.address,
                request.supervisor_address,
                self.build.supervisor,
                request.segments,
                log_folder,
            )
        except BaseException:
            traceback.print_exc()
        finally:
            _leave(code)

    def _sweep(self) -> None:
        for group in self.groups:
            _kill_group(group)
        if self.build is not None:
            shutil.rmtree(self.build.socket_folder, ignore_errors=True)


def _leave(code: int) -> NoReturn:
    """Ends this process at once: no atexit of a library that a fork would run twice, and torch takes long over its."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _tie_to(supervisor: int) -> None:
    """A process group of its own, and death when the supervisor dies. Exits at once when that is already so."""
    os.setpgid(0, 0)
    limit = time.monotonic() + ADOPTION_S
    while os.getppid() != supervisor:
        if time.monotonic() > limit or not _exists(supervisor):
            os._exit(1)
        os.sched_yield()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor:
        os._exit(1)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # terminals speak to the view, the view to the supervisor


def _name_process(name: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_NAME, f"hive:{name}"[:15].encode(), 0, 0, 0)


def main(arguments: list[str]) -> None:
    """`python -m hive.runtime.fork_server FD`: serves on the socket that is this process's descriptor FD."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _name_process("fork-server")
    sys.path.append(os.getcwd())  # where users' own modules lie; last, so that they hide nothing
    _Server(socket.socket(fileno=int(arguments[0]))).serve()
    _leave(0)


if __name__ == "__main__":
    # As a module of its own name, so that the message classes are the ones that others import.
    from hive.runtime import fork_server

    fork_server.main(sys.argv[1:])
