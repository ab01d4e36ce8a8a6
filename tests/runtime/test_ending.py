"""The end of a run: who saves last, who is killed over it, and what of that fails the run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mortal_worlds import Restarting, World

from hive.runtime.actor import Actor
from hive.runtime.ending import LAST_TRIES
from hive.runtime.supervisor import Supervisor
from hive.runtime.topology import Topology


class Ends(Actor):
    async def run(self) -> None:
        await asyncio.sleep(1.0)
        self.end_run("goal")


class Saves(Actor):
    """Runs until it is told to stop, and then takes 3 s to save something; raises in its first `lives`, at `where`."""

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
def test_what_is_raised_at_the_end_is_told_and_fails_the_run_of_whoever_is_last(where: str, last: bool) -> None:
    """The goal was reached, and what should have been kept of it was not: whoever waits for the exit code hears it.

    Who is not to be last has nothing to save, and what it raises is told.
    """
    world = World(topology=ending(last=last, where=where))
    if last:
        assert (world.outcome.state, world.outcome.reason) == ("failed", "saves-0 failed at the end (goal)")
        assert world.outcome.error.startswith("saves-0 failed at the end: nothing was saved (")
    else:
        assert (world.outcome.state, world.outcome.reason, world.outcome.error) == ("finished", "goal", "")
    assert len(world.deaths) == len(world.texts("died")) == (1 + LAST_TRIES if last else 1)
    assert "nothing was saved" in world.deaths[0].traceback
    assert world.outcome.exact  # of what was learned


def test_who_is_to_be_last_gets_another_try() -> None:
    world = World(topology=ending(last=True, where="run", lives=1))
    assert (world.outcome.state, world.outcome.error, world.outcome.exact) == ("finished", "", True)
    assert world.texts("saved") == ["by incarnation 1"]
    assert world.texts("restarted") == ["saves-0 had not finished and is started again"]


class Striking(Restarting):
    """Kills or stops saves-0, a second after it was told to stop, as often as `strikes` says."""

    stop = False
    strikes = 1
    struck = False  # it is in state T

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
    """Ends the run, and has something to do after that."""

    async def run(self) -> None:
        self.end_run("goal")

    async def teardown(self) -> None:
        await asyncio.sleep(3.0)
        self.note("torn down", "in the end")


def test_to_be_told_to_stop_cuts_no_teardown_short() -> None:
    topology = Topology()
    topology.add(Lingers)
    world = World(topology=topology)
    assert (world.outcome.state, world.texts("torn down")) == ("finished", ["in the end"])


@pytest.mark.parametrize("table", [Striking, Stopping])
def test_who_is_killed_or_stopped_over_its_saving_saves_after_all(table: type[Restarting]) -> None:
    world = World(topology=ending(last=True), table=table)
    assert world.texts("saved") == ["by incarnation 1"]
    assert (world.outcome.state, world.outcome.error) == ("finished", "")
    assert len(world.texts("died")) == 1


def test_who_is_killed_again_and_again_over_its_saving_has_not_saved() -> None:
    world = World(topology=ending(last=True), table=Stubborn)
    assert (world.outcome.state, world.texts("saved")) == ("failed", [])
    assert world.outcome.error == "saves-0 failed at the end: it was killed before it had finished"


def test_who_takes_too_long_to_save_has_not_saved() -> None:
    world = World(topology=ending(last=True), drain_s=2.0)
    assert (world.outcome.state, world.texts("saved")) == ("failed", [])
    assert world.outcome.error == "saves-0 failed at the end: it did not stop in time before it had finished"


def test_who_only_had_to_stop_is_not_missed() -> None:
    world = World(topology=ending(last=False), drain_s=2.0)
    assert (world.outcome.state, world.texts("killed")) == ("finished", ["saves-0 did not stop within 2.0 s"])
    assert world.texts("died") == []
