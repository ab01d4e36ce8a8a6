"""Ending a run: which actors stop last, which are killed, and which failures fail the run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from supervised_world import Restarting, World

from hive.errors import ActorFailed, RecordError
from hive.runtime.actor.actor import Actor
from hive.runtime.supervise.ending import LAST_TRIES
from hive.runtime.supervise.supervisor import Supervisor
from hive.runtime.topology.topology import Topology


class Ends(Actor):
    async def run(self) -> None:
        await asyncio.sleep(1.0)
        self.end_run("goal")


class Saves(Actor):
    """Takes 3 s to save when asked to drain; raises at `where` in its first `lives` incarnations."""

    def __init__(self, where: str = "", lives: int = 99) -> None:
        self.where, self.lives = where, lives
        self.stop = asyncio.Event()

    def check(self, where: str) -> None:
        if where == self.where and self.incarnation < self.lives:
            raise OSError("nothing was saved")

    async def run(self) -> None:
        await self.stop.wait()
        await asyncio.sleep(3.0)
        self.check("run")
        self.note("saved", f"by incarnation {self.incarnation}")

    async def drain(self) -> None:
        self.check("drain")
        self.stop.set()

    async def teardown(self) -> None:
        self.check("teardown")


def ending(*, last: bool, **parameters: Any) -> Topology:
    topology = Topology()
    topology.add(Ends)
    topology.add(Saves, last=last, **parameters)
    return topology


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("where", ["drain", "run", "teardown"])
def test_an_error_at_the_end_is_logged_and_fails_the_run_only_for_last_actors(where: str, last: bool) -> None:
    """The goal was reached but its state was not saved, so the exit code must report a failure.

    An actor that is not `last` has nothing to save, so its error is only logged.
    """
    world = World(topology=ending(last=last, where=where))
    if last:
        assert (world.outcome.state, world.outcome.reason) == ("failed", "saves-0 failed at the end (goal)")
        assert world.outcome.error.startswith("saves-0 failed at the end: nothing was saved (")
    else:
        assert (world.outcome.state, world.outcome.reason, world.outcome.error) == ("finished", "goal", "")
    assert len(world.deaths) == len(world.texts("died")) == (1 + LAST_TRIES if last else 1)
    assert "nothing was saved" in world.deaths[0].traceback
    assert world.outcome.exact  # an exit during the end changes no weights


def test_a_last_actor_is_started_again() -> None:
    world = World(topology=ending(last=True, where="run", lives=1))
    assert (world.outcome.state, world.outcome.error, world.outcome.exact) == ("finished", "", True)
    assert world.texts("saved") == ["by incarnation 1"]
    assert world.texts("restarted") == ["saves-0 had not finished and is started again"]


class Hopeless(RecordError):
    permanent = True


class NeverSaves(Saves):
    def check(self, where: str) -> None:
        if where == "run":
            raise Hopeless("a sink failed", hint="mend it")


def test_an_error_that_would_recur_is_not_tried_again_by_a_last_actor() -> None:
    topology = Topology()
    topology.add(Ends)
    topology.add(NeverSaves, last=True)
    world = World(topology=topology)
    assert world.texts("restarted") == []
    assert world.outcome.error.startswith("never-saves-0 failed at the end: a sink failed")
    assert "test_ending.py" in world.outcome.frames
    assert world.outcome.hint == "mend it"


class Striking(Restarting):
    """Kills or stops saves-0 `strikes` times, each a second after it was asked to drain."""

    stop = False
    strikes = 1
    struck = False  # whether it is in state T

    def begin(self, supervisor: Supervisor) -> None:
        for number in range(self.strikes):
            asyncio.get_running_loop().call_later(2.0 + 1.5 * number, self._strike)

    def _strike(self) -> None:
        if self.stop:
            self.struck = True
        else:
            self.tasks["saves-0"].cancel()

    def stopped(self) -> list[str]:
        return ["saves-0"] if self.struck else []

    def kill(self, process: str) -> None:
        self.struck = False
        super().kill(process)


class Stopping(Striking):
    stop = True


class Stubborn(Striking):
    strikes = 20


class Lingers(Actor):
    """Ends the run and still has work to do afterwards."""

    async def run(self) -> None:
        self.end_run("goal")

    async def teardown(self) -> None:
        await asyncio.sleep(3.0)
        self.note("torn down", "in the end")


def test_a_drain_request_does_not_interrupt_teardown() -> None:
    topology = Topology()
    topology.add(Lingers)
    world = World(topology=topology)
    assert (world.outcome.state, world.texts("torn down")) == ("finished", ["in the end"])


@pytest.mark.parametrize("table", [Striking, Stopping])
def test_an_actor_killed_or_stopped_while_saving_saves_after_a_restart(table: type[Restarting]) -> None:
    world = World(topology=ending(last=True), table=table)
    assert world.texts("saved") == ["by incarnation 1"]
    assert (world.outcome.state, world.outcome.error) == ("finished", "")
    assert len(world.texts("died")) == 1


def test_an_actor_killed_repeatedly_while_saving_fails_the_run() -> None:
    world = World(topology=ending(last=True), table=Stubborn)
    assert (world.outcome.state, world.texts("saved")) == ("failed", [])
    assert world.outcome.error == "saves-0 failed at the end: it was killed before it had finished"


class Crowded(Striking):
    """Kills saves-0 once, after which the machine has no room to start it again."""

    async def start(self, process: str, incarnation: int, address: str) -> int:
        if (process, incarnation) == ("saves-0", 1):
            raise ActorFailed("saves-0 cannot be started: no room")
        return await super().start(process, incarnation, address)


def test_an_actor_that_cannot_be_started_again_to_save_fails_the_run() -> None:
    world = World(topology=ending(last=True), table=Crowded)
    assert world.texts("not started") == ["saves-0 cannot be started: no room"]
    assert (world.outcome.state, world.outcome.reason) == ("failed", "saves-0 failed at the end (goal)")


def test_an_actor_that_saves_too_slowly_fails_the_run() -> None:
    world = World(topology=ending(last=True), drain_s=2.0)
    assert (world.outcome.state, world.texts("saved")) == ("failed", [])
    assert world.outcome.error == "saves-0 failed at the end: it did not stop in time before it had finished"


def test_a_late_actor_without_state_to_save_does_not_fail_the_run() -> None:
    world = World(topology=ending(last=False), drain_s=2.0)
    assert (world.outcome.state, world.texts("killed")) == ("finished", ["saves-0 did not stop within 2.0 s"])
    assert world.texts("died") == []
