"""The agent: one process per host, started by `hive join FILE` or by Ray. It joins a run and runs its part.

    Join -> Accepted -> a run directory -> supervisor -> EndPart, or silence -> the part ends -> Join, or exit

The part is an ordinary run: a supervisor, a fork server, shared memory, status pages. Its link process talks to the
head about rollouts and policies (hive.hosts.host). The agent sends the status and the logs of the part, and keeps
nothing: its folder is removed at the end. If the agent is killed, the link process notices and ends the part.

`Agent` decides when to join, to run the part, to end it and to exit. It reaches processes and files only through a
`HostPart`, and the head through a link, which the simulator replaces.

This module imports no torch: it starts fast, and the fork server imports torch while the agent waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import uvloop

from hive import __version__
from hive.clock import Clock, RealClock
from hive.cores import cores
from hive.envs.processes.describing import keep_origins, keeping
from hive.envs.spaces.plain_specs import from_plain
from hive.errors import HiveError, HostLost, UsageError, WireError
from hive.hosts.files import HostFacts, JoinFile, host_facts
from hive.hosts.messages import (
    PROTOCOL,
    RUN_ENDED,
    TO_HOST,
    Accepted,
    ActorQuery,
    ActorReply,
    EndPart,
    HostEnded,
    HostLog,
    HostStatus,
    Join,
    Refused,
)
from hive.records import RunDirectory, process_start_time, write_bytes
from hive.records.documents import misfit
from hive.runtime.process.command import start_supervisor
from hive.runtime.run.control import ControlClient, open_run
from hive.runtime.run.process_facts import ProcessPoller
from hive.runtime.wire.arrays import Frames
from hive.runtime.wire.links import ClientEnd, LinkClient
from hive.runtime.wire.messages import Message, decode, encode

FOLDER = "hive-host-"  # beginning of the name of a part's folder, in that for temporary files
ASK_S = 1.0  # interval between two requests to join
STATUS_S = 0.5  # interval between two statuses, which also show that the agent is alive
LIMIT_BYTES = 1 << 26  # maximum bytes of a frame: the config of a run is far smaller
LAST_S = 1.0  # wait for the EndPart of an agent whose part has ended: it is already on its way
STOP_S = 10.0  # a part that takes longer to end is killed: it has nothing to save
LOG_LINES = 200  # maximum lines of a log that are sent at once; of more, the last ones are
LINE_BYTES = 2000  # maximum bytes of a line that is sent

PART = ("collectors", "evaluators", "first")  # keys of an `Accepted.part`
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \S+ ((?:DEBUG|INFO|WARN|ERROR) .*)")


def run_agent(join: JoinFile, wait_s: float, report: Callable[[str], object]) -> int:
    """Join the run and run its part until the run ends; return the exit code.

    wait_s: how long to try to reach the head, at first and after it was lost. Raises HiveError if the head cannot be
    reached in that time, or refuses this host.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_main(join, wait_s, report))


async def _main(join: JoinFile, wait_s: float, report: Callable[[str], object]) -> int:
    client = LinkClient(join.keys, join.head, LIMIT_BYTES, join.silence_s)
    agent = Agent(join, wait_s, report, client, lambda accepted: _LocalPart(join, accepted), RealClock())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, agent.stop)
    return await agent.main()


class HostPart(Protocol):
    """The part of a run on this host: an ordinary run."""

    def start(self) -> None:
        """Start it. Raises HiveError."""

    async def status(self) -> Mapping[str, Any]:
        """Return its status document, with CPU and memory of its processes; {} while there is none."""

    async def answer(self, ask: ActorQuery, incarnation: int) -> ActorReply:
        """Carry out a request about an actor."""

    def logs(self) -> list[tuple[str, str]]:
        """Return (actor, "LEVEL text") of the lines that were logged since the last call."""

    async def ended(self) -> str | None:
        """Return why it has ended by itself; None while it runs."""

    async def end(self) -> None:
        """End it if it runs, and remove what is left of it."""


