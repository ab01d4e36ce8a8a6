"""A run while it lives: its files, its diary, what it is asked, its stages, its summary.

Both kinds of run (hive.runtime.run) share it; where actors live is not its business. It ends by the run's own goal, a
request through the control socket, SIGTERM or SIGINT (drain; the second time at once), or a failure.
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
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hive.clock import RealClock
from hive.config import Config, load_config, render
from hive.config.values import SHOWN_LENGTH, printable
from hive.errors import HiveError, UsageError
from hive.records import (
    JsonlWriter,
    RunDirectory,
    RunFacts,
    Summary,
    list_checkpoints,
    newest_checkpoint,
    open_log,
    process_start_time,
    read_object,
    write_bytes,
    write_crash,
    write_json,
    write_run_facts,
)
from hive.runtime.control import PROTOCOL
from hive.runtime.folders import make_socket_folder
from hive.runtime.limits import raise_descriptor_limit
from hive.runtime.membership import Settings
from hive.runtime.messages import Tree
from hive.runtime.outcome import Death, Journal, Outcome
from hive.runtime.overview import overview
from hive.runtime.plan import Plan
from hive.runtime.processes import ProcessTable, SharedMemory
from hive.runtime.scaling import SCALED, changed_config, description, live_change
from hive.runtime.states import RunState
from hive.runtime.supervisor import CHANGE, Supervisor
from hive.runtime.transport import Transport

__all__ = ["LiveRun"]


class LiveRun:
    """See the module. The supervisor of the present stage is `supervisor`; None while none is there."""

    def __init__(self, directory: RunDirectory) -> None:
        from hive import __version__

        self.version = __version__
        self.directory = directory
        self.config: Config = load_config(directory.resolved_file)
        self.clock = RealClock()
        self.started = time.time()
        self.events = JsonlWriter(directory.events_file)
        self.log = open_log(directory.log_file("supervisor"), "supervisor", self.config.record.log_level.upper())
        self.socket_folder = make_socket_folder(directory.path)
        self.supervisor: Supervisor | None = None
        self.requested: tuple[str, bool] | None = None  # asked to end before there was a supervisor
        self.building: asyncio.Task[Plan] | None = None
        self.now = False
        self.ended_before = b""  # the summary of the run that is resumed
        self.stage = 0  # how often it was scaled
        self.change: Config | None = None  # what the next stage goes on with
        self.before: Config | None = None  # what the last one had
        self.refused = ""  # why the last change could not be made
        raise_descriptor_limit()
        directory.reserve()

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
            protocol=PROTOCOL,
        )
        with contextlib.suppress(OSError):
            self.ended_before = self.directory.summary_file.read_bytes()
        write_run_facts(self.directory, facts)

    def event(self, kind: str, text: str, fields: dict[str, Tree] | None = None) -> None:
        self.events.write({"t": round(time.time(), 3), "kind": kind, "text": text, **(fields or {})})
        level = logging.WARNING if kind in ("died", "killed", "bad message", "not finite", "lost") else logging.INFO
        self.log.log(level, "%s: %s", kind, text)

    def crash(self, death: Death) -> str:
        try:
            return str(write_crash(self.directory, **dataclasses.asdict(death)))
        except HiveError as error:  # a full disk must not stop a restart
            self.log.warning("%s", error)
            return ""

    def down(self, reason: str, now: bool) -> None:
        """Asked from outside to end. The second time, or with `now`, at once."""
        self.now = self.now or now or self.requested is not None
        self.requested = (reason, self.now)
        if self.supervisor is not None:
            self.supervisor.request(reason, now=self.now)
        elif self.building is not None and not self.stage and not self.directory.resume_file.exists():
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

    def never_started(self, error: HiveError) -> None:
        """The end of a run that could not start. One that was to be resumed is what it was before."""
        if self.ended_before:
            self.directory.release()
            write_bytes(self.directory.summary_file, self.ended_before)
        else:
            self.conclude(Outcome("failed", "it could not start", str(error), error.hint, False, {}, {}, {}, ""))

    # --- stages

    def scale(self, sets: Sequence[str]) -> None:
        """Goes on with these numbers of workers. Raises HiveError for what cannot be; then nothing has changed."""
        supervisor = self._running()
        if supervisor.run_machine.state is not RunState.running:
            raise UsageError(f"{self.directory.name} is not running just now", hint="try again when it is")
        changed = changed_config(self.directory, self.config, sets)
        self.change = changed
        supervisor.end(SCALED, description(self.config, changed))

    # --- steering

    def _running(self) -> Supervisor:
        """Raises UsageError while there is nobody to steer."""
        if self.supervisor is None or self.supervisor.ending:
            raise UsageError(f"{self.directory.name} is not running just now", hint="try again when it is")
        return self.supervisor

    def pause(self) -> None:
        self._running().pausing.pause()

    def resume(self) -> None:
        self._running().pausing.resume()

    def save(self) -> None:
        """Asks whoever can to save the run as it is. Raises UsageError where nobody can."""
        if not self._running().call("save"):
            raise UsageError(
                f"nobody in {self.directory.name} can save it",
                hint="its topology has no actor with an endpoint `save`, or that one is being restarted",
            )

    def set(self, sets: Sequence[str]) -> None:
        """Changes keys of [algorithm] from here on. Raises HiveError for what cannot be; then nothing has changed."""
        supervisor = self._running()
        changed = live_change(self.directory, self.config, sets)
        for key in self.config.differences(changed):
            if not supervisor.tell_of_change(key, changed.value(key)):
                raise UsageError(
                    f"nobody in {self.directory.name} takes a change of `{key}`",
                    hint=f"its topology has no actor with an endpoint `{CHANGE}`",
                )
        self.event("set", description(self.config, changed))
        self.config = changed
        write_bytes(self.directory.resolved_file, render(changed).encode())

    # --- single actors

    async def inspect(self, actor: str, stack: bool) -> tuple[str, list[str]]:
        """What it is executing ("": it cannot say, or nobody asked) and its last transitions. Raises UsageError."""
        supervisor, number = self._actor(actor)
        process = supervisor.table[supervisor.plan.actors[number].process]
        asked = [process.name] if stack and process.alive and process.listening else []
        stacks = await supervisor.processes.stacks(asked)
        return stacks.get(process.name, ""), list(supervisor.machines[number].story)

    def kill(self, actor: str, by_hand: bool) -> None:
        """Kills its process, which comes back as after any death. Raises UsageError."""
        supervisor, number = self._actor(actor)
        process = supervisor.table[supervisor.plan.actors[number].process]
        if supervisor.ending or not process.alive:
            raise UsageError(f"{actor} does not live just now", hint="try again when it does")
        process.by_hand = by_hand
        supervisor.kill(process, "restarted by hand" if by_hand else "killed by hand")

    def _actor(self, name: str) -> tuple[Supervisor, int]:
        """The supervisor and the number of that actor."""
        if self.supervisor is not None:
            for number, planned in enumerate(self.supervisor.plan.actors):
                if planned.name == name:
                    return self.supervisor, number
        raise UsageError(f"{self.directory.name} has no actor `{printable(name, SHOWN_LENGTH)}` just now")

    def next_stage(self) -> None:
        """The last stage has saved and ended: the config of the next one, which goes on from there."""
        assert self.change is not None
        self.event("scaled", description(self.config, self.change))
        self._write_config(self.change)
        newest = newest_checkpoint(self.directory.checkpoints, refused=self.log.warning)
        if newest is not None:  # none: the first turn was still being made
            write_json(self.directory.resume_file, {"update": newest.update, "exact": False})
        self.stage += 1
        self.supervisor = None

    def take_back(self, error: HiveError) -> None:
        """The next stage cannot be built: it is built as the last one was."""
        if self.before is None:
            raise error
        self.refused = str(error)
        self.event("not scaled", str(error))
        self._write_config(self.before)
        self.before = None

    def _write_config(self, config: Config) -> None:
        self.before, self.config = self.config, config
        write_bytes(self.directory.resolved_file, render(config).encode())

    def stage_folder(self) -> Path:
        """Where the sockets of this stage lie: a name is never used for two processes."""
        if not self.stage:
            return self.socket_folder
        folder = self.socket_folder / str(self.stage)
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def status(self) -> dict[str, Tree]:
        base: dict[str, Tree] = {
            "stage": self.stage,
            "refused": self.refused,
            "run": self.directory.name,
            "pid": os.getpid(),
            "started": self.started,
            "steps": self.config.run.steps,
            "pausing": self._pausing(),
        }
        return base | (
            overview(self.supervisor)
            if self.supervisor
            else {"state": "starting", "actors": [], "helpers": [], "channels": {}}
        )

    def _pausing(self) -> list[Tree] | None:
        """Whom a pause waits for, nobody once the run is at rest; None where no pause is wanted."""
        pausing = self.supervisor.pausing if self.supervisor is not None else None
        return [*pausing.at_work()] if pausing is not None and pausing.wanted else None

    async def supervise(
        self, plan: Plan, processes: ProcessTable, transport: Transport, memory: SharedMemory, address: str
    ) -> Outcome:
        limits = self.config.supervision
        settings = Settings(limits.restarts, limits.window_s, limits.phase_limit_s, limits.drain_s)
        journal = Journal(self.event, self.crash)
        self.supervisor = Supervisor(plan, processes, transport, memory, self.clock, settings, journal, address)
        if self.requested is not None:
            self.supervisor.request(self.requested[0], now=self.now)
        return await self.supervisor.run()

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
            error=HiveError(outcome.error, hint=self.way_out(outcome)).render().removeprefix("error: ")
            if outcome.error
            else None,
        )
        self.directory.release()
        self.event("ended", f"{outcome.state}: {outcome.reason}", {"state": outcome.state})
        summary.write(self.directory.summary_file)

    def way_out(self, outcome: Outcome) -> str:
        """What somebody whose run has failed can do: the actor's own hint, the report, how to go on."""
        saved = list_checkpoints(self.directory.checkpoints)
        lines = [outcome.hint] if outcome.hint else []
        lines += [f"the report is in {outcome.report}"] if outcome.report else []
        lines += [f"`hive resume {self.directory.name}` goes on from update {saved[-1].update:,}"] if saved else []
        return "; ".join(lines)

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
