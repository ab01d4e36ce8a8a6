from __future__ import annotations

import dataclasses
import json
import math

import pytest
from canned_runs import LOOKS_S, lively
from canned_status import PID, account, actor, results, starting, status

from hive.monitor import ActorRow, BoardRow, ChannelRow, Extras, Snapshot, as_data, snapshot_of
from hive.monitor.rows import helper_row
from hive.records.documents import json_text

# --- one moment


def test_a_run_at_work() -> None:
    snapshot = snapshot_of(status())
    assert (snapshot.run, snapshot.state, snapshot.reason) == ("cartpole-1", "running", "")
    assert (snapshot.env_steps, snapshot.goal_steps, snapshot.updates, snapshot.episodes) == (20_480, 500_000, 40, 7)
    assert (snapshot.mean_return, snapshot.train_s) == (131.6, 4.0)
    assert (snapshot.lag, snapshot.dropped, snapshot.restarts) == (1, 0, 0)
    assert [row.name for row in snapshot.actors] == ["collector-0", "learner-0"]
    assert snapshot.channels == {"rollouts": ChannelRow(40, 40, {}, 0)}


def test_a_row_holds_the_data_of_its_actor() -> None:
    row = snapshot_of(status(actor("collector-3", lag=2, restarts=1))).actors[0]
    shares = {"runtime": 0.0, "phases": {"step": 0.9, "wait": 0.1}}
    expected = ActorRow("collector-3", PID, "running", 1, "step", 0.25, 0.9, 0.06, 0.04, 12, 2, "collector-3", **shares)
    assert row == dataclasses.replace(expected, incarnation=1)


def test_counts_are_whole_numbers() -> None:
    """They come from a status page, whose counters are floats."""
    counters = results(env_steps=20_480.0, updates=40.0, episodes=7.0)
    snapshot = snapshot_of(status(actor("learner-0", counters=counters)))
    assert [type(n) for n in (snapshot.env_steps, snapshot.updates, snapshot.episodes)] == [int] * 3


def test_a_run_that_has_not_been_built() -> None:
    snapshot = snapshot_of(starting())
    assert snapshot == Snapshot(
        run="cartpole-1",
        state="starting",
        reason="",
        env_steps=0,
        goal_steps=500_000,
        updates=0,
        episodes=0,
        mean_return=None,
        restarts=0,
        train_s=0.0,
        actors=(),
        channels={},
        pid=PID,
        started=1.7e9,
        bound_by="nothing yet",
        helpers=(helper_row("supervisor", PID, "starting", None),),
    )
    assert (snapshot.lag, snapshot.dropped) == (0, 0)


def test_actors_that_have_done_nothing_yet() -> None:
    snapshot = snapshot_of(status(actor("collector-0", state="ready"), actor("learner-0", state="starting")))
    assert (snapshot.env_steps, snapshot.updates, snapshot.mean_return, snapshot.train_s) == (0, 0, None, 0.0)
    assert [row.state for row in snapshot.actors] == ["ready", "starting"]


@pytest.mark.parametrize("state", ["draining", "finished", "stopped", "failed"])
def test_a_run_that_ends(state: str) -> None:
    rows = [actor("collector-0", state="finished"), actor("learner-0", state="finished", counters=results())]
    snapshot = snapshot_of(status(*rows, state=state, reason="500,000 steps"))
    assert (snapshot.state, snapshot.reason, snapshot.updates) == (state, "500,000 steps", 40)


@pytest.mark.parametrize(
    ("episodes", "mean_return", "shown"),
    [(0, math.nan, None), (0, 0.0, None), (1, 0.0, 0.0), (5, -21.5, -21.5), (5, math.nan, None), (5, math.inf, None)],
)
def test_there_is_no_return_before_an_episode_has_ended(episodes: int, mean_return: float, shown: float | None) -> None:
    counters = results(episodes=episodes, mean_return_100=mean_return)
    assert snapshot_of(status(actor("learner-0", counters=counters))).mean_return == shown


def test_means_of_info_are_among_the_results() -> None:
    counters = results(**{"info/is_success": 0.25, "info/odd": math.nan})
    assert snapshot_of(status(actor("learner-0", counters=counters))).info == {"is_success": 0.25}


