"""Implement the process table with real processes: the fork server forks them, the supervisor adopts and reaps them.

The supervisor is a child subreaper, so every actor's process becomes its child when the middle process of the double
fork has exited. A `pidfd` per process signals its exit at once; `waitpid` returns the status. If the fork server exits,
a new one is started right away. The actors that the old one forked continue, and the new one is sent their process
groups, to kill them if the supervisor exits. Processes that environments start in sessions of their own become
children of the supervisor too, once their parents have exited; those left at the end of the run are killed. If the
supervisor was killed itself, the fork server finds them by a mark in their environment.
"""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hive.config import START_LIMIT_S
from hive.errors import ActorFailed, HiveError
from hive.runtime.process.fork_server import REPLIES, Adopt, Build, BuildFailed, Built, Fork, Forked, NotForked
from hive.runtime.process.pidfds import opened
from hive.runtime.process.processes import Exit, OnExit, StartLost
from hive.runtime.process.spawning import OUTPUT, ForkServer, is_supervisor, start_fork_server
from hive.runtime.process.stacks import read_stacks
from hive.runtime.process.user_code.companion import state_of
from hive.runtime.topology.plan import Plan
from hive.runtime.wire.messages import Message
from hive.runtime.wire.stream import pack, read

PR_SET_CHILD_SUBREAPER = 36
# Time limit for importing torch and user modules, from a cold disk. Two children construct the environments of training
# and of evaluations meanwhile; each has env.start_limit_s, and its error names the environment.
BUILD_LIMIT_S = 120.0
FORK_LIMIT_S = 10.0  # time limit for a fork, which takes milliseconds
ATTEMPTS = 5  # attempts to build while the fork server is killed from outside
CRASH_ATTEMPTS = 2  # attempts to build while it crashes, or is killed for lack of memory
RETRY_S = 0.02  # interval between attempts and checks; the exit of a child is noticed within milliseconds
NOTICE_S = 1.0  # time limit for noticing an exit on a busy machine
CHECK_S = 0.25  # interval between checks for a stopped fork server, as for actors (watchdog.WATCH_S)
LIMITS = "`ulimit -a` shows the limits on processes, descriptors and memory"


class BuildError(HiveError):
    """Raised when the fork server cannot build the topology; has the exit code and traceback of the original error."""

    def __init__(self, failure: BuildFailed) -> None:
        super().__init__(failure.text, hint=failure.hint)
        self.exit_code = failure.exit_code
        self.traceback = failure.traceback


