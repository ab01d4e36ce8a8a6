"""Hold the state of an active run: its files, event log, warnings, stages, and the requests to end it.

Forked and inline runs (hive.runtime.run.execute) share this class, which does not depend on where the actors run.
hive.runtime.run.requests carries out what views request, hive.runtime.run.conclusion writes the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import os
import platform
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from hive.clock import RealClock
from hive.config import Config, load_config, resolved
from hive.errors import HiveError
from hive.records import (
    JsonlWriter,
    RunDirectory,
    RunFacts,
    earlier_wall_s,
    list_checkpoints,
    open_log,
    process_start_time,
    read_jsonl,
    read_resume_point,
    write_bytes,
    write_crash,
    write_resume_point,
    write_run_facts,
)
from hive.records.checkpoints.together import chosen_together, others_of
from hive.records.environments import forget_environments
from hive.records.owner import boot_id, give_up, owned, pid_namespace
from hive.records.regular import read_regular
from hive.records.replaced import forget_replaced, restore_replaced
from hive.records.run_warnings import (
    ACCEPTED,
    OTHER_CODE,
    RECOVERED,
    SOCKETS_REMOVED,
    WARNING,
    active,
    apply_event,
    facts_of,
    warnings_of,
)
from hive.records.runs import boot_s
from hive.runtime.process.limits import raise_descriptor_limit
from hive.runtime.process.processes import ProcessTable, SharedMemory
from hive.runtime.process.stop_signals import REASONS
from hive.runtime.process.user_code.code_of_run import CODE
from hive.runtime.run.control import PROTOCOL
from hive.runtime.run.folders import make_socket_folder, restore_socket_folder, sweep
from hive.runtime.run.imported_code import ImportedCode, cause_of
from hive.runtime.run.main_thread import LOOK_S as MAIN_THREAD_S
from hive.runtime.run.main_thread import MainThread
from hive.runtime.run.output_watch import OutputWatch
from hive.runtime.run.scaling import description
from hive.runtime.run.signal_handlers import SignalHandlers
from hive.runtime.supervise.membership import Settings
from hive.runtime.supervise.outcome import CrashReport, Journal, Outcome
from hive.runtime.supervise.supervisor import Supervisor
from hive.runtime.topology.plan import Plan
from hive.runtime.wire.messages import Tree
from hive.runtime.wire.transport import Transport

SCALED_RUN = "`hive scale` changed it"  # why a run with stages is not exact
LOOK_S = 1.0  # interval between two looks at the folders of a run, and at the program that waits for it
PROGRAM_ENDED = "the program that started the run has ended"
LOGGED_AS_WARNINGS = ("died", "killed", "bad message", "not finite", "lost", WARNING)  # kinds of events


class LiveRun:
    """An active run. `supervisor` is the supervisor of the current stage, or None between stages."""

    def __init__(self, directory: RunDirectory, program: int = 0) -> None:
        from hive import __version__

        self.version = __version__
        self.directory = directory
        self.lock = owned(directory)
        self.program = program  # pid of the Python program that waits for the run, until it leaves the run; 0: none
        self.is_orphan = False  # whether that program has ended
        self.config: Config = load_config(directory.resolved_file)
        self.clock = RealClock()
        self.started = time.time()
        self.started_s = boot_s()
        self.earlier_s = earlier_wall_s(directory)
        self.events = JsonlWriter(directory.events_file)
        self.log = open_log(directory.log_file("supervisor"), "supervisor", self.config.record.log_level.upper())
        self.socket_folder = make_socket_folder(directory.path)
        self.supervisor: Supervisor | None = None
        self.requested: tuple[str, bool] | None = None  # (reason, at once) of a request to end the run
        self.requests: Counter[tuple[str, str]] = Counter()  # (way, reason) -> requests to end the run
        self.building: asyncio.Task[Plan] | None = None
        self.at_once = False
        self.previous_summary = b""  # summary.json of the run that is resumed
        self.stage = 0  # number of times it was scaled
        self.next_config: Config | None = None  # config of the next stage
        self.previous_config: Config | None = None  # config of the previous stage
        self.refused = ""  # error of the last `hive scale`, if it failed
        self.inexact_plan: Sequence[str] = ()  # why the topology of this stage is not exact
        self.was_set = False  # whether `hive set` has changed a key
        self.concluded = False  # whether the run ends, so that its socket folder is needed no more
        logged = [*read_jsonl(directory.events_file)]  # of the run that is resumed
        self.warnings, self.facts = warnings_of(logged), facts_of(logged)
        self.code = ImportedCode(logged)
        self.output = OutputWatch(directory.logs, self._warn)
        self.signals = SignalHandlers(self.down, self._program_leaves)
        raise_descriptor_limit()
        directory.reserve()

    @property
    def wall_s(self) -> float:
        """The seconds that all parts of the run have taken, whatever was done to the clock of the machine."""
        return boot_s() - self.started_s + self.earlier_s

    def write_facts(self) -> None:
        """Write the facts by which commands find this process, and remember the summary of a resumed run."""
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
            protocol=PROTOCOL,
            host=platform.node(),
            boot=boot_id(),
            namespace=pid_namespace(),
        )
        with contextlib.suppress(OSError):
            self.previous_summary = read_regular(self.directory.summary_file)
        self._forget_environments()
        write_run_facts(self.directory, facts)

    def _forget_environments(self) -> None:
        """Remove the files of environments of processes that no longer exist, which only views read."""
        try:
            forget_environments(self.directory)
        except HiveError as error:
            self.log.warning("%s", error)

    def keep_sockets(self) -> None:
        """Make the socket folder again if it was removed, as by a cleaner of /tmp, and warn of it.

        A run that ends needs no sockets, and the fork server has removed their folder if the build failed.
        """
        if self.concluded or not restore_socket_folder(self.socket_folder, self.directory.path):
            return
        if self.stage:
            self.stage_folder()
        cause = f"{self.socket_folder} was removed or renamed during the run and has been made again"
        self._warn(SOCKETS_REMOVED, cause, "commands reach the run again")

    def _warn(self, kind: str, cause: str, advice: str) -> None:
        fields: dict[str, Tree] = {"warning": kind, "cause": cause, "advice": advice, "steps": self._steps()}
        self.event(WARNING, f"{kind}: {cause}; {advice}", fields)

    def end_warnings(self) -> None:
        """Log the end of the warning of removed sockets; called at times, not right after it began."""
        if any(warning.kind == SOCKETS_REMOVED for warning in active(self.warnings.values())):
            steps = self._steps()
            text = f"{SOCKETS_REMOVED}: no longer so at {steps:,} steps"
            self.event(RECOVERED, text, {"warning": SOCKETS_REMOVED, "steps": steps})

    def _steps(self) -> int:
        return int(self.supervisor.results().get("env_steps", 0)) if self.supervisor is not None else 0

    async def watch_folders(self) -> None:
        """Look every LOOK_S seconds whether the folders of the run still exist."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.check_folders()

    def check_folders(self) -> None:
        """Keep the sockets reachable, and end a run whose directory is gone: nothing that it learns can be saved.

        One that another process owns by now ends at once, without a last checkpoint.
        """
        self.end_warnings()
        self.keep_sockets()
        self.lock.touch()
        replaced = self.directory.replaced.exists()
        if replaced and self.supervisor is not None and self.has_advanced(self.supervisor.results()):
            self.settle_config(advanced=True)
        if self.requested is None and not self.lock.is_ours():
            self.down(f"another process continues {self.directory.name}", at_once=True, way="directory")
        # Not the folder: actors that still write checkpoints and logs make it again.
        if self.requested is None and not self.directory.run_file.exists():
            self.down(f"{self.directory.path} was removed or renamed", at_once=False, way="directory")

    def has_advanced(self, results: Mapping[str, float]) -> bool:
        """Return whether the run has made an update since its start. Actors that count none have as soon as they run.

        results: of the supervisor.
        """
        if self.supervisor is None:
            return False
        counted = "updates" in self.supervisor.state.plan.results
        return not counted or results.get("updates", 0.0) > self.updates_before

    @functools.cached_property
    def updates_before(self) -> float:
        """The updates of the checkpoint that the run was resumed from; 0 of a new run."""
        with contextlib.suppress(HiveError):
            if (point := read_resume_point(self.directory)) is not None:
                for saved in list_checkpoints(self.directory.checkpoints):
                    if saved.update == point.update:
                        return float(saved.state.get("updates", saved.update))
        return 0.0

    def settle_config(self, *, advanced: bool) -> None:
        """Keep the config that a resume has changed, if an update was made with it; else put the earlier one back."""
        try:
            if advanced:
                forget_replaced(self.directory)
            else:
                restore_replaced(self.directory, is_unused=True)
        except HiveError as error:
            self.log.warning("%s", error)

    async def watch_program(self) -> None:
        """End the run once the program that waits for it has ended without ending it, as by SIGKILL."""
        while self.program:
            if self.program != os.getppid():
                self.is_orphan = True
                self.down(PROGRAM_ENDED, at_once=False, way="program")
                return
            await asyncio.sleep(LOOK_S)

    def _program_leaves(self) -> None:
        self.program = 0

    async def watch_main_thread(self, received: Callable[[int], object]) -> None:
        """End a run `inline` in another thread once Ctrl-C ends the program, and pass SIGINT to `received`."""
        main = MainThread()
        while True:
            await asyncio.sleep(MAIN_THREAD_S)
            if main.interrupted():
                received(signal.SIGINT)
                self.down(REASONS[signal.SIGINT], at_once=False, way="main thread")

    def event(self, kind: str, text: str, fields: dict[str, Tree] | None = None) -> None:
        """Append a line to the event log and to the supervisor's log."""
        self.keep_sockets()  # before a restart, for which the new process needs the folder
        if kind == CODE:
            others = self.code.add(fields or {})
            if others is None:
                return
            if cause := cause_of(text.partition(" ")[0], others):
                self._warn(OTHER_CODE, cause, "give all hosts and parts of a run the same files")
        if kind == WARNING and (fields or {}).get("warning") in self.config.run.accept:
            kind = ACCEPTED
        entry = {"t": round(time.time(), 3), "kind": kind, "text": text, **(fields or {})}
        self.events.write(entry)
        apply_event(self.warnings, entry)
        self.facts |= facts_of([entry])
        level = logging.WARNING if kind in LOGGED_AS_WARNINGS else logging.INFO
        self.log.log(level, "%s: %s", kind, text)

    def crash(self, report: CrashReport) -> str:
        """Write a crash report and return its path, "" if it cannot be written."""
        try:
            return str(write_crash(self.directory, **dataclasses.asdict(report)))
        except HiveError as error:  # a full disk must not prevent the restart
            self.log.warning("%s", error)
            return ""

    def down(self, reason: str, at_once: bool, way: str = "control") -> None:
        """End the run on request: drain it, or kill its actors on the second request or with `at_once`.

        The same request may arrive in several ways: Slurm sends SIGTERM to this process and to the command, which
        passes it on. So requests are counted for each way and reason, and the largest count is their number.
        """
        self.requests[way, reason] += 1
        self.at_once = self.at_once or at_once or max(self.requests.values()) > 1
        self.requested = (reason, self.at_once)
        if self.supervisor is not None:
            self.supervisor.request(reason, at_once=self.at_once)
        elif self.building is not None and self._is_empty:
            self.building.cancel()

    @property
    def _is_empty(self) -> bool:
        """Whether no actor has begun in this run. Those of a resumed run must start, for the results in its summary."""
        return not self.stage and not self.directory.resume_file.exists()

    async def unless_requested(self, build: Coroutine[Any, Any, Plan]) -> Plan | None:
        """Await `build`, which can take a minute; return None if a request to end the run came before or cancels it."""
        if self.requested is not None and self._is_empty:
            build.close()
            return None
        self.building = asyncio.ensure_future(build)
        try:
            return await self.building
        except asyncio.CancelledError:
            if self.requested is None:
                raise
            return None

    # --- stages

    def next_stage(self) -> None:
        """Adopt the config of the next stage, which resumes from the checkpoint that the last stage has saved."""
        assert self.next_config is not None
        self.event("scaled", description(self.config, self.next_config))
        self._forget_environments()
        self._write_config(self.next_config)
        others = others_of(self.directory)
        newest, beside = chosen_together(self.directory, others, exact=False, refused=self.log.warning, replay=False)
        if newest is not None:  # None if the stage ended before its first turn
            assert self.previous_config is not None
            for other, checkpoint in beside.items():
                write_resume_point(other, checkpoint.update, why=SCALED_RUN)
            changed = self.previous_config.differences(self.next_config)
            write_resume_point(self.directory, newest.update, why=SCALED_RUN, changed=changed, wall_s=self.earlier_s)
        self.stage += 1
        self.refused = ""
        self.supervisor = None

    def adopt(self, config: Config, content: bytes) -> None:
        """Adopt a config that differs in keys which actors have changed already; `content` is its file."""
        self.event("set", description(self.config, config))
        self.was_set = True
        self.config = config
        write_bytes(self.directory.resolved_file, content)

    def revert_change(self, error: HiveError) -> None:
        """Restore the previous config after the next stage could not be built; raise `error` in the first stage."""
        if self.previous_config is None:
            raise error
        self.refused = str(error)
        self.event("not scaled", str(error))
        self._write_config(self.previous_config)
        self.previous_config = None

    def _write_config(self, config: Config) -> None:
        self.previous_config, self.config = self.config, config
        write_bytes(self.directory.resolved_file, resolved(config))

    def stage_folder(self) -> Path:
        """Return the folder for the sockets of this stage, so that no two processes use the same socket path."""
        if not self.stage:
            return self.socket_folder
        folder = self.socket_folder / str(self.stage)
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    async def supervise(
        self, plan: Plan, processes: ProcessTable, transport: Transport, memory: SharedMemory, address: str
    ) -> Outcome:
        """Run one stage under a new supervisor and return its outcome."""
        limits = self.config.supervision
        settings = Settings(
            limits.restarts,
            limits.window_s,
            limits.phase_limit_s,
            limits.drain_s,
            self.config.start_limit_s,
            strict=limits.strict,
            goal_steps=self.config.run.steps,
            goal_score=self.config.run.stop_at_return,
        )
        journal = Journal(self.event, self.crash)
        self.supervisor = Supervisor(plan, processes, transport, memory, self.clock, settings, journal, address)
        self.inexact_plan = plan.inexact
        if self.requested is not None:
            self.supervisor.request(self.requested[0], at_once=self.at_once)
        watching = asyncio.ensure_future(self.watch_folders())
        try:
            return await self.supervisor.run()
        finally:
            watching.cancel()

    def close(self) -> None:
        self.events.close()
        shutil.rmtree(self.socket_folder, ignore_errors=True)
        if self.is_orphan:
            sweep(of_programs=True)  # the socket of its callbacks
        give_up(self.directory)
