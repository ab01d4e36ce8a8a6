"""The fork server imports torch and builds the topology once, and forks all processes of actors from that state.

    supervisor -> fork server     Build · Fork · Adopt
    fork server -> supervisor     Built | BuildFailed · Forked | NotForked

A forked process inherits classes, parameters and imported modules, so nothing is pickled. It starts in milliseconds and
shares memory pages. To be safe to fork, the server has no thread, no ZeroMQ context, no event loop, and has run no
backward pass; its parent sets the number of OMP and BLAS threads to 1 before numpy is imported. It constructs no
environment: a child that is thrown away does (hive.runtime.process.user_code.throwaway). A module that leaves a thread
is an error that names it (hive.runtime.process.user_code.thread_watch).

The server forks twice, so that the new process is adopted by the supervisor (a child subreaper), which can then wait
for it and learn its exit status:

    fork server ── fork ── middle ── fork ── actor        middle reports the actor's pid and exits
                                              actor waits until the supervisor is its parent, sets PR_SET_PDEATHSIG
                                              and checks its parent again, in case the supervisor exited in between

When the supervisor exits, the connection closes (EOF): the fork server kills the process group of every actor with all
children, removes the socket folder and exits. The server itself has no PDEATHSIG, since it must outlive the supervisor
to do this.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import faulthandler
import gc
import importlib
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from hive.errors import HiveError
from hive.records import process_start_time
from hive.runtime.process.output import redirect_output
from hive.runtime.process.pidfds import open_marked, send_signal
from hive.runtime.process.process_main import host
from hive.runtime.process.spawning import MARK, OUTPUT, is_supervisor
from hive.runtime.process.stacks import listen_for_stacks
from hive.runtime.process.stop_signals import do_nothing, forking
from hive.runtime.process.user_code import throwaway
from hive.runtime.process.user_code.thread_watch import ThreadWatch
from hive.runtime.process.user_code.user_exits import leave, raise_on_exit
from hive.runtime.topology.plan import Plan
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.messages import Message, type_set
from hive.runtime.wire.stream import receive, send

PR_SET_NAME, PR_SET_PDEATHSIG = 15, 1
ADOPTION_S = 5.0  # time limit for the exit of the middle process, which takes microseconds


class Build(Message):
    """Request to load `factory` ("package.module:function"), call it with `argument`, and reply with the plan."""

    factory: str
    argument: str
    supervisor: int  # pid of the supervisor
    socket_folder: str
    log_folder: str
    allocated: bool = False  # the run has its memory already, so what is free now does not decide whether it fits


class Adopt(Message):
    """Process groups that an earlier fork server made; this one must kill them if the supervisor exits."""

    pids: tuple[int, ...]


class Fork(Message):
    """Request to start one process of the plan.

    `segments` maps names to the supervisor's file descriptors. `secret` is that of the run's sockets.
    """

    process: str
    incarnation: int
    address: str
    supervisor_address: str
    segments: dict[str, int]
    secret: bytes


class Built(Message):
    """Reply to Build: the plan of the topology."""

    plan: Plan


class BuildFailed(Message):
    """Reply to Build: the error that the factory raised."""

    text: str
    hint: str
    exit_code: int
    traceback: str


class Forked(Message):
    """Reply to Fork: the pid of the new process."""

    process: str
    incarnation: int
    pid: int


class NotForked(Message):
    """Reply to Fork: the machine has no process, memory or descriptor left."""

    process: str
    incarnation: int
    text: str


REQUESTS = type_set([Build, Adopt, Fork])
REPLIES = type_set([Built, BuildFailed, Forked, NotForked])


class _Server:
    def __init__(self, connection: socket.socket, watch: ThreadWatch | None = None) -> None:
        self.connection = connection
        self.watch = watch or ThreadWatch()
        self.build: Build | None = None
        self.topology: Topology | None = None
        self.plan: Plan | None = None
        self.groups: dict[int, int] = {}  # process groups of the forked actors, with the start times of their leaders

    def serve(self) -> None:
        """Serve requests until the supervisor closes the connection, then kill the actors and clean up."""
        try:
            while (request := receive(self.connection, REQUESTS)) is not None:
                if isinstance(request, Build):
                    self._build(request)
                elif isinstance(request, Adopt):
                    self._add_groups(request.pids)
                elif isinstance(request, Fork):
                    self._fork(request)
        except OSError:
            pass
        self._sweep()

    def _build(self, request: Build) -> None:
        if self.build is not None:
            gc.unfreeze()  # the objects of an earlier topology must be collected
        else:
            _keep_output(Path(request.log_folder) / OUTPUT)
        self.build = request
        try:
            module, _, function = request.factory.partition(":")
            known = {"allocated": True} if request.allocated else {}
            self.topology = getattr(importlib.import_module(module), function)(request.argument, **known)
            assert self.topology is not None
            self.plan = self.topology.plan()
            self.watch.check()
        except BaseException as error:  # SystemExit of user code too: no reply would look like a killed fork server
            text = (
                str(error)
                if isinstance(error, HiveError)
                else f"{type(error).__name__} while building the topology: {error}"
            )
            hint, code = (error.hint, error.exit_code) if isinstance(error, HiveError) else ("", 1)
            send(self.connection, BuildFailed(text, hint, code, "".join(traceback.format_exception(error))))
            return
        gc.collect()
        gc.freeze()  # collections in the actors would write to the shared pages, and so copy them
        send(self.connection, Built(self.plan))

    def _fork(self, request: Fork) -> None:
        try:
            pid = self._fork_twice(request)
        except OSError as error:
            send(self.connection, NotForked(request.process, request.incarnation, error.strerror or str(error)))
            return
        self.groups = {group: began for group, began in self.groups.items() if _exists(group)}
        self._add_groups([pid])
        send(self.connection, Forked(request.process, request.incarnation, pid))

    def _fork_twice(self, request: Fork) -> int:
        """Fork the process and return its pid. Raises OSError if the machine has no room for it."""
        read_fd, write_fd = os.pipe()
        with (
            forking(),
            os.fdopen(read_fd, "rb", buffering=0) as reader,
            os.fdopen(write_fd, "wb", buffering=0) as writer,
        ):
            middle = os.fork()
            if middle == 0:
                try:
                    number = os.fork()
                except OSError as error:
                    number = -(error.errno or errno.EAGAIN)
                if number == 0:
                    reader.close()
                    writer.close()
                    self._become(request)
                writer.write(number.to_bytes(4, "little", signed=True))
                leave(0)
            writer.close()
            number = int.from_bytes(reader.read(4), "little", signed=True)
        os.waitpid(middle, 0)
        if number == 0:  # the pipe closed without a pid
            raise OSError(errno.EINTR, "Killed before it had started")
        if number < 0:
            raise OSError(-number, os.strerror(-number))
        return number

    def _become(self, request: Fork) -> NoReturn:
        """Run the process of the plan in this fork. Never returns into the fork server's code."""
        code = 1
        try:
            assert self.build is not None
            assert self.topology is not None
            assert self.plan is not None
            do_nothing()
            self.connection.close()
            self.watch.end()
            _exit_with(self.build.supervisor)
            log_folder = Path(self.build.log_folder)
            redirect_output(log_folder / f"{request.process}.out")
            listen_for_stacks(log_folder, request.process)
            _name_process(request.process)
            raise_on_exit()
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
                request.secret,
            )
        except BaseException:
            traceback.print_exc()
        finally:
            _leave(code)

    def _add_groups(self, pids: Sequence[int]) -> None:
        began = {pid: process_start_time(pid) for pid in pids}
        self.groups.update({pid: ticks for pid, ticks in began.items() if ticks is not None})

    def _sweep(self) -> None:
        for group, began in self.groups.items():
            if process_start_time(group) in (began, None):  # otherwise the number of the leader has been given again
                _kill_group(group)
        mark = f"{MARK}={os.environ.get(MARK, '')}".encode()
        for pid, pidfd in open_marked(mark.__eq__):  # what user code started in sessions of its own
            if not is_supervisor(pid):
                send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
        if self.build is not None:
            shutil.rmtree(self.build.socket_folder, ignore_errors=True)