def test_results_are_those_of_the_actor_that_has_them() -> None:
    rows = [actor("learner-0", counters=results(env_steps=1)), actor("judge-0", counters=results(env_steps=2))]
    assert snapshot_of(status(*rows, results_actor="judge-0")).env_steps == 2
    assert snapshot_of(status(*rows, results_actor="")).env_steps == 0


def test_the_lag_is_that_of_the_collector_farthest_behind() -> None:
    collectors = [actor(f"collector-{n}", lag=n % 5) for n in range(64)]
    snapshot = snapshot_of(status(*collectors, actor("learner-0", lag=9, counters=results())))
    assert len(snapshot.actors) == 65
    assert snapshot.lag == 4
    assert snapshot.actors[63].name == "collector-63"


def test_restarts_are_counted_once_a_process() -> None:
    """Actors of one process are restarted together, and each says so."""
    alone = [actor(f"collector-{n}", pid=100 + n, restarts=n) for n in range(3)]
    together = [actor("learner-0", pid=200, restarts=4), actor("recorder", pid=200, restarts=4)]
    assert snapshot_of(status(*alone, *together)).restarts == 0 + 1 + 2 + 4


def test_dropped_is_the_sum_over_channels_and_reasons() -> None:
    channels = {"rollouts": account(9, run_ended=2, consumer_died=1), "gradients": account(5, stale=4), "x": account()}
    assert snapshot_of(status(channels=channels)).dropped == 7


def test_a_status_that_lacks_a_part_is_refused() -> None:
    whole = status()
    for missing in ("run", "state", "steps", "actors", "channels"):
        with pytest.raises(KeyError, match=missing):
            snapshot_of({key: value for key, value in whole.items() if key != missing})
    row = actor("collector-0")
    del row["busy"]
    with pytest.raises(KeyError, match="busy"):
        snapshot_of(status(row))


def test_a_snapshot_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        snapshot_of(status()).env_steps = 0  # type: ignore[misc]


# --- with a history and extras


def test_shares_rates_and_the_sentence_are_of_the_last_seconds() -> None:
    snapshot = lively()
    assert snapshot.window_s == LOOKS_S
    assert snapshot.steps_per_s == pytest.approx(5_000)
    assert snapshot.rates["updates"] == {10: pytest.approx(20), 60: None, 300: None}
    assert snapshot.actors[0].phases["env"] == pytest.approx(0.74)
    assert (snapshot.actors[0].rate_of, snapshot.actors[0].rate) == ("env_steps", pytest.approx(2_500))
    assert snapshot.channels["rollouts"].rate == pytest.approx(40)
    assert snapshot.channels["rollouts"].occupancy == pytest.approx(4 / 6)
    assert snapshot.boards["behaviour"] == BoardRow("learner", ("collectors",), 40, 0.0)
    assert snapshot.bound_by == "collectors (env 74 % of their time) - collection.workers"
    assert (snapshot.cores, snapshot.cores_busy) == (2, 1.4)
    assert [row.name for row in snapshot.helpers] == ["supervisor", "fork-server"]


def test_the_exit_report_of_an_actor_is_its_newest() -> None:
    events = tuple(
        {"kind": kind, "actor": "collector-0", "text": f"{kind} {n}"} for n in (1, 2) for kind in ("died", "x")
    )
    rows = {row.name: row for row in snapshot_of(status(), None, Extras(events=events)).actors}
    assert (rows["collector-0"].last_words, rows["learner-0"].last_words) == ("died 2", "")


def test_as_data_it_is_json_with_every_field() -> None:
    data = json.loads(json_text(as_data(lively())))
    names = {"run", "state", "env_steps", "steps_per_s", "bound_by", "actors", "channels", "boards", "lag", "dropped"}
    assert names <= data.keys()
    assert {"name", "state", "activity", "since_s", "busy", "wait_in", "wait_out"} <= data["actors"][0].keys()
    assert data["channels"]["rollouts"]["in_flight"] == 4
    assert data["rates"]["env_steps"]["60"] is None
