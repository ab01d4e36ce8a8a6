"""Decisions about processes that join: announcements, Begin, and what later incarnations receive."""

from __future__ import annotations

import pytest
from supervisor_states import S, running, sent, starting, state_names, texts

from hive.errors import UsageError
from hive.runtime.supervise import changes, ending, exits, joining, pausing
from hive.runtime.supervise.actions import Action, AnnounceLater, Send
from hive.runtime.supervise.states import ActorEvent, RunState
from hive.runtime.supervise.supervisor_state import SupervisorState
from hive.runtime.wire.protocol import SUPERVISOR, Begin, Call, Drain, Hello, Joined, Member, Pause, Ready

SHARED = {"a": {}, "b": {}, "c": {"process": "both"}, "d": {"process": "both"}}


def silent(state: SupervisorState) -> SupervisorState:
    """Let no process have sent Hello."""
    for process in state.table.values():
        process.listening = False
    return state


def hello(state: SupervisorState, name: str, incarnation: int = 0) -> list[Action]:
    return joining.hello(state, Hello(name, incarnation, 1, f"memory://{name}-{incarnation}"))


def restarted(state: SupervisorState, name: str) -> None:
    """Let a process have exited and its next incarnation have started at 10 s."""
    process = state.table[name]
    state.handle(process, ActorEvent.died)
    state.handle(process, ActorEvent.restart)
    process.begin(f"memory://{name}-1", 10 * S)


def members(actions: list[Action]) -> list[tuple[tuple[str, ...], dict[int, Member]]]:
    return [(to, message.members) for to, message in sent(actions, Joined) if isinstance(message, Joined)]


# --- Hello


def test_processes_that_start_together_are_announced_together() -> None:
    state = silent(starting(SHARED))
    assert [hello(state, name) for name in ("a", "b", "both")] == [[AnnounceLater()], [], []]
    known = {
        0: Member(0, "memory://a-0", True),
        1: Member(0, "memory://b-0", True),
        2: Member(0, "memory://both-0", False),  # it shares its process, so its notifier does not wake it
        3: Member(0, "memory://both-0", False),
    }
    assert members(joining.announce(state)) == [(("a", "b", "both"), known)]
    assert joining.announce(state) == []


def test_those_announced_later_receive_all_and_the_others_receive_them() -> None:
    state = silent(starting(SHARED))
    hello(state, "a")
    joining.announce(state)
    assert hello(state, "b") == [AnnounceLater()]
    one, other = Member(0, "memory://a-0", True), Member(0, "memory://b-0", True)
    assert members(joining.announce(state)) == [(("b",), {0: one, 1: other}), (("a",), {1: other})]


def test_a_process_that_exited_before_its_announcement_is_left_out() -> None:
    state = silent(starting(SHARED))
    hello(state, "a")
    hello(state, "b")
    state.table["a"].alive = False
    assert [to for to, _ in members(joining.announce(state))] == [("b",)]


def test_a_hello_of_another_incarnation_or_a_second_one_has_no_effect() -> None:
    state = silent(starting(SHARED))
    assert hello(state, "a", incarnation=1) == []
    assert not state.table["a"].listening
    hello(state, "a")
    assert hello(state, "a") == []
    assert len(state.newcomers) == 1


def test_a_later_incarnation_is_announced_at_once_and_finished_actors_are_not() -> None:
    state = running(SHARED)
    state.machines[1].handle(ActorEvent.done)
    restarted(state, "a")
    new = Member(1, "memory://a-1", True)
    (to_new, known), (to_others, announced) = members(hello(state, "a", incarnation=1))
    assert (to_new, sorted(known), known[0]) == (("a",), [0, 2, 3], new)
    assert (to_others, announced) == (("b", "both"), {0: new})


def test_actors_of_inline_processes_are_never_dedicated() -> None:
    state = silent(starting(SHARED, dedicated=False))
    hello(state, "a")
    ((_, known),) = members(joining.announce(state))
    assert known[0] == Member(0, "memory://a-0", False)


def test_a_process_that_listens_while_the_run_ends_receives_drain_first() -> None:
    state = running(SHARED)
    restarted(state, "a")
    ending.end(state, "finished", "goal")
    ending.begin_stop(state, 100.0)
    first, *rest = hello(state, "a", incarnation=1)
    assert first == Send(("a",), Drain("goal"))
    assert len(members(rest)) == 2


def test_a_last_process_that_listens_before_its_turn_to_stop_is_not_drained_yet() -> None:
    """It would exit while nothing expects it to, and count as failed."""
    state = silent(starting({"a": {}, "saves": {"last": True}}))
    ending.end(state, "failed", "a failed")
    ending.begin_stop(state, 100.0)
    assert not sent(hello(state, "saves"), Drain)


# --- Ready and Begin


