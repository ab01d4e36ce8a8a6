"""What follows a death: who is told what, what comes back, and what a report holds. Real deaths: live/test_death.py."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from hive.clock import VirtualClock, VirtualLoop
from hive.errors import ActorFailed
from hive.runtime.actor import Actor
from hive.runtime.membership import Settings
from hive.runtime.outcome import Death, Journal, Outcome
from hive.runtime.processes import InlineProcesses, SharedMemory
from hive.runtime.supervisor import EVENTS_TOLD, Supervisor
from hive.runtime.topology import Topology
from hive.runtime.transport import MemoryTransport

ADDRESS = "memory://inline/supervisor"


class Bystander(Actor):
    """Runs until it is told to stop."""

    async def run(self) -> None:
        self.note("hello", f"from {self.name}")
        await asyncio.Event().wait()


class Falls(Actor):
    """Raises in its first lives, 0.1 s after each began; then ends the run."""

    lives = 1

    def __init__(self, lives: int = 1) -> None:
        self.lives = lives

    async def run(self) -> None:
        await asyncio.sleep(0.1)
        if self.incarnation < self.lives:
            raise ValueError(f"fell in life {self.incarnation}")
        self.end_run("stands")


class Restarting(InlineProcesses):
    """Inline processes that are started again. The starts whose numbers are `refused` (0: the first) fail."""

    restarts = True
    refused: Sequence[int] = ()
    starts = -1

    async def start(self, process: str, incarnation: int, address: str) -> int:
        if process == "falls-0":
            self.starts += 1
            if self.starts in self.refused:
                raise ActorFailed(f"{process} cannot be started: no room", hint="make room")
        return await super().start(process, incarnation, address)

    async def stacks(self, processes: Sequence[str]) -> Mapping[str, str]:
        return {name: f"File x, in {name}" for name in processes}


class World:
    """One run of a falling actor beside two others."""

    def __init__(self, lives: int, refused: Sequence[int] = (), **settings: Any) -> None:
        topology = Topology()
        topology.add(Bystander, count=2)
        topology.add(Falls, count=1, lives=lives)
        plan = topology.plan()
        memory = SharedMemory(plan)
        self.deaths: list[Death] = []
        self.events: list[tuple[str, str, dict[str, Any]]] = []

        async def main() -> Outcome:
            clock, transport = VirtualClock(asyncio.get_running_loop()), MemoryTransport()
            processes = Restarting(topology, plan, memory, transport, clock, ADDRESS)
            processes.refused = refused
            journal = Journal(lambda *event: self.events.append(event), self._report)
            supervisor = Supervisor(plan, processes, transport, memory, clock, Settings(**settings), journal, ADDRESS)
            self.supervisor = supervisor
            try:
                return await supervisor.run()
            finally:
                await processes.close()

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            self.outcome = runner.run(main())
        memory.close()

    def _report(self, death: Death) -> str:
        self.deaths.append(death)
        return f"crash/{death.actor}-{len(self.deaths)}.txt"

    def texts(self, kind: str) -> list[str]:
        return [text for happened, text, _ in self.events if happened == kind]


def own(text: str) -> str:
    """Without the line of this file, which must be there."""
    without, count = re.subn(r" \([^()]*test_deaths\.py:\d+\)", "", text)
    assert count == 1, text
    return without


def test_one_that_raises_comes_back_and_is_reported() -> None:
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
        assert death.stacks == ""  # nobody else is disturbed for a death that is made good
    assert [own(text) for text in world.texts("died")] == [
        f"falls-0 died in `runtime`: ValueError: fell in life {life}; restart {life + 1} of 5" for life in range(2)
    ]
    assert [fields["crash"] for kind, _, fields in world.events if kind == "died"] == [
        "crash/falls-0-1.txt",
        "crash/falls-0-2.txt",
    ]


def test_the_death_that_ends_a_run_tells_what_everybody_was_doing() -> None:
    world = World(lives=9, restarts=1)
    assert (world.outcome.state, world.outcome.report) == ("failed", "crash/falls-0-2.txt")
    assert own(world.outcome.error) == (
        "falls-0 failed in `runtime`: fell in life 1 (2 times within 60 s; [supervision] restarts = 1)"
    )
    assert world.deaths[-1].stacks == "bystander-0\nFile x, in bystander-0\n\nbystander-1\nFile x, in bystander-1"
    assert world.deaths[0].stacks == ""


def test_a_report_holds_the_last_events_and_no_more() -> None:
    world = World(lives=30, restarts=100, window_s=1e9)
    assert world.outcome.state == "finished"
    last = world.deaths[-1].events
    assert len(last) == EVENTS_TOLD
    assert last[-1].endswith("restarted: falls-0 is back after 0 ms")
    assert [float(event.split()[0]) for event in last] == sorted(float(event.split()[0]) for event in last)


def test_where_there_is_no_room_it_is_tried_again() -> None:
    world = World(lives=1, refused=[1, 2])
    assert world.outcome.state == "finished"
    assert world.texts("not started") == ["falls-0 cannot be started: no room"] * 2
    assert world.outcome.restarts["falls-0"] == 1


def test_where_there_is_no_room_for_long_the_run_ends() -> None:
    world = World(lives=1, refused=range(1, 99), restarts=3)
    why = "falls-0 cannot be started: no room"
    limit = "4 times within 60 s; [supervision] restarts = 3"
    assert world.texts("not started") == [why, why, f"{why}; {limit}"]
    assert (world.outcome.state, world.outcome.hint) == ("failed", "make room")
    assert world.outcome.error == f"{why} ({limit})"


def test_a_first_start_without_room_is_the_end_of_it() -> None:
    with pytest.raises(ActorFailed, match="falls-0 cannot be started: no room"):
        World(lives=0, refused=[0])
