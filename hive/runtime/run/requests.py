"""Carry out what views request of an active run (hive.runtime.run.control): pause, save, set, scale, kill, inspect."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from hive.config import resolved
from hive.config.values import SHOWN_LENGTH
from hive.errors import UsageError
from hive.printable import printable
from hive.records.standings import standings
from hive.runtime.run.hosts_status import STATUS_FOLDER, host_of, with_hosts
from hive.runtime.run.live_run import LiveRun
from hive.runtime.run.overview import counters_of, overview
from hive.runtime.run.scaling import SCALED, changed_config, changed_keys, description, live_change
from hive.runtime.supervise.changes import CHANGE
from hive.runtime.supervise.states import RunState
from hive.runtime.supervise.supervisor import Supervisor
from hive.runtime.wire.messages import Tree

HOST_ANSWER_S = 3.0  # deadline of an answer of another host: below that of a view (hive.runtime.run.control)


class RunRequests:
    """The requests that the control server passes on. A refused request raises a HiveError and changes nothing."""

    def __init__(self, run: LiveRun) -> None:
        self.run = run

    def status(self) -> dict[str, Tree]:
        """Return the status of the run for views: its own facts and the supervisor's `overview`."""
        run, supervisor = self.run, self.run.supervisor
        base: dict[str, Tree] = {
            "stage": run.stage,
            "refused": run.refused,
            "run": run.directory.name,
            "pid": os.getpid(),
            "started": time.time() - run.wall_s,  # views show the time since then
            "steps": run.config.run.steps,
            "pausing": None,  # or the actors that a requested pause waits for, [] when the run is at rest
            "warnings": [warning.data for warning in run.warnings.values()],
            "code": dict(run.code.found),
        }
        if supervisor is None:
            return base | {"state": "starting", "actors": [], "helpers": [], "channels": {}}
        if supervisor.state.pause is not None:
            base["pausing"] = [*supervisor.active_actors()]
        seen = overview(supervisor)
        if policies := standings(run.directory, counters_of(supervisor)):
            base["policies"] = [policy.data for policy in policies]
        return with_hosts(base | seen, run.directory.path / STATUS_FOLDER)

    def down(self, reason: str, now: bool) -> None:
        self.run.down(reason, now)

    def pause(self) -> None:
        self._running().pause()

    def resume(self) -> None:
        self._running().resume()

    def save(self) -> None:
        """Call the endpoint `save` of the actors that have it. Raises UsageError if no running actor has it."""
        if not self._running().call("save"):
            raise UsageError(
                f"no actor in {self.run.directory.name} has a `save` endpoint",
                hint="if the topology has such an actor, it is being restarted: try again",
            )

    def set(self, sets: Sequence[str]) -> None:
        """Change keys of [algorithm] now and for the rest of the run, as in `sets` ("key=value")."""
        run, supervisor = self.run, self._running()
        changed = live_change(run.directory, run.config, sets)
        content = resolved(changed)
        for key in changed_keys(run.config, changed):
            if not supervisor.change_key(key, changed.value(key)):
                raise UsageError(
                    f"no actor in {run.directory.name} accepts a change of `{key}`",
                    hint=f"its topology has no actor with an endpoint `{CHANGE}`",
                )
        run.adopt(changed, content)

    def scale(self, sets: Sequence[str]) -> None:
        """End this stage and continue with the numbers of workers in `sets` ("key=value")."""
        run, supervisor = self.run, self._running()
        if supervisor.state.run_machine.state is not RunState.running:
            raise UsageError(f"{run.directory.name} is not running", hint="try again when it is")
        run.next_config = changed_config(run.directory, run.config, sets)
        supervisor.end(SCALED, description(run.config, run.next_config))

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

    def _running(self) -> Supervisor:
        """Return the supervisor. Raises UsageError before the run starts, between stages and while it ends."""
        supervisor = self.run.supervisor
        if supervisor is None or supervisor.state.ending:
            raise UsageError(f"{self.run.directory.name} is not running", hint="try again when it is")
        return supervisor

    def _actor(self, name: str) -> tuple[Supervisor, int]:
        """Return the supervisor and the number of the actor `name`. Raises UsageError if there is none."""
        supervisor = self.run.supervisor
        number = None if supervisor is None else supervisor.state.plan.numbers.get(name)
        if supervisor is None or number is None:
            raise UsageError(f"{self.run.directory.name} has no actor `{printable(name, SHOWN_LENGTH)}`")
        return supervisor, number
