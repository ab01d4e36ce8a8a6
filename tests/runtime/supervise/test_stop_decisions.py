"""Decisions about the end of a run: its reason, the order of the stop, its deadline, and the outcome."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from supervisor_states import running, sent, starting, state_names, texts

from hive.errors import ActorFailed
from hive.runtime.process.processes import Exit
from hive.runtime.supervise import ending, exits
from hive.runtime.supervise.actions import Action, DropInFlight, Kill, Log, Send
from hive.runtime.supervise.ending import KILL_AFTER_S, LAST_TRIES
from hive.runtime.supervise.states import RunState
from hive.runtime.supervise.supervisor_state import StopPhase, SupervisorState
from hive.runtime.wire.protocol import Drain, Failed

ACTORS: dict[str, dict[str, Any]] = {"one": {}, "two": {}, "saves": {"last": True}}
KILLED, CLEAN = Exit(signal=signal.SIGKILL), Exit()


def stopping(actors: dict[str, dict[str, Any]] = ACTORS, drain_s: float = 30.0, **options: Any) -> SupervisorState:
    """Return the state of a run with the reason `goal` to end, before the stop begins at 100 s."""
    state = running(actors, drain_s=drain_s, **options)
    ending.end(state, "finished", "goal")
    return state


def leave(state: SupervisorState, *names: str, how: Exit = CLEAN) -> None:
    for name in names:
        exits.confirmed(state, state.table[name], how)


def phase(state: SupervisorState) -> StopPhase:
    assert state.stop is not None
    return state.stop.phase


def until(state: SupervisorState) -> float:
    assert state.stop is not None
    return state.stop.until_s


def saving(state: SupervisorState) -> SupervisorState:
    """Let all others have stopped at 100 s, so that the `last` actor is saving."""
    ending.begin_stop(state, 100.0)
    leave(state, "one", "two")
    ending.advance(state, 100.0)
    return state


# --- the reason


def test_only_the_first_reason_counts() -> None:
    state = running(["a"])
    assert ending.end(state, "failed", "a failed", "it fell", "hold it") == [
        Log("draining", "a failed", {"state": "failed"})
    ]
    assert ending.end(state, "finished", "goal") == []
    assert (state.end.state, state.end.reason, state.end.error, state.end.hint) == (
        *("failed", "a failed"),
        *("it fell", "hold it"),
    )
    assert state.run_machine.history[-1] == "running -drain-> draining (a failed)"


def test_a_request_drains_and_a_request_at_once_kills() -> None:
    state = running(["a", "b"])
    assert ending.requested(state, "enough", at_once=False) == [Log("draining", "enough", {"state": "stopped"})]
    state.table["a"].kill("it was stopped")
    assert ending.requested(state, "now", at_once=True) == [Kill("a"), Kill("b")]
    assert [(process.why, process.given_up) for process in state.table.values()] == [
        ("it was stopped", True),
        ("now", True),
    ]


def test_a_bug_of_the_supervisor_fails_a_run_that_was_already_ending() -> None:
    state = stopping()
    state.recent.append("1.00 s draining: goal")
    report = ending.supervisor_crash(state, "KeyError: 1", "Traceback ...")
    assert (report.actor, report.error, report.events) == ("supervisor", "KeyError: 1", ["1.00 s draining: goal"])
    actions = ending.supervisor_failed(state, "KeyError: 1", "crash/1.txt")
    assert actions == [Log("died", "the supervisor failed: KeyError: 1", {"crash": "crash/1.txt"})]
    assert (state.end.state, state.end.reason, state.end.report) == ("failed", "goal", "crash/1.txt")
    ending.supervisor_failed(state, "KeyError: 2", "crash/2.txt")
    assert state.end.report == "crash/1.txt"


def test_a_bug_of_the_supervisor_ends_the_run() -> None:
    state = running(ACTORS)
    ending.supervisor_failed(state, "KeyError: 1", "")
    assert (state.end.state, state.end.reason) == ("failed", "the supervisor failed")
    assert state.end.error == "the supervisor failed: KeyError: 1"


# --- the order


def test_last_actors_drain_after_all_others_have_stopped() -> None:
    state = stopping()
    assert ending.begin_stop(state, 100.0) == [Send(("one", "two"), Drain("goal"))]
    assert state_names(state) == {"one": "draining", "two": "draining", "saves": "running"}
    leave(state, "one")
    assert ending.advance(state, 101.0) == []
    leave(state, "two")
    assert ending.advance(state, 101.0) == [Send(("saves",), Drain("goal"))]
    leave(state, "saves")
    assert ending.advance(state, 102.0) == [DropInFlight()]
    assert (phase(state), state.end.state) == (StopPhase.over, "finished")


def test_all_actors_that_share_a_process_with_a_last_one_stop_last() -> None:
    state = stopping({"one": {}, "two": {"process": "p"}, "saves": {"process": "p", "last": True}})
    assert ending.begin_stop(state, 100.0) == [Send(("one",), Drain("goal"))]
    leave(state, "one")
    assert ending.advance(state, 100.0) == [Send(("p",), Drain("goal"))]


def test_processes_that_have_exited_are_not_asked() -> None:
    state = stopping()
    leave(state, "one", "two", "saves", how=KILLED)
    assert sent(ending.begin_stop(state, 100.0)) == []


def test_a_stop_without_running_processes_is_over_at_once() -> None:
    state = stopping({"one": {}})
    leave(state, "one")
    assert ending.begin_stop(state, 100.0) == [DropInFlight()]


# --- the deadline


def test_half_of_the_time_is_reserved_for_the_last_actors() -> None:
    state = stopping(drain_s=30.0)
    ending.begin_stop(state, 100.0)
    assert until(state) == 115.0
    leave(state, "one", "two")
    ending.advance(state, 104.0)
    assert until(state) == 130.0


def test_without_last_actors_the_others_have_all_of_the_time() -> None:
    state = stopping({"one": {}, "two": {}}, drain_s=30.0)
    ending.begin_stop(state, 100.0)
    assert until(state) == 130.0


def test_late_processes_are_killed_and_given_up_after_a_while() -> None:
    state = stopping(drain_s=30.0)
    ending.begin_stop(state, 100.0)
    leave(state, "one")
    assert ending.advance(state, 114.9) == []
    assert ending.advance(state, 115.0) == [
        Log("killed", "two did not stop within 15.0 s", {"process": "two"}),
        Kill("two"),
    ]
    two = state.table["two"]
    assert (two.why, two.given_up, two.cut_short) == ("it did not stop in time", True, False)
    assert ending.advance(state, 115.0 + KILL_AFTER_S - 0.1) == []
    assert sent(ending.advance(state, 115.0 + KILL_AFTER_S)) == [(("saves",), Drain("goal"))]  # it ignores SIGKILL
    assert two.cut_short
    assert not state.table["one"].cut_short


def test_a_killed_process_that_exits_lets_the_stop_continue_at_once() -> None:
    state = stopping(drain_s=30.0)
    ending.begin_stop(state, 100.0)
    leave(state, "one")
    ending.advance(state, 115.0)
    leave(state, "two", how=KILLED)
    assert sent(ending.advance(state, 115.2)) == [(("saves",), Drain("goal"))]
    assert state.table["two"].cut_short


# --- `last` actors that did not finish


def again(state: SupervisorState, now_s: float) -> list[Action]:
    """Kill the `last` actor while it saves and let it be started again."""
    leave(state, "saves", how=KILLED)
    actions = ending.advance(state, now_s)
    if phase(state) is StopPhase.starting:
        state.table["saves"].begin("memory://saves-1", 0)
        ending.last_started(state, now_s)
    return actions


def test_a_last_actor_that_is_killed_while_saving_is_started_again() -> None:
    state = saving(stopping())
    actions = again(state, 105.0)
    assert actions == [Log("restarted", "saves had not finished and is started again", {"process": "saves"})]
    assert (phase(state), state_names(state)["saves"]) == (StopPhase.draining, "draining")
    leave(state, "saves")
    assert ending.advance(state, 106.0) == [DropInFlight()]
    assert state.end.state == "finished"


def test_its_time_begins_after_the_start() -> None:
    state = saving(stopping(drain_s=30.0))
    leave(state, "saves", how=KILLED)
    ending.advance(state, 110.0)
    state.table["saves"].begin("memory://saves-1", 0)
    assert ending.advance(state, 125.0) == []  # a new fork server may have to start first
    ending.last_started(state, 125.0)
    assert until(state) == 125.0 + 20.0


def test_it_is_started_again_three_times_at_most() -> None:
    assert LAST_TRIES == 3
    state = saving(stopping())
    for attempt in range(LAST_TRIES):
        assert texts(again(state, 101.0 + attempt), "restarted") != []
    assert again(state, 110.0) == [DropInFlight()]
    assert (state.end.state, state.end.reason) == ("failed", "saves failed at the end (goal)")
    assert state.end.error == "saves failed at the end: it was killed before it had finished"


def test_it_is_started_again_until_the_deadline_and_not_afterwards() -> None:
    state = saving(stopping(drain_s=30.0))
    assert texts(again(state, 129.9), "restarted") != []
    leave(state, "saves", how=KILLED)
    assert ending.advance(state, 130.0) == [DropInFlight()]
    assert state.end.state == "failed"


def test_it_is_not_started_again_without_a_process_table_that_can() -> None:
    state = saving(stopping(can_restart=False))
    leave(state, "saves", how=KILLED)
    assert ending.advance(state, 101.0) == [DropInFlight()]
    assert state.end.state == "failed"


def test_each_last_process_has_its_own_three_tries() -> None:
    state = stopping({"saves": {"last": True}, "records": {"last": True}})
    ending.begin_stop(state, 100.0)
    leave(state, "saves", "records", how=KILLED)
    restarted = texts(ending.advance(state, 100.0), "restarted")
    for attempt in range(7):
        assert state.stop is not None
        if phase(state) is StopPhase.over:
            break
        (process,) = state.stop.waiting
        process.begin("memory://x", 0)
        ending.last_started(state, 100.0)
        leave(state, process.name, how=KILLED)
        restarted += texts(ending.advance(state, 100.0 + attempt), "restarted")
    names = [text.split()[0] for text in restarted]
    assert names == ["saves"] * LAST_TRIES + ["records"] * LAST_TRIES


def test_a_last_actor_that_saves_too_slowly_fails_the_run() -> None:
    state = saving(stopping(drain_s=30.0))
    assert texts(ending.advance(state, 130.0), "killed") == ["saves did not stop within 30.0 s"]
    leave(state, "saves", how=KILLED)
    assert ending.advance(state, 130.1) == [DropInFlight()]
    assert state.end.error == "saves failed at the end: it did not stop in time before it had finished"


def test_other_actors_that_did_not_finish_do_not_fail_the_run() -> None:
    state = stopping({"one": {}})
    ending.begin_stop(state, 100.0)
    leave(state, "one", how=KILLED)
    assert ending.advance(state, 100.0) == [DropInFlight()]
    assert (state.table["one"].cut_short, state.end.state) == (True, "finished")


def test_the_error_of_a_last_actor_becomes_that_of_the_run() -> None:
    state = saving(stopping(can_restart=False))
    state.table["saves"].failures.append(Failed(2, 0, "OSError", "disk is full", "make room", "save", "", False))
    leave(state, "saves", how=Exit(code=1))
    ending.advance(state, 101.0)
    assert (state.end.error, state.end.hint) == ("saves failed at the end: disk is full", "make room")


@pytest.mark.parametrize(("to", "after"), [("stopped", "failed"), ("scaled", "scaled"), ("failed", "failed")])
def test_a_stage_that_is_scaled_leaves_the_verdict_to_the_next(to: str, after: str) -> None:
    state = running(ACTORS, can_restart=False)
    ending.end(state, to, "because", "first error")
    saving(state)
    leave(state, "saves", how=KILLED)
    ending.advance(state, 101.0)
    assert state.end.state == after
    assert (state.end.error == "first error") == (to != "stopped")


# --- the outcome


@pytest.mark.parametrize(
    ("to", "final"),
    [
        ("finished", RunState.finished),
        ("failed", RunState.failed),
        ("stopped", RunState.stopped),
        ("scaled", RunState.stopped),
    ],
)
def test_the_outcome_has_the_final_state_and_what_was_counted(to: str, final: RunState) -> None:
    state = starting({"a": {}, "b": {"process": "p"}, "c": {"process": "p"}})
    state.table["p"].restarts = 2
    ending.end(state, to, "goal", "it fell", "hold it")
    state.end.report = "crash/1.txt"
    state.exact = False
    outcome = ending.outcome(state, {"out": {"produced": 1}}, {"updates": 7.0}, "abc")
    assert state.run_machine.state is final
    assert (outcome.state, outcome.reason, outcome.error, outcome.hint) == (to, "goal", "it fell", "hold it")
    assert (outcome.exact, outcome.report, outcome.digest) == (False, "crash/1.txt", "abc")
    assert (outcome.restarts, outcome.results) == ({"a": 0, "b": 2, "c": 2}, {"updates": 7.0})
    assert outcome.channels == {"out": {"produced": 1}}


def test_a_last_actor_that_cannot_be_started_again_is_given_up() -> None:
    state = saving(stopping())
    leave(state, "saves", how=KILLED)
    ending.advance(state, 101.0)
    state.table["saves"].begin("memory://saves-1", 0)
    actions = ending.last_not_started(state, ActorFailed("saves cannot be started: no room"))
    assert actions == [Log("not started", "saves cannot be started: no room", {"process": "saves"})]
    assert not state.table["saves"].alive
    assert ending.advance(state, 101.0) == [DropInFlight()]
    assert (state.end.state, state.end.reason) == ("failed", "saves failed at the end (goal)")