class Agent:
    """Joins a run and runs its part, again whenever it was lost, until the run ends.

    client: its end of the link to the head. part: makes the part that the head has accepted this host for.
    """

    def __init__(
        self,
        join: JoinFile,
        wait_s: float,
        report: Callable[[str], object],
        client: ClientEnd,
        part: Callable[[Accepted], HostPart],
        clock: Clock,
    ) -> None:
        self.join = join
        self.wait_s = wait_s
        self.report = report
        self.client = client
        self.part = part
        self.clock = clock
        self.incarnation = 0
        self.accepted: Accepted | None = None
        self.end: EndPart | None = None
        self.refused = ""
        self.heard_s = self._now_s()
        self.stopped = self.serving = False
        self.asks: list[ActorQuery] = []
        self.changed = asyncio.Event()

    async def main(self) -> int:
        """Run until the run ends; return the exit code. Raises HiveError as `run_agent`."""
        self.client.connect(self.join.address, self._received, self._ask)
        try:
            while not self.stopped:
                accepted = await self._joined()
                if accepted is None:
                    break
                ended = await self._run(accepted)
                self.report(f"left {self.join.run}: {ended.reason}")
                if not ended.rejoin:
                    break
            return 0
        finally:
            self.client.close(linger_s=0.5)

    def stop(self) -> None:
        """End the part, and `main`."""
        self.stopped = True
        self.changed.set()

    def _now_s(self) -> float:
        return self.clock.now_ns() / 1e9

    # --- messages

    def _send(self, message: Message) -> bool:
        return self.client.send(encode(message))

    def _ask(self) -> None:
        self._send(Join(PROTOCOL, __version__, self.incarnation, platform.node(), os.getpid(), cores()))

    def _received(self, frames: Frames) -> None:
        self.heard_s = self._now_s()
        with contextlib.suppress(WireError):  # the head is trusted, but may have another version
            message = decode(frames[:1], TO_HOST)
            if isinstance(message, Accepted):
                self.accepted = message
            elif isinstance(message, Refused):
                self.refused = message.reason
                if message.final:
                    self.end = EndPart(message.reason, rejoin=False)
            elif isinstance(message, EndPart):
                self.end = message
                if not self.serving:  # else its last status comes first
                    self._send(HostEnded(self.incarnation, message.reason))
            elif isinstance(message, ActorQuery):
                self.asks.append(message)
            else:
                return  # a Pong shows only that the head is alive
            self.changed.set()

    def _ended(self) -> EndPart | None:
        return self.end  # set by a message, which a type checker cannot know

    def _acceptance(self) -> Accepted | None:
        return self.accepted

    async def _changed(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.changed.wait(), timeout_s)
        self.changed.clear()

    # --- joining

    async def _joined(self) -> Accepted | None:
        """Ask until the head accepts this host; None if the agent is stopped, or the run has ended."""
        self.incarnation, self.accepted, self.end, self.refused = 0, None, None, ""
        began_s = self._now_s()
        self.report(f"waiting for the head of {self.join.run} at {self.join.address}")
        while not self.stopped:
            self._ask()
            await self._answered()
            if (accepted := self._acceptance()) is not None:
                return accepted
            if (end := self._ended()) is not None and not end.rejoin:
                if end.reason != self.refused:  # the run ended while this host was away
                    self.report(f"left {self.join.run}: {end.reason}")
                    return None
                raise UsageError(f"the head refuses this host: {end.reason}")
            if self._now_s() - began_s > self.wait_s:
                raise HostLost(
                    f"no run accepts this host at {self.join.address}" + (f": {self.refused}" if self.refused else ""),
                    hint="check that the run is alive, that the address is reachable from here, and that the file is "
                    "the newest of this run; --wait SECONDS waits longer",
                )
        return None

    async def _answered(self) -> None:
        """Wait until it is time to ask again, or not to ask any more. A refusal is no reason to ask sooner."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ASK_S):
                while not (self.stopped or self.accepted or (self.end is not None and not self.end.rejoin)):
                    await self.changed.wait()
                    self.changed.clear()

    # --- the part

    async def _run(self, accepted: Accepted) -> EndPart:
        """Run the part, and return why it ended."""
        self.incarnation, self.end = accepted.incarnation, None
        part = self.part(accepted)
        try:
            part.start()
            self.report(f"joined {self.join.run} as {self.join.host}: {_work(accepted.part)}")
            self.serving = True
            return await self._serve(part)
        except HiveError as error:
            self._send(HostEnded(self.incarnation, str(error)))
            return EndPart(str(error), rejoin=False)
        finally:
            self.serving = False
            await part.end()

    async def _serve(self, part: HostPart) -> EndPart:
        """Send the status and the logs of the part until it ends, or is to end."""
        while True:
            await self._changed(STATUS_S)
            if self.stopped:
                self._send(HostEnded(self.incarnation, "the agent was stopped"))
                return EndPart("the agent was stopped", rejoin=False)
            if (end := self._ended()) is not None:
                # A run may be over before the first status, which tells the head what its collectors have imported.
                self._send(HostStatus(self.incarnation, await part.status()))
                self._send(HostEnded(self.incarnation, end.reason))
                return end
            if (silent_s := self._now_s() - self.heard_s) > self.join.silence_s:
                return EndPart(f"the head has been silent for {silent_s:.0f} s", rejoin=True)
            while self.asks:
                self._send(await part.answer(self.asks.pop(0), self.incarnation))
            self._send(HostStatus(self.incarnation, await part.status()))
            for actor, text in part.logs():
                self._send(HostLog(self.incarnation, actor, text))
            if (reason := await part.ended()) is not None:
                return await self._part_ended(reason)

    async def _part_ended(self, reason: str) -> EndPart:
        """Return why the part ended: the head's EndPart, if it follows; both were told, and the part was faster."""
        until_s = self._now_s() + LAST_S
        while self._ended() is None and self._now_s() < until_s:
            await self._changed(LAST_S)
        if (end := self._ended()) is not None:
            self._send(HostEnded(self.incarnation, end.reason))
            return end
        if reason == RUN_ENDED:  # the EndPart of this connection was lost
            return EndPart(reason, rejoin=False)
        self._send(HostEnded(self.incarnation, reason))
        return EndPart(reason, rejoin=True)