class ForkedProcesses:
    """The process table of a run with real processes. Call `build_plan` before `start`.

    `event` logs (kind, text); `server` is the first fork server, if it has already been started; `start_limit_s` is the
    time limit for constructing an environment.
    """

    restarts = True
    dedicated = True

    def __init__(
        self,
        build: Build,
        event: Callable[[str, str], None],
        server: ForkServer | None = None,
        start_limit_s: float = START_LIMIT_S,
    ) -> None:
        self.build = build
        self.build_limit_s = BUILD_LIMIT_S + 2 * start_limit_s
        self.event = event
        self.on_exit: OnExit = lambda process, incarnation, how: None
        self.pids: dict[str, tuple[int, int]] = {}  # process -> (pid, incarnation) of running processes
        self.pidfds: dict[int, int] = {}
        self.segments: dict[str, int] = {}
        self.supervisor_address = ""
        self.secret = b""
        self.first_server = server
        self.server: subprocess.Popen[bytes] | None = None
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None
        self.requesting = asyncio.Lock()  # one request to the fork server at a time
        self.server_exit = Exit()  # exit of the previous fork server
        self.late = False  # it was killed because it did not answer in time
        self.closing = False
        self.building = False  # a build waits for the fork server, and replaces one that exits
        self.out_of_memory = _out_of_memory_kills()
        self.renewal: asyncio.Task[None] | None = None
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    # --- the fork server

    async def build_plan(self) -> Plan:
        """Have the fork server build the plan from the current config of the run directory.

        Raises BuildError if the topology cannot be built, ActorFailed if the fork server fails more often than
        `may_build_again` allows.
        """
        async with self.requesting:
            return await self._build_repeatedly()

    async def _build_repeatedly(self, *, allocated: bool = False) -> Plan:
        """Build the plan, with a new fork server whenever one fails; the caller holds the lock. Raises as above.

        allocated: as for `Build`.
        """
        self.build = dataclasses.replace(self.build, allocated=allocated)
        exits: list[Exit] = []
        self.building = True
        try:
            while True:
                try:
                    return await self._build() if self._has_server else await self._start_server()
                except ActorFailed as error:
                    exits.append(self.server_exit)
                    if self.late or not may_build_again(exits):
                        times = f" ({len(exits)} times)" if len(exits) > 1 else ""
                        by = "" if self.server_exit.signal else ": native code of an environment or a module ended it"
                        raise ActorFailed(f"{error} while it built the topology{times}{by}", hint=error.hint) from None
                await asyncio.sleep(RETRY_S)
        finally:
            self.building = False

    @property
    def _has_server(self) -> bool:
        """Whether a fork server runs, as far as this process has noticed."""
        return self.server is not None and self.server.pid in self.pidfds

    async def _start_server(self) -> Plan:
        """Start a fork server and have it build the topology; the caller holds the lock.

        Raises BuildError, ActorFailed.
        """
        if self.first_server is not None:
            (self.server, connection), self.first_server = self.first_server, None
        else:
            await self._kill_orphans()
            self.server, connection = start_fork_server(Path(self.build.log_folder))
        self._watch_pid(self.server.pid)
        self.reader, self.writer = await asyncio.open_unix_connection(sock=connection)
        # Adopt before Build: the build takes seconds, and the supervisor could be killed during it.
        return await self._build(Adopt(tuple(pid for pid, _ in self.pids.values())))

    async def _build(self, *before: Message) -> Plan:
        reply = await self._request(self.build, self.build_limit_s, *before)
        if isinstance(reply, BuildFailed):
            raise BuildError(reply)
        assert isinstance(reply, Built)
        return reply.plan

    async def _request(self, request: Message, limit_s: float, *before: Message) -> object:
        """Send `before`, which have no reply, and the request; return its reply.

        Raises ActorFailed if the fork server exits, is stopped, or takes too long.
        """
        assert self.reader is not None
        checking = asyncio.ensure_future(self._check_server())
        try:
            for message in (*before, request):
                self._write(message)
            async with asyncio.timeout(limit_s):
                return await read(self.reader, REPLIES)
        except (TimeoutError, asyncio.IncompleteReadError, OSError) as error:
            cause = await self._end_server(error, limit_s)
            raise ActorFailed(
                f"the fork server {cause}", hint=f"its output is in {self.build.log_folder}/{OUTPUT}"
            ) from None
        finally:
            checking.cancel()

    def _write(self, message: Message) -> None:
        assert self.writer is not None
        try:
            self.writer.write(pack(message))
        except RuntimeError as error:  # uvloop raises it for a closed connection
            raise ConnectionError(str(error)) from None

    async def _check_server(self) -> None:
        """Kill the fork server if it is stopped, since it would never reply; at the start no watchdog runs yet."""
        while True:
            await asyncio.sleep(CHECK_S)
            self._kill_stopped_server()

    async def _end_server(self, error: Exception, limit_s: float) -> str:
        """Kill the fork server that did not reply, unless it has exited, and return a text that says what happened."""
        assert self.server is not None
        self.late = late = isinstance(error, TimeoutError) and self._has_server
        if late:
            os.kill(self.server.pid, signal.SIGKILL)
        for _ in range(round(NOTICE_S / RETRY_S)):
            if not self._has_server:
                return f"did not answer within {limit_s:g} s" if late else f"died: {self.server_exit}"
            await asyncio.sleep(RETRY_S)
        os.kill(self.server.pid, signal.SIGKILL)  # the connection is closed, but the server still runs
        return f"did not answer ({type(error).__name__})"

    async def _kill_orphans(self) -> None:
        """Kill processes that an earlier fork server forked but did not report; they belong to no known incarnation."""
        for _ in range(round(NOTICE_S / RETRY_S)):
            orphans = [pid for pid in _children() if pid not in self.pidfds and _is_forked(pid)]
            if not orphans:
                return
            for pid in orphans:
                _kill_all_of(pid)
            await asyncio.sleep(RETRY_S)
            self._reap_strays()

    async def _renew(self) -> None:
        """Replace the fork server after it has exited."""
        try:
            await self._ensure_server()
            self.event("restarted", "fork-server is back")
        except HiveError as error:  # the next fork request tries again
            self.event("not started", f"fork-server: {error}")

    async def _ensure_server(self) -> None:
        """Start a fork server if none runs, which also kills processes that the previous one did not report."""
        async with self.requesting:
            if not self._has_server:  # another task may have started one while this one waited for the lock
                await self._build_repeatedly(allocated=True)

    # --- ProcessTable

    async def start(self, process: str, incarnation: int, address: str) -> int:
        pid = await self._fork(Fork(process, incarnation, address, self.supervisor_address, self.segments, self.secret))
        self.pids[process] = (pid, incarnation)
        try:
            self._watch_pid(pid)
        except ProcessLookupError:  # it has already exited and was reaped as a stray
            self.pids.pop(process)
            asyncio.get_running_loop().call_soon(self.on_exit, process, incarnation, Exit(code=1))
        except OSError as error:  # without a pidfd its exit would go unnoticed, so it must not run
            self.kill(process)
            self.pids.pop(process)
            cause = f"{process} cannot be watched: {(error.strerror or str(error)).lower()}"
            raise ActorFailed(cause, hint=LIMITS) from None
        return pid

    async def _fork(self, request: Fork) -> int:
        """Fork a process and return its pid. Raises ActorFailed or StartLost; then no such process runs."""
        await self._ensure_server()
        try:
            async with self.requesting:
                reply = await self._request(request, FORK_LIMIT_S)
        except ActorFailed as error:  # the process may exist, have sent Hello, and even have begun: end it first
            await self._ensure_server()
            raise StartLost(str(error), hint=error.hint) from None
        if isinstance(reply, NotForked):
            raise ActorFailed(f"{request.process} cannot be started: {reply.text.lower()}", hint=LIMITS)
        assert isinstance(reply, Forked)
        return reply.pid

    def kill(self, process: str) -> None:
        known = self.pids.get(process)
        if known is not None:
            _kill_all_of(known[0])

    def _kill_stopped_server(self) -> None:
        if self.server is not None and self._has_server and state_of(self.server.pid) == "T":
            self.event("killed", "fork-server was stopped (SIGSTOP) and so was killed")
            os.kill(self.server.pid, signal.SIGKILL)  # it is not reaped yet, so the pid still belongs to it

    def stopped(self) -> list[str]:
        self._kill_stopped_server()
        return [process for process, (pid, _) in self.pids.items() if state_of(pid) == "T"]

    async def stacks(self, processes: Sequence[str]) -> Mapping[str, str]:
        return await read_stacks(
            Path(self.build.log_folder), {name: self.pids[name][0] for name in processes if name in self.pids}
        )

    def facts(self) -> Mapping[str, tuple[int, str]]:
        if self.server is None:
            return {}
        return {"fork-server": (self.server.pid, "running" if state_of(self.server.pid) not in ("", "Z") else "gone")}

    async def close(self) -> None:
        self.closing = True
        if self.renewal is not None:
            self.renewal.cancel()
        for process in list(self.pids):
            self.kill(process)
        if self.writer is not None:
            self.writer.close()  # the fork server notices, kills the remaining processes and exits
        if self.server is not None:
            for _ in range(200):
                if self.server.pid not in self.pidfds:
                    break
                await asyncio.sleep(0.01)
            else:
                os.kill(self.server.pid, signal.SIGKILL)
        for pid in list(self.pidfds):
            self._forget_pid(pid)
        await self._kill_strays()

    # --- reaping

    def _watch_pid(self, pid: int) -> None:
        fd = opened(pid, lambda: pid in _children())
        if fd is None:
            raise ProcessLookupError(pid)
        self.pidfds[pid] = fd
        asyncio.get_running_loop().add_reader(fd, self._ended, pid)

    def _forget_pid(self, pid: int) -> None:
        fd = self.pidfds.pop(pid)
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)

    def _ended(self, pid: int) -> None:
        self._forget_pid(pid)
        try:
            os.killpg(pid, signal.SIGKILL)  # its children; before waitpid, while the pid still belongs to it
        except ProcessLookupError:
            pass
        try:
            _, status = os.waitpid(pid, 0)
        except ChildProcessError:
            status = 0  # it is not a child of this process, so its status is unknown
        how = Exit.of_status(status, self._memory_note())
        self._reap_strays()
        if self.server is not None and pid == self.server.pid:
            self.server.returncode, self.server_exit = status, how
            if not self.closing:
                again = "" if self.building else "; a new one is started"
                self.event("died", f"fork-server died: {how}{again}")
                if not self.building:
                    self.renewal = asyncio.ensure_future(self._renew())
            return
        process = next((name for name, (known, _) in self.pids.items() if known == pid), None)
        if process is not None:
            _, incarnation = self.pids[process]
            self.on_exit(process, incarnation, how)
            self.pids.pop(process, None)

    def _memory_note(self) -> str:
        """Return a note if the kernel's count of out-of-memory kills has risen; it does not name the processes."""
        before, self.out_of_memory = self.out_of_memory, _out_of_memory_kills()
        return "the kernel was out of memory and killed a process" if self.out_of_memory > before else ""

    def _reap_strays(self) -> None:
        """Reap exited children of actors: a subreaper adopts them too, and they would remain zombies."""
        for child in _children():
            if child not in self.pidfds:
                try:
                    os.waitpid(child, os.WNOHANG)
                except ChildProcessError:
                    pass

    async def _kill_strays(self) -> None:
        """Kill what environments started and left, in groups and sessions of their own; the run has ended.

        The kernel re-parents children of a killed process to this subreaper, so each pass finds the next generation.
        """
        killed: set[int] = set()
        for _ in range(round(NOTICE_S / RETRY_S)):
            self._reap_strays()
            strays = [pid for pid in _children() if not is_supervisor(pid)]
            for pid in strays:
                os.kill(pid, signal.SIGKILL)  # not reaped yet, so the pid still belongs to it
            killed.update(strays)
            if not strays:
                break
            await asyncio.sleep(RETRY_S)
        if killed:
            self.event("killed", f"processes that actors had started and left running: {len(killed)}")


def may_build_again(exits: Sequence[Exit]) -> bool:
    """Return whether the topology is built again after the fork server exited in this way during each build.

    A process that exits with a code does so on purpose, and would do it again. A crash may be a coincidence once.
    """
    if not all(how.signal for how in exits):
        return False
    crashes = sum(how.signal not in (signal.SIGKILL, signal.SIGTERM) or bool(how.note) for how in exits)
    return crashes < CRASH_ATTEMPTS and len(exits) < ATTEMPTS


def _children() -> list[int]:
    """Return the pids of this process's children."""
    return [int(pid) for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()]


def _is_forked(pid: int) -> bool:
    """Return whether a process runs and is, by its name, a fork server or forked by one, not a tool of an actor."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return False
    return name.startswith(("fork-server", "hive:")) and state_of(pid) not in ("", "Z")


def _kill_all_of(pid: int) -> None:
    """Kill a process that is not reaped yet, and its group. It is killed by pid too, as it may have no group yet."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _out_of_memory_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory since the machine booted."""
    try:
        counters = Path("/proc/vmstat").read_text().split()
        return int(counters[counters.index("oom_kill") + 1])
    except (OSError, ValueError):
        return 0  # an older kernel, or a container without access
