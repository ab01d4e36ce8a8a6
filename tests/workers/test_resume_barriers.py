"""Where the cuts of a run are, as numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive.workers.resume_barriers import ResumeBarriers

ANY = st.builds(
    ResumeBarriers,
    every=st.integers(1, 50),
    per_round=st.integers(1, 8),
    per_turn=st.integers(1, 4),
    interval=st.integers(1, 4),
    lag=st.integers(0, 5),
)


def test_one_gradient_a_round() -> None:
    cuts = ResumeBarriers(every=100, per_round=1, per_turn=1, interval=1, lag=1)
    assert [number for number in range(450) if cuts.is_cut(number)] == [101, 201, 301, 401]
    assert [cuts.start(number) for number in (0, 100, 101, 200, 201, 450)] == [0, 0, 101, 101, 201, 401]


def test_versions_count_from_the_cut() -> None:
    cuts = ResumeBarriers(every=100, per_round=1, per_turn=1, interval=1, lag=1)
    assert [cuts.policy(number) for number in (0, 1, 2, 100, 101, 102, 103)] == [0, 0, 1, 99, 101, 101, 102]
    assert [cuts.state(sequence, 1) for sequence in (0, 1, 2, 100, 101, 102)] == [0, 0, 1, 99, 101, 101]
    assert cuts.state(101, 0) == 101


def test_several_gradients_a_round() -> None:
    cuts = ResumeBarriers(every=100, per_round=8, per_turn=1, interval=1, lag=0)
    assert cuts.period == 13  # 104 updates: the first round that ends after 100
    assert cuts.is_cut(13)
    assert cuts.state(13 * 8, 1) == 104


def test_none() -> None:
    cuts = ResumeBarriers(every=0, per_round=1, per_turn=1, interval=1, lag=1, resumed_at=7)
    assert not any(cuts.is_cut(number) for number in range(100))
    assert {cuts.start(number) for number in range(7, 100)} == {7}


def test_a_resumed_run_begins_with_a_cut() -> None:
    cuts = ResumeBarriers(every=100, per_round=1, per_turn=1, interval=1, lag=2, resumed_at=150)
    assert [cuts.start(number) for number in (150, 201, 202)] == [150, 150, 202]
    assert [cuts.policy(number) for number in (150, 151, 153, 202)] == [150, 150, 151, 202]


@given(ANY)
def test_a_cut_ends_a_turn_and_a_version(cuts: ResumeBarriers) -> None:
    found = [number for number in range(cuts.period * 3 + cuts.delay + 1) if cuts.is_cut(number)]
    assert len(found) == 3
    for number in found:
        assert number % cuts.interval == 0
        assert number * cuts.per_round % cuts.per_turn == 0
        assert number * cuts.per_round // cuts.per_turn >= cuts.every
        assert cuts.start(number) == number
        assert cuts.start(number - 1) < number


@given(ANY, st.integers(0, 400))
def test_a_run_resumed_at_a_cut_asks_for_the_same_versions(cuts: ResumeBarriers, ahead: int) -> None:
    cut = cuts.period + cuts.delay
    resumed = ResumeBarriers(cuts.every, cuts.per_round, cuts.per_turn, cuts.interval, cuts.lag, resumed_at=cut)
    assert resumed.start(cut + ahead) == cuts.start(cut + ahead)
    assert resumed.policy(cut + ahead) == cuts.policy(cut + ahead)
    first = cut * cuts.per_round
    assert resumed.state(first + ahead, 1) == cuts.state(first + ahead, 1)


@pytest.mark.parametrize("lag", [0, 1, 3])
@given(cuts=ANY)
def test_nobody_needs_an_older_version_than_the_boards_keep(cuts: ResumeBarriers, lag: int) -> None:
    for number in range(3 * cuts.period + 5):
        newest = number // cuts.interval  # when round `number` begins, all rounds before it may be consumed
        assert newest - cuts.policy(number) <= cuts.lag
        assert newest >= cuts.policy(number)


@given(ANY, st.integers(0, 500), st.integers(0, 3))
def test_a_run_resumed_anywhere_waits_for_nothing_that_is_still_to_come(
    cuts: ResumeBarriers, turn: int, lag: int
) -> None:
    """Whoever is asked to end, or to save, does so between two turns, wherever in a round that is."""
    first = turn * cuts.per_turn
    begun = -(-first // cuts.per_round)  # the first round that the checkpoint has not finished
    resumed = ResumeBarriers(cuts.every, cuts.per_round, cuts.per_turn, cuts.interval, cuts.lag, resumed_at=begun)
    for sequence in range(first, first + 3 * cuts.per_round * cuts.per_turn):
        version = resumed.state(sequence, lag)
        assert turn <= version <= sequence // cuts.per_turn  # it is there, or comes of gradients made before


@given(every=st.integers(1, 60), per_round=st.integers(1, 20), per_turn=st.integers(1, 4))
def test_a_schedule_of_turns_is_kept_at_the_ends_of_rounds(every: int, per_round: int, per_turn: int) -> None:
    """Once for every multiple, unless several fall into one round: no seldomer, as common multiples would be."""
    cuts = ResumeBarriers(every=0, per_round=per_round, per_turn=per_turn, interval=1, lag=4)
    ends = [turn for turn in range(1, 2_000) if turn * per_turn % per_round == 0]
    due = [turn for turn in range(1, 2_000) if cuts.is_first_end(turn, every)]
    assert set(due) <= set(ends)
    for multiple in range(every, ends[-1] + 1, every):
        assert next(end for end in ends if end >= multiple) in due
    assert len(due) <= len(range(every, ends[-1] + 1, every))
    assert not any(cuts.is_first_end(turn, 0) for turn in range(100))
