from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import pytest

from hive.errors import BadTransition
from hive.runtime.supervise.states import (
    ACTOR,
    HISTORY_LENGTH,
    RUN,
    ActorEvent,
    ActorState,
    Machine,
    RunEvent,
    RunState,
)

TABLES: list[tuple[str, Mapping[Any, Mapping[Any, Any]], type[enum.Enum], type[enum.Enum]]] = [
    ("actor", ACTOR, ActorState, ActorEvent),
    ("run", RUN, RunState, RunEvent),
]
ENDS = {RunState.finished, RunState.stopped, RunState.failed, RunState.lost}

known = pytest.mark.parametrize(
    ("table", "state", "event"),
    [
        pytest.param(table, s, e, id=f"{name}-{s.value}-{e.value}")
        for name, table, _, _ in TABLES
        for s, row in table.items()
        for e in row
    ],
)
unknown = pytest.mark.parametrize(
    ("table", "state", "event"),
    [
        pytest.param(table, s, e, id=f"{name}-{s.value}-{e.value}")
        for name, table, _, events in TABLES
        for s, row in table.items()
        for e in events
        if e not in row
    ],
)
every_table = pytest.mark.parametrize(("name", "table", "states", "events"), TABLES, ids=["actor", "run"])


@every_table
def test_every_state_has_a_row_of_known_events_and_states(name: str, table: Any, states: Any, events: Any) -> None:
    assert set(table) == set(states)
    for row in table.values():
        assert set(row) <= set(events)
        assert set(row.values()) <= set(states)


@every_table
def test_every_event_is_accepted_in_some_state(name: str, table: Any, states: Any, events: Any) -> None:
    assert {event for row in table.values() for event in row} == set(events)


@every_table
def test_every_state_can_be_reached_from_the_first(name: str, table: Any, states: Any, events: Any) -> None:
    reached = {states.starting}
    while grown := {after for state in reached for after in table[state].values()} - reached:
        reached |= grown
    assert reached == set(states)


@every_table
def test_values_are_the_names_that_views_show(name: str, table: Any, states: Any, events: Any) -> None:
    assert all(member.value == member.name for member in [*states, *events])


@known
def test_an_accepted_event_changes_the_state_as_in_the_table(table: Any, state: Any, event: Any) -> None:
    machine = Machine("x", table, state)
    assert machine.accepts(event)
    assert machine.handle(event) is table[state][event]
    assert machine.state is table[state][event]
    assert list(machine.history) == [f"{state.value} -{event.value}-> {table[state][event].value}"]


@unknown
def test_an_unknown_event_raises_and_changes_nothing(table: Any, state: Any, event: Any) -> None:
    machine = Machine("collector-3", table, state)
    assert not machine.accepts(event)
    with pytest.raises(BadTransition) as caught:
        machine.handle(event, "because")
    expected = f"collector-3 in state `{state.value}` cannot handle `{event.value}` (before: no transition yet)"
    assert str(caught.value) == expected
    assert machine.state is state
    assert not machine.history


def test_an_actor_may_exit_or_be_stopped_at_any_time() -> None:
    for state, row in ACTOR.items():
        assert ActorEvent.stop in row or state is ActorState.draining, state
        assert ActorEvent.died in row or state is ActorState.failed, state


def test_a_run_ends_once() -> None:
    for state, row in RUN.items():
        assert (not row) == (state in ENDS)
        assert (RunEvent.fail in row) == (RunEvent.lose in row) == (state not in ENDS)


def test_a_run_drains_before_it_is_finished_or_stopped() -> None:
    for state, row in RUN.items():
        assert ({RunEvent.finish, RunEvent.stop} <= set(row)) == (state is RunState.draining)


def test_the_history_holds_the_last_64_transitions() -> None:
    assert HISTORY_LENGTH == 64
    machine = Machine("x", ACTOR, ActorState.starting)
    for number in range(40):
        machine.handle(ActorEvent.died, f"death {number}")
        machine.handle(ActorEvent.restart)
    assert len(machine.history) == 64
    assert machine.history[0] == "starting -died-> failed (death 8)"
    assert machine.history[-1] == "failed -restart-> starting"


def test_an_error_shows_the_last_five_transitions() -> None:
    machine = Machine("run", RUN, RunState.starting)
    machine.handle(RunEvent.begin)
    for _ in range(3):
        machine.handle(RunEvent.pause, "asked")
        machine.handle(RunEvent.resume)
    with pytest.raises(BadTransition) as caught:
        machine.handle(RunEvent.finish)
    turn = "running -pause-> paused (asked); paused -resume-> running"
    expected = f"run in state `running` cannot handle `finish` (before: paused -resume-> running; {turn}; {turn})"
    assert str(caught.value) == expected


def test_machines_share_a_table_and_nothing_else() -> None:
    one, other = Machine("a-0", ACTOR, ActorState.starting), Machine("a-1", ACTOR, ActorState.starting)
    one.handle(ActorEvent.ready)
    assert (other.state, list(other.history)) == (ActorState.starting, [])
