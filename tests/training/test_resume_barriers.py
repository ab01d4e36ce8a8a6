"""Tests the numbers of resume barriers, and the turns of asynchronous checkpoints."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from hive.training.resume_barriers import NoBarriers, ResumeBarriers

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


def test_several_gradients_a_round() -> None:
    barriers = ResumeBarriers(every=100, per_round=8, per_turn=1, interval=1, lag=0)
    assert barriers.period == 13  # 104 updates: the first round that ends after 100
    assert barriers.is_barrier(13)


def test_every_0_has_no_barriers() -> None:
    barriers = ResumeBarriers(every=0, per_round=1, per_turn=1, interval=1, lag=1, resumed_at=7)
    assert not any(barriers.is_barrier(number) for number in range(100))
    assert {barriers.last(number) for number in range(7, 100)} == {7}


def test_a_resumed_run_begins_with_a_barrier() -> None:
    barriers = ResumeBarriers(every=100, per_round=1, per_turn=1, interval=1, lag=2, resumed_at=150)
    assert [barriers.last(number) for number in (150, 201, 202)] == [150, 150, 202]


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


@given(every=st.integers(1, 60), per_round=st.integers(1, 20), per_turn=st.integers(1, 4))
def test_a_schedule_of_turns_is_kept_at_the_ends_of_rounds(every: int, per_round: int, per_turn: int) -> None:
    """Every multiple of `every` is followed by a save at the next end of a round; several in one round share it."""
    barriers = NoBarriers(every=every, per_round=per_round, per_turn=per_turn, interval=1, lag=4)
    ends = [turn for turn in range(1, 2_000) if barriers.ends_round(turn)]
    assert ends == [turn for turn in range(1, 2_000) if turn * per_turn % per_round == 0]
    due = [turn for turn in range(1, 2_000) if barriers.is_checkpoint(turn)]
    assert set(due) <= set(ends)
    for multiple in range(every, ends[-1] + 1, every):
        assert next(end for end in ends if end >= multiple) in due
    assert len(due) <= len(range(every, ends[-1] + 1, every))
    never = NoBarriers(every=0, per_round=per_round, per_turn=per_turn, interval=1, lag=4)
    assert not any(never.is_checkpoint(turn) for turn in range(100))


@given(ANY)
def test_a_deterministic_run_saves_at_its_barriers_only(barriers: ResumeBarriers) -> None:
    turns = range(1, 2 * (barriers.period + barriers.delay) * barriers.per_round // barriers.per_turn + 2)
    rounds = {turn * barriers.per_turn / barriers.per_round for turn in turns if barriers.is_checkpoint(turn)}
    last = turns[-1] * barriers.per_turn // barriers.per_round
    assert rounds == {number for number in range(last + 1) if barriers.is_barrier(number)}


def test_an_asynchronous_run_has_no_barrier() -> None:
    barriers = NoBarriers(every=10, per_round=1, per_turn=1, interval=1, lag=4, resumed_at=7)
    assert not any(barriers.is_barrier(number) for number in range(100))
    assert {barriers.last(number) for number in range(100)} == {7}


@given(ANY, st.integers(0, 7))
def test_with_a_warmup_all_barriers_come_later_and_gradients_are_counted_after_it(
    barriers: ResumeBarriers, warmup: int
) -> None:
    later = dataclasses.replace(barriers, warmup=warmup)
    for number in range(3 * barriers.period + barriers.delay + 1):
        assert later.is_barrier(warmup + number) == barriers.is_barrier(number)
        last = barriers.last(number)
        assert later.last(warmup + number) == (warmup + last if last else 0)
        assert later.version(warmup + number) == barriers.version(number) == number // barriers.interval
        assert later.first_gradient(warmup + number) == barriers.first_gradient(number) == number * barriers.per_round
    for gradient in range(3 * barriers.per_round):
        assert later.round_of(gradient) == warmup + gradient // barriers.per_round
    for turn in range(1, 2 * (barriers.period + barriers.delay) * barriers.per_round // barriers.per_turn + 2):
        assert later.is_checkpoint(turn) == barriers.is_checkpoint(turn)


def test_rounds_of_a_warmup_have_no_gradient_no_version_and_no_barrier() -> None:
    barriers = ResumeBarriers(every=4, per_round=2, per_turn=1, interval=1, lag=1, warmup=5)
    assert [barriers.first_gradient(number) for number in range(8)] == [0, 0, 0, 0, 0, 0, 2, 4]
    assert [barriers.version(number) for number in range(8)] == [0, 0, 0, 0, 0, 0, 1, 2]
    assert [number for number in range(14) if barriers.is_barrier(number)] == [8, 10, 12]
    assert [barriers.last(number) for number in (0, 5, 7, 8, 9, 10)] == [0, 0, 0, 8, 8, 10]
    assert [turn for turn in range(16) if barriers.is_checkpoint(turn)] == [6, 10, 14]
