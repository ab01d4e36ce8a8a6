"""The watchdog kills stopped and stuck processes and no others. live/test_death.py tests the exits that follow."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from supervised_world import ADDRESS, Bystander, Restarting, World
from supervisor_states import S, page, running, starting

from hive.runtime.memory.status import BUSY, RUNTIME, START, WAIT_IN, WAIT_OUT, ActorStatus
from hive.runtime.supervise.actions import Action, Diagnose, Kill
from hive.runtime.supervise.membership import PHASE_LIMIT, ProcessRecord
from hive.runtime.supervise.states import ActorEvent, ActorState
from hive.runtime.supervise.supervisor import Supervisor
from hive.runtime.supervise.supervisor_state import SupervisorState
from hive.runtime.supervise.watchdog import (
    ACCOUNTS_EVERY,
    WATCH_S,
    Stuck,
    kill_stopped,
    kill_stuck,
    slow_or_stuck,
    wasted,
    watched,
)
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.messages import encode
from hive.runtime.wire.protocol import Hello

NOW = 10 * S
SHARED = {"one": {}, "two": {}, "three": {"process": "both"}, "four": {"process": "both"}}


def checked(
    state: SupervisorState, process: str, *statuses: ActorStatus, now_ns: int = NOW
) -> tuple[list[Action], Stuck | None]:
    return slow_or_stuck(state, state.table[process], statuses, now_ns)


def stuck(state: SupervisorState, process: str, *statuses: ActorStatus, now_ns: int = NOW) -> str:
    """Return why this process is stuck, "" if it is not."""
    found = checked(state, process, *statuses, now_ns=now_ns)[1]
    return found.why if found is not None else ""


# --- stopped


def test_a_stopped_process_is_killed() -> None:
    state = running(SHARED)
    assert kill_stopped(state, ["two"]) == [Kill("two")]
    assert state.table["two"].why == "it was stopped (SIGSTOP) and so was killed"


def test_a_stopped_process_that_has_exited_is_not_killed() -> None:
    state = running(SHARED)
    state.table["two"].alive = False
    assert kill_stopped(state, ["two"]) == []


# --- stuck


def test_an_actor_busy_without_progress_is_stuck_after_the_limit() -> None:
    busy = page(running(SHARED), 1)
    assert (
        stuck(running(SHARED, phase_limit_s=1.9), "two", busy)
        == "no progress in `step` for 2 s (supervision.phase_limit_s = 1.9) and so was killed"
    )
    assert stuck(running(SHARED, phase_limit_s=2.0), "two", busy) == ""


def test_a_process_that_never_opens_its_page_is_stuck_in_its_start() -> None:
    state = starting(SHARED, start_limit_s=5.0)
    blank = page(state, 1, phase="", since_ns=0, pid=0, incarnation=0)
    assert stuck(state, "two", blank, now_ns=5 * S) == ""
    assert (
        stuck(state, "two", blank, now_ns=5 * S + 1)
        == "no progress in `start` for 5 s (env.start_limit_s = 5) and so was killed"
    )


@pytest.mark.parametrize("change", [{"incarnation": 1}, {"pid": 99}])
def test_the_page_of_another_incarnation_or_pid_counts_as_unopened(change: dict[str, int]) -> None:
    state = running(SHARED, phase_limit_s=5.0)
    waits = page(state, 1, kind=WAIT_IN)
    assert stuck(state, "two", waits) == ""
    assert (
        stuck(state, "two", replace(waits, **change))
        == "no progress in `start` for 10 s (supervision.phase_limit_s = 5) and so was killed"
    )


def test_a_process_that_is_not_forked_yet_is_not_stuck() -> None:
    state = starting(SHARED, start_limit_s=5.0)
    state.table["two"].begin("memory://two-1", 0)
    assert stuck(state, "two", page(state, 1, pid=0, since_ns=0)) == ""


def test_a_busy_actor_whose_event_loop_runs_is_not_stuck() -> None:
    record = ProcessRecord("one", [0], incarnation=0, pid=7)
    since, now = 10**9, 10 * 10**9
    status = ActorStatus("a", 7, 0, "work", since, 9 * 10**9, now, 4, 0, 0, {"work": (BUSY, 10)}, {})
    assert record.stuck_s(status, ActorState.running, now) == 1.0
    assert record.stuck_s(replace(status, pulse_ns=0), ActorState.running, now) == 9.0


@pytest.mark.parametrize("kind", [WAIT_IN, WAIT_OUT])
def test_an_actor_that_waits_for_others_is_not_stuck(kind: int) -> None:
    state = running(SHARED, phase_limit_s=0.0)
    assert stuck(state, "two", page(state, 1, kind=kind)) == ""


def test_setup_can_be_stuck_but_waiting_for_begin_cannot() -> None:
    state = starting(SHARED, start_limit_s=0.0)
    sets_up = page(state, 1, phase="runtime", kind=RUNTIME)
    assert stuck(state, "two", sets_up) == "no progress in `runtime` for 2 s (env.start_limit_s = 0) and so was killed"
    state.machines[1].handle(ActorEvent.ready)
    assert stuck(state, "two", sets_up) == ""


def test_where_environments_start_the_limit_is_that_of_starts() -> None:
    state = running(SHARED, phase_limit_s=1.0, start_limit_s=2.0)
    starts = page(state, 1, phase=START)
    assert stuck(state, "two", starts) == ""
    assert stuck(state, "two", replace(starts, since_ns=7 * S)) == (
        "no progress in `start` for 3 s (env.start_limit_s = 2) and so was killed"
    )


def test_a_finished_actor_is_not_stuck() -> None:
    state = running(SHARED, phase_limit_s=0.0)
    state.machines[1].handle(ActorEvent.done)
    assert stuck(state, "two", page(state, 1)) == ""


def test_a_process_is_stuck_with_any_of_its_actors() -> None:
    state = running(SHARED, phase_limit_s=1.0)
    waits, busy = page(state, 2, kind=WAIT_IN), page(state, 3)
    assert stuck(state, "both", waits, busy).startswith("no progress in `step`")
    assert stuck(state, "both", waits, replace(waits, name="four")) == ""


def test_a_process_that_has_exited_or_is_being_killed_is_not_watched() -> None:
    state = running(SHARED)
    both = state.table["both"]
    assert watched(both) == [2, 3]
    both.kill("restarted by hand")
    assert watched(both) == []
    state.table["one"].alive = False
    assert watched(state.table["one"]) == []
    assert checked(state, "both") == ([], None)


# --- where it is stuck


def test_a_stuck_process_is_killed_with_its_stack() -> None:
    state = running(SHARED, phase_limit_s=1.0)
    found = checked(state, "two", page(state, 1))[1]
    assert found is not None
    assert kill_stuck(found, "File x") == [Kill("two")]
    two = state.table["two"]
    assert two.limit == PHASE_LIMIT
    why = "no progress in `step` for 2 s (supervision.phase_limit_s = 1) and so was killed"
    assert (two.stack, two.why, two.given_up) == ("File x", why, False)


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_process_that_exits_while_its_stacks_are_read_is_not_killed(comes_back: bool) -> None:
    state = running(SHARED, phase_limit_s=1.0)
    found = checked(state, "two", page(state, 1))[1]
    assert found is not None
    state.table["two"].alive = False
    if comes_back:
        state.table["two"].begin("memory://two-1", NOW)
    assert kill_stuck(found, "File x") == []
    assert state.table["two"].stack == state.table["two"].why == ""


# --- diagnostics


def test_slow_environments_are_logged_once_they_have_ended() -> None:
    state = running(SHARED)
    assert checked(state, "two", page(state, 1, phase="env")) == ([], None)
    found, _ = checked(state, "two", page(state, 1, phase="step", since_ns=NOW))
    assert found == [Diagnose("slow", "the environments of two took 2.0 s for one step", {"actor": "two"})]


def test_the_page_of_an_earlier_incarnation_has_no_diagnostics() -> None:
    state = running(SHARED)
    checked(state, "two", page(state, 1, phase="env", incarnation=7))
    assert checked(state, "two", page(state, 1, phase="step", since_ns=NOW)) == ([], None)


def test_wasted_messages_are_logged() -> None:
    state = running(SHARED)
    (entry,) = wasted(state, {"gradients": {"dropped": {"stale": 5}}}, NOW)
    assert isinstance(entry, Diagnose)
    assert (entry.kind, entry.fields) == ("stale", {})
    assert entry.text.startswith("5 messages of `gradients` were older than max_lag allows and were dropped")
    assert wasted(state, {"gradients": {"dropped": {"stale": 5}}}, NOW) == []


# --- the supervisor's checks


class Hanging(Restarting):
    """The first incarnation of falls-0 never opens its page; with `listens` it has sent Hello."""

    listens = True
    exits_while_asked = False
    asked: Sequence[str] = ()

    async def start(self, process: str, incarnation: int, address: str) -> int:
        if (process, incarnation) != ("falls-0", 0):
            return await super().start(process, incarnation, address)
        self.tasks[process] = asyncio.create_task(asyncio.sleep(1e9))
        self.tasks[process].add_done_callback(lambda task: self._ended(process, incarnation, task))
        if self.listens:
            self.transport.post(ADDRESS, encode(Hello(process, incarnation, 77, address)))
        return 77

    async def stacks(self, processes: Sequence[str]) -> Mapping[str, str]:
        self.asked = [*self.asked, *processes]
        if self.exits_while_asked:
            super().kill("falls-0")
            await asyncio.sleep(1.0)
        return await super().stacks(processes)


class Deaf(Hanging):
    """It does not listen yet, so the signal that asks for a stack would kill it."""

    listens = False

    async def stacks(self, processes: Sequence[str]) -> Mapping[str, str]:
        raise AssertionError(processes)


class Leaving(Hanging):
    exits_while_asked = True


@pytest.mark.parametrize(("table", "stack"), [(Hanging, "File x, in falls-0"), (Deaf, "")])
def test_a_process_that_hangs_is_killed_and_started_again(table: type[Restarting], stack: str) -> None:
    world = World(lives=0, table=table, start_limit_s=5.0)
    assert (world.outcome.state, world.outcome.restarts["falls-0"]) == ("finished", 1)
    (report,) = world.deaths
    assert (report.error, report.stack) == (
        "no progress in `start` for 5 s (env.start_limit_s = 5) and so was killed",
        stack,
    )


def test_a_process_that_exits_while_its_stacks_are_read_is_killed_no_more() -> None:
    world = World(lives=0, table=Leaving, phase_limit_s=5.0)
    assert world.outcome.restarts["falls-0"] == 1
    assert [report.error for report in world.deaths] == ["killed by SIGKILL"]


class Timed(Restarting):
    """Records when processes and accounts are checked; stops bystander-0 before the third check."""

    def begin(self, supervisor: Supervisor) -> None:
        self.checks: list[float] = []
        self.reads: list[float] = []
        supervisor.accounts = self.accounts  # type: ignore[method-assign]
        asyncio.get_running_loop().call_later(2.1 * ACCOUNTS_EVERY * WATCH_S, supervisor.request, "enough")

    def accounts(self) -> dict[str, dict[str, Any]]:
        self.reads.append(round(asyncio.get_running_loop().time(), 6))
        return {}

    def stopped(self) -> list[str]:
        self.checks.append(round(asyncio.get_running_loop().time(), 6))
        return ["bystander-0"] if len(self.checks) == 3 else []


def test_processes_are_checked_often_and_accounts_rarely() -> None:
    made: list[Timed] = []

    class Kept(Timed):
        def begin(self, supervisor: Supervisor) -> None:
            made.append(self)
            super().begin(supervisor)

    topology = Topology()
    topology.add(Bystander)
    world = World(topology=topology, table=Kept)
    (table,) = made
    assert table.checks == [pytest.approx((number + 1) * WATCH_S) for number in range(2 * ACCOUNTS_EVERY + 2)]
    assert table.reads[:2] == [ACCOUNTS_EVERY * WATCH_S, 2 * ACCOUNTS_EVERY * WATCH_S]
    assert [report.error for report in world.deaths] == ["it was stopped (SIGSTOP) and so was killed"]
    assert world.outcome.restarts == {"bystander-0": 1}


def test_a_bug_in_the_checks_ends_the_run_with_a_report() -> None:
    class Faulty(Restarting):
        def stopped(self) -> list[str]:
            return ["unknown"]

    topology = Topology()
    topology.add(Bystander)
    world = World(topology=topology, table=Faulty)
    assert (world.outcome.state, world.outcome.error) == ("failed", "the supervisor failed: KeyError: 'unknown'")
    assert [report.actor for report in world.deaths] == ["supervisor"]
