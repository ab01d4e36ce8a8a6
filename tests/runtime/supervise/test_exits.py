"""Handling exits: announcements, restarts and crash reports. Real processes are killed in live/test_death.py."""

from __future__ import annotations

import asyncio
import re
from typing import Any, ClassVar

import pytest
from supervised_world import Restarting, World

from hive.errors import ActorFailed
from hive.runtime.actor.actor import Actor, Handle
from hive.runtime.actor.ports import Inlet, Outlet
from hive.runtime.process.processes import Exit, StartLost
from hive.runtime.supervise.actions import Reclaim
from hive.runtime.supervise.membership import REPEATED
from hive.runtime.supervise.states import ActorState
from hive.runtime.supervise.supervisor import Supervisor
from hive.runtime.supervise.supervisor_state import REPORTED_EVENTS
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.messages import Message


def own(text: str) -> str:
    """Return the text without its line of this folder, which must be present."""
    without, count = re.subn(r" \([^()]*(?:supervised_world|test_exits)\.py:\d+\)", "", text)
    assert count == 1, text
    return without


def test_an_actor_that_raises_is_restarted_and_reported() -> None:
    world = World(lives=2)
    assert (world.outcome.state, world.outcome.reason, world.outcome.exact) == ("finished", "stands", False)
    assert world.outcome.restarts == {"bystander-0": 0, "bystander-1": 0, "falls-0": 2}
    assert world.outcome.report == ""
    for life, death in enumerate(world.deaths):
        assert (death.actor, own(death.error)) == ("falls-0", f"ValueError: fell in life {life}")
        assert death.doing.startswith("in `")
        assert "raise ValueError" in death.traceback
        assert death.story[-1].startswith("running -died-> failed")
        assert any("hello: from bystander-1" in event for event in death.events)
        assert death.stacks == ""  # stacks of the others are read only if the run ends
    assert [own(text) for text in world.texts("died")] == [
        f"falls-0 died in `runtime`: ValueError: fell in life {life}; restart {life + 1} of 5" for life in range(2)
    ]
    assert [fields["crash"] for kind, _, fields in world.events if kind == "died"] == [
        "crash/falls-0-1.txt",
        "crash/falls-0-2.txt",
    ]


def test_the_report_of_the_exit_that_ends_a_run_has_all_stacks() -> None:
    world = World(lives=9, restarts=1)
    assert (world.outcome.state, world.outcome.report) == ("failed", "crash/falls-0-2.txt")
    assert own(world.outcome.error) == (
        "falls-0 failed in `runtime`: ValueError: fell in life 1 (2 times within 60 s; [supervision] restarts = 1)"
    )
    assert world.deaths[-1].stacks == "bystander-0\nFile x, in bystander-0\n\nbystander-1\nFile x, in bystander-1"
    assert world.deaths[0].stacks == ""


def test_the_same_error_twice_in_a_row_without_progress_ends_the_run_and_shows_its_frames() -> None:
    class Stuck(Actor):
        async def run(self) -> None:
            raise ValueError(f"fell in life {self.incarnation}")

    topology = Topology()
    topology.add(Stuck)
    world = World(topology=topology, restarts=5)
    assert world.outcome.restarts == {"stuck-0": 1}
    assert own(world.outcome.error).endswith(f"fell in life 1 ({REPEATED})")
    frame = re.fullmatch(r' {2}File ".*test_exits\.py", line \d+, in run\n(?s:.*)', world.outcome.frames)
    assert frame
    assert "raise ValueError(" in frame[0]


def test_a_report_holds_the_last_events_and_no_more() -> None:
    world = World(lives=30, restarts=100, window_s=1e9)
    assert world.outcome.state == "finished"
    last = world.deaths[-1].events
    assert len(last) == REPORTED_EVENTS
    assert last[-1].endswith("restarted: falls-0 is back after 0 ms")
    assert [float(event.split()[0]) for event in last] == sorted(float(event.split()[0]) for event in last)


def test_a_start_without_room_is_retried() -> None:
    world = World(lives=1, refused=[1, 2])
    assert world.outcome.state == "finished"
    assert world.texts("not started") == ["falls-0 cannot be started: no room"] * 2
    assert world.outcome.restarts["falls-0"] == 1


def test_repeated_starts_without_room_end_the_run() -> None:
    world = World(lives=1, refused=range(1, 99), restarts=3)
    why = "falls-0 cannot be started: no room"
    limit = "4 times in a row without progress between; [supervision] restarts = 3"
    assert world.texts("not started") == [why, why, f"{why}; {limit}"]
    assert (world.outcome.state, world.outcome.hint) == ("failed", "make room")
    assert world.outcome.error == f"{why} ({limit})"


def test_a_first_start_without_room_raises() -> None:
    with pytest.raises(ActorFailed, match="falls-0 cannot be started: no room"):
        World(lives=0, refused=[0])


# --- an actor that is done before the others


class Number(Message):
    value: int


class Numbers(Actor):
    numbers = Outlet(Number, pattern="broadcast", when_full="wait")

    async def run(self) -> None:
        for value in range(100):
            await self.numbers.send(Number(value))


class Hears(Actor):
    numbers = Inlet(Number)

    def __init__(self, most: int) -> None:
        self.most = most

    async def run(self) -> None:
        for _ in range(self.most):
            await self.numbers.receive()


