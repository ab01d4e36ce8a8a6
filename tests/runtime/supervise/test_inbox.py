"""Decisions about messages of processes, and how actions are executed."""

from __future__ import annotations

from typing import Any

import pytest
from supervisor_states import running, sent, state_names, texts

from hive.runtime.supervise import inbox
from hive.runtime.supervise.actions import Log, Retire
from hive.runtime.supervise.states import ActorEvent
from hive.runtime.wire.messages import Message
from hive.runtime.wire.protocol import Ack, Done, EndpointFailed, Failed, Left, Note, Ready, RunOver

ACTORS: dict[str, dict[str, Any]] = {"a": {}, "b": {}, "serves": {"serves": True}}
TAKEN = (Ack(0, 0, 1, 0, 0, 9, 0, 4),)


def test_the_run_is_finished_when_all_actors_but_those_that_serve_are_done() -> None:
    state = running(ACTORS)
    assert inbox.received(state, Done(0, 0, TAKEN), 0) == []
    assert state.table["a"].taken == {0: TAKEN}
    assert inbox.received(state, Done(1, 0), 0) == [Log("draining", "all actors are done", {"state": "finished"})]
    assert state_names(state) == {"a": "finished", "b": "finished", "serves": "running"}


def test_done_of_another_incarnation_or_a_second_one_has_no_effect() -> None:
    state = running(ACTORS)
    assert inbox.received(state, Done(0, 1, TAKEN), 0) == []
    assert (state_names(state)["a"], state.table["a"].taken) == ("running", {})
    inbox.received(state, Done(0, 0), 0)
    inbox.received(state, Done(0, 0, TAKEN), 0)
    assert state.table["a"].taken == {0: ()}


def test_a_done_actor_of_a_shared_process_leaves_with_its_acknowledgements() -> None:
    state = running({"a": {}, "b": {"process": "p"}, "c": {"process": "p"}})
    actions = inbox.received(state, Done(1, 0, TAKEN), 0)
    assert actions[0] == Retire(1, 0, "consumer_died")
    assert sent(actions) == [(("a", "p"), Left(1, 0, "it is done", TAKEN, with_run=False))]


def test_an_actor_may_end_the_run() -> None:
    state = running(ACTORS)
    inbox.received(state, RunOver(0, "512 steps"), 0)
    assert (state.end.state, state.end.reason) == ("finished", "512 steps")


def test_failures_of_the_current_incarnation_are_kept() -> None:
    state = running(ACTORS)
    failed = [Failed(0, incarnation, "OSError", "", "", "", "", False) for incarnation in (1, 0)]
    for message in failed:
        assert inbox.received(state, message, 0) == []
    assert state.table["a"].failures == failed[1:]


def test_notes_and_errors_of_endpoints_are_logged_with_the_actor() -> None:
    state = running(ACTORS)
    assert inbox.received(state, Note(1, "saved", "update 3", {"update": 3}), 0) == [
        Log("saved", "update 3", {"update": 3, "actor": "b"})
    ]
    assert inbox.received(state, Note(1, "saved", "update 3", [3]), 0) == [Log("saved", "update 3", {"actor": "b"})]
    assert texts(inbox.received(state, EndpointFailed(1, "save", "OSError: full"), 0), "not done") == [
        "save of b: OSError: full"
    ]


@pytest.mark.parametrize("message", [Ready("unknown", 0), Done(9, 0), Note(9, "", "", None)], ids=repr)
def test_a_message_about_an_unknown_actor_is_refused(message: Message) -> None:
    with pytest.raises((KeyError, IndexError)):
        inbox.received(running(ACTORS), message, 0)


def test_bad_messages_are_counted() -> None:
    state = running(ACTORS)
    logged = [inbox.bad_message(state, ValueError(f"number {number}")) for number in range(1, 10)]
    assert [bool(actions) for actions in logged] == [number in (1, 2, 4, 8) for number in range(1, 10)]
    assert logged[7] == [Log("bad message", "number 8", {"count": 8})]
    assert state.bad_messages == 9


def test_a_stopped_actor_may_still_finish() -> None:
    state = running(ACTORS)
    state.machines[0].handle(ActorEvent.stop)
    inbox.received(state, Done(0, 0), 0)
    assert state_names(state)["a"] == "finished"
