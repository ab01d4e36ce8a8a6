"""One run from its directory to its summary: `python -m hive.runtime.run RUN_DIRECTORY` is the supervisor's process.

    resolved.toml -> fork server builds the topology -> memory -> supervisor.run() -> summary.json, exit code

`run_inline` does the same in the calling process, with every actor a task of one event loop: for `--inline`, debuggers
and breakpoints. Both write the same files, and both end by the same doors: the run's own goal, a request through the
control socket, SIGTERM or SIGINT (drain; the second time at once), or a failure.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import math
import os
import platform
import shutil
import signal
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import uvloop

from hive.clock import RealClock
from hive.config import Config, load_config
from hive.errors import HiveError, PlatformError
from hive.records import (
    JsonlWriter,
    RunDirectory,
    RunFacts,
    Summary,
    open_log,
    process_start_time,
    read_object,
    write_crash,
    write_run_facts,
)
from hive.runtime.control import ControlServer, control_path
from hive.runtime.folders import make_socket_folder
from hive.runtime.fork_server import Build
from hive.runtime.forked import BuildError, ForkedProcesses
from hive.runtime.membership import Settings
from hive.runtime.messages import Tree
from hive.runtime.outcome import Journal, Outcome
from hive.runtime.overview import overview
from hive.runtime.plan import Plan
from hive.runtime.processes import InlineProcesses, ProcessTable, SharedMemory
from hive.runtime.protocol import Failed
from hive.runtime.status import ActorStatus
from hive.runtime.supervisor import Supervisor
from hive.runtime.transport import MemoryTransport, Transport
from hive.runtime.wire import ZmqTransport

__all__ = ["FACTORY", "main", "run_forked", "run_inline"]

FACTORY = "hive.runtime.building:load"  # builds the topology of a run directory; named: it is run by the fork server
MEMORY_SHARE = 0.9  # of the memory that is free: a plan beyond that would push the machine into its own killer
EXIT_CODES = {"finished": 0, "stopped": 0, "failed": 1}
FORCED = 130  # stopped at once because somebody asked twice


class _Run:
    """What both kinds of run share: files, the diary, the summary."""

    def __init__(self, directory: RunDirectory) -> None:
        from hive import __version__

        self.version = __version__
        self.directory = directory
        self.config: Config = load_config(directory.resolved_file)
        self.clock = RealClock()
        self.started = time.time()
        self.events = JsonlWriter(directory.events_file)
        self.log = open_log(directory.log_file("supervisor"), "supervisor", self.config.record.log_level.upper())
        self.socket_folder = make_socket_folder()
        self.supervisor: Supervisor | None = None
        self.requested: tuple[str, bool] | None = None  # asked to end before there was a supervisor
        self.building: asyncio.Task[Plan] | None = None
        self.now = False

    def write_facts(self) -> None:
        start = process_start_time(os.getpid()) or 0
        facts = RunFacts(
            self.directory.name,
            os.getpid(),
            start,
            str(self.socket_folder),
            self.started,
            sys.argv,
            self.version,
            platform.python_version(),
        )
        write_run_facts(self.directory, facts)

    def event(self, kind: str, text: str, fields: dict[str, Tree] | None = None) -> None:
        self.events.write({"t": round(time.time(), 3), "kind": kind, "text": text, **(fields or {})})
        level = logging.WARNING if kind in ("died", "killed", "bad message", "not finite", "lost") else logging.INFO
        self.log.log(level, "%s: %s", kind, text)

    def crash(self, failed: Failed, status: ActorStatus, story: list[str]) -> str:
        doing = f"{failed.doing} (version {status.version}, {status.progress:,} phase changes)"
        try:
            return str(
                write_crash(
                    self.directory,
                    status.name,
                    error=f"{failed.error}: {failed.text}",
                    traceback=failed.traceback,
                    doing=doing,
                    story=story,
                )
            )
        except HiveError as error:  # a full disk must not stop a restart
            self.log.warning("%s", error)
            return ""

    def down(self, reason: str, now: bool) -> None:
        """Asked from outside to end. The second time, or with `now`, at once."""
        self.now = self.now or now or self.requested is not None
        self.requested = (reason, self.now)
        if self.supervisor is not None:
            self.supervisor.request(reason, now=self.now)
        elif self.building is not None and not self.directory.resume_file.exists():
            self.building.cancel()  # a resumed run begins even so: its summary is of all that it has done

    async def unless_asked(self, build: Coroutine[Any, Any, Plan]) -> Plan | None:
        """What `build` makes; None when somebody asks this new run to end meanwhile, which can take a minute."""
        self.building = asyncio.ensure_future(build)
        try:
            return await self.building
        except asyncio.CancelledError:
            if self.requested is None:
                raise
            return None

    def never_began(self) -> Outcome:
        """The end of a run that was asked to end before it had an actor."""
        assert self.requested is not None
        outcome = Outcome("stopped", self.requested[0], "", "", False, {}, {}, {}, "")
        self.conclude(outcome)
        return outcome

    def status(self) -> dict[str, Tree]:
        base: dict[str, Tree] = {
            "run": self.directory.name,
            "pid": os.getpid(),
            "started": self.started,
            "steps": self.config.run.steps,
        }
        return base | (
            overview(self.supervisor)
            if self.supervisor
            else {"state": "starting", "actors": [], "helpers": [], "channels": {}}
        )

    async def supervise(
        self, plan: Plan, processes: ProcessTable, transport: Transport, memory: SharedMemory, address: str
    ) -> Outcome:
        limits = self.config.supervision
        settings = Settings(limits.restarts, limits.window_s, limits.phase_limit_s, limits.drain_s)
        journal = Journal(self.event, self.crash)
        self.supervisor = Supervisor(plan, processes, transport, memory, self.clock, settings, journal, address)
        if self.requested is not None:
            self.supervisor.request(self.requested[0], now=self.now)
        outcome = await self.supervisor.run()
        self.conclude(outcome)
        return outcome

    def conclude(self, outcome: Outcome) -> None:
        """Writes summary.json, last of all."""
        results, run = outcome.results, self.config.run
        mean_return = results.get("mean_return_100", math.nan)
        summary = Summary(
            name=self.directory.name,
            scheme=run.scheme,
            state=outcome.state,
            stop_reason=outcome.reason,
            seed=run.seed,
            exact=outcome.exact and outcome.state == "finished" and self.exact_so_far(),
            env_steps=int(results.get("env_steps", 0)),
            updates=int(results.get("updates", 0)),
            episodes=int(results.get("episodes", 0)),
            mean_return_100=None if math.isnan(mean_return) else mean_return,
            started=self.started,
            wall_s=time.time() - self.started,
            train_s=results.get("train_s", 0.0),
            weights_sha256=outcome.digest,
            channels=outcome.channels,
            restarts=outcome.restarts,
            error=HiveError(outcome.error, hint=outcome.hint).render().removeprefix("error: ")
            if outcome.error
            else None,
        )
        self.event("ended", f"{outcome.state}: {outcome.reason}", {"state": outcome.state})
        summary.write(self.directory.summary_file)

    def exact_so_far(self) -> bool:
        """Whether its modes are deterministic, and what it was resumed from was exact."""
        resumed = self.directory.resume_file
        return self.config.exact and (not resumed.exists() or read_object(resumed).get("exact") is True)

    @contextmanager
    def signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end the run; the terminal that goes away does not."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.down, signal.Signals(number).name, False)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def close(self) -> None:
        self.events.close()
        shutil.rmtree(self.socket_folder, ignore_errors=True)


def check_memory(plan: Plan) -> None:
    """Raises PlatformError when the plan needs more shared memory than is free."""
    free = psutil.virtual_memory().available
    if plan.bytes > MEMORY_SHARE * free:
        raise PlatformError(
            f"this run needs {plan.bytes / 2**30:.1f} GiB of shared memory, {free / 2**30:.1f} GiB are free",
            hint="lower collection.slots, envs or rollout; `hive check` shows what each channel takes",
        )


async def _forked(run: _Run) -> Outcome:
    folder = run.socket_folder
    control = ControlServer(control_path(folder), run.status, run.down)
    await control.start()
    run.write_facts()
    build = Build(FACTORY, str(run.directory.path), os.getpid(), str(folder), str(run.directory.logs))
    processes = ForkedProcesses(build, lambda kind, text: run.event(kind, text))
    transport = ZmqTransport()
    memory = None
    try:
        with run.signals():
            plan = await run.unless_asked(processes.start_server())
            if plan is None:
                return run.never_began()
            check_memory(plan)
            memory = SharedMemory(plan)
            processes.segments = memory.descriptors()
            processes.supervisor_address = f"ipc://{folder}/supervisor"
            run.event("started", f"run {run.directory.name}", {"pid": os.getpid(), "bytes": plan.bytes})
            return await run.supervise(plan, processes, transport, memory, processes.supervisor_address)
    finally:
        await processes.close()
        transport.close()
        await control.close()
        if memory is not None:
            memory.close()


async def _inline(run: _Run, factory: str) -> Outcome:
    module, _, function = factory.partition(":")
    topology = getattr(importlib.import_module(module), function)(str(run.directory.path))
    plan: Plan = topology.plan()
    check_memory(plan)
    run.write_facts()
    control = ControlServer(control_path(run.socket_folder), run.status, run.down)
    await control.start()
    memory, transport, address = SharedMemory(plan), MemoryTransport(), "memory://inline/supervisor"

    def log_of(name: str) -> logging.Logger:
        return open_log(run.directory.log_file(name), name, run.config.record.log_level.upper())

    processes = InlineProcesses(topology, plan, memory, transport, run.clock, address, log_of)
    try:
        with run.signals():
            run.event("started", f"run {run.directory.name}, inline", {"pid": os.getpid(), "bytes": plan.bytes})
            return await run.supervise(plan, processes, transport, memory, address)
    finally:
        await processes.close()
        await control.close()
        memory.close()


def _failure(error: HiveError, traceback: str = "") -> dict[str, Any]:
    return {"error": str(error), "hint": error.hint, "exit_code": error.exit_code, "traceback": traceback}


def run_forked(directory: RunDirectory) -> int:
    """The supervisor's process; returns its exit code. What could not even start lies in `failure.json`."""
    from hive.records import write_json

    run = _Run(directory)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            outcome = runner.run(_forked(run))
        return FORCED if run.now else EXIT_CODES[outcome.state]
    except HiveError as error:
        run.event("failed", str(error))
        traceback = error.traceback if isinstance(error, BuildError) else ""
        write_json(directory.path / "failure.json", _failure(error, traceback))
        return error.exit_code
    finally:
        run.close()


def run_inline(directory: RunDirectory) -> int:
    """The whole run in this process. Raises HiveError when it cannot start."""
    run = _Run(directory)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            outcome = runner.run(_inline(run, FACTORY))
        return FORCED if run.now else EXIT_CODES[outcome.state]
    finally:
        run.close()


def main() -> None:
    """The supervisor's process: its own session, so that closing the terminal does not reach it."""
    sys.exit(run_forked(RunDirectory.open(Path(sys.argv[1]))))


if __name__ == "__main__":
    main()
