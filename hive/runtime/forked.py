"""The real process table: processes forked by the fork server, adopted and reaped by the supervisor.

The supervisor is a child subreaper, so every actor becomes its child when the middle process of the double fork has
exited. A `pidfd` per process says at once that it ended; `waitpid` says how. When the fork server dies, a new one is
started right away: the actors it forked go on, and are given to the new one to kill if the supervisor dies.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hive.errors import ActorFailed, HiveError
from hive.runtime.fork_server import REPLIES, Adopt, Build, BuildFailed, Built, Fork, Forked, NotForked
from hive.runtime.messages import Message
from hive.runtime.plan import Plan
from hive.runtime.processes import Exit, OnExit, StartLost
from hive.runtime.spawning import OUTPUT, ForkServer, start_fork_server
from hive.runtime.stacks import read_stacks
from hive.runtime.stream import pack, read

__all__ = ["BuildError", "ForkedProcesses"]

PR_SET_CHILD_SUBREAPER = 36
BUILD_LIMIT_S = 120.0  # to import torch and a user's modules on a cold disk
FORK_LIMIT_S = 10.0  # a fork takes milliseconds
ATTEMPTS = 5  # to build: each is lost with a fork server that dies meanwhile
AGAIN_S = 0.02  # before the next; the death of a child is noticed within milliseconds
NOTICE_S = 1.0  # for that, on a machine that is busy
LOOK_S = 0.25  # as often as the supervisor looks at its actors
LIMITS = "`ulimit -a` shows what a user may have of processes, descriptors and memory"


class BuildError(HiveError):
    """The topology could not be built. Carries the exit code of what went wrong there, and its traceback."""

    def __init__(self, failure: BuildFailed) -> None:
        super().__init__(failure.text, hint=failure.hint)
        self.exit_code = failure.exit_code
        self.traceback = failure.traceback


class ForkedProcesses:
    """See the module. `build_plan` first: it brings the plan. `server`: the first fork server, already on its way."""

    restarts = True
    dedicated = True

    def __init__(self, build: Build, event: Callable[[str, str], None], server: ForkServer | None = None) -> None:
        self.build = build
        self.event = event
        self.on_exit: OnExit = lambda process, incarnation, how: None
        self.pids: dict[str, tuple[int, int]] = {}  # process -> (pid, incarnation), while it lives
        self.pidfds: dict[int, int] = {}
        self.segments: dict[str, int] = {}
        self.supervisor_address = ""
        self.first_server = server
        self.server: subprocess.Popen[bytes] | None = None
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None
        self.turn = asyncio.Lock()
        self.server_exit = Exit()  # of the latest fork server that has died
        self.closing = False
        self.out_of_memory = _out_of_memory_kills()
        self.renewal: asyncio.Task[None] | None = None
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    # --- the fork server

    async def build_plan(self) -> Plan:
        """The plan of the run directory as it is now, built by the fork server. Raises BuildError, ActorFailed."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with self.turn:
                    return await self._build() if self._serves else await self._start_server()
            except ActorFailed:
                if attempt == ATTEMPTS:
                    raise
            await asyncio.sleep(AGAIN_S)
        raise AssertionError

    @property
    def _serves(self) -> bool:
        """Whether a fork server is there, as far as is known."""
        return self.server is not None and self.server.pid in self.pidfds

    async def _start_server(self) -> Plan:
        """Starts a fork server and has it build the topology. `turn` is held. Raises BuildError, ActorFailed."""
        if self.first_server is not None:
            (self.server, line), self.first_server = self.first_server, None
        else:
            await self._end_orphans()
            self.server, line = start_fork_server(Path(self.build.log_folder))
        self._watch_pid(self.server.pid)
        self.reader, self.writer = await asyncio.open_unix_connection(sock=line)
        self._write(Adopt(tuple(pid for pid, _ in self.pids.values())))  # first: while it builds, we may die
        return await self._build()

    async def _build(self) -> Plan:
        reply = await self._ask(self.build, BUILD_LIMIT_S)
        if isinstance(reply, BuildFailed):
            raise BuildError(reply)
        assert isinstance(reply, Built)
        return reply.plan

    async def _ask(self, request: Message, limit_s: float) -> object:
        """The fork server's answer. Raises ActorFailed when it dies over it, is stopped, or takes too long."""
        assert self.reader is not None
        looking = asyncio.ensure_future(self._look())
        try:
            self._write(request)
            async with asyncio.timeout(limit_s):
                return await read(self.reader, REPLIES)
        except (TimeoutError, asyncio.IncompleteReadError, OSError) as error:
            fate = await self._fate(error, limit_s)
            raise ActorFailed(
                f"the fork server {fate}", hint=f"its output is in {self.build.log_folder}/{OUTPUT}"
            ) from None
        finally:
            looking.cancel()

    def _write(self, message: Message) -> None:
        assert self.writer is not None
        try:
            self.writer.write(pack(message))
        except RuntimeError as error:  # what uvloop raises on a line that has ended
            raise ConnectionError(str(error)) from None

    async def _look(self) -> None:
        """While it is waited for: one that is stopped will never answer, and nobody else watches at the start."""
        while True:
            await asyncio.sleep(LOOK_S)
            self._kill_stopped_server()

    async def _fate(self, error: Exception, limit_s: float) -> str:
        """What has become of the fork server that did not answer: it is dead for certain when this returns."""
        assert self.server is not None
        late = isinstance(error, TimeoutError) and self._serves
        if late:
            os.kill(self.server.pid, signal.SIGKILL)
        for _ in range(round(NOTICE_S / AGAIN_S)):
            if not self._serves:
                return f"did not answer within {limit_s:g} s" if late else f"died: {self.server_exit}"
            await asyncio.sleep(AGAIN_S)
        os.kill(self.server.pid, signal.SIGKILL)  # its line has ended, and it has not
        return f"did not answer ({type(error).__name__})"

    async def _end_orphans(self) -> None:
        """What a fork server had forked and not told when it died: nobody knows who that is, so it must not be."""
        for _ in range(round(NOTICE_S / AGAIN_S)):
            orphans = [pid for pid in _children() if pid not in self.pidfds and _is_forked(pid)]
            if not orphans:
                return
            for pid in orphans:
                _kill_all_of(pid)
            await asyncio.sleep(AGAIN_S)
            self._reap_strays()

    async def _renew(self) -> None:
        """After the death of the fork server."""
        try:
            await self._serving()
            self.event("restarted", "fork-server is back")
        except HiveError as error:  # whoever needs it next tries again
            self.event("not started", f"fork-server: {error}")

    async def _serving(self) -> None:
        """Returns when a fork server is there, which has ended what the one before had forked and not told."""
        async with self.turn:
            if not self._serves:  # else somebody was first
                await self._start_server()

    # --- ProcessTable

    async def start(self, process: str, incarnation: int, address: str) -> int:
        pid = await self._fork(Fork(process, incarnation, address, self.supervisor_address, self.segments))
        self.pids[process] = (pid, incarnation)
        try:
            self._watch_pid(pid)
        except ProcessLookupError:  # dead already, and reaped as a stray
            self.pids.pop(process)
            asyncio.get_running_loop().call_soon(self.on_exit, process, incarnation, Exit(code=1))
        except OSError as error:  # whoever cannot be watched shall not run
            self.kill(process)
            self.pids.pop(process)
            cause = f"{process} cannot be watched: {(error.strerror or str(error)).lower()}"
            raise ActorFailed(cause, hint=LIMITS) from None
        return pid

    async def _fork(self, request: Fork) -> int:
        """The pid of a new process. Raises ActorFailed, or StartLost, when there is none, for certain."""
        await self._serving()
        try:
            async with self.turn:
                reply = await self._ask(request, FORK_LIMIT_S)
        except ActorFailed as error:  # it may have been forked, said to us what it is, and even have begun
            await self._serving()
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
        if self.server is not None and self._serves and _state_of(self.server.pid) == "T":
            self.event("killed", "fork-server was stopped (SIGSTOP) and so was killed")
            os.kill(self.server.pid, signal.SIGKILL)  # it is not reaped yet, so the number is still its

    def stopped(self) -> list[str]:
        self._kill_stopped_server()
        return [process for process, (pid, _) in self.pids.items() if _state_of(pid) == "T"]

    async def stacks(self, processes: Sequence[str]) -> Mapping[str, str]:
        return await read_stacks(
            Path(self.build.log_folder), {name: self.pids[name][0] for name in processes if name in self.pids}
        )

    def facts(self) -> Mapping[str, tuple[int, str]]:
        if self.server is None:
            return {}
        return {"fork-server": (self.server.pid, "running" if _state_of(self.server.pid) not in ("", "Z") else "gone")}

    async def close(self) -> None:
        self.closing = True
        for process in list(self.pids):
            self.kill(process)
        if self.writer is not None:
            self.writer.close()  # the fork server sees the line end, sweeps and exits
        if self.server is not None:
            for _ in range(200):
                if self.server.pid not in self.pidfds:
                    break
                await asyncio.sleep(0.01)
            else:
                os.kill(self.server.pid, signal.SIGKILL)
        for pid in list(self.pidfds):
            self._forget_pid(pid)

    # --- reaping

    def _watch_pid(self, pid: int) -> None:
        fd = os.pidfd_open(pid)
        self.pidfds[pid] = fd
        asyncio.get_running_loop().add_reader(fd, self._ended, pid)

    def _forget_pid(self, pid: int) -> None:
        fd = self.pidfds.pop(pid)
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)

    def _ended(self, pid: int) -> None:
        self._forget_pid(pid)
        try:
            os.killpg(pid, signal.SIGKILL)  # its own children; before it is reaped, so that the number is still its
        except ProcessLookupError:
            pass
        try:
            _, status = os.waitpid(pid, 0)
        except ChildProcessError:
            status = 0  # not ours to reap: adopted by somebody else after all
        how = Exit.of_status(status, self._memory_note())
        self._reap_strays()
        if self.server is not None and pid == self.server.pid:
            self.server.returncode, self.server_exit = status, how
            if not self.closing:
                self.event("died", f"fork-server died: {how}; a new one is started")
                self.renewal = asyncio.ensure_future(self._renew())
            return
        process = next((name for name, (known, _) in self.pids.items() if known == pid), None)
        if process is not None:
            _, incarnation = self.pids[process]
            self.on_exit(process, incarnation, how)
            self.pids.pop(process, None)

    def _memory_note(self) -> str:
        """Whether the kernel has killed somebody for lack of memory since the last look: it does not say whom."""
        before, self.out_of_memory = self.out_of_memory, _out_of_memory_kills()
        return "the kernel was out of memory and killed a process" if self.out_of_memory > before else ""

    def _reap_strays(self) -> None:
        """Orphans of actors (their own children) become ours too; they must not stay zombies."""
        for child in _children():
            if child not in self.pidfds:
                try:
                    os.waitpid(child, os.WNOHANG)
                except ChildProcessError:
                    pass


def _children() -> list[int]:
    """The pids of this process's children."""
    return [int(pid) for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()]


def _is_forked(pid: int) -> bool:
    """Whether it lives and bears the name of a fork server or of what one has forked, not that of an actor's tool."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return False
    return name.startswith(("fork-server", "hive:")) and _state_of(pid) not in ("", "Z")


def _kill_all_of(pid: int) -> None:
    """A process that is not reaped yet and its group, which it may not have made yet."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _out_of_memory_kills() -> int:
    """How many processes of this machine the kernel has killed for lack of memory, ever."""
    try:
        counters = Path("/proc/vmstat").read_text().split()
        return int(counters[counters.index("oom_kill") + 1])
    except (OSError, ValueError):
        return 0  # an older kernel, or a container that may not look


def _state_of(pid: int) -> str:
    """The state letter in /proc/<pid>/stat; "" when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
