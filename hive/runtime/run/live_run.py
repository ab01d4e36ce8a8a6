"""Hold the state of an active run: its files, event log, requests from outside, stages and summary.

Forked and inline runs (hive.runtime.run.execute) share this class, which does not depend on where the actors run.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
import os
import platform
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hive.clock import RealClock
from hive.config import Config, load_config, resolved
from hive.config.values import SHOWN_LENGTH
from hive.errors import HiveError, RecordError, UsageError
from hive.printable import printable
from hive.records import (
    JsonlWriter,
    RunDirectory,
    RunFacts,
    Summary,
    best_facts,
    earlier_wall_s,
    list_checkpoints,
    newest_checkpoint,
    open_log,
    process_start_time,
    read_jsonl,
    read_resume_point,
    write_bytes,
    write_crash,
    write_resume_point,
    write_run_facts,
)
from hive.records.checkpoints.folders import Checkpoint
from hive.records.crash import write_failure
from hive.records.documents import parse_object
from hive.records.regular import read_regular
from hive.records.run_warnings import (
    DIRECTORY_REMOVED,
    GLOBAL_DRAWS,
    OUTPUT_DROPPED,
    RECOVERED,
    SOCKETS_REMOVED,
    WARNING,
    active,
    apply_event,
    warnings_of,
)
from hive.records.summary import NOT_STARTED
from hive.runtime.process.limits import raise_descriptor_limit
from hive.runtime.process.output import CHECK_S, FLOOD_S, OUTPUT_BYTES, BoundedOutput
from hive.runtime.process.processes import ProcessTable, SharedMemory
from hive.runtime.process.stop_signals import REASONS, SIGNALS, blocked, recorded
from hive.runtime.run.control import PROTOCOL
from hive.runtime.run.folders import make_socket_folder, restore_socket_folder
from hive.runtime.run.hosts_status import STATUS_FOLDER, host_of, with_hosts
from hive.runtime.run.kept_directory import LOOK_S, KeptDirectory
from hive.runtime.run.overview import overview
from hive.runtime.run.scaling import SCALED, changed_config, description, live_change
from hive.runtime.supervise.changes import CHANGE
from hive.runtime.supervise.membership import Settings
from hive.runtime.supervise.outcome import CrashReport, Journal, Outcome
from hive.runtime.supervise.states import RunState
from hive.runtime.supervise.supervisor import Supervisor
from hive.runtime.topology.plan import Plan
from hive.runtime.wire.messages import Tree
from hive.runtime.wire.transport import Transport

SCALED_RUN = "`hive scale` changed it"  # why a run with stages is not exact
HOST_ANSWER_S = 3.0  # deadline of an answer of another host: below that of a view (hive.runtime.run.control)
LOGGED_AS_WARNINGS = ("died", "killed", "bad message", "not finite", "lost", WARNING)  # kinds of events


class LiveRun:
    """An active run. `supervisor` is the supervisor of the current stage, or None between stages."""

    def __init__(self, directory: RunDirectory) -> None:
        from hive import __version__

        self.version = __version__
        self.directory = directory
        self.config: Config = load_config(directory.resolved_file)
        self.clock = RealClock()
        self.started = time.time()
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
        self.refused = ""  # error of the last change that failed
        self.inexact_plan: Sequence[str] = ()  # why the topology of this stage is not exact
        self.was_set = False  # whether `hive set` has changed a key
        self.concluded = False  # whether the run ends, so that its socket folder is needed no more
        self.warnings = warnings_of(read_jsonl(directory.events_file))  # those of the run that is resumed
        self.kept = KeptDirectory(directory)
        self.output = BoundedOutput(directory.logs)
        self.output_warned: dict[str, int] = {}  # process -> bytes that the last warning named
        raise_descriptor_limit()
        directory.reserve()

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
        )
        with contextlib.suppress(OSError):
            self.previous_summary = read_regular(self.directory.summary_file)
        write_run_facts(self.directory, facts)
        self.kept.remember()

    def keep_folders(self) -> None:
        """Make the run directory and the socket folder again if they have been removed, and warn of it.

        A run that ends needs no sockets, and the fork server has removed their folder if the build failed.
        """
        directory = self.kept.restore()
        sockets = not self.concluded and restore_socket_folder(self.socket_folder, self.directory.path)
        if sockets and self.stage:
            self.stage_folder()
        removed = "was removed or renamed during the run and has been made again"
        if directory:
            advice = (
                "its earlier metrics, logs and checkpoints are no longer there; `hive save` writes a checkpoint now"
            )
            self._warn(DIRECTORY_REMOVED, f"{self.directory.path} {removed}", advice)
        if sockets:
            self._warn(SOCKETS_REMOVED, f"{self.socket_folder} {removed}", "commands reach the run again")

    def _warn(self, kind: str, cause: str, advice: str) -> None:
        fields: dict[str, Tree] = {"warning": kind, "cause": cause, "advice": advice, "steps": self._steps()}
        self.event(WARNING, f"{kind}: {cause}; {advice}", fields)

    def end_warnings(self) -> None:
        """Log the end of warnings about folders that are as before; called at times, not right after they began."""
        lasting = {DIRECTORY_REMOVED} if self.kept.lacks_checkpoint() else set()
        for warning in active(self.warnings.values()):
            if warning.kind in {DIRECTORY_REMOVED, SOCKETS_REMOVED} - lasting:
                steps = self._steps()
                text = f"{warning.kind}: no longer so at {steps:,} steps"
                self.event(RECOVERED, text, {"warning": warning.kind, "steps": steps})

    def _steps(self) -> int:
        return int(self.supervisor.results().get("env_steps", 0)) if self.supervisor is not None else 0

    async def watch_folders(self) -> None:
        """Look every LOOK_S seconds whether the folders of the run are still there."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.end_warnings()
            self.keep_folders()

    async def watch_output(self) -> None:
        """Bound the output of the processes; warn when the first of it is dropped from a process."""
        while True:
            flooded = self.output.look()
            if self.output.dropped.keys() != self.output_warned.keys():
                self._warn_output()
            await asyncio.sleep(FLOOD_S if flooded else CHECK_S)

    def _warn_output(self) -> None:
        """Warn of the output that was dropped so far."""
        self.output_warned = dict(self.output.dropped)
        each = [f"{count:,} bytes of `{process}`" for process, count in sorted(self.output_warned.items())]
        limit = f"of more than {OUTPUT_BYTES:,} bytes a file the oldest output is dropped: {', '.join(each)}"
        self._warn(OUTPUT_DROPPED, limit, f"print less in the environment; {self.directory.logs} has what was kept")

    def event(self, kind: str, text: str, fields: dict[str, Tree] | None = None) -> None:
        """Append a line to the event log and to the supervisor's log."""
        self.keep_folders()  # before a restart, for which the new process needs the folder of the logs
        entry = {"t": round(time.time(), 3), "kind": kind, "text": text, **(fields or {})}
        self.events.write(entry)
        apply_event(self.warnings, entry)
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
        elif self.building is not None and self._has_nothing:
            self.building.cancel()

    @property
    def _has_nothing(self) -> bool:
        """Whether no actor has begun in this run. Those of a resumed run must start, for the results in its summary."""
        return not self.stage and not self.directory.resume_file.exists()

    async def unless_requested(self, build: Coroutine[Any, Any, Plan]) -> Plan | None:
        """Await `build`, which can take a minute; return None if a request to end the run came before or cancels it."""
        if self.requested is not None and self._has_nothing:
            build.close()
            return None
        self.building = asyncio.ensure_future(build)
        try:
            return await self.building
        except asyncio.CancelledError:
            if self.requested is None:
                raise
            return None

    def conclude_unbuilt(self) -> Outcome:
        """Conclude a run that received a request to end before it had an actor."""
        assert self.requested is not None
        outcome = Outcome("stopped", self.requested[0], "", "", False, {}, {}, {}, "")
        self.conclude(outcome)
        return outcome

    def conclude_unstarted(self, error: HiveError) -> None:
        """Conclude a run that could not start; one that was being resumed gets its previous summary back."""
        if self.previous_summary:
            self.directory.release()
            write_bytes(self.directory.summary_file, self.previous_summary)
        else:
            self.conclude(Outcome("failed", NOT_STARTED, str(error), error.hint, False, {}, {}, {}, ""))

    # --- stages

    def scale(self, sets: Sequence[str]) -> None:
        """End this stage and continue with the numbers of workers in `sets` ("key=value").

        Raises HiveError if the run is not running or the change is not possible; then nothing has changed.
        """
        supervisor = self._running()
        if supervisor.state.run_machine.state is not RunState.running:
            raise UsageError(f"{self.directory.name} is not running", hint="try again when it is")
        changed = changed_config(self.directory, self.config, sets)
        self.next_config = changed
        supervisor.end(SCALED, description(self.config, changed))

    # --- control

    def _running(self) -> Supervisor:
        """Return the supervisor. Raises UsageError before the run starts, between stages and while it ends."""
        if self.supervisor is None or self.supervisor.state.ending:
            raise UsageError(f"{self.directory.name} is not running", hint="try again when it is")
        return self.supervisor

    def pause(self) -> None:
        self._running().pause()

    def resume(self) -> None:
        self._running().resume()

    def save(self) -> None:
        """Call the endpoint `save` of the actors that have it. Raises UsageError if no running actor has it."""
        if not self._running().call("save"):
            raise UsageError(
                f"no actor in {self.directory.name} has a `save` endpoint",
                hint="if the topology has such an actor, it is being restarted: try again",
            )

    def set(self, sets: Sequence[str]) -> None:
        """Change keys of [algorithm] now and for the rest of the run, as in `sets` ("key=value").

        Raises HiveError if the change is not possible; then nothing has changed.
        """
        supervisor = self._running()
        changed = live_change(self.directory, self.config, sets)
        content = resolved(changed)
        for key in self.config.differences(changed):
            if not supervisor.change_key(key, changed.value(key)):
                raise UsageError(
                    f"no actor in {self.directory.name} accepts a change of `{key}`",
                    hint=f"its topology has no actor with an endpoint `{CHANGE}`",
                )
        self.event("set", description(self.config, changed))
        self.was_set = True
        self.config = changed
        write_bytes(self.directory.resolved_file, content)
        self.kept.remember()

    # --- single actors

    async def inspect(self, actor: str, stack: bool) -> tuple[str, list[str]]:
        """Return the stacks of an actor's process and the actor's transition history.

        The stacks are "" if `stack` is false or the process does not answer. Raises UsageError for an unknown actor.
        """
        supervisor, number = self._actor(actor)
        process = supervisor.state.process_of(number)
        if (host := host_of(process.name, actor)) is not None:
            text, transitions = await supervisor.ask(host, "inspect", actor, stack, deadline_s=HOST_ANSWER_S)
            return str(text), [*map(str, transitions)]
        queried = [process.name] if stack and process.alive and process.listening else []
        stacks = await supervisor.processes.stacks(queried)
        return stacks.get(process.name, ""), list(supervisor.state.machines[number].history)

    def kill(self, actor: str, by_hand: bool) -> None:
        """Kill the process of an actor, which is then restarted; with `by_hand` it does not count as a failure.

        Raises UsageError if there is no such actor or it is not running.
        """
        supervisor, number = self._actor(actor)
        if (host := host_of(supervisor.state.process_of(number).name, actor)) is not None:
            supervisor.call("kill", host, actor, by_hand)  # every host is called, and one of them has the actor
        else:
            supervisor.kill(number, by_hand=by_hand)

    def _actor(self, name: str) -> tuple[Supervisor, int]:
        """Return the supervisor and the number of the actor `name`. Raises UsageError if there is none."""
        if self.supervisor is not None:
            for number, planned in enumerate(self.supervisor.state.plan.actors):
                if planned.name == name:
                    return self.supervisor, number
        raise UsageError(f"{self.directory.name} has no actor `{printable(name, SHOWN_LENGTH)}`")

    def next_stage(self) -> None:
        """Adopt the config of the next stage, which resumes from the checkpoint that the last stage has saved."""
        assert self.next_config is not None
        self.event("scaled", description(self.config, self.next_config))
        self._write_config(self.next_config)
        newest = newest_checkpoint(self.directory.checkpoints, refused=self.log.warning)
        if newest is not None:  # None if the stage ended before its first turn
            assert self.previous_config is not None
            changed = self.previous_config.differences(self.next_config)
            write_resume_point(self.directory, newest.update, why=SCALED_RUN, changed=changed, wall_s=self.earlier_s)
        self.stage += 1
        self.supervisor = None

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
        self.kept.remember()

    def stage_folder(self) -> Path:
        """Return the folder for the sockets of this stage, so that no two processes use the same socket path."""
        if not self.stage:
            return self.socket_folder
        folder = self.socket_folder / str(self.stage)
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def status(self) -> dict[str, Tree]:
        """Return the status of the run for views: its own facts and the supervisor's `overview`."""
        base: dict[str, Tree] = {
            "stage": self.stage,
            "refused": self.refused,
            "run": self.directory.name,
            "pid": os.getpid(),
            "started": self.started - self.earlier_s,  # views show the time since then
            "steps": self.config.run.steps,
            "pausing": self._pausing(),
            "warnings": [warning.data for warning in self.warnings.values()],
        }
        if self.supervisor is None:
            return base | {"state": "starting", "actors": [], "helpers": [], "channels": {}}
        return with_hosts(base | overview(self.supervisor), self.directory.path / STATUS_FOLDER)

    def _pausing(self) -> list[Tree] | None:
        """Return the actors that a requested pause waits for, [] when the run is at rest; None without a request."""
        supervisor = self.supervisor
        return [*supervisor.active_actors()] if supervisor is not None and supervisor.state.pause is not None else None

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

    def conclude(self, outcome: Outcome) -> None:
        """Log the end of the run, then write summary.json as the last file."""
        if self.restores(outcome):
            return
        self.concluded = True
        self.keep_folders()
        self.output.look()
        if self.output.dropped != self.output_warned:
            self._warn_output()
        self.end_warnings()
        results, run, inexact = self._results(outcome), self.config.run, self.why_inexact(outcome)
        steps = int(results.get("env_steps", 0))
        frames = int(results.get("frames", steps))
        mean_return = results.get("mean_return_100", math.nan)
        summary = Summary(
            name=self.directory.name,
            scheme=run.scheme,
            state=outcome.state,
            stop_reason=outcome.reason,
            seed=run.seed,
            exact=not inexact,
            inexact=inexact,
            env_steps=steps,
            frames=frames if frames != steps else None,
            updates=int(results.get("updates", 0)),
            episodes=int(results.get("episodes", 0)),
            mean_return_100=mean_return if math.isfinite(mean_return) else None,
            started=self.started,
            wall_s=time.time() - self.started + self.earlier_s,
            earlier_s=self.earlier_s,
            train_s=results.get("train_s", 0.0),
            first_steps=int(results.get("first_steps", 0)),
            weights_sha256=outcome.digest,
            channels=outcome.channels,
            restarts=outcome.restarts,
            error=HiveError(f"{outcome.error}\n{outcome.frames}".rstrip(), hint=self.failure_hint(outcome))
            .render()
            .removeprefix("error: ")
            if outcome.error
            else None,
            best=best_facts(self.directory),
            warnings=[warning.data for warning in self.warnings.values()],
        )
        self.directory.release()
        self.event("ended", f"{outcome.state}: {outcome.reason}", {"state": outcome.state})
        summary.write(self.directory.summary_file)

    def _results(self, outcome: Outcome) -> Mapping[str, float]:
        """Return the counters of the run: those of its checkpoint if it failed before its actors could report any."""
        resumed = self._resumed()
        if resumed is None or outcome.results.get("updates"):
            return outcome.results
        state, mean = resumed.state, resumed.mean_return
        counters = {"env_steps": state.get("env_steps", 0), "updates": state.get("updates", resumed.update)}
        return {**outcome.results, **counters, **({} if mean is None else {"mean_return_100": mean})}

    def _resumed(self) -> Checkpoint | None:
        """Return the checkpoint that this run was resumed from; None for a new run, and if it is gone."""
        with contextlib.suppress(RecordError):
            if (point := read_resume_point(self.directory)) is not None:
                saved = list_checkpoints(self.directory.checkpoints)
                return next((one for one in saved if one.update == point.update), None)
        return None

    def restores(self, outcome: Outcome) -> bool:
        """Write the previous summary again, and the error to failure.json, if a resumed run failed without an update.

        The result of the run is then still the previous one. Return whether that is so.
        """
        before, resumed = parse_object(self.previous_summary), self._resumed()
        if outcome.state != "failed" or self.stage or before is None or resumed is None:
            return False
        updates = resumed.state.get("updates", resumed.update)
        if before.get("updates") != updates or outcome.results.get("updates", 0) > updates:
            return False
        self.concluded = True
        error = HiveError(f"{outcome.error}\n{outcome.frames}".rstrip(), hint=self.failure_hint(outcome))
        with contextlib.suppress(HiveError):  # a full disk must not prevent the summary
            write_failure(self.directory, error)
        self.event("ended", f"{outcome.state}: {outcome.reason}; the summary is that from before", {})
        self.directory.release()
        write_bytes(self.directory.summary_file, self.previous_summary)
        return True

    def failure_hint(self, outcome: Outcome) -> str:
        """Return the hint for a failed run: the actor's own hint, where the report is, and how to resume."""
        saved = list_checkpoints(self.directory.checkpoints)
        lines = [outcome.hint] if outcome.hint else []
        lines += [f"the report is in {outcome.report}"] if outcome.report else []
        if saved and saved[-1].update:  # that of update 0 holds initial weights only
            lines.append(f"`hive resume {self.directory.name}` continues from update {saved[-1].update:,}")
        return "; ".join(lines)

    def why_inexact(self, outcome: Outcome) -> list[str]:
        """Return why a run with the same seed may end with other weights, one text for each cause; [] if none can."""
        causes = [*self.config.inexact, *self.inexact_plan]
        try:
            resumed = read_resume_point(self.directory)
            causes += [resumed.why or "it was resumed"] if resumed and not resumed.exact else []
        except RecordError as error:
            causes.append(str(error))  # it cannot be known, and the summary must still be written
        if restarted := [name for name, n in outcome.restarts.items() if n]:
            causes.append(f"restarted: {', '.join(restarted)}")
        causes += [SCALED_RUN] if self.stage and SCALED_RUN not in causes else []
        causes += ["`hive set` changed it"] if self.was_set else []
        causes += ["environments of helpers drew global random numbers"] if GLOBAL_DRAWS in self.warnings else []
        if outcome.state != "finished":
            causes.append(f"it has not reached its goal: {outcome.state}")
        elif not outcome.exact and not causes:
            causes.append("its goal was judged at a time, not at an update")
        return causes

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Handle signals inside the context: SIGTERM and SIGINT end the run, SIGHUP (a closed terminal) does not.

        Those that were kept before count, too. Only the main thread receives signals; an inline run in another thread
        handles none.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in SIGNALS}
        for number, reason in REASONS.items():
            loop.add_signal_handler(number, self.down, reason, False, "signal")
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        for kept in recorded():
            self.down(REASONS[signal.Signals(kept)], False, "signal")
        try:
            yield
        finally:
            with blocked():  # the loop sets the defaults, which would end this process
                for number, handler in before.items():
                    loop.remove_signal_handler(number)
                    if handler is not None:  # None: not set by Python
                        signal.signal(number, handler)

    def close(self) -> None:
        self.events.close()
        shutil.rmtree(self.socket_folder, ignore_errors=True)
