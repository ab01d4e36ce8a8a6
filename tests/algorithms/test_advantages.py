"""Advantages of several rollouts against the recursion written out, and their moments against NumPy's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hive.algorithms import Moments
from hive.algorithms.batches.advantages import advantage_moments, generalized_advantages, merged, normalized
from hive.experience import FINALS, LENGTH, Rollout, rollout_layout

numbers = st.lists(st.floats(-1e4, 1e4, width=32), max_size=40)


def rollout(seed: int = 1, steps: int = 6, envs: int = 3, length: int | None = None) -> Rollout:
    """Episodes terminate and are truncated, some steps are not valid, and values that must not be read are NaN."""
    generator, length = np.random.default_rng(seed), steps if length is None else length
    layout = rollout_layout(steps, envs, ((1,), "float32"), ((), "int64"), steps * envs)
    arrays: dict[str, NDArray[Any]] = layout.views(np.full(layout.bytes, 0xFF, np.uint8))  # NaN, -1, true
    shape = length, envs
    valid, ends = generator.random(shape) > 0.2, generator.integers(0, 5, shape)
    cut = np.argwhere(valid & (ends == 2))
    arrays["header"][[LENGTH, FINALS]] = length, len(cut)
    arrays["valid"][:length] = valid
    arrays["terminated"][:length], arrays["truncated"][:length] = valid & (ends == 1), valid & (ends == 2)
    for number, (t, b) in enumerate(cut):
        arrays["final_index"][t, b] = number
    arrays["rewards"][:length] = np.where(valid, generator.normal(size=shape), np.nan)
    return Rollout(arrays)


def holding(values: list[float], valid: list[int] | None = None) -> Rollout:
    """One environment with this many steps, of which only `valid` is read."""
    layout = rollout_layout(len(values), 1, ((1,), "float32"), ((), "int64"), 1)
    arrays = layout.views(np.zeros(layout.bytes, np.uint8))
    arrays["header"][LENGTH] = len(values)
    arrays["valid"][:, 0] = 1 if valid is None else valid
    return Rollout(arrays)


def moments(values: list[float], valid: list[int] | None = None) -> Moments:
    return advantage_moments([holding(values, valid)], np.array(values, np.float32))


def recursion(r: Rollout, values: NDArray[Any], finals: NDArray[Any], discount: float, gae_lambda: float) -> Any:
    """Advantages [T, B] in float64, 0 where nothing is valid."""
    advantages = np.zeros(r.rewards.shape)
    for b in range(r.rewards.shape[1]):
        carry = 0.0
        for t in reversed(range(r.length)):
            if not r.valid[t, b]:
                carry = 0.0
                continue
            ended = r.terminated[t, b] or r.truncated[t, b]
            following = finals[r.final_index[t, b]] if r.truncated[t, b] else values[t + 1, b]
            following = 0.0 if r.terminated[t, b] else float(following)
            delta = float(r.rewards[t, b]) + discount * following - float(values[t, b])
            carry = delta + (0.0 if ended else discount * gae_lambda * carry)
            advantages[t, b] = carry
    return advantages


@pytest.mark.parametrize(("discount", "gae_lambda"), [(0.9, 1.0), (0.97, 0.8), (0.5, 0.0), (0.0, 0.5)])
def test_advantages_and_targets_of_several_rollouts(discount: float, gae_lambda: float) -> None:
    """Rows lie as the network saw them: all steps of all, one after the other."""
    rollouts = [rollout(1), rollout(2, steps=9, envs=2, length=4), rollout(3, length=0), rollout(4, envs=1)]
    assert all(r.truncated.any() and r.terminated.any() and not r.valid.all() for r in rollouts[:2])
    generator, parts, expected, own = np.random.default_rng(7), [], [], []
    for r in rollouts:
        values = generator.normal(size=(r.length + 1, r.rewards.shape[1])).astype(np.float32)
        finals = generator.normal(size=len(r.final_observations)).astype(np.float32)
        parts += [values.reshape(-1), finals]
        expected.append(recursion(r, values, finals, discount, gae_lambda).reshape(-1))
        own.append(values[:-1].reshape(-1))
    advantages, targets = generalized_advantages(rollouts, np.concatenate(parts), discount, gae_lambda)
    valid = np.concatenate([r.valid.reshape(-1) for r in rollouts]).astype(bool)
    assert (advantages.dtype, advantages.shape, targets.shape) == (np.float32, valid.shape, valid.shape)
    np.testing.assert_allclose(advantages[valid], np.concatenate(expected)[valid], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(targets[valid], (advantages + np.concatenate(own))[valid], rtol=1e-6, atol=1e-6)


def test_rewards_of_steps_that_are_not_valid_are_not_read() -> None:
    r = holding([0.0, 0.0, 0.0], valid=[1, 0, 1])
    r.rewards[1] = np.nan
    values = np.ones(4, np.float32)
    for log_ratios in (None, np.zeros(3, np.float32)):
        advantages, _ = generalized_advantages([r], values, 0.9, 0.9, log_ratios)
        assert np.isfinite(advantages).all()


def test_moments_are_of_the_valid_ones_of_all_rollouts() -> None:
    rollouts = [holding([1.0, 9.0, 2.0], [1, 0, 1]), holding([]), holding([3.0, np.nan], [7, 0])]
    found = advantage_moments(rollouts, np.float32([1.0, 9.0, 2.0, 3.0, np.nan]))
    assert found == Moments(3, 6.0, 14.0)
    assert [type(value) for value in (found.count, found.total, found.squares)] == [int, float, float]


def test_moments_of_nothing() -> None:
    assert moments([]) == moments([5.0, 6.0], [0, 0]) == Moments(0, 0.0, 0.0)


def test_moments_are_added_up_in_double_precision() -> None:
    """In float32 the sum would stop at 2^24, and the squares lose what the deviation is made of."""
    values = np.full(2**12, 4097.0, np.float32)
    found = advantage_moments([holding([0.0] * 2**12)], values)
    assert found == Moments(2**12, 4097.0 * 2**12, 4097.0**2 * 2**12)


@given(st.lists(numbers, min_size=1, max_size=5))
def test_merged_are_mean_and_deviation_of_all(parts: list[list[float]]) -> None:
    """The sample deviation of any number of values in any parts, also empty ones; below two values nothing changes."""
    together = np.array([value for part in parts for value in part], np.float64)
    mean, deviation = merged([moments(part) for part in parts])
    if len(together) < 2:
        assert (mean, deviation) == (0.0, 1.0)
        return
    scale = max(1.0, float(np.abs(together).max()))
    assert mean == pytest.approx(together.mean(), rel=1e-9, abs=1e-9 * scale)
    assert deviation == pytest.approx(together.std(ddof=1), rel=1e-6, abs=1e-6 * scale)


@pytest.mark.parametrize(
    "parts", [[], [Moments(0, 0.0, 0.0)], [Moments(0, 0.0, 0.0)] * 3, [Moments(1, 5.0, 25.0), Moments(0, 0.0, 0.0)]]
)
def test_fewer_than_two_values_are_left_as_they_are(parts: list[Moments]) -> None:
    """Mean 0 and deviation 1: normalising by them changes nothing."""
    assert merged(parts) == (0.0, 1.0)


def test_parts_without_anything_change_nothing() -> None:
    empty, one, two = Moments(0, 0.0, 0.0), moments([1.0, 2.0]), moments([5.0])
    assert merged([empty, one, empty, two]) == merged([one, two])


def test_a_deviation_is_never_the_root_of_a_negative_number() -> None:
    """Equal numbers: their mean square may come out below the square of their mean."""
    values = [0.1] * 3
    assert merged([Moments(3, math.fsum(values), 0.03 - 1e-12)]) == pytest.approx((0.1, 0.0))
    mean, deviation = merged([moments([1234.567] * 7)])
    assert mean == pytest.approx(1234.567, rel=1e-6)
    assert 0.0 <= deviation < 1e-3


def test_normalized_have_mean_zero_and_deviation_one() -> None:
    values = np.random.default_rng(1).normal(3.0, 5.0, 1000).astype(np.float32)
    made = normalized(values, merged([moments(values.tolist())]))
    assert made.dtype == np.float32
    assert float(made.mean(dtype=np.float64)) == pytest.approx(0.0, abs=1e-6)
    assert float(made.std(dtype=np.float64, ddof=1)) == pytest.approx(1.0, rel=1e-6)
    np.testing.assert_allclose(made, (values - values.mean()) / values.std(ddof=1), rtol=1e-4, atol=1e-5)


def test_normalized_by_the_moments_of_all_workers() -> None:
    assert normalized(np.float32([1.0, 5.0]), (3.0, 2.0)).tolist() == pytest.approx([-1.0, 1.0])
    assert normalized(np.float32([4.0, 4.0]), (4.0, 0.0)).tolist() == [0.0, 0.0]
    untouched = np.float32([1.0, -7.0])
    assert normalized(untouched, (0.0, 1.0)).tolist() == pytest.approx(untouched.tolist())
