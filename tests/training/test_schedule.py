"""The decisions of the schedule, without actors: versions, claims, the treatment of old data, the ends of rounds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_trainer import config_of

from hive.training.resume_barriers import NoBarriers, ResumeBarriers
from hive.training.schedule import (
    LATEST,
    Claim,
    GradientsAsReady,
    PartialRounds,
    RolloutsAsReady,
    RoundsInOrder,
    Schedule,
    TurnsInOrder,
)

ANY = st.builds(
    ResumeBarriers,
    every=st.integers(1, 50),
    per_round=st.integers(1, 8),
    per_turn=st.integers(1, 4),
    interval=st.integers(1, 4),
    lag=st.integers(0, 5),
)


def resumed_at(barriers: ResumeBarriers, number: int) -> ResumeBarriers:
    return ResumeBarriers(
        barriers.every, barriers.per_round, barriers.per_turn, barriers.interval, barriers.lag, resumed_at=number
    )


def behaviour(barriers: ResumeBarriers, number: int) -> int:
    return RoundsInOrder(barriers, 1).behaviour_version(number)


def state(barriers: ResumeBarriers, gradient: int, lag: int) -> int:
    return TurnsInOrder(barriers, lag, 1).state_version(gradient)


def schedule_of(collectors: int = 2, workers: int = 2, per_round: int = 1, **values: Any) -> Schedule:
    return Schedule.of(config_of("small_environments:Drift", **values), per_round, collectors, workers, 0)


ASYNC_ROLLOUTS: dict[str, Any] = {"collection__communication": '"asynchronous"'}
ASYNC_GRADIENTS: dict[str, Any] = {"gradients__communication": '"asynchronous"'}


# --- which schedule a run has


@pytest.mark.parametrize("gradients", ["synchronous", "pipelined", "asynchronous"])
@pytest.mark.parametrize("collection", ["synchronous", "pipelined", "asynchronous"])
def test_each_mode_has_its_schedule(collection: str, gradients: str) -> None:
    schedule = schedule_of(collection__communication=f'"{collection}"', gradients__communication=f'"{gradients}"')
    assert type(schedule.collection) is (RolloutsAsReady if collection == "asynchronous" else RoundsInOrder)
    assert type(schedule.gradients) is (GradientsAsReady if gradients == "asynchronous" else TurnsInOrder)
    assert type(schedule.barriers) is (NoBarriers if "asynchronous" in (collection, gradients) else ResumeBarriers)
    assert schedule.partial is None


def test_lags_reach_the_versions() -> None:
    modes = {"collection__communication": '"pipelined"', "gradients__communication": '"pipelined"'}
    lags = {"collection__max_lag": 2, "gradients__max_lag": 3, "checkpoint__every": "{}"}
    schedule = schedule_of(**modes, **lags)
    assert (schedule.collection.behaviour_version(10), schedule.gradients.state_version(10)) == (8, 7)


# --- versions by number


def test_versions_count_from_the_barrier() -> None:
    barriers = ResumeBarriers(every=100, per_round=1, per_turn=1, interval=1, lag=1)
    rounds, versions = (0, 1, 2, 100, 101, 102, 103), [0, 0, 1, 99, 101, 101, 102]
    assert [behaviour(barriers, number) for number in rounds] == versions
    assert [state(barriers, sequence, 1) for sequence in (0, 1, 2, 100, 101, 102)] == [0, 0, 1, 99, 101, 101]
    assert state(barriers, 101, 0) == 101


def test_the_state_version_of_several_gradients_a_round() -> None:
    barriers = ResumeBarriers(every=100, per_round=8, per_turn=1, interval=1, lag=0)
    assert state(barriers, 13 * 8, 1) == 104


def test_versions_count_from_the_round_that_was_resumed_at() -> None:
    barriers = ResumeBarriers(every=100, per_round=1, per_turn=1, interval=1, lag=2, resumed_at=150)
    assert [behaviour(barriers, number) for number in (150, 151, 153, 202)] == [150, 150, 151, 202]


@given(ANY, st.integers(0, 400))
def test_a_run_resumed_at_a_barrier_requests_the_same_versions(barriers: ResumeBarriers, ahead: int) -> None:
    barrier = barriers.period + barriers.delay
    resumed = resumed_at(barriers, barrier)
    assert resumed.last(barrier + ahead) == barriers.last(barrier + ahead)
    assert behaviour(resumed, barrier + ahead) == behaviour(barriers, barrier + ahead)
    first = barrier * barriers.per_round
    assert state(resumed, first + ahead, 1) == state(barriers, first + ahead, 1)


@given(barriers=ANY)
def test_no_round_needs_an_older_version_than_the_boards_keep(barriers: ResumeBarriers) -> None:
    for number in range(3 * barriers.period + 5):
        newest = number // barriers.interval  # when round `number` begins, all rounds before it may be consumed
        assert newest - behaviour(barriers, number) <= barriers.lag
        assert newest >= behaviour(barriers, number)


@given(ANY, st.integers(0, 400), st.integers(0, 3))
def test_the_lag_that_is_shown_is_that_of_the_use_whatever_is_published_meanwhile(
    barriers: ResumeBarriers, ahead: int, lag: int
) -> None:
    barriers = dataclasses.replace(barriers, every=0)  # at one the lag is 0
    number = barriers.lag * barriers.interval + ahead
    version = behaviour(barriers, number)
    assert {RoundsInOrder(barriers, 1).lag(number, version, version + newer) for newer in range(3)} == {barriers.lag}
    turn = lag + ahead
    gradient = turn * barriers.per_turn
    version = state(barriers, gradient, lag)
    assert {TurnsInOrder(barriers, lag, 1).lag(gradient, version, version + newer) for newer in range(3)} == {lag}


def test_the_lag_of_what_takes_the_latest_is_measured() -> None:
    assert RolloutsAsReady(4, 1).lag(7, 3, 5) == GradientsAsReady(1, 4, "drop").lag(7, 3, 5) == 2


@given(ANY, st.integers(0, 500), st.integers(0, 3))
def test_a_run_resumed_anywhere_never_waits_for_a_later_version(barriers: ResumeBarriers, turn: int, lag: int) -> None:
    """A run ends or saves between two turns, which may be in the middle of a round."""
    first = turn * barriers.per_turn
    begun = -(-first // barriers.per_round)  # the first round that the checkpoint has not finished
    resumed = resumed_at(barriers, begun)
    for sequence in range(first, first + 3 * barriers.per_round * barriers.per_turn):
        version = state(resumed, sequence, lag)
        assert turn <= version <= sequence // barriers.per_turn  # it exists, or comes of gradients made before


def test_asynchronous_actors_request_the_latest_version() -> None:
    schedule = schedule_of(**ASYNC_ROLLOUTS, **ASYNC_GRADIENTS)
    assert {schedule.collection.behaviour_version(n) for n in range(9)} == {LATEST}
    assert {schedule.gradients.state_version(n) for n in range(9)} == {LATEST}


# --- rollouts


def test_a_round_is_the_whole_share_by_number() -> None:
    collection = schedule_of().collection
    assert collection.claims(5, {0: 0, 2: 0}) == [Claim(0, 5), Claim(2, 5)]
    assert collection.counted(claimed=2, share=2) == 2


def test_a_successor_claims_only_what_is_left_and_counts_the_rest() -> None:
    collection = schedule_of().collection
    first = {0: 6, 1: 5}
    assert collection.lost(5, first) == 1
    assert collection.claims(5, first) == [Claim(1, 5)]
    assert collection.claims(6, first) == [Claim(0, 6), Claim(1, 6)]
    assert collection.counted(claimed=1, share=2) == 2, "a lost rollout is consumed, too"
    assert collection.lost(7, first) == 0


def test_an_asynchronous_round_is_the_oldest_fresh_rollout_of_any_collector() -> None:
    collection = schedule_of(**ASYNC_ROLLOUTS, collection__max_lag=3).collection
    assert list(collection.claims(5, {0: 9, 1: 9})) == [Claim(None, -1, max_lag=3)]
    assert collection.lost(5, {0: 9, 1: 9}) == 0
    assert [collection.counted(claimed=n, share=2) for n in (0, 1)] == [0, 1]


# --- gradients


def test_a_turn_is_the_next_gradients_of_every_worker() -> None:
    gradients = schedule_of(workers=3, gradients__bootstrap_rounds=2).gradients
    assert gradients.turn_size == 6
    assert gradients.claims(4, 0) == [Claim(worker, 8) for worker in range(3)]
    assert gradients.claims(4, 3) == [Claim(worker, 9) for worker in range(3)]
    assert gradients.claims(5, 0) == [Claim(worker, 10) for worker in range(3)]


def test_an_asynchronous_turn_is_of_any_gradients() -> None:
    gradients = schedule_of(workers=3, **ASYNC_GRADIENTS, gradients__bootstrap_rounds=2).gradients
    assert gradients.turn_size == 2
    assert {(one.producer, one.sequence) for n in (0, 1) for one in gradients.claims(4, n)} == {(None, -1)}


STALE: Mapping[str, tuple[int | None, float]] = {"drop": (2, 1.0), "scale": (None, 0.25), "accept": (None, 1.0)}


@pytest.mark.parametrize("stale", STALE)
def test_old_gradients_are_dropped_scaled_or_accepted(stale: str) -> None:
    gradients = schedule_of(**ASYNC_GRADIENTS, gradients__max_lag=2, gradients__stale=f'"{stale}"').gradients
    (wanted,) = gradients.claims(9, 0)
    assert (wanted.max_lag, gradients.factor(3)) == STALE[stale]
    assert [gradients.factor(lag) for lag in range(3)] == [1.0] * 3


def test_gradients_in_order_are_used_whatever_their_lag() -> None:
    gradients = schedule_of(gradients__communication='"pipelined"', gradients__stale='"scale"').gradients
    assert {one.max_lag for one in gradients.claims(9, 0)} == {None}
    assert [gradients.factor(lag) for lag in (0, 1, 5)] == [1.0] * 3


def test_only_an_asynchronous_worker_without_collectors_is_not_needed() -> None:
    assert schedule_of().gradients.needs(0)
    assert [schedule_of(**ASYNC_GRADIENTS).gradients.needs(collectors) for collectors in (0, 1)] == [False, True]


def test_a_run_ends_with_a_whole_round_or_asynchronously_with_any_turn() -> None:
    in_order = schedule_of(per_round=4, gradients__bootstrap_rounds=2).gradients
    assert [turn for turn in range(7) if in_order.may_end(turn)] == [0, 2, 4, 6]
    as_ready = schedule_of(per_round=4, **ASYNC_GRADIENTS).gradients
    assert all(as_ready.may_end(turn) for turn in range(7))


# --- the behaviour version that is due


def unread(*_: int) -> int:
    raise AssertionError("this count does not decide")


def test_a_version_is_due_when_every_worker_with_collectors_has_finished_its_rounds() -> None:
    collection = schedule_of(collectors=2, workers=3, per_round=2, collection__broadcast_interval=2).collection
    done = {0: 0, 1: 0}  # worker 2 has no collector, so its count is not read

    def due(latest: int, *finished: int) -> int:
        done.update(enumerate(finished))
        return collection.version_due(latest, done.__getitem__, unread)

    assert due(-1, 0, 0) == 0
    assert due(0, 3, 9) == 0
    assert due(0, 4, 9) == 1
    assert due(1, 9, 12) == 2
    assert due(2, 12, 11) == 2
    assert due(2, 17, 13) == 3


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), max_size=60))
def test_the_cache_of_progress_changes_no_decision(steps: list[tuple[int, int]]) -> None:
    barriers = ResumeBarriers(every=0, per_round=2, per_turn=1, interval=1, lag=1)
    collection, done, latest = RoundsInOrder(barriers, 3), [0, 0, 0], 0
    for worker, gradients in steps:
        done[worker] += gradients
        due = collection.version_due(latest, done.__getitem__, unread)
        assert max(due, latest) == max(min(done) // 2, latest)
        latest = max(due, latest)


def test_an_asynchronous_version_is_due_after_a_round_of_rollouts_from_anywhere() -> None:
    collection = schedule_of(collectors=3, **ASYNC_ROLLOUTS, collection__broadcast_interval=2).collection
    assert [collection.version_due(0, unread, lambda count=count: count) for count in (0, 5, 6, 17, 18)] == [
        *(0, 0, 1, 2, 3)
    ]


# --- partial rounds


@pytest.mark.parametrize(
    ("collectors", "workers", "samples", "enough", "steps"),
    [(4, 0.5, 0.5, 2, 4), (3, 0.5, 0.3, 2, 3), (100, 0.07, 1.0, 7, 8)],
)
def test_fractions_are_rounded_up_after_their_rounding_error(
    collectors: int, workers: float, samples: float, enough: int, steps: int
) -> None:
    fractions = {"collection__fraction_workers": workers, "collection__fraction_samples": samples}
    assert schedule_of(collectors, **fractions).partial == PartialRounds(enough, steps)
    assert math.ceil(0.07 * 100) == 8


def test_a_rollout_ends_early_once_enough_collectors_are_done() -> None:
    partial = PartialRounds(collectors=2, steps=4)
    assert not partial.over(3, unread), "peers are not counted before the least steps are done"
    assert [partial.over(4, lambda done=done: done) for done in (1, 2, 3)] == [False, True, True]


# --- checkpoints by environment steps


@pytest.mark.parametrize("values", [{}, ASYNC_ROLLOUTS, ASYNC_GRADIENTS, {**ASYNC_ROLLOUTS, **ASYNC_GRADIENTS}])
@pytest.mark.parametrize(("per_round", "per_turn"), [(1, 1), (4, 1), (1, 3)])
def test_steps_between_checkpoints_become_turns(values: dict[str, Any], per_round: int, per_turn: int) -> None:
    """A round of 2 collectors with 2 environments has 32 steps, which all gradients made of it share."""
    numbers = {**values, "checkpoint__every": "{steps=320}", "gradients__bootstrap_rounds": per_turn}
    made = 2 if ASYNC_ROLLOUTS.items() <= values.items() else 4  # rollouts, or shares of rounds
    together = 1 if ASYNC_GRADIENTS.items() <= values.items() else 4
    steps = Fraction(32 * per_turn * together, made * per_round)  # of a turn
    assert schedule_of(2, 4, per_round, **numbers).barriers.every == math.ceil(320 / steps)


def test_rounds_between_barriers_do_not_depend_on_epochs() -> None:
    numbers = {"checkpoint__every": "{steps=310}"}
    periods = {schedule_of(per_round=per_round, **numbers).barriers.period for per_round in (1, 5, 320)}
    assert periods == {10}


# --- the warm-up of a replay memory


def replaying(collectors: int, workers: int, warmup: int | None, **values: Any) -> Schedule:
    config = config_of("small_environments:Drift", **values)
    return Schedule.of(config, 2, collectors, workers, 0, warmup)


@pytest.mark.parametrize("mode", ["synchronous", "pipelined"])
def test_versions_are_counted_from_the_end_of_the_warmup(mode: str) -> None:
    modes = {"collection__communication": f'"{mode}"', "gradients__communication": f'"{mode}"'}
    at_once, later = (replaying(2, 2, warmup, **modes, checkpoint__every="{updates=5}") for warmup in (0, 3))
    plain = schedule_of(per_round=2, **modes, checkpoint__every="{updates=5}")
    for rollout in range(40):
        version = plain.collection.behaviour_version(rollout)
        assert at_once.collection.behaviour_version(rollout) == version
        assert later.collection.behaviour_version(3 + rollout) == version
    for gradient in range(80):
        version = plain.gradients.state_version(gradient)
        assert at_once.gradients.state_version(gradient) == later.gradients.state_version(gradient) == version
    assert [later.collection.behaviour_version(rollout) for rollout in range(4)] == [0, 0, 0, 0]


def test_versions_of_a_replay_memory_wait_for_every_worker() -> None:
    """Each of them makes gradients, also those beyond the number of collectors."""
    schedule, plain = replaying(1, 3, 0), schedule_of(1, 3, 2)
    finished = {0: 4, 1: 4, 2: 2}
    assert plain.collection.version_due(0, finished.__getitem__, lambda: 0) == 2
    assert schedule.collection.version_due(0, finished.__getitem__, lambda: 0) == 1