def test_the_run_begins_when_all_are_ready() -> None:
    state = starting(SHARED)
    for name in ("a", "b"):
        assert joining.ready(state, Ready(name, 0), 0) == []
    assert not joining.all_ready(state)
    joining.ready(state, Ready("both", 0), 0)
    assert joining.all_ready(state)
    actions = joining.begin_all(state)
    assert [to for to, _ in sent(actions, Begin)] == [("a",), ("b",), ("both",)]
    assert texts(actions, "running") == ["4 actors in 3 processes"]
    assert (state.run_machine.state, set(state_names(state).values())) == (RunState.running, {"running"})


def test_processes_that_still_wait_for_their_announcement_are_announced_before_begin() -> None:
    state = silent(starting(["a", "b"]))
    for name in ("a", "b"):
        hello(state, name)
        joining.ready(state, Ready(name, 0), 0)
    kinds = [type(message) for _, message in sent(joining.begin_all(state), Joined)]
    assert kinds == [Joined]
    assert state.newcomers == []


def test_ready_of_another_incarnation_has_no_effect() -> None:
    state = starting(["a"])
    assert joining.ready(state, Ready("a", 1), 0) == []
    assert state_names(state) == {"a": "starting"}


def test_a_later_incarnation_begins_as_soon_as_it_is_ready() -> None:
    state = running(SHARED)
    restarted(state, "both")
    actions = joining.ready(state, Ready("both", 1), 10 * S + 31_000_000)
    assert sent(actions) == [(("both",), Begin())]
    assert texts(actions, "restarted") == ["both is back after 31 ms"]
    assert set(state_names(state).values()) == {"running"}
    assert joining.ready(state, Ready("both", 1), 11 * S) == []


def test_an_incarnation_that_is_ready_while_the_run_ends_does_not_begin() -> None:
    state = running(SHARED)
    restarted(state, "a")
    ending.end(state, "finished", "goal")
    state.stop_actors([state.table["a"]])
    assert joining.ready(state, Ready("a", 1), 11 * S) == []


# --- what a later incarnation receives


def test_an_incarnation_that_starts_during_a_pause_is_paused() -> None:
    state = running({"a": {"source": True}, "b": {}})
    pausing.pause(state)
    restarted(state, "b")
    messages = [message for _, message in sent(joining.ready(state, Ready("b", 1), 11 * S))]
    assert messages == [Pause(), Begin()]
    pausing.resume(state)
    restarted(state, "a")
    assert [message for _, message in sent(joining.ready(state, Ready("a", 1), 11 * S))] == [Begin()]


TUNABLE = {"a": {"endpoints": (changes.CHANGE, "save")}, "b": {"endpoints": ("save",)}, "c": {}}


def test_a_changed_key_is_sent_now_and_to_every_later_incarnation() -> None:
    state = running(TUNABLE)
    called, actions = changes.change_key(state, "rate", 3)
    change = Send(("a",), Call(0, SUPERVISOR, 0, changes.CHANGE, ["rate", 3]))
    assert (called, actions) == (["a"], [change])
    changes.change_key(state, "gamma", 0.9)
    changes.change_key(state, "rate", 4)
    assert (state.changes, state.exact) == ({"rate": 4, "gamma": 0.9}, False)
    restarted(state, "a")
    calls = [message for _, message in sent(joining.ready(state, Ready("a", 1), 11 * S))]
    expected = [Call(0, SUPERVISOR, 0, changes.CHANGE, [key, value]) for key, value in (("rate", 4), ("gamma", 0.9))]
    assert calls == [*expected, Begin()]
    restarted(state, "b")
    assert [message for _, message in sent(joining.ready(state, Ready("b", 1), 11 * S))] == [Begin()]


def test_a_change_that_no_running_actor_accepts_has_no_effect() -> None:
    state = running(TUNABLE)
    restarted(state, "a")
    assert changes.change_key(state, "rate", 3) == ([], [])
    assert (state.changes, state.exact) == ({}, True)


def test_an_endpoint_is_called_of_every_running_actor_that_has_it() -> None:
    state = running(TUNABLE)
    assert changes.call(state, "save", ()) == (
        ["a", "b"],
        [Send(("a",), Call(0, SUPERVISOR, 0, "save", [])), Send(("b",), Call(0, SUPERVISOR, 1, "save", []))],
    )
    state.table["a"].alive = False
    assert changes.call(state, "save", ())[0] == ["b"]
    assert changes.call(state, "unknown", ()) == ([], [])
    assert state.exact


def test_a_kill_of_an_incarnation_that_starts_is_possible() -> None:
    state = running(TUNABLE)
    restarted(state, "a")
    exits.kill_on_request(state, 0, by_hand=False)
    assert state.table["a"].why == "killed by hand"
    with pytest.raises(UsageError):
        pausing.resume(state)
