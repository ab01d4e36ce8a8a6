"""Decisions about exits: expected or not, what is repaired and announced, restart or end. No process and no loop."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import pytest
from supervisor_states import S, page, running, sent, starting, state_names, texts

from hive.errors import ActorFailed, UsageError
from hive.runtime.memory.status import ROLLOUT, ROLLOUT_BEGAN, ROLLOUT_INCARNATION, WAIT_IN
from hive.runtime.process.processes import Exit
from hive.runtime.supervise import ending, exits
from hive.runtime.supervise.actions import Action, Forget, Kill, Log, Reclaim, Restart, Retire, Send
from hive.runtime.supervise.membership import BACKOFF_S, PHASE_LIMIT, REPEATED, START_LIMIT
from hive.runtime.supervise.states import ActorEvent, ActorState, RunState
from hive.runtime.supervise.supervisor_state import REPORTED_EVENTS, SupervisorState
from hive.runtime.wire.protocol import Ack, Failed, Left

CRASHED, KILLED, CLEAN = Exit(code=1), Exit(signal=signal.SIGKILL), Exit()
TERMINATED = Exit(signal=signal.SIGTERM)
SHARED = {"a": {}, "b": {}, "c": {"process": "both"}, "d": {"process": "both"}}
TAKEN = (Ack(0, 0, 1, 0, 0, 9, 0, 4),)


def failure(state: SupervisorState, actor: int, *, permanent: bool = False) -> Failed:
    made = Failed(actor, 0, "ValueError", "no such box", "open it", "step", "Traceback ...", permanent)
    state.process_of(actor).failures.append(made)
    return made


def judge(
    state: SupervisorState, name: str, how: Exit = CRASHED, now_ns: int = 10 * S, output: float = 0.0
) -> exits.Verdict:
    """Confirm an exit and judge it. output: what each of its actors has produced."""
    process = state.table[name]
    exits.confirmed(state, process, how)
    pages = [page(state, actor) for actor in process.actors]
    return exits.judged(state, process, how, pages, now_ns, dict.fromkeys(process.actors, (output,)))


def follow(state: SupervisorState, name: str, how: Exit = CRASHED, now_ns: int = 10 * S) -> list[Action]:
    """Return the actions after the crash report of an exit was written."""
    return exits.reported(state, judge(state, name, how, now_ns), "crash/1.txt")


# --- which exits are expected


@pytest.mark.parametrize(
    ("events", "how", "unexpected"),
    [
        ([], CLEAN, True),
        ([ActorEvent.done], CLEAN, False),
        ([ActorEvent.stop], CLEAN, False),
        ([ActorEvent.done], CRASHED, True),
        ([ActorEvent.stop], KILLED, True),
    ],
)
def test_only_a_clean_exit_of_finished_or_late_actors_is_expected(
    events: list[ActorEvent], how: Exit, unexpected: bool
) -> None:
    state = running(["a", "b"])
    for event in events:
        state.machines[0].handle(event)
    assert exits.is_unexpected(state, state.table["a"], how) == unexpected


def test_an_exit_is_unexpected_until_all_actors_of_the_process_are_finished() -> None:
    state = running(SHARED)
    state.machines[2].handle(ActorEvent.done)
    assert exits.is_unexpected(state, state.table["both"], CLEAN)
    state.machines[3].handle(ActorEvent.stop)
    assert not exits.is_unexpected(state, state.table["both"], CLEAN)
    state.machines[3].handle(ActorEvent.done)
    assert not exits.is_unexpected(state, state.table["both"], CLEAN)


def test_a_process_killed_to_end_the_run_needs_no_report() -> None:
    state = running(["a", "b"])
    state.table["a"].kill("it did not stop in time", given_up=True)
    assert not exits.is_unexpected(state, state.table["a"], KILLED)


def test_the_last_message_is_awaited_until_an_actor_failed_or_all_are_finished() -> None:
    state = running(SHARED)
    both = state.table["both"]
    state.machines[2].handle(ActorEvent.done)
    assert not exits.report_arrived(state, both, CLEAN)
    state.machines[3].handle(ActorEvent.done)
    assert exits.report_arrived(state, both, CLEAN)
    assert not exits.report_arrived(state, both, CRASHED)
    failure(state, 3)
    assert exits.report_arrived(state, both, CRASHED)


# --- repair and announcement


def test_memory_is_repaired_before_left_is_sent_to_the_others() -> None:
    state = running(SHARED)
    state.table["both"].taken[2] = TAKEN
    assert exits.confirmed(state, state.table["both"], KILLED) == [
        Reclaim(2, 0, "consumer_died"),
        Reclaim(3, 0, "consumer_died"),
        Send(("a", "b"), Left(2, 0, "killed by SIGKILL", TAKEN, with_run=False)),
        Send(("a", "b"), Left(3, 0, "killed by SIGKILL", (), with_run=False)),
        Forget("memory://both-0"),
    ]
    assert not state.table["both"].alive
    assert state_names(state) == {"a": "running", "b": "running", "c": "failed", "d": "failed"}
    assert state.machines[2].history[-1] == "running -died-> failed (killed by SIGKILL)"


def test_left_goes_only_to_processes_that_listen() -> None:
    state = running(["a", "b", "c"])
    state.table["b"].listening = False
    assert [to for to, _ in sent(exits.confirmed(state, state.table["a"], KILLED))] == [("c",)]


def test_the_history_names_why_the_supervisor_killed_a_process() -> None:
    state = running(["a", "b"])
    state.table["a"].kill("restarted by hand")
    exits.confirmed(state, state.table["a"], KILLED)
    assert state.machines[0].history[-1] == "running -died-> failed (restarted by hand)"


def test_while_the_run_ends_only_consumers_of_messages_are_announced() -> None:
    state = running(["a", "b", "c"], receivers=["b"])
    ending.end(state, "finished", "goal")
    state.stop_actors(state.table.values())
    actions = exits.confirmed(state, state.table["b"], CLEAN)
    assert actions[0] == Reclaim(1, 0, "run_ended")
    assert sent(actions) == [(("a", "c"), Left(1, 0, "exited with code 0", (), with_run=True))]
    assert sent(exits.confirmed(state, state.table["c"], CLEAN)) == []


@pytest.mark.parametrize(
    ("ends", "given_up", "cut_short"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_an_exit_is_cut_short_if_the_run_ends_and_the_process_did_not(
    ends: bool, given_up: bool, cut_short: bool
) -> None:
    state = running(["a", "b"])
    if ends:
        ending.end(state, "finished", "goal")
        state.stop_actors(state.table.values())
    state.table["a"].given_up = given_up
    actions = exits.confirmed(state, state.table["a"], KILLED)
    assert state.table["a"].cut_short == cut_short
    assert actions[0] == Reclaim(0, 0, "consumer_died")


def test_a_finished_actor_of_a_shared_process_is_released_at_once() -> None:
    state = running(SHARED)
    both = state.table["both"]
    both.taken[2] = TAKEN
    state.machines[2].handle(ActorEvent.done)
    assert exits.actor_done(state, 2, both) == [
        Retire(2, 0, "consumer_died"),
        Send(("a", "b", "both"), Left(2, 0, "it is done", TAKEN, with_run=False)),
    ]
    state.machines[3].handle(ActorEvent.done)
    assert exits.actor_done(state, 3, both) == []  # the process exits, and its exit does the same


def test_a_start_that_was_lost_is_reclaimed_and_the_next_incarnation_prepared() -> None:
    state = running(["a", "b"])
    actions = exits.start_lost(state, state.table["a"])
    assert actions == [
        Reclaim(0, 0, "consumer_died"),
        Send(("b",), Left(0, 0, "its start was lost")),
        Forget("memory://a-0"),
    ]
    assert state_names(state)["a"] == "starting"
    ending.end(state, "finished", "goal")
    exits.start_lost(state, state.table["b"])
    assert state_names(state)["b"] == "draining"


# --- the verdict


def test_the_actor_that_raised_is_named_with_its_error_and_phase() -> None:
    state = running(SHARED)
    failure(state, 3)
    verdict = judge(state, "both")
    assert (verdict.name, verdict.what, verdict.where) == ("d", "ValueError: no such box", "in `step`")


def test_without_an_exception_the_first_actor_is_named_with_the_exit_and_its_time() -> None:
    verdict = judge(running(SHARED), "both", Exit(signal=signal.SIGSEGV, note="out of memory"))
    assert (verdict.name, verdict.what) == ("c", "killed by SIGSEGV (out of memory)")
    assert verdict.where == "in `step` after 2.0 s"


def test_the_reason_of_a_kill_by_the_supervisor_is_the_cause() -> None:
    state = running(["a", "b"])
    failure(state, 0)
    state.table["a"].kill("it was stopped (SIGSTOP) and so was killed")
    assert judge(state, "a").what == "it was stopped (SIGSTOP) and so was killed"


def test_an_actor_that_never_entered_a_phase_died_in_its_start() -> None:
    state = running(["a", "b"])
    blank = page(state, 0, phase="", since_ns=0)
    exits.confirmed(state, state.table["a"], CRASHED)
    assert exits.judged(state, state.table["a"], CRASHED, [blank], 0).where == "in `start`"


def test_a_restart_makes_the_run_inexact_but_not_after_its_goal() -> None:
    state = running(["a", "b"])
    ending.end(state, "finished", "goal")
    judge(state, "a")
    assert state.exact
    state = running(["a", "b"])
    judge(state, "a")
    assert not state.exact


def refusal(state: SupervisorState, how: Exit = CRASHED) -> str | None:
    return judge(state, "a", how).refusal


def test_a_process_is_restarted() -> None:
    assert refusal(running(["a", "b"])) is None


def test_an_actor_that_raises_in_the_first_start_is_not_restarted_but_a_killed_one_is() -> None:
    assert refusal(starting(["a", "b"])) == ""
    assert refusal(starting(["a", "b"]), KILLED) is None


def test_a_permanent_error_is_not_retried() -> None:
    state = running(["a", "b"])
    failure(state, 0, permanent=True)
    assert refusal(state) == ""


def test_a_process_table_without_restarts_restarts_nothing() -> None:
    assert refusal(running(["a", "b"], can_restart=False)) == ""


def test_an_actor_added_without_restart_prevents_that_of_its_process() -> None:
    state = running({"a": {"process": "a"}, "b": {"process": "a", "restart": False}})
    assert refusal(state) == "it was added with restart=False"


def test_no_process_is_restarted_while_the_run_ends() -> None:
    state = running(["a", "b"])
    ending.end(state, "finished", "goal")
    assert refusal(state) == "the run is ending"


# --- restart limit and back-off


def come_back(state: SupervisorState, name: str, now_ns: int) -> None:
    """Start and begin the next incarnation."""
    process = state.table[name]
    assert exits.restart_due(state, process)
    process.begin(f"memory://{name}-{process.incarnation + 1}", now_ns)
    process.forked(200, now_ns)
    process.listening = True
    state.handle(process, ActorEvent.ready)
    state.handle(process, ActorEvent.begin)


def test_one_exit_more_than_the_limit_within_the_window_ends_the_run() -> None:
    state = running(["a", "b"], restarts=2, window_s=60.0)
    for second in (5, 10):
        assert Restart("a", 0.0) in follow(state, "a", TERMINATED, now_ns=second * S)
        come_back(state, "a", second * S)
    actions = follow(state, "a", TERMINATED, now_ns=15 * S)
    limit = "3 times in a row without progress between; [supervision] restarts = 2"
    assert not any(isinstance(action, Restart) for action in actions)
    assert (state.end.state, state.end.reason) == ("failed", "a failed")
    assert state.end.error == f"a failed in `step` after 2.0 s: killed by SIGTERM ({limit})"
    assert state.end.report == "crash/1.txt"


def test_exits_with_progress_before_the_window_do_not_count() -> None:
    state = running(["a", "b"], restarts=1, window_s=60.0)
    for second in (5, 66, 127, 188):
        verdict = judge(state, "a", now_ns=second * S, output=second)
        assert Restart("a", 0.0) in exits.reported(state, verdict, "")
        come_back(state, "a", second * S)
    assert state.table["a"].restarts == 4


def test_exits_with_progress_within_the_window_count() -> None:
    state = running(["a"], restarts=2, window_s=60.0)
    for second in (5, 10):
        assert judge(state, "a", TERMINATED, second * S, output=second).refusal is None
        come_back(state, "a", second * S)
    verdict = judge(state, "a", TERMINATED, 15 * S, output=15)
    assert verdict.refusal == "3 times within 60 s; [supervision] restarts = 2"
    assert verdict.hint == "for failures that happen at random, raise supervision.restarts"


def test_a_chain_of_exits_without_progress_ends_the_run_however_long_it_takes() -> None:
    state = running(["a"], restarts=2, window_s=60.0)
    for second in (100, 1000):
        assert judge(state, "a", TERMINATED, second * S).refusal is None
        come_back(state, "a", second * S)
    limit = "3 times in a row without progress between; [supervision] restarts = 2"
    assert judge(state, "a", TERMINATED, 10_000 * S).refusal == limit


def test_progress_of_another_actor_of_the_process_does_not_end_a_chain() -> None:
    state = running({"a": {"process": "both"}, "b": {"process": "both"}}, restarts=1)
    both = state.table["both"]
    for number in range(2):
        failure(state, 1)
        exits.confirmed(state, both, CRASHED)
        pages = [page(state, 0), page(state, 1)]
        refusal = exits.judged(state, both, CRASHED, pages, 9 * number * S, {0: (number,), 1: (7,)}).refusal
        assert (refusal is None) == (number == 0)
        come_back(state, "both", S)


def test_without_an_exception_the_actor_at_work_is_named() -> None:
    state = running({"a": {"process": "both"}, "b": {"process": "both"}})
    both = state.table["both"]
    waits = page(state, 0, phase="wait", kind=WAIT_IN)
    assert exits.suspect(both, [waits, page(state, 1)]) == 1
    assert exits.suspect(both, [page(state, 0, since_ns=9 * S), page(state, 1)]) == 0
    assert exits.suspect(both, [waits, waits]) == 0


# --- a collector: exits within a rollout


def collects(state: SupervisorState, rollout: int, changes: int, second: int) -> exits.Verdict:
    """Return the verdict on an exit in this rollout, after so many phase changes, with the same error each time."""
    process = state.table["a"]
    process.failures.append(replace(failure(state, 0), traceback=TRACE))
    process.failures.pop(0)
    exits.confirmed(state, process, CRASHED)
    counters = {ROLLOUT: rollout, ROLLOUT_BEGAN: 1000, ROLLOUT_INCARNATION: process.incarnation}
    where = page(state, 0, progress=1000 + changes, counters=counters)
    verdict = exits.judged(state, process, CRASHED, [where], second * S, {0: (rollout,)})
    if verdict.refusal is None:
        come_back(state, "a", second * S)
    return verdict


STRICT = "supervision.strict ends the run at the first error"


@pytest.mark.parametrize(
    ("how", "raised", "refusal"),
    [
        (CRASHED, True, STRICT),
        (CRASHED, False, STRICT),  # by os._exit
        (Exit(signal=signal.SIGSEGV), False, STRICT),
        (KILLED, False, None),  # from outside, as for want of memory
    ],
)
def test_a_strict_run_ends_at_the_first_error_of_its_code(how: Exit, raised: bool, refusal: str | None) -> None:
    state = running(["a", "b"], strict=True)
    if raised:
        failure(state, 0)
    assert judge(state, "a", how).refusal == refusal


@pytest.mark.parametrize("by_hand", [False, True])
def test_what_hive_kills_is_no_error_of_a_strict_run(by_hand: bool) -> None:
    state = running(["a", "b"], strict=True)
    exits.kill_on_request(state, 0, by_hand=by_hand)
    assert judge(state, "a", KILLED).refusal is None


def test_random_crashes_in_different_steps_of_a_rollout_are_not_the_same_error() -> None:
    state = running(["a"], restarts=5)
    for second, changes in enumerate((40, 20, 30, 10)):
        assert collects(state, 3, changes, second).refusal is None
    assert state.table["a"].chain == 4


def test_the_same_error_in_the_same_step_of_the_same_rollout_ends_the_run() -> None:
    state = running(["a"], restarts=5)
    assert collects(state, 3, 40, 1).refusal is None
    assert collects(state, 3, 40, 100).refusal == REPEATED


def test_a_number_of_restarts_that_the_user_set_replaces_it() -> None:
    state = running(["a"], restarts=2)
    assert collects(state, 3, 40, 1).refusal is None
    assert collects(state, 3, 40, 2).refusal is None
    verdict = collects(state, 3, 20, 3)
    assert verdict.refusal == (
        "3 times in a row without progress between; [supervision] restarts = 2; "
        "rollout 3 was not completed in 3 attempts, which came to step 20 at most"
    )
    assert "make rollouts shorter: collection.rollout" in verdict.hint


def test_a_later_step_than_any_incarnation_reached_is_progress() -> None:
    state = running(["a"], restarts=2, window_s=0.5)
    for second, changes in enumerate((40, 20, 42, 41, 44, 2, 46)):
        assert collects(state, 3, changes, second).refusal is None
    assert state.table["a"].chain == 1
    assert collects(state, 4, 2, 9).refusal is None  # the next rollout
    assert state.table["a"].chain == 1


def test_phase_changes_before_the_first_rollout_of_an_incarnation_are_no_step() -> None:
    state = running(["a"], restarts=1)
    assert collects(state, 3, 40, 1).refusal is None
    counters = {ROLLOUT: 3, ROLLOUT_BEGAN: 1000, ROLLOUT_INCARNATION: 0}
    starts = page(state, 0, progress=1100, counters=counters)
    assert starts.position is None
    exits.confirmed(state, state.table["a"], TERMINATED)
    assert exits.judged(state, state.table["a"], TERMINATED, [starts], 2 * S, {0: (3,)}).refusal is not None


# --- exits by a limit


def hang(state: SupervisorState, key: str, second: int, output: float = 0.0) -> exits.Verdict:
    process = state.table["a"]
    process.kill(f"no progress in `env` for 60 s ({key} = 60) and so was killed")
    process.limit = key
    exits.confirmed(state, process, KILLED)
    verdict = exits.judged(
        state, process, KILLED, [page(state, 0, since_ns=1, now_ns=60 * S)], second * S, {0: (output,)}
    )
    come_back(state, "a", second * S)
    return verdict


def test_hangs_count_within_a_window_as_long_as_the_limit() -> None:
    """Before, they never did: the window passed while the process hung, and the run was restarted forever."""
    state = running(["a"], restarts=2, window_s=60.0, phase_limit_s=60.0)
    assert [hang(state, PHASE_LIMIT, 61 * n, output=n).refusal is None for n in range(1, 4)] == [True, True, False]


def test_the_error_of_a_hang_names_the_limit_and_how_to_raise_it() -> None:
    state = running(["a"], restarts=0)
    verdict = hang(state, PHASE_LIMIT, 60)
    assert "supervision.phase_limit_s = 60" in verdict.what
    assert verdict.hint == "raise supervision.phase_limit_s if this can take longer; its stack is in the report"


def test_a_start_that_hangs_twice_ends_the_run_but_a_step_is_tried_again() -> None:
    for key, refusal in ((START_LIMIT, REPEATED), (PHASE_LIMIT, None)):
        state = running(["a"])
        assert hang(state, key, 300).refusal is None
        assert hang(state, key, 600).refusal == refusal


def test_each_short_incarnation_in_a_row_waits_longer() -> None:
    state = running(["a", "b"], restarts=99, window_s=1e6)
    delays, now = [], 5 * S
    for _ in range(7):
        (restart,) = [action for action in follow(state, "a", TERMINATED, now) if isinstance(action, Restart)]
        delays.append(restart.delay_s)
        come_back(state, "a", now)
        now += S // 2
    assert delays == [BACKOFF_S[0], *BACKOFF_S[1:], BACKOFF_S[-1], BACKOFF_S[-1]]
    (restart,) = [action for action in follow(state, "a", TERMINATED, now + 2 * S) if isinstance(action, Restart)]
    assert restart.delay_s == 0.0  # this incarnation lived for more than a second


def test_a_short_incarnation_that_made_progress_is_no_crash_loop() -> None:
    state = running(["a"], restarts=99, window_s=1e6)
    delays = []
    for output in (1.0, 1.0, 1.0, 2.0, 3.0, 3.0):
        verdict = judge(state, "a", TERMINATED, S // 2, output)
        (restart,) = [a for a in exits.reported(state, verdict, "") if isinstance(a, Restart)]
        delays.append(restart.delay_s)
        come_back(state, "a", S // 2)
    assert delays == [*BACKOFF_S[1:4], 0.0, 0.0, BACKOFF_S[1]]


TRACE = 'Traceback\n  File "/x/mine.py", line 7, in step\n    fall()\nValueError: no such box\n'


@pytest.mark.parametrize(
    ("changes", "output", "second", "ends"),
    [
        ({}, 3.0, 10, True),
        ({"text": "no such box 2"}, 3.0, 10, True),  # the text may hold a step or an address
        ({"traceback": TRACE.replace("line 7", "line 8")}, 3.0, 10, False),
        ({"error": "KeyError"}, 3.0, 10, False),
        ({}, 4.0, 10, False),  # progress
        ({}, 3.0, 70, True),  # however long it takes
    ],
)
def test_the_same_error_twice_in_a_row_without_progress_ends_the_run(
    changes: dict[str, str], output: float, second: int, ends: bool
) -> None:
    state = running(["a", "b"], restarts=5, window_s=60.0)

    def fail(now_s: int, output: float, **changed: str) -> exits.Verdict:
        process = state.table["a"]
        process.failures.append(replace(failure(state, 0), **({"traceback": TRACE} | changed)))
        process.failures.pop(0)
        exits.confirmed(state, process, CRASHED)
        return exits.judged(state, process, CRASHED, [page(state, 0)], now_s * S, {0: (1.0, output)})

    assert fail(5, 3.0).refusal is None
    come_back(state, "a", 5 * S)
    verdict = fail(second, output, **changes)
    assert verdict.refusal == (REPEATED if ends else None)
    exits.reported(state, verdict, "crash/2.txt")
    assert state.end.frames == ('  File "/x/mine.py", line 7, in step\n    fall()' if ends else "")


SEGV, ABORT, EXIT = Exit(signal=signal.SIGSEGV), Exit(signal=signal.SIGABRT), Exit(code=7)


@pytest.mark.parametrize(
    ("first", "second", "output", "ends"),
    [
        (SEGV, SEGV, 3.0, True),
        (ABORT, replace(ABORT, note="out of memory"), 3.0, False),
        (EXIT, EXIT, 3.0, True),
        (CLEAN, CLEAN, 3.0, True),
        (SEGV, ABORT, 3.0, False),
        (SEGV, SEGV, 4.0, False),  # progress
        (KILLED, KILLED, 3.0, False),  # from outside
        (TERMINATED, TERMINATED, 3.0, False),
    ],
)
def test_native_code_that_ends_the_process_twice_in_a_row_without_progress_ends_the_run(
    first: Exit, second: Exit, output: float, ends: bool
) -> None:
    state = running(["a", "b"], restarts=5, window_s=60.0)

    def exit_with(how: Exit, now_s: int, output: float) -> str | None:
        exits.confirmed(state, state.table["a"], how)
        return exits.judged(state, state.table["a"], how, [page(state, 0)], now_s * S, {0: (output,)}).refusal

    assert exit_with(first, 5, 3.0) is None
    come_back(state, "a", 5 * S)
    assert exit_with(second, 10, output) == (REPEATED if ends else None)


def test_native_code_is_not_blamed_for_a_kill_by_the_supervisor_or_in_another_phase() -> None:
    state = running(["a", "b"], restarts=5, window_s=60.0)
    for now_s, phase, why in ((5, "env", ""), (6, "policy", ""), (7, "policy", "it was stuck"), (8, "policy", "")):
        process = state.table["a"]
        process.why = why
        exits.confirmed(state, process, SEGV)
        where = replace(page(state, 0), phase=phase)
        assert exits.judged(state, process, SEGV, [where], now_s * S, {0: (1.0,)}).refusal is None
        come_back(state, "a", now_s * S)


def test_a_text_that_names_the_type_is_not_preceded_by_it() -> None:
    state = running(["a"])
    process = state.table["a"]
    process.failures.append(replace(failure(state, 0), error="SystemExit", text="SystemExit: 2 (mine.py:6)"))
    process.failures.pop(0)
    assert judge(state, "a").what == "SystemExit: 2 (mine.py:6)"


def test_a_kill_between_two_errors_breaks_the_row() -> None:
    state = running(["a"], restarts=5)
    for how in (CRASHED, KILLED, CRASHED):
        if how is CRASHED:
            failure(state, 0)
            state.table["a"].failures[0] = replace(state.table["a"].failures[0], traceback=TRACE)
        assert judge(state, "a", how).refusal is None
        come_back(state, "a", 10 * S)


def test_a_process_killed_from_outside_restarts_at_once() -> None:
    state = running(["a", "b"], restarts=99)
    for number in range(3):
        assert Restart("a", 0.0) in follow(state, "a", KILLED, now_ns=number)
        come_back(state, "a", number)


def test_a_restart_by_hand_does_not_count() -> None:
    state = running(["a", "b"], restarts=0)
    assert exits.kill_on_request(state, 0, by_hand=True) == [Kill("a")]
    actions = follow(state, "a", KILLED)
    assert Restart("a", 0.0) in actions
    assert texts(actions, "died") == ["a was restarted by hand"]
    come_back(state, "a", 0)
    exits.kill_on_request(state, 0, by_hand=False)
    assert judge(state, "a", KILLED).refusal == "once within 60 s; [supervision] restarts = 0"


def test_an_actor_that_is_not_running_cannot_be_killed() -> None:
    state = running(["a", "b"])
    state.table["a"].alive = False
    with pytest.raises(UsageError, match=r"(?m)^a is not running$"):
        exits.kill_on_request(state, 0, by_hand=True)
    ending.end(state, "stopped", "enough")
    with pytest.raises(UsageError, match=r"(?m)^b is not running$"):
        exits.kill_on_request(state, 1, by_hand=True)


# --- the report and what follows


def test_the_report_of_a_restart_has_no_stacks_of_others() -> None:
    state = running(["a", "b", "c"])
    state.recent.append("0.10 s hello: from b")
    state.table["a"].stack = "File x"
    verdict = judge(state, "a")
    assert exits.witnesses(state, verdict) == []
    report = exits.crash_report(state, verdict, {})
    assert (report.actor, report.error, report.stack, report.stacks) == ("a", "exited with code 1", "File x", "")
    assert report.doing == "in `step` after 2.0 s (version 7, 1,234 phase changes)"
    assert report.story[-1] == "running -died-> failed (exited with code 1)"
    assert report.events == ["0.10 s hello: from b"]


def test_the_report_of_the_exit_that_ends_the_run_has_the_stacks_of_all_that_listen() -> None:
    state = running(["a", "b", "c", "d"], restarts=0)
    state.table["c"].listening = False
    failure(state, 0)
    verdict = judge(state, "a")
    assert exits.witnesses(state, verdict) == ["b", "d"]
    report = exits.crash_report(state, verdict, {"b": "File b", "d": ""})
    assert (report.stacks, report.traceback) == ("b\nFile b", "Traceback ...")


def test_an_exit_during_the_end_is_logged_with_neither_stacks_nor_restart() -> None:
    state = running(["a", "b"])
    ending.end(state, "finished", "goal")
    verdict = judge(state, "a")
    assert exits.witnesses(state, verdict) == []
    (logged,) = exits.reported(state, verdict, "crash/1.txt")
    assert isinstance(logged, Log)
    assert (state.end.state, state.end.report) == ("finished", "")


def test_a_death_is_logged_with_its_report() -> None:
    state = running(["a", "b"])
    failure(state, 0)
    actions = follow(state, "a")
    text = "a died in `step`: ValueError: no such box; restart 1 of 5"
    fields: dict[str, Any] = {"actor": "a", "pid": 100, "how": "exited with code 1", "doing": "step"}
    assert actions == [Log("died", text, {**fields, "crash": "crash/1.txt"}), Restart("a", 0.0)]
    assert state.table["a"].restarts == 1


def test_a_report_that_could_not_be_written_is_not_named() -> None:
    state = running(["a", "b"])
    logged = exits.reported(state, judge(state, "a"), "")[0]
    assert isinstance(logged, Log)
    assert "crash" not in logged.fields


def test_an_error_that_explains_itself_ends_the_run_with_its_own_text_and_hint() -> None:
    state = running(["a", "b"])
    failure(state, 0, permanent=True)
    actions = follow(state, "a")
    assert texts(actions, "died") == ["a died in `step`: ValueError: no such box"]
    assert (state.end.error, state.end.hint) == ("a failed in `step`: ValueError: no such box", "open it")
    assert (state.run_machine.state, texts(actions, "draining")) == (RunState.draining, ["a failed"])


def test_the_type_of_hives_own_error_is_left_out() -> None:
    state = running(["a"], restarts=0)
    process = state.table["a"]
    process.failures.append(replace(failure(state, 0), error="EnvironmentFailed", text="`x` cannot be built"))
    process.failures.pop(0)
    follow(state, "a")
    assert state.end.error.startswith("a failed in `step`: `x` cannot be built")


def test_a_run_that_began_to_end_while_stacks_were_read_keeps_its_reason() -> None:
    state = running(["a", "b"], restarts=0)
    verdict = judge(state, "a")
    ending.end(state, "stopped", "enough")
    assert len(exits.reported(state, verdict, "crash/1.txt")) == 1
    assert (state.end.state, state.end.report) == ("stopped", "")


def test_a_report_holds_the_last_events_and_no_more() -> None:
    state = running(["a", "b"])
    state.recent.extend(f"event {number}" for number in range(100))
    events = exits.crash_report(state, judge(state, "a"), {}).events
    assert events == [f"event {number}" for number in range(100 - REPORTED_EVENTS, 100)]


# --- the restart


def test_a_restart_that_is_due_while_the_run_ends_is_left_out() -> None:
    state = running(["a", "b"])
    follow(state, "a")
    ending.end(state, "stopped", "enough")
    assert not exits.restart_due(state, state.table["a"])
    assert state_names(state)["a"] == "failed"


def test_a_start_without_room_is_retried_until_the_limit() -> None:
    state = running(["a", "b"], restarts=2)
    a, error = state.table["a"], ActorFailed("a cannot be started: no room", hint="make room")
    follow(state, "a", now_ns=10 * S)
    assert exits.restart_due(state, a)
    a.begin("memory://a-1", 10 * S)
    actions = exits.not_started(state, a, error, 10 * S)
    assert actions == [Log("not started", str(error), {"process": "a"}), Restart("a", BACKOFF_S[1])]
    assert (a.alive, a.restarts, state_names(state)["a"]) == (False, 1, "failed")
    assert exits.restart_due(state, a)
    a.begin("memory://a-2", 11 * S)
    actions = exits.not_started(state, a, error, 11 * S)
    limit = "3 times in a row without progress between; [supervision] restarts = 2"
    assert texts(actions, "not started") == [f"{error}; {limit}"]
    assert (state.end.reason, state.end.error, state.end.hint) == ("a failed", f"{error} ({limit})", "make room")


def test_the_first_that_failed_is_the_suspect() -> None:
    state = running(SHARED)
    first = failure(state, 3)
    state.table["both"].failures.append(replace(first, actor=2))
    pages = [page(state, 2), page(state, 3)]
    assert exits.suspect(state.table["both"], pages) == 1
    assert exits.suspect(state.table["a"], [page(state, 0)]) == 0
    assert state.machines[0].state is ActorState.running
