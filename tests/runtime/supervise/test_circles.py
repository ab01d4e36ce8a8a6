"""Actors that wait for each other in a circle are found, named with what they wait for, and end the run in time."""

from __future__ import annotations

from typing import Any

import pytest

from hive.runtime.carriers.boards import Board
from hive.runtime.carriers.carrier import PlanChannel
from hive.runtime.carriers.messages import Messages
from hive.runtime.memory.status import BUSY, RUNTIME, WAIT_IN, WAIT_OUT, ActorStatus
from hive.runtime.supervise.actions import Log
from hive.runtime.supervise.circles import STALLED_S, blocked, checked
from hive.runtime.supervise.membership import Settings
from hive.runtime.supervise.states import ActorEvent, ActorState, RunEvent
from hive.runtime.supervise.supervisor_state import PauseRequest, SupervisorState
from hive.runtime.topology.plan import Plan, PlanActor

ACTORS = ("collector-0", "tap-0", "worker-0", "learner-0", "recorder")
COLLECTOR, TAP, WORKER, LEARNER, RECORDER = range(5)
LONG, SHORT = STALLED_S + 4, STALLED_S - 1
CIRCLE = {
    COLLECTOR: ("wait behaviour", WAIT_IN),
    TAP: ("wait rollouts", WAIT_IN),
    WORKER: ("wait passed", WAIT_IN),
    LEARNER: ("wait gradients", WAIT_IN),
    RECORDER: ("wait metrics", WAIT_IN),
}
TEXT = (
    "nothing has moved for 14 s: collector-0 waits for behaviour <- learner-0 waits for gradients <- "
    "worker-0 waits for passed <- tap-0 waits for rollouts <- collector-0"
)


def channel(name: str, producer: int, consumer: int) -> PlanChannel:
    carrier: Any = Board(8) if name == "behaviour" else Messages()
    return PlanChannel(
        name, carrier.kind, carrier.options(), "balance", "wait", "a.o", ("b.i",), (producer,), (consumer,), ()
    )


PLAN = Plan(
    tuple(PlanActor(name, name, 0, name, True, False) for name in ACTORS),
    (
        channel("rollouts", COLLECTOR, TAP),
        channel("passed", TAP, WORKER),
        channel("gradients", WORKER, LEARNER),
        channel("behaviour", LEARNER, COLLECTOR),
        channel("metrics", LEARNER, RECORDER),
    ),
    *((), "", (), "", 0),
)


def page(actor: int, phase: str, kind: int, seconds: float = LONG) -> ActorStatus:
    now_ns = 10**12
    return ActorStatus(
        *(ACTORS[actor], 100 + actor, 0, phase, now_ns - int(seconds * 1e9), now_ns, now_ns, 5, 0, 0),
        spent_ns={phase: (kind, 1)},
        counters={},
    )


def pages(changed: dict[int, tuple[Any, ...]] | None = None) -> list[ActorStatus]:
    return [page(actor, *phase) for actor, phase in (CIRCLE | (changed or {})).items()]


def running(**settings: Any) -> SupervisorState:
    state = SupervisorState(PLAN, Settings(**settings), can_restart=True, dedicated=True)
    for machine in state.machines:
        machine.handle(ActorEvent.ready)
        machine.handle(ActorEvent.begin)
    state.run_machine.handle(RunEvent.begin)
    return state


def test_a_circle_of_waits_is_found_with_all_who_wait_for_it() -> None:
    states = [ActorState.running] * 5
    assert set(blocked(PLAN, states, pages())) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    "free",
    [
        {COLLECTOR: ("env", BUSY)},
        {WORKER: ("runtime", RUNTIME)},
        {TAP: ("wait calls", WAIT_IN)},
        {LEARNER: ("wait gradients", WAIT_IN, SHORT)},
        {COLLECTOR: ("wait elsewhere", WAIT_IN)},
    ],
)
def test_one_that_can_move_frees_all_who_wait_for_it(free: dict[int, tuple[Any, ...]]) -> None:
    assert blocked(PLAN, [ActorState.running] * 5, pages(free)) == {}


def test_one_that_waits_for_an_actor_that_has_ended_waits_in_vain() -> None:
    states = [ActorState.finished, *[ActorState.running] * 4]
    state = running()
    state.machines[COLLECTOR].handle(ActorEvent.done)
    found = blocked(PLAN, states, pages())
    assert set(found) == {TAP, WORKER, LEARNER, RECORDER}
    (entry,) = checked(state, pages(), dict, 0)
    assert isinstance(entry, Log)
    assert "tap-0 waits for rollouts <- collector-0, which has ended" in entry.text


def test_one_without_room_waits_for_its_consumers() -> None:
    found = blocked(PLAN, [ActorState.running] * 5, pages({COLLECTOR: ("wait rollouts", WAIT_OUT)}))
    assert found[COLLECTOR].targets == (TAP,)


def test_it_is_logged_once_as_a_warning_with_what_was_lost() -> None:
    state = running()
    lost = {"rollouts": {"dropped": {"consumer_died": 2, "stale": 9}}, "passed": {"dropped": {}}}
    (entry,) = checked(state, pages(), lambda: lost, 320)
    assert isinstance(entry, Log)
    assert entry.kind == "warning"
    assert entry.fields["warning"] == "nothing moves"
    assert entry.fields["cause"] == f"{TEXT}; 2 messages of rollouts were lost when an actor exited"
    assert entry.fields["steps"] == 320
    assert checked(state, pages(), lambda: lost, 320) == []
    assert not state.ending


def test_the_warning_ends_when_something_moves() -> None:
    state = running()
    checked(state, pages(), dict, 0)
    (entry,) = checked(state, pages({COLLECTOR: ("env", BUSY)}), dict, 64)
    assert entry == Log(
        "recovered", "nothing moves: no longer so at 64 steps", {"warning": "nothing moves", "steps": 64}
    )
    assert checked(state, pages({COLLECTOR: ("env", BUSY)}), dict, 64) == []


def test_the_run_fails_with_the_circle_when_its_limit_is_exceeded() -> None:
    state = running(phase_limit_s=13.0)
    (entry,) = checked(state, pages(), dict, 0)
    assert isinstance(entry, Log)
    assert (state.end.state, state.end.reason, state.end.error) == ("failed", "nothing moves", TEXT)
    assert "hive stack" in state.end.hint


def test_neither_a_paused_nor_an_ending_run_is_judged() -> None:
    state = running()
    state.pause = PauseRequest(1)
    assert checked(state, pages(), dict, 0) == []
    state.pause, state.end.state = None, "stopped"
    assert checked(state, pages(), dict, 0) == []
    assert not state.stalled
