"""Tests the numbers of resume barriers and of the versions between them."""

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
    barriers = ResumeBarriers(every=100, per_round=1, per_turn=1, interval=1, lag=1)
    assert [number for number in range(450) if barriers.is_barrier(number)] == [101, 201, 301, 401]
    assert [barriers.last(number) for number in (0, 100, 101, 200, 201, 450)] == [0, 0, 101, 101, 201, 401]


def test_versions_count_from_the_barrier() -> None:
    barriers = ResumeBarriers(every=100, per_round=1, per_turn=1, interval=1, lag=1)
    assert [barriers.behaviour_version(number) for number in (0, 1, 2, 100, 101, 102, 103)] == [
        0,
        0,
        1,
        99,
        101,
        101,
        102,
    ]
    assert [barriers.state_version(sequence, 1) for sequence in (0, 1, 2, 100, 101, 102)] == [0, 0, 1, 99, 101, 101]
    assert barriers.state_version(101, 0) == 101


def test_several_gradients_a_round() -> None:
    barriers = ResumeBarriers(every=100, per_round=8, per_turn=1, interval=1, lag=0)
    assert barriers.period == 13  # 104 updates: the first round that ends after 100
    assert barriers.is_barrier(13)
    assert barriers.state_version(13 * 8, 1) == 104


def test_every_0_has_no_barriers() -> None:
    barriers = ResumeBarriers(every=0, per_round=1, per_turn=1, interval=1, lag=1, resumed_at=7)
    assert not any(barriers.is_barrier(number) for number in range(100))
    assert {barriers.last(number) for number in range(7, 100)} == {7}


def test_a_resumed_run_begins_with_a_barrier() -> None:
    barriers = ResumeBarriers(every=100, per_round=1, per_turn=1, interval=1, lag=2, resumed_at=150)
    assert [barriers.last(number) for number in (150, 201, 202)] == [150, 150, 202]
    assert [barriers.behaviour_version(number) for number in (150, 151, 153, 202)] == [150, 150, 151, 202]


@given(ANY)
def test_a_barrier_ends_a_turn_and_a_version(barriers: ResumeBarriers) -> None:
    found = [number for number in range(barriers.period * 3 + barriers.delay + 1) if barriers.is_barrier(number)]
    assert len(found) == 3
    for number in found:
        assert number % barriers.interval == 0
        assert number * barriers.per_round % barriers.per_turn == 0
        assert number * barriers.per_round // barriers.per_turn >= barriers.every
        assert barriers.last(number) == number
        assert barriers.last(number - 1) < number


@given(ANY, st.integers(0, 400))
def test_a_run_resumed_at_a_barrier_asks_for_the_same_versions(barriers: ResumeBarriers, ahead: int) -> None:
    barrier = barriers.period + barriers.delay
    resumed = ResumeBarriers(
        barriers.every, barriers.per_round, barriers.per_turn, barriers.interval, barriers.lag, resumed_at=barrier
    )
    assert resumed.last(barrier + ahead) == barriers.last(barrier + ahead)
    assert resumed.behaviour_version(barrier + ahead) == barriers.behaviour_version(barrier + ahead)
    first = barrier * barriers.per_round
    assert resumed.state_version(first + ahead, 1) == barriers.state_version(first + ahead, 1)


@pytest.mark.parametrize("lag", [0, 1, 3])
@given(barriers=ANY)
def test_no_round_needs_an_older_version_than_the_boards_keep(barriers: ResumeBarriers, lag: int) -> None:
    for number in range(3 * barriers.period + 5):
        newest = number // barriers.interval  # when round `number` begins, all rounds before it may be consumed
        assert newest - barriers.behaviour_version(number) <= barriers.lag
        assert newest >= barriers.behaviour_version(number)


@given(ANY, st.integers(0, 500), st.integers(0, 3))
def test_a_run_resumed_anywhere_never_waits_for_a_later_version(barriers: ResumeBarriers, turn: int, lag: int) -> None:
    """A run ends or saves between two turns, which may be in the middle of a round."""
    first = turn * barriers.per_turn
    begun = -(-first // barriers.per_round)  # the first round that the checkpoint has not finished
    resumed = ResumeBarriers(
        barriers.every, barriers.per_round, barriers.per_turn, barriers.interval, barriers.lag, resumed_at=begun
    )
    for sequence in range(first, first + 3 * barriers.per_round * barriers.per_turn):
        version = resumed.state_version(sequence, lag)
        assert turn <= version <= sequence // barriers.per_turn  # it is there, or comes of gradients made before


@given(every=st.integers(1, 60), per_round=st.integers(1, 20), per_turn=st.integers(1, 4))
def test_a_schedule_of_turns_is_kept_at_the_ends_of_rounds(every: int, per_round: int, per_turn: int) -> None:
    """Every multiple of `every` is followed by a save at the next end of a round; several in one round share it."""
    barriers = ResumeBarriers(every=0, per_round=per_round, per_turn=per_turn, interval=1, lag=4)
    ends = [turn for turn in range(1, 2_000) if turn * per_turn % per_round == 0]
    due = [turn for turn in range(1, 2_000) if barriers.is_first_round_end(turn, every)]
    assert set(due) <= set(ends)
    for multiple in range(every, ends[-1] + 1, every):
        assert next(end for end in ends if end >= multiple) in due
    assert len(due) <= len(range(every, ends[-1] + 1, every))
    assert not any(barriers.is_first_round_end(turn, 0) for turn in range(100))
