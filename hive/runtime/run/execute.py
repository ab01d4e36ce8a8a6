"""Run one run, from its directory to its summary, in the supervisor's process (hive.runtime.run).

    resolved.toml -> fork server builds the topology -> memory -> supervisor.run() -> summary.json, exit code

`run_inline` does the same in the calling process, with every actor a task of one event loop, for `--inline` and
debuggers. Both write the same files and end for the same reasons: the run's goal, a request through the control socket,
SIGTERM or SIGINT (the first drains, the second ends at once), or a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from hive.errors import HiveError
from hive.records import RunDirectory, open_log
from hive.records.crash import write_failure
from hive.records.failed_starts import has_results
from hive.runtime.actor.error_location import describe
from hive.runtime.process.fork_server import Build
from hive.runtime.process.forked import BuildError, ForkedProcesses
from hive.runtime.process.limits import check_limits
from hive.runtime.process.processes import InlineProcesses, SharedMemory
from hive.runtime.process.spawning import ForkServer
from hive.runtime.process.stop_signals import FORCED
from hive.runtime.process.user_code.guest import Guest
from hive.runtime.run.conclusion import conclude, conclude_unbuilt, conclude_unstarted
from hive.runtime.run.control import control_path
from hive.runtime.run.control_server import ControlServer
from hive.runtime.run.live_run import LiveRun
from hive.runtime.run.outside_loop import outside_any_loop
from hive.runtime.run.requests import RunRequests
from hive.runtime.run.scaling import SCALED, combined_outcome
from hive.runtime.supervise.outcome import CrashReport, Outcome
from hive.runtime.topology.building import load
from hive.runtime.topology.plan import Plan
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.sockets import SECRET_BYTES, ZmqTransport
from hive.runtime.wire.transport import MemoryTransport

# The function that builds the topology of a run directory: a name, as the fork server imports it.
FACTORY = "hive.runtime.topology.building:load"
EXIT_CODES = {"finished": 0, "stopped": 0, "failed": 1}


async def _stages(
    run: LiveRun,
    build: Callable[[], Coroutine[Any, Any, Plan]],
    begin: Callable[[Plan, SharedMemory], Coroutine[Any, Any, Outcome]],
) -> Outcome:
    """Run all stages, and return their combined outcome. `build` makes the plan of a stage, `begin` runs it."""
    stages: list[Outcome] = []
    while True:
        try:
            plan = await run.unless_requested(build())
            if plan is None:
                return conclude_unbuilt(run)
            check_limits(plan)
            memory = SharedMemory(plan)
        except HiveError as error:
            run.revert_change(error)
            continue
        try:
            stages.append(await begin(plan, memory))
        finally:
            memory.close()
        if stages[-1].state != SCALED:
            outcome = combined_outcome(stages)
            conclude(run, outcome)
            return outcome
        run.next_stage()
        memory.release()


async def _forked(run: LiveRun, server: ForkServer) -> Outcome:
    folder = run.socket_folder
    control = ControlServer(control_path(folder), RunRequests(run))
    await control.start()
    run.write_facts()
    build = Build(FACTORY, str(run.directory.path), os.getpid(), str(folder), str(run.directory.logs))
    processes = ForkedProcesses(
        build, lambda kind, text: run.event(kind, text), server, start_limit_s=run.config.start_limit_s
    )
    # From the build on, which makes an environment.
    watching = [asyncio.ensure_future(watch) for watch in (run.output.watch(), run.watch_program())]

    async def begin(plan: Plan, memory: SharedMemory) -> Outcome:
        address = f"ipc://{run.stage_folder()}/supervisor"
        processes.segments, processes.supervisor_address = memory.descriptors(), address
        processes.secret = secrets.token_bytes(SECRET_BYTES)
        transport = ZmqTransport(processes.secret)
        try:
            run.event("started", f"run {run.directory.name}", {"pid": os.getpid(), "bytes": plan.bytes})
            return await run.supervise(plan, processes, transport, memory, address)
        finally:
            transport.close()

    try:
        with run.signals.handled():
            return await _stages(run, processes.build_plan, begin)
    finally:
        for watch in watching:
            watch.cancel()
        await processes.close()
        await control.close()


async def _inline(run: LiveRun, function: Callable[..., Topology] | None, received: Callable[[int], object]) -> Outcome:
    run.write_facts()
    control = ControlServer(control_path(run.socket_folder), RunRequests(run))
    await control.start()
    built: list[Topology] = []

    async def build() -> Plan:
        built[:] = [load(str(run.directory.path), function, config=run.config)]
        return built[0].plan()

    def log_of(name: str) -> logging.Logger:
        return open_log(run.directory.log_file(name), name, run.config.record.log_level.upper())

    async def begin(plan: Plan, memory: SharedMemory) -> Outcome:
        transport, address = MemoryTransport(), "memory://inline/supervisor"
        processes = InlineProcesses(built[0], plan, memory, transport, run.clock, address, log_of)
        try:
            run.event("started", f"run {run.directory.name}, inline", {"pid": os.getpid(), "bytes": plan.bytes})
            return await run.supervise(plan, processes, transport, memory, address)
        finally:
            await processes.close()

    watching = asyncio.ensure_future(run.watch_main_thread(received))
    try:
        with run.signals.handled(received):
            return await _stages(run, build, begin)
    finally:
        watching.cancel()
        await control.close()


def _conclude_failed(run: LiveRun, error: Exception) -> int:
    """Conclude a run that could not start, or whose supervisor raised an error; return the exit code."""
    trace, run.concluded = error.traceback if isinstance(error, BuildError) else "", True
    if not isinstance(error, HiveError):
        kind, text, trace = describe(error)
        report = run.crash(CrashReport("supervisor", f"{kind}: {text}", "in `start`", trace))
        error = HiveError(f"the supervisor failed: {kind}: {text}", hint=f"the report is in {report}" if report else "")
    run.event("failed", str(error))
    with contextlib.suppress(HiveError):  # a full disk must not prevent the summary, for which room is reserved
        write_failure(run.directory, error, trace)
    conclude_unstarted(run, error)
    return error.exit_code


def run_forked(directory: RunDirectory, server: ForkServer, program: int = 0) -> int:
    """Run the run in the supervisor's process, which has started the fork server; return the exit code.

    If it cannot start, the error is written to `failure.json`, which `hive up` shows.
    program: pid of the Python program that waits for the run, whose end ends it; 0: none. It cannot remove the
    directory of a run that had not begun any more.
    """
    try:
        run = LiveRun(directory, program)
    except HiveError as error:
        with contextlib.suppress(HiveError):  # a full disk
            write_failure(directory, error)
        return error.exit_code
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            outcome = runner.run(_forked(run, server))
        if run.is_orphan and not has_results(directory):
            directory.remove()
        return FORCED if run.at_once else EXIT_CODES[outcome.state]
    except Exception as error:
        return _conclude_failed(run, error)
    finally:
        run.close()


def run_inline(
    directory: RunDirectory,
    function: Callable[..., Topology] | None = None,
    received: Callable[[int], object] = lambda number: None,
) -> int:
    """Run the run in this process and return the exit code. Raises HiveError if it cannot start.

    `function` makes the topology from the config, instead of the function that the config names. Where the caller's
    thread runs an event loop, the run takes place in another thread. received: is called with each signal that asks the
    run to end. What a handler of the program raises is raised once the run has ended.
    """
    run = LiveRun(directory)
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    loop = runner.get_loop()

    def call() -> Outcome:
        with runner, Guest(whole_run=True):
            return runner.run(_inline(run, function, received))

    def interrupt(error: BaseException) -> None:  # in the main thread, while the run is in another one
        if isinstance(error, KeyboardInterrupt):
            loop.call_soon_threadsafe(run.signals.signalled, getattr(error, "number", signal.SIGINT), received)
        else:
            loop.call_soon_threadsafe(run.signals.raise_at_end, error)

    try:
        outcome = outside_any_loop(call, interrupt)
        if run.signals.raised is not None:
            raise run.signals.raised
        return FORCED if run.at_once else EXIT_CODES[outcome.state]
    except HiveError as error:
        conclude_unstarted(run, error)
        raise
    finally:
        run.close()