@pytest.mark.parametrize("process", [None, "both"])
def test_no_actor_waits_for_one_that_is_done(process: str | None) -> None:
    topology = Topology()
    numbers, one, all_ = (
        topology.add(Numbers),
        topology.add(Hears, group="one", process=process, most=1),
        topology.add(Hears, group="all", process=process, most=100),
    )
    topology.connect(numbers.numbers, one.numbers)
    topology.connect(numbers.numbers, all_.numbers)
    world = World(topology=topology)
    assert (world.outcome.state, world.outcome.reason) == ("finished", "all actors are done")


# --- starts


class Waiting(Restarting):
    """The second start of falls-0 waits for 8 s, as for a new fork server."""

    async def start(self, process: str, incarnation: int, address: str) -> int:
        if (process, incarnation) == ("falls-0", 1):
            await asyncio.sleep(8.0)
        return await super().start(process, incarnation, address)


def test_a_process_that_is_not_forked_yet_is_not_stuck() -> None:
    world = World(lives=1, table=Waiting, phase_limit_s=5.0)
    assert (world.outcome.state, world.texts("killed")) == ("finished", [])
    assert world.texts("restarted") == ["falls-0 is back after 8000 ms"]


class Cancelled(Waiting):
    """Kills falls-0 while its start waits."""

    def begin(self, supervisor: Supervisor) -> None:
        number = supervisor.state.plan.numbers["falls-0"]
        asyncio.get_running_loop().call_later(4.0, supervisor.kill, number)


def test_a_process_killed_during_its_start_is_killed_after_the_fork() -> None:
    world = World(lives=1, table=Cancelled)
    assert world.outcome.state == "finished"
    assert [death.error for death in world.deaths[1:]] == ["killed by hand"]
    assert world.outcome.restarts["falls-0"] == 2


class Losing(Restarting):
    """Loses the second start of falls-0 after the new process has begun; it is killed before StartLost is raised."""

    async def start(self, process: str, incarnation: int, address: str) -> int:
        pid = await super().start(process, incarnation, address)
        if (process, incarnation) == ("falls-0", 1):
            await asyncio.sleep(0.05)
            assert self.supervisor_.state.machines[-1].state is ActorState.running
            tell, self.on_exit = self.on_exit, lambda *_: None
            self.kill(process)
            await asyncio.gather(self.tasks[process], return_exceptions=True)
            self.on_exit = tell
            raise StartLost("the fork server died")
        return pid

    def begin(self, supervisor: Supervisor) -> None:
        self.supervisor_ = supervisor


def test_a_lost_start_is_repeated_by_another_incarnation() -> None:
    """The lost incarnation has sent Hello and received Begin, so its number must not be used again."""
    world = World(lives=1, table=Losing)
    assert (world.outcome.state, world.outcome.reason) == ("finished", "stands")
    assert world.supervisor.state.table["falls-0"].incarnation == 2
    assert world.outcome.restarts["falls-0"] == 1  # a lost start is not counted as a restart
    assert [own(death.error) for death in world.deaths] == ["ValueError: fell in life 0"]


# --- bugs of the supervisor


@pytest.mark.parametrize(
    ("number", "text"), [(9, "killed by SIGKILL"), (40, "killed by signal 40"), (34, "killed by SIGRTMIN")]
)
def test_every_signal_has_a_name(number: int, text: str) -> None:
    assert str(Exit.of_status(number)) == text


class Faulty(Restarting):
    """Makes the handling of an exit raise."""

    def begin(self, supervisor: Supervisor) -> None:
        def reclaim(*_: Any) -> None:
            raise ZeroDivisionError("our fault")

        supervisor.effects.table = {**supervisor.effects.table, Reclaim: reclaim}


def test_a_bug_in_the_supervisor_ends_the_run_with_a_report() -> None:
    """Reclaiming fails: without an end the run would wait forever for the actor that exited."""
    world = World(lives=1, table=Faulty, drain_s=1.0)
    assert (world.outcome.state, world.outcome.reason) == ("failed", "the supervisor failed")
    assert world.outcome.error == "the supervisor failed: ZeroDivisionError: our fault"
    assert world.deaths[-1].actor == "supervisor"
    assert "raise ZeroDivisionError" in world.deaths[-1].traceback


class Worker(Actor):
    lives: ClassVar[list[int]] = []

    async def run(self) -> None:
        self.lives.append(self.incarnation)
        await asyncio.Event().wait()


class Tuner(Actor):
    """Restarts the worker as often as `times`, twice in a row each, of which the second has no effect."""

    def __init__(self, worker: Handle, times: int) -> None:
        self.worker, self.times = worker, times

    async def run(self) -> None:
        for _ in range(self.times):
            await asyncio.sleep(5.0)
            self.restart_actor(self.worker, "the worst")
            self.restart_actor(self.worker, "the worst")
        await asyncio.sleep(5.0)
        self.end_run("tuned")


@pytest.mark.parametrize("restart", [True, False])
def test_an_actor_restarts_another_without_spending_its_restarts(*, restart: bool) -> None:
    Worker.lives.clear()
    topology = Topology()
    worker = topology.add(Worker, restart=restart)
    topology.add(Tuner, worker=worker.handle(), times=4)
    world = World(topology=topology, restarts=0)
    assert (world.outcome.state, world.outcome.reason) == ("finished", "tuned")
    assert Worker.lives == ([0, 1, 2, 3, 4] if restart else [0])
    assert world.outcome.restarts["worker-0"] == (4 if restart else 0)
    refused = world.texts("not restarted")
    assert refused == ([] if restart else ["worker-0, for tuner-0: it is not restarted"] * 8)
    died = world.texts("died")
    assert died == (["worker-0 was restarted by tuner-0: the worst"] * 4 if restart else [])
