"""Rows of actors and channels, made from the supervisor's document, /proc and the history."""

from __future__ import annotations

import pytest
from canned_runs import COLLECTING, T, working
from canned_status import actor, status

from hive.monitor import ActorRow, ChannelRow, History
from hive.monitor.rows import ProcessFacts, actor_row, helper_row


def row(name: str = "collector-3", state: str = "running", **changes: float) -> ActorRow:
    return actor_row(working(name, "collectors", COLLECTING, state=state, **changes), History(), None, "")


@pytest.mark.parametrize(
    ("name", "role"),
    [("collector-3", "collector"), ("gradient-worker-12", "gradient-worker"), ("recorder", "recorder")],
)
def test_the_role_is_the_name_without_its_number(name: str, role: str) -> None:
    assert row(name).role == role


def test_the_share_of_work_is_the_time_without_waits() -> None:
    assert row().own == pytest.approx(0.94)
    assert row(state="failed").own == 1.0  # the others wait for it to come back


def test_without_a_history_shares_cover_the_incarnation() -> None:
    whole = actor_row(actor("a-0", phases={"step": 3.0, "wait": 1.0}), History(), None, "")
    assert (whole.busy, whole.wait_in, whole.phases) == (0.9, 0.06, {"step": 0.75, "wait": 0.25})
    nothing = actor_row(actor("a-0", phases={}), History(), None, "")
    assert nothing.phases == {}


def test_of_the_last_seconds_each_kind_is_its_phases() -> None:
    history = History()
    for second in range(2):
        history.add(status(working("collector-0", "collectors", COLLECTING, 10.0 + second)), T + second)
    seen = actor_row(working("collector-0", "collectors", COLLECTING, 11.0), history, None, "killed")
    assert (seen.busy, seen.wait_in, seen.wait_out, seen.runtime) == tuple(map(pytest.approx, (0.92, 0.05, 0.01, 0.02)))
    assert seen.last_words == "killed"


def test_a_stopped_process_is_seen_at_once() -> None:
    """The supervisor detects it a quarter of a second later."""
    stopped = actor_row(working("collector-0", "collectors", COLLECTING), History(), ProcessFacts("T", 0.0, 1), "")
    assert (stopped.state, stopped.cpu, stopped.memory_bytes) == ("stopped", 0.0, 1)
    dead = actor_row(working("collector-0", "c", COLLECTING, state="failed"), History(), ProcessFacts("T", 0.0, 1), "")
    assert dead.state == "failed"
    assert helper_row("supervisor", 1, "running", ProcessFacts("T", None, 1)).state == "stopped"


def test_the_rate_is_of_what_it_counts_itself_or_sends() -> None:
    history = History()
    counters = {"metrics:produced": 7.0}
    for second in range(2):
        a = working("a-0", "a", COLLECTING, 10.0 + second, sent={"out": 5 * second}, counters=counters)
        history.add(status(a), T + second)
    seen = actor_row(a, history, None, "")
    assert (seen.rate_of, seen.rate) == ("out", 5.0)
    assert actor_row(a, History(), None, "").rate is None
    silent = actor_row(working("a-0", "a", COLLECTING), history, None, "")
    assert (silent.rate_of, silent.rate) == ("", None)


def test_occupancy_is_known_where_capacity_is() -> None:
    assert ChannelRow(9, 5, {}, 4, capacity=8).occupancy == 0.5
    assert ChannelRow(9, 0, {}, 9, capacity=8).occupancy == 1.0
    assert ChannelRow(9, 5, {}, 4).occupancy is None
