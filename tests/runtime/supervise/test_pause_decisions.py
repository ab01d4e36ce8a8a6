"""Decisions about pauses: who may pause, when the run is at rest, and what a later request finds."""

from __future__ import annotations

from typing import Any

import pytest
from supervisor_states import page, running, starting, texts

from hive.errors import UsageError
from hive.runtime.carriers.waiting import PAUSED
from hive.runtime.memory.status import BUSY, WAIT_IN, WAIT_OUT, ActorStatus
from hive.runtime.supervise import ending, pausing
from hive.runtime.supervise.actions import AwaitRest, Log, Send
from hive.runtime.supervise.states import ActorEvent, RunState
from hive.runtime.supervise.supervisor_state import SupervisorState
from hive.runtime.wire.protocol import Pause, Resume

ACTORS: dict[str, dict[str, Any]] = {"source": {"source": True}, "sink": {}}
AT_REST = {"out": {"produced": 9, "consumed": 6, "dropped": {"stale": 1}, "in_flight": 2}}


def resting(state: SupervisorState) -> list[ActorStatus]:
    """Return pages on which the source is paused and the sink waits for messages."""
    return [page(state, 0, phase=PAUSED, kind=WAIT_OUT), page(state, 1, phase="receive", kind=WAIT_IN)]


def paused() -> SupervisorState:
    """Return the state of a run that has come to rest."""
    state = running(ACTORS)
    pausing.pause(state)
    for _ in range(1 + pausing.STABLE_POLLS):
        pausing.checked(state, AT_REST, resting(state))
    assert state.run_machine.state is RunState.paused
    return state


# --- requests


def test_a_pause_is_sent_to_all_and_rest_is_awaited() -> None:
    state = running(ACTORS)
    assert pausing.pause(state) == [Send(("source", "sink"), Pause()), AwaitRest(1)]
    assert pausing.pause(state) == []
    assert state.run_machine.state is RunState.running


def test_a_paused_run_resumes() -> None:
    state = paused()
    assert pausing.resume(state) == [Send(("source", "sink"), Resume()), Log("resumed", "continues")]
    assert (state.run_machine.state, state.pause) == (RunState.running, None)


def test_a_pause_that_is_resumed_before_rest_logs_nothing() -> None:
    state = running(ACTORS)
    pausing.pause(state)
    assert pausing.resume(state) == [Send(("source", "sink"), Resume())]


def test_a_run_without_sources_cannot_pause() -> None:
    with pytest.raises(UsageError, match=r"(?m)nothing would stop$"):
        pausing.pause(running(["a", "b"]))


def test_only_a_running_run_can_pause() -> None:
    with pytest.raises(UsageError, match=r"(?m)^the run is not running$"):
        pausing.pause(starting(ACTORS))
    state = running(ACTORS)
    ending.end(state, "stopped", "enough")
    with pytest.raises(UsageError, match=r"(?m)^the run is not running$"):
        pausing.pause(state)


def test_only_a_requested_pause_can_be_ended() -> None:
    with pytest.raises(UsageError, match=r"(?m)^the run is not paused$"):
        pausing.resume(running(ACTORS))


# --- rest


def test_the_run_is_at_rest_after_two_checks_without_a_change() -> None:
    assert pausing.STABLE_POLLS == 2
    state = running(ACTORS)
    pausing.pause(state)
    assert pausing.checked(state, AT_REST, resting(state)) == []
    assert pausing.checked(state, AT_REST, resting(state)) == []
    actions = pausing.checked(state, AT_REST, resting(state))
    assert actions == [Log("paused", "at rest, 2 messages wait in their channels", {"in_flight": 2})]
    assert not pausing.awaits_rest(state, 1)


def moved() -> dict[str, dict[str, Any]]:
    return {"out": AT_REST["out"] | {"produced": 10, "consumed": 7}}


def test_a_change_of_the_accounts_starts_the_count_again() -> None:
    state = running(ACTORS)
    pausing.pause(state)
    for accounts in (AT_REST, AT_REST, moved(), moved()):
        assert pausing.checked(state, accounts, resting(state)) == []
    assert texts(pausing.checked(state, moved(), resting(state)), "paused") != []


def test_accounts_that_do_not_balance_are_not_at_rest() -> None:
    state = running(ACTORS)
    pausing.pause(state)
    unbalanced = {"out": AT_REST["out"] | {"produced": 10}}
    assert [pausing.checked(state, unbalanced, resting(state)) for _ in range(5)] == [[]] * 5


def test_an_active_actor_starts_the_count_again() -> None:
    state = running(ACTORS)
    pausing.pause(state)
    busy = [resting(state)[0], page(state, 1, phase="thinking", kind=BUSY)]
    for statuses in (resting(state), resting(state), busy, resting(state)):
        assert pausing.checked(state, AT_REST, statuses) == []
    assert pausing.checked(state, AT_REST, resting(state)) != []


def test_a_pause_waits_for_busy_actors_and_sources_that_have_not_stopped() -> None:
    state = running(ACTORS)
    assert pausing.active_actors(state, resting(state)) == []
    waits = page(state, 0, phase="reserve", kind=WAIT_OUT)
    busy = page(state, 1, phase="thinking", kind=BUSY)
    assert pausing.active_actors(state, [waits, busy]) == ["source (in reserve)", "sink (in thinking)"]


def test_a_pause_waits_for_actors_that_start_but_not_for_finished_ones() -> None:
    state = running(ACTORS)
    state.machines[0].handle(ActorEvent.done)
    blank = [page(state, number, phase="", kind=BUSY) for number in (0, 1)]
    state.table["sink"].alive = False
    assert pausing.active_actors(state, blank) == ["sink (starting)"]
    state = starting(ACTORS)
    assert pausing.active_actors(state, resting(state)) == ["source (starting)", "sink (starting)"]


# --- a pause that is no longer wanted


def test_rest_is_awaited_until_the_pause_or_the_run_ends() -> None:
    state = running(ACTORS)
    pausing.pause(state)
    assert pausing.awaits_rest(state, 1)
    pausing.resume(state)
    assert not pausing.awaits_rest(state, 1)
    pausing.pause(state)
    ending.end(state, "stopped", "enough")
    assert not pausing.awaits_rest(state, 2)


def test_a_second_pause_is_awaited_anew() -> None:
    """The task that awaits the first pause may not have ended when the second is requested."""
    state = running(ACTORS)
    pausing.pause(state)
    pausing.checked(state, AT_REST, resting(state))
    pausing.checked(state, AT_REST, resting(state))
    pausing.resume(state)
    assert pausing.pause(state)[-1] == AwaitRest(2)
    assert [pausing.awaits_rest(state, number) for number in (1, 2)] == [False, True]
    assert pausing.checked(state, AT_REST, resting(state)) == []


def test_a_paused_run_can_end() -> None:
    state = paused()
    ending.end(state, "stopped", "enough")
    assert state.run_machine.state is RunState.draining
