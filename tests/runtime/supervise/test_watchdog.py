"""The watchdog kills stopped and stuck processes and no others. live/test_death.py tests the exits that follow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from hive import _native
from hive.clock import VirtualClock, VirtualLoop
from hive.runtime import Messages
from hive.runtime.memory.segments import PAGE, Bytes
from hive.runtime.memory.status import BUSY, PAGE_BYTES, WAIT_IN, WAIT_OUT, ActorStatus, Status
from hive.runtime.supervise.diagnostics import Diagnostic, Diagnostics
from hive.runtime.supervise.membership import ProcessRecord, Settings
from hive.runtime.supervise.states import ACTOR, ActorEvent, ActorState, Machine
from hive.runtime.supervise.supervisor import Supervisor
from hive.runtime.supervise.watchdog import ACCOUNTS_EVERY, WATCH_S, watch

AT_ONCE = Settings(phase_limit_s=0.0)  # any busy actor is stuck: pages use real time, so virtual time cannot be used
NEVER = Settings(phase_limit_s=1e6)


class Watched:
    """The attributes of a supervisor that the watchdog uses: two processes of one actor, and one of two actors."""

    def __init__(self, settings: Settings) -> None:
        room = np.zeros(4 * PAGE_BYTES + PAGE, np.uint8)
        memory: Bytes = room[-room.ctypes.data % PAGE :][: 4 * PAGE_BYTES]
        self.settings = settings
        self.pages = _native.Status(memory)
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.table = {"one": ProcessRecord("one", [0]), "two": ProcessRecord("two", [1])}
        self.table["both"] = ProcessRecord("both", [2, 3])
        self.machines = [Machine(f"actor-{number}", ACTOR, ActorState.starting) for number in range(4)]
        self.processes = self.journal = self
        self.memory = SimpleNamespace(pages=self.pages)  # channels of messages have no segments
        message = SimpleNamespace(name="gradients", description=Messages(), producers=[0])
        self.plan = SimpleNamespace(segments=[], channels=[message])
        self.told: list[tuple[float, str, str, dict[str, str]]] = []
        self.still: list[str] = []  # processes in state T
        self.kills: list[tuple[float, str, str]] = []
        self.statuses: dict[int, Status] = {}
        self.while_asked: Callable[[], None] = lambda: None
        for number, record in enumerate(self.table.values()):
            record.begin("memory://x", self.clock.now_ns())
            record.forked(100 + number, self.clock.now_ns())

    def stopped(self) -> list[str]:
        return self.still

    async def stacks(self, processes: Sequence[str]) -> Mapping[str, str]:
        self.while_asked()
        return {name: f"stack of {name}" for name in processes}

    def kill(self, process: ProcessRecord, why: str) -> None:
        process.why = why
        self.kills.append((round(asyncio.get_running_loop().time(), 6), process.name, why))

    def event(self, kind: str, text: str, fields: dict[str, str]) -> None:
        self.told.append((round(asyncio.get_running_loop().time(), 6), kind, text, fields))

    def runs(self, *actors: int, kind: int = WAIT_IN, incarnation: int = 0) -> None:
        """These actors run, and have just begun something of that kind."""
        for actor in actors:
            record = next(record for record in self.table.values() if actor in record.actors)
            status = Status(self.pages.page(actor), f"actor-{actor}", record.pid, incarnation)
            status.enter(status.phase("env", kind))
            self.machines[actor].handle(ActorEvent.ready)
            self.machines[actor].handle(ActorEvent.begin)
            self.statuses[actor] = status


def watched(
    settings: Settings, prepare: Callable[[Watched], None], seconds: float = 2.0
) -> list[tuple[float, str, str]]:
    """Return (time, process, reason) of each kill within `seconds` of virtual time."""

    async def main() -> list[tuple[float, str, str]]:
        supervisor = Watched(settings)
        prepare(supervisor)
        watching = asyncio.create_task(watch(cast(Supervisor, supervisor)))
        await asyncio.sleep(seconds)
        assert not watching.done()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        return supervisor.kills

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


# --- stopped


def test_a_stopped_process_is_killed_at_the_next_check() -> None:
    def prepare(supervisor: Watched) -> None:
        def stop() -> None:
            supervisor.still.append("two")

        def die() -> None:
            supervisor.table["two"].alive = False

        supervisor.runs(0, 1, 2, 3)
        asyncio.get_running_loop().call_later(2.5 * WATCH_S, stop)
        asyncio.get_running_loop().call_later(3.5 * WATCH_S, die)

    assert watched(NEVER, prepare) == [(3 * WATCH_S, "two", "it was stopped (SIGSTOP) and so was killed")]


def test_a_process_that_has_exited_is_not_killed() -> None:
    def prepare(supervisor: Watched) -> None:
        supervisor.runs(0, 1, 2, 3)
        supervisor.still = ["one"]
        supervisor.table["one"].alive = False

    assert watched(NEVER, prepare) == []


# --- stuck


def test_a_process_that_never_opens_its_page_is_stuck_in_its_start() -> None:
    def prepare(supervisor: Watched) -> None:
        supervisor.runs(0, 2, 3)

    killed = watched(Settings(phase_limit_s=5.0), prepare, seconds=20.0)
    assert killed == [(5.0 + WATCH_S, "two", "no progress in `start` for 5 s and so was killed")]


def test_the_page_of_an_earlier_incarnation_or_another_pid_is_ignored() -> None:
    def prepare(supervisor: Watched) -> None:
        supervisor.runs(0, 2, 3)
        supervisor.table["two"].incarnation = 1
        supervisor.runs(1, incarnation=0)
        supervisor.table["one"].pid += 1

    killed = watched(Settings(phase_limit_s=5.0), prepare, seconds=20.0)
    assert [name for _, name, _ in killed] == ["one", "two"]


def test_an_actor_busy_without_progress_is_killed_once() -> None:
    def prepare(supervisor: Watched) -> None:
        supervisor.runs(0, 2, 3)
        supervisor.runs(1, kind=BUSY)

    assert watched(AT_ONCE, prepare) == [(WATCH_S, "two", "no progress in `env` for 0 s and so was killed")]
    assert watched(NEVER, prepare) == []


def test_a_busy_actor_whose_event_loop_runs_is_not_stuck() -> None:
    record = ProcessRecord("one", [0], incarnation=0, pid=7)
    since, now = 10**9, 10 * 10**9
    status = ActorStatus("a", 7, 0, "work", since, 9 * 10**9, now, 4, 0, 0, {"work": (BUSY, 10)}, {})
    assert record.stuck_s(status, ActorState.running, now) == 1.0
    assert record.stuck_s(replace(status, pulse_ns=0), ActorState.running, now) == 9.0


def test_an_actor_that_waits_for_others_is_not_stuck() -> None:
    def prepare(supervisor: Watched) -> None:
        supervisor.runs(0, 1, kind=WAIT_IN)
        supervisor.runs(2, 3, kind=WAIT_OUT)

    assert watched(AT_ONCE, prepare) == []


def test_a_stuck_actor_has_its_process_killed_once() -> None:
    def prepare(supervisor: Watched) -> None:
        supervisor.runs(0, 1)
        supervisor.runs(2, 3, kind=BUSY)

    assert [(when, name) for when, name, _ in watched(AT_ONCE, prepare)] == [(WATCH_S, "both")]


def test_setup_can_be_stuck_but_waiting_for_begin_cannot() -> None:
    def prepare(supervisor: Watched) -> None:
        supervisor.runs(2, 3)
        for actor in (0, 1):
            record = supervisor.table["two" if actor else "one"]
            Status(supervisor.pages.page(actor), f"actor-{actor}", record.pid, 0)  # in phase `runtime`
        supervisor.machines[1].handle(ActorEvent.ready)

    assert [(when, name) for when, name, _ in watched(AT_ONCE, prepare)] == [(WATCH_S, "one")]


def test_a_finished_actor_is_not_stuck() -> None:
    def prepare(supervisor: Watched) -> None:
        supervisor.runs(0, 1, 2, 3)
        supervisor.statuses[1].enter(supervisor.statuses[1].phase("busy", BUSY))
        supervisor.machines[1].handle(ActorEvent.done)

    assert watched(AT_ONCE, prepare) == []


def test_a_process_that_is_being_killed_is_not_killed_again() -> None:
    def prepare(supervisor: Watched) -> None:
        supervisor.runs(0, 2, 3)
        supervisor.runs(1, kind=BUSY)
        supervisor.table["two"].why = "somebody said so"

    assert watched(AT_ONCE, prepare) == []


# --- where it is stuck


def test_its_stack_is_read_before_it_is_killed() -> None:
    seen: list[Watched] = []

    def prepare(supervisor: Watched) -> None:
        seen.append(supervisor)
        supervisor.table["two"].listening = True
        supervisor.runs(0, 2, 3)

    assert [name for _, name, _ in watched(Settings(phase_limit_s=5.0), prepare, seconds=6.0)] == ["two"]
    assert seen[0].table["two"].stack == "stack of two"
    assert seen[0].table["one"].stack == ""


def test_a_process_that_does_not_listen_yet_gets_no_signal() -> None:
    """The signal would kill it."""
    seen: list[Watched] = []

    def prepare(supervisor: Watched) -> None:
        seen.append(supervisor)
        supervisor.runs(0, 2, 3)

    assert len(watched(Settings(phase_limit_s=5.0), prepare, seconds=6.0)) == 1
    assert seen[0].table["two"].stack == ""


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_process_that_exits_during_the_stack_query_is_not_killed_in_its_next_incarnation(comes_back: bool) -> None:
    def prepare(supervisor: Watched) -> None:
        two = supervisor.table["two"]
        two.listening = True
        supervisor.runs(0, 2, 3)

        def die() -> None:
            two.alive = False
            if comes_back:
                two.begin("memory://y", supervisor.clock.now_ns())

        supervisor.while_asked = die

    assert watched(Settings(phase_limit_s=5.0), prepare, seconds=6.0) == []


# --- diagnostics


def test_diagnostics_are_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages use real time, so the diagnostics of each check are given."""
    supervisors: list[Watched] = []
    slow = [Diagnostic("slow", "actor-1 was slow", "actor-1")]
    monkeypatch.setattr(Diagnostics, "of_actor", lambda self, status, now_ns: slow if status.name == "actor-1" else [])

    def prepare(supervisor: Watched) -> None:
        supervisor.runs(0, 1, 2, 3)
        supervisor.statuses[0].count("gradients:produced", 9.0)
        supervisor.statuses[0].count("gradients:stale", 5.0)
        supervisors.append(supervisor)

    looks = ACCOUNTS_EVERY + 1
    assert watched(NEVER, prepare, seconds=(looks + 0.5) * WATCH_S) == []
    told = supervisors[0].told
    assert [each for each in told if each[1] == "slow"] == [
        ((look + 1) * WATCH_S, "slow", "actor-1 was slow", {"actor": "actor-1"}) for look in range(looks)
    ]
    (stale,) = [each for each in told if each[1] != "slow"]
    assert stale[:2] == (ACCOUNTS_EVERY * WATCH_S, "stale")
    assert stale[2].startswith("5 messages of `gradients` were older than max_lag allows and were dropped")


def test_a_process_that_has_exited_has_no_diagnostics(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    monkeypatch.setattr(Diagnostics, "of_actor", lambda self, status, now_ns: seen.add(status.name) or [])

    def prepare(supervisor: Watched) -> None:
        supervisor.runs(0, 1, 2, 3)
        supervisor.table["two"].alive = False

    watched(NEVER, prepare)
    assert seen == {"actor-0", "actor-2", "actor-3"}


def test_the_page_of_an_earlier_incarnation_has_no_diagnostics(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    monkeypatch.setattr(Diagnostics, "of_actor", lambda self, status, now_ns: seen.add(status.name) or [])

    def prepare(supervisor: Watched) -> None:
        supervisor.runs(0, 1, 2, 3)
        supervisor.table["two"].incarnation = 1  # its successor has not opened the page yet
        supervisor.table["one"].pid += 1

    watched(NEVER, prepare)
    assert seen == {"actor-2", "actor-3"}