class _LocalPart:
    """A run of processes of this machine, in a folder of its own."""

    def __init__(self, join: JoinFile, accepted: Accepted) -> None:
        self.join = join
        self.accepted = accepted
        self.home: Path | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        _sweep(self.join.host)
        self.home = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{self.join.host}-"))
        self.directory = directory = RunDirectory.create(self.home, self.join.host)
        facts_of(self.join, self.accepted).write(directory.path)
        for path in (directory.config_file, directory.resolved_file):
            write_bytes(path, self.accepted.config.encode())
        if (environment := self.accepted.part.get("environment")) is not None:  # a look of its own may find others
            with keeping(directory.spaces_file):
                keep_origins(from_plain(environment))
        self.process = start_supervisor(directory.path, directory.logs)
        self._logs, self._control = _Logs(directory), _Control(directory)

    async def status(self) -> Mapping[str, Any]:
        return await asyncio.to_thread(self._control.status)

    async def answer(self, ask: ActorQuery, incarnation: int) -> ActorReply:
        return await asyncio.to_thread(self._control.answer, ask, incarnation)

    def logs(self) -> list[tuple[str, str]]:
        return self._logs.new()

    async def ended(self) -> str | None:
        assert self.process is not None
        code = self.process.poll()
        return None if code is None else await asyncio.to_thread(_reason, self.directory, code)

    async def end(self) -> None:
        if self.process is not None:
            self._control.close()
            await asyncio.to_thread(_end, self.process)
        if self.home is not None:
            shutil.rmtree(self.home, ignore_errors=True)


