"""The replay memory of a script: what is drawn was added, how often, and for how long."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hive.experience import ReplayBuffer

NUMBER = ((1,), "float32")
ACTION = ((), "int64")


def buffer(capacity: int = 100, **options: Any) -> ReplayBuffer:
    return ReplayBuffer(NUMBER, ACTION, capacity=capacity, discount=0.5, **options)


def walk(replay: ReplayBuffer, steps: int, *, ends: dict[int, str] | None = None, first: float = 0.0) -> None:
    """Add steps t = 0, 1, ..: observation first + t, action t, reward t. After an end, observations go on from 1000."""
    seen = first
    replay.begin([[seen]])
    for t in range(steps):
        kind = (ends or {}).get(t, "")
        after = seen + 1.0
        following = 1000.0 + t if kind else after
        replay.add(t, float(t), kind == "terminated", kind == "truncated", [[after]], [[following]])
        seen = following


def drawn(replay: ReplayBuffer, count: int = 64) -> dict[int, tuple[float, float, float, float]]:
    """Action -> (observation, return, discount, next observation) of the transitions that were drawn."""
    batch = replay.sample(count)
    columns = batch.observations[:, 0], batch.returns, batch.discounts, batch.next_observations[:, 0]
    rows = zip(batch.actions.tolist(), *(column.tolist() for column in columns), strict=True)
    return {action: tuple(rest) for action, *rest in rows}


def test_transitions_are_those_that_were_added() -> None:
    replay = buffer()
    walk(replay, 4, ends={1: "terminated", 2: "truncated"})
    assert len(replay) == 4
    found = drawn(replay)
    assert found[0] == (0.0, 0.0, 0.5, 1.0)
    assert found[1][:3] == (1.0, 1.0, 0.0)
    assert found[2] == (1001.0, 2.0, 0.5, 1002.0)  # the true last observation, not the first of the next episode
    assert found[3] == (1002.0, 3.0, 0.5, 1003.0)


def test_transitions_of_several_steps_end_with_their_episode() -> None:
    replay = buffer(n_step=3)
    walk(replay, 5, ends={3: "truncated"})
    assert len(replay) == 3  # those of the last two steps are not complete
    found = drawn(replay)
    assert found[0] == (0.0, 0.5 * 1 + 0.25 * 2, 0.125, 3.0)
    assert found[2] == (2.0, 2.0 + 0.5 * 3, 0.25, 4.0)


def test_steps_that_do_not_fit_are_refused() -> None:
    """NumPy would repeat a smaller array, and cut the fractions of numbers, without a word."""
    replay = buffer()
    replay.begin([[0.0]])
    with pytest.raises(ValueError, match="`actions` is stored as int64"):
        replay.add(1.7, 0.0, False, False, [[1.0]], [[1.0]])
    frames = ReplayBuffer(((2,), "uint8"), ACTION, capacity=10)
    with pytest.raises(ValueError, match="`observations` is stored as uint8"):
        frames.begin([0.25, 0.5])
    two = ReplayBuffer(NUMBER, ACTION, capacity=10, envs=2)
    with pytest.raises(ValueError, match=r"`observations` has shape \[1\], expected \[2, 1\]"):
        two.begin([0.0])
    with pytest.raises(ValueError, match="n_step = 0"):
        buffer(n_step=0)


def test_errors_of_evicted_transitions_change_no_later_ones() -> None:
    replay = buffer(capacity=4, alpha=1.0)
    walk(replay, 8)
    batch = replay.sample(64)
    walk(replay, 26)
    before = replay.tree.leaves.copy()
    replay.update(batch, np.full(64, 7.0))
    np.testing.assert_array_equal(replay.tree.leaves, before)


def test_a_reset_in_the_middle_of_an_episode_joins_nothing() -> None:
    replay = buffer(n_step=2)
    walk(replay, 2)
    walk(replay, 3, first=50.0)
    assert len(replay) == 4  # the row between both is no step, and the last step is not complete
    found = {(observation, following) for observation, _, _, following in drawn(replay).values()}
    observations = replay.memory.arrays["observations"][0, :, 0, 0]
    assert (50.0, 52.0) in found
    assert all(following - observation <= 2.0 for observation, following in found)
    assert observations[:7].tolist() == [0.0, 1.0, 2.0, 50.0, 51.0, 52.0, 53.0]


@pytest.mark.parametrize("n_step", [1, 3])
def test_the_oldest_transitions_are_evicted(n_step: int) -> None:
    replay = buffer(8, n_step=n_step)
    walk(replay, 50)
    assert len(replay) == 8
    newest = 50 - n_step
    found = drawn(replay, 200)
    assert {action: observation for action, (observation, *_) in found.items()} == {
        action: float(action) for action in range(newest - 7, newest + 1)
    }


def test_several_environments_keep_their_columns() -> None:
    replay = ReplayBuffer(NUMBER, ACTION, capacity=20, envs=2, discount=0.5)
    replay.begin([[0.0], [100.0]])
    for t in range(4):
        after = [[t + 1.0], [t + 101.0]]
        replay.add([t, t + 100], [1.0, 2.0], [False, False], [False, False], after, after)
    for action, (observation, reward, _, following) in drawn(replay).items():
        assert (observation, following) == (action, action + 1.0)
        assert reward == (1.0 if action < 100 else 2.0)


def test_large_errors_are_drawn_more_often_and_weigh_less() -> None:
    replay = buffer(alpha=1.0, beta=1.0)
    walk(replay, 10)
    batch = replay.sample(512)
    replay.update(batch, np.where(batch.actions == 3, 9.0, 1.0))
    batch = replay.sample(4096)
    share = np.mean(batch.actions == 3)
    assert share == pytest.approx(0.5, abs=0.02)  # 9 of 9 + 9 * 1
    assert batch.weights[batch.actions == 3] == pytest.approx(1 / 9, rel=1e-3)
    assert batch.weights[batch.actions != 3] == pytest.approx(1.0, rel=1e-3)


def test_a_new_transition_has_the_largest_priority_so_far() -> None:
    replay = buffer(alpha=1.0)
    walk(replay, 10)
    batch = replay.sample(512)
    replay.update(batch, np.full(512, 5.0))
    replay.update(replay.sample(512), np.full(512, 1.0))
    replay.add(77, 0.0, False, False, [[11.0]], [[11.0]])
    assert np.mean(replay.sample(3000).actions == 77) == pytest.approx(1 / 3, abs=0.02)  # 5 of 5 + 10 * 1


def test_errors_of_evicted_transitions_change_nothing() -> None:
    replay = buffer(4, alpha=1.0)
    walk(replay, 4)
    batch = replay.sample(16)
    for t in range(2):
        replay.add(50 + t, 0.0, False, False, [[0.0]], [[0.0]])
    replay.update(batch, np.full(16, 100.0))
    assert len(replay) == 4
    assert set(drawn(replay, 400)) <= {2, 3, 50, 51}


def test_without_priorities_all_are_equally_likely() -> None:
    replay = buffer()
    walk(replay, 10)
    counts = np.bincount(replay.sample(10_000).actions, minlength=10)
    assert counts.tolist() == pytest.approx([1000.0] * 10, abs=2.0)  # strata
    assert (replay.sample(8).weights == 1.0).all()


def test_the_same_seed_draws_the_same() -> None:
    def of(seed: int) -> list[list[int]]:
        replay = buffer(seed=seed)
        walk(replay, 30)
        return [replay.sample(8).actions.tolist() for _ in range(2)]

    assert of(1) == of(1) != of(2)
    assert of(1)[0] != of(1)[1]


def test_nothing_can_be_drawn_too_early() -> None:
    replay = buffer(n_step=3)
    walk(replay, 2)
    with pytest.raises(ValueError, match="no transition of 3 steps is in the memory yet"):
        replay.sample(1)


def test_a_capacity_below_one_row_is_refused() -> None:
    with pytest.raises(ValueError, match="3 steps is less than one of each of 4 environments"):
        ReplayBuffer(NUMBER, ACTION, capacity=3, envs=4)