def _leave(code: int) -> NoReturn:
    """End this process without atexit handlers: each fork would run them again, and torch's take long."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    leave(code)


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _exit_with(supervisor: int) -> None:
    """Make this process the leader of a group and have the kernel kill it when the supervisor exits.

    Exits at once if the supervisor has already exited.
    """
    os.setpgid(0, 0)
    limit = time.monotonic() + ADOPTION_S
    while os.getppid() != supervisor:
        if time.monotonic() > limit or not _exists(supervisor):
            leave(1)
        os.sched_yield()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor:  # it exited before the line above took effect
        leave(1)


def _keep_output(path: Path) -> None:
    """Append what this process has printed so far, if that is only in memory, and all that follows to this file."""
    try:
        if os.fstat(1).st_nlink == 0:  # a file in memory, which has no name
            printed = Path("/proc/self/fd/1").read_bytes()
            redirect_output(path)
            os.write(1, printed)
    except OSError:
        pass  # the disk is full


def _name_process(name: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_NAME, f"hive:{name}"[:15].encode(), 0, 0, 0)


def _preload(modules: list[str]) -> None:
    """Import modules before the topology is known, without collections of garbage, which take 15 % of that time.

    The objects of modules live as long as the process, so later collections leave them out, too.
    """
    gc.disable()
    for name in modules:
        with contextlib.suppress(Exception):  # the build imports it again, and its error names the cause
            importlib.import_module(name)
    gc.freeze()
    gc.enable()


def main(arguments: list[str]) -> None:
    """Run `python -m hive.runtime.process.fork_server FD [MODULE ...]`: serve on the socket with the descriptor FD.

    The modules are imported before the first request is read.
    """
    do_nothing()
    _name_process("fork-server")
    faulthandler.enable()  # its output has the line at which native code crashed
    raise_on_exit()
    sys.path.append(os.getcwd())  # folder of the user's modules; last, so that they hide no installed module
    connection, watch = socket.socket(fileno=int(arguments[0])), ThreadWatch()
    watch.begin()

    def leave_behind() -> None:
        connection.close()
        watch.end()

    throwaway.keep_safe_to_fork(leave_behind)
    _preload(arguments[1:])
    _Server(connection, watch).serve()
    _leave(0)


if __name__ == "__main__":
    # Import this module under its own name, so that its message classes are the ones that other modules import.
    from hive.runtime.process import fork_server

    fork_server.main(sys.argv[1:])