def facts_of(join: JoinFile, accepted: Accepted) -> HostFacts:
    """Return the facts of the part that this process, the agent, runs. Raises WireError."""
    part, pid = accepted.part, os.getpid()
    wrong = misfit(part, dict[str, Any])
    wrong = wrong or next(filter(None, (misfit(part.get(name), list[int], name) for name in PART)), "")
    if wrong:
        raise WireError(f"the head sent an invalid part: {wrong}")
    return HostFacts(
        run=join.run,
        host=join.host,
        incarnation=accepted.incarnation,
        address=join.address,
        head=join.head,
        public=join.public,
        secret=join.secret,
        silence_s=join.silence_s,
        agent=pid,
        agent_start=process_start_time(pid) or 0,
        collectors=part["collectors"],
        evaluators=part["evaluators"],
        first=part["first"],
        resume=part.get("resume") or {},
    )


def _work(part: Mapping[str, Any]) -> str:
    """Return what a part does: "4 collectors", "1 evaluator"."""
    counts = {kind: part[f"{kind}s"][1] for kind in ("collector", "evaluator")}
    return " and ".join(f"{count} {kind}{'s'[: count != 1]}" for kind, count in counts.items() if count)


def _sweep(host: str) -> None:
    """Remove the folders of parts whose agents were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}{host}-*"):
        for path in folder.glob("*/host.json"):
            with contextlib.suppress(HiveError, OSError):
                facts = host_facts(path.parent)
                if facts is not None and process_start_time(facts.agent) != facts.agent_start:
                    shutil.rmtree(folder, ignore_errors=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a supervisor, and all processes of its run with it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def _reason(directory: RunDirectory, code: int) -> str:
    """Return why a part has ended by itself."""
    from hive.records import Summary, read_object

    with contextlib.suppress(HiveError):
        return str(read_object(directory.failure_file)["error"])
    with contextlib.suppress(HiveError):
        summary = Summary.read(directory.summary_file)
        return summary.error or summary.stop_reason
    return f"its supervisor ended with code {code}"


class _Control:
    """The status of the part, from its supervisor."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.client: ControlClient | None = None
        self.processes = ProcessPoller()

    def status(self) -> Mapping[str, Any]:
        """Return the status document, with CPU and memory of its processes; {} while there is none."""
        try:
            if self.client is None:
                self.client = open_run(self.directory)
            status = self.client.status()
        except HiveError:
            self.close()
            return {}
        pids = [status["pid"], *(row["pid"] for row in (*status["helpers"], *status["actors"]))]
        facts = self.processes.facts(pids, time.monotonic())
        return status | {
            "processes": {str(p): {"cpu": f.cpu, "memory_bytes": f.memory_bytes} for p, f in facts.items()}
        }

    def answer(self, ask: ActorQuery, incarnation: int) -> ActorReply:
        """Carry out a request about an actor."""
        try:
            if self.client is None:
                self.client = open_run(self.directory)
            if ask.kill:
                self.client.kill(ask.actor, by_hand=ask.by_hand)
                return ActorReply(incarnation, ask.number, "", (), "")
            return ActorReply(incarnation, ask.number, *self.client.inspect(ask.actor, stack=ask.stack), "")
        except HiveError as error:
            return ActorReply(incarnation, ask.number, "", (), str(error))

    def close(self) -> None:
        if self.client is not None:
            self.client.close()
            self.client = None


class _Logs:
    """New lines in the logs of the part's actors."""

    def __init__(self, directory: RunDirectory) -> None:
        self.folder = directory.logs
        self.offsets: dict[Path, int] = {}

    def new(self) -> list[tuple[str, str]]:
        """Return (actor, "LEVEL text") of the lines that were logged since the last call."""
        found: list[tuple[str, str]] = []
        for path in sorted(self.folder.glob("*.log")):
            if path.stem == "supervisor":
                continue
            start = self.offsets.get(path, 0)
            with contextlib.suppress(OSError), path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < start:
                    start = 0  # rotated
                file.seek(start)
                data = file.read()
                whole = data[: data.rfind(b"\n") + 1]
                self.offsets[path] = start + len(whole)
                lines = whole.decode(errors="replace").splitlines()[-LOG_LINES:]
                found += [(path.stem, line[1][:LINE_BYTES]) for line in map(LINE.fullmatch, lines) if line]
        return found
