"""gae and n_step_returns against their definitions in float64, over random masks and by hand."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hive import _native

Floats = NDArray[np.float32]
Mask = NDArray[np.uint8]
DISCOUNT = 0.9


@dataclass
class Rollout:
    rewards: Floats
    values: Floats
    next_values: Floats
    terminated: Mask
    truncated: Mask
    valid: Mask

    def blocks(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def goes_on(self, t: int, b: int) -> bool:
        """Whether the step after (t, b) belongs to the same episode and to this rollout."""
        ended = self.terminated[t, b] or self.truncated[t, b]
        return not ended and t + 1 < len(self.rewards) and bool(self.valid[t + 1, b])


def random_rollout(steps: int, envs: int, seed: int, rate: float = 0.15) -> Rollout:
    generator = np.random.default_rng(seed)
    floats = [generator.standard_normal((steps, envs), dtype=np.float32) for _ in range(3)]
    masks = [(generator.random((steps, envs)) < rate).astype(np.uint8) for _ in range(3)]
    return Rollout(*floats, masks[0], masks[1], 1 - masks[2])


def column(
    rewards: list[float], values: list[float], next_values: list[float], **masks: list[int]
) -> Rollout:
    """A rollout of one environment."""
    floats = [np.float32(row).reshape(-1, 1) for row in (rewards, values, next_values)]
    absent = [0] * len(rewards)
    ended = [np.uint8(masks.get(name, absent)).reshape(-1, 1) for name in ("terminated", "truncated")]
    return Rollout(*floats, *ended, np.uint8(masks.get("valid", [1] * len(rewards))).reshape(-1, 1))


def gae(rollout: Rollout, gae_lambda: float) -> tuple[Floats, Floats]:
    advantages, targets = (np.full_like(rollout.rewards, np.nan) for _ in range(2))
    _native.gae(
        **rollout.blocks(), advantages=advantages, targets=targets, discount=DISCOUNT, gae_lambda=gae_lambda
    )
    return advantages, targets


def n_step(rollout: Rollout, n: int) -> tuple[Floats, Floats]:
    advantages, targets = (np.full_like(rollout.rewards, np.nan) for _ in range(2))
    _native.n_step_returns(**rollout.blocks(), advantages=advantages, targets=targets, discount=DISCOUNT, n=n)
    return advantages, targets


def reference_gae(rollout: Rollout, t: int, b: int, gae_lambda: float) -> float:
    total, factor = 0.0, 1.0
    while True:
        follows = 0.0 if rollout.terminated[t, b] else float(rollout.next_values[t, b])
        total += factor * (float(rollout.rewards[t, b]) + DISCOUNT * follows - float(rollout.values[t, b]))
        if not rollout.goes_on(t, b):
            return total
        t, factor = t + 1, factor * DISCOUNT * gae_lambda


def reference_return(rollout: Rollout, t: int, b: int, n: int) -> float:
    total, factor = 0.0, 1.0
    for taken in range(1, n + 1):
        total += factor * float(rollout.rewards[t, b])
        factor *= DISCOUNT
        if taken == n or not rollout.goes_on(t, b):
            break
        t += 1
    return total + (0.0 if rollout.terminated[t, b] else factor * float(rollout.next_values[t, b]))


shapes = {"steps": st.integers(1, 12), "envs": st.integers(1, 20), "seed": st.integers(0, 2**32)}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(**shapes, gae_lambda=st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_gae_is_its_definition(steps: int, envs: int, seed: int, gae_lambda: float) -> None:
    rollout = random_rollout(steps, envs, seed)
    advantages, targets = gae(rollout, gae_lambda)
    expected = [
        [reference_gae(rollout, t, b, gae_lambda) if rollout.valid[t, b] else 0.0 for b in range(envs)]
        for t in range(steps)
    ]
    np.testing.assert_allclose(advantages, expected, atol=1e-5)
    np.testing.assert_allclose(targets, rollout.values + expected, atol=1e-5)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(**shapes, n=st.sampled_from([1, 2, 3, 5, 12, 10**18]))
def test_n_step_is_its_definition(steps: int, envs: int, seed: int, n: int) -> None:
    rollout = random_rollout(steps, envs, seed)
    advantages, targets = n_step(rollout, n)
    expected = [
        [
            reference_return(rollout, t, b, n) if rollout.valid[t, b] else rollout.values[t, b]
            for b in range(envs)
        ]
        for t in range(steps)
    ]
    np.testing.assert_allclose(targets, expected, atol=1e-5)
    np.testing.assert_allclose(advantages, expected - rollout.values, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_returns_to_the_end_are_gae_with_lambda_one(seed: int) -> None:
    rollout = random_rollout(30, 9, seed)
    # The identity needs V(successor) of a row to be the value of the next, where the episode goes on.
    for t, b in np.ndindex(30, 9):
        if rollout.goes_on(t, b):
            rollout.next_values[t, b] = rollout.values[t + 1, b]
    np.testing.assert_allclose(n_step(rollout, 30)[1], gae(rollout, 1.0)[1], atol=1e-5)
    np.testing.assert_allclose(n_step(rollout, 1)[1], gae(rollout, 0.0)[1], atol=1e-6)


def test_by_hand_without_ends() -> None:
    rollout = column([1, 2], [10, 20], [20, 30])
    # delta_1 = 2 + 0.9 * 30 - 20 = 9, delta_0 = 1 + 0.9 * 20 - 10 = 9, advantage_0 = 9 + 0.9 * 0.5 * 9.
    advantages, targets = gae(rollout, 0.5)
    np.testing.assert_allclose(advantages[:, 0], [13.05, 9.0], rtol=1e-6)
    np.testing.assert_allclose(targets[:, 0], [23.05, 29.0], rtol=1e-6)
    np.testing.assert_allclose(n_step(rollout, 2)[1][:, 0], [1 + 0.9 * (2 + 0.9 * 30), 29.0], rtol=1e-6)


def test_termination_does_not_bootstrap_and_nan_behind_it_is_not_read() -> None:
    rollout = column([1, 2, 3], [10, 20, 30], [20, np.nan, 40], terminated=[0, 1, 0])
    advantages, _ = gae(rollout, 1.0)
    # delta: 1 + 18 - 10 = 9, 2 - 20 = -18, 3 + 36 - 30 = 9.
    np.testing.assert_allclose(advantages[:, 0], [9 - 0.9 * 18, -18, 9], rtol=1e-6)
    np.testing.assert_allclose(n_step(rollout, 3)[1][:, 0], [1 + 0.9 * 2, 2, 39], rtol=1e-6)


def test_truncation_bootstraps_from_the_final_observation() -> None:
    rollout = column([1, 2, 3], [10, 20, 30], [20, 50, 40], truncated=[0, 1, 0])
    # delta_1 = 2 + 45 - 20 = 27, not from row 2.
    advantages, _ = gae(rollout, 1.0)
    np.testing.assert_allclose(advantages[:, 0], [9 + 0.9 * 27, 27, 9], rtol=1e-6)
    np.testing.assert_allclose(n_step(rollout, 3)[1][:, 0], [1 + 0.9 * 47, 47, 39], rtol=1e-6)


def test_terminated_wins_over_truncated() -> None:
    rollout = column([1], [0], [100], terminated=[1], truncated=[1])
    assert gae(rollout, 1.0)[1][0, 0] == n_step(rollout, 1)[1][0, 0] == 1.0


def test_reset_step_is_out_and_nothing_flows_over_it() -> None:
    rollout = column([1, np.nan, 3], [10, 20, 30], [50, np.nan, 40], truncated=[1, 0, 0], valid=[1, 0, 1])
    for advantages, targets in (gae(rollout, 1.0), n_step(rollout, 3)):
        np.testing.assert_allclose(advantages[:, 0], [1 + 45 - 10, 0, 9], rtol=1e-6)
        np.testing.assert_allclose(targets[:, 0], [46, 20, 39], rtol=1e-6)


def test_last_valid_step_of_a_partial_rollout_bootstraps() -> None:
    rollout = column([1, 2, 0, 0], [10, 20, 5, 5], [20, 30, 0, 0], valid=[1, 1, 0, 0])
    whole = column([1, 2], [10, 20], [20, 30])
    for compute in (lambda r: gae(r, 0.95), lambda r: n_step(r, 4)):
        np.testing.assert_array_equal(compute(rollout)[1][:2], compute(whole)[1])


@pytest.mark.parametrize("mask", ["terminated", "truncated"])
def test_no_leak_over_an_episode_boundary(mask: str) -> None:
    rollout = random_rollout(10, 4, seed=7, rate=0.0)
    getattr(rollout, mask)[5] = 1
    changed = replace(rollout, rewards=rollout.rewards.copy(), values=rollout.values.copy())
    changed.rewards[6:] += 100
    changed.values[6:] -= 100
    for compute in (lambda r: gae(r, 0.95), lambda r: n_step(r, 10), lambda r: n_step(r, 4)):
        for before, after in zip(compute(rollout), compute(changed), strict=True):
            np.testing.assert_array_equal(before[:6], after[:6])
            assert not np.array_equal(before[6:], after[6:])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_empty_rollouts(shape: tuple[int, int]) -> None:
    rollout = random_rollout(*shape, seed=0)
    assert gae(rollout, 0.95)[0].shape == n_step(rollout, 5)[0].shape == shape


@pytest.mark.parametrize(
    ("name", "block", "error", "message"),
    [
        ("rewards", np.zeros((3, 2)), TypeError, "rewards must be float32, got float64"),
        ("terminated", np.zeros((3, 2), bool), TypeError, "terminated must be uint8, got bool"),
        ("valid", np.zeros((3, 3), np.uint8), ValueError, r"valid and rewards must .* got \(3, 3\)"),
        ("values", np.zeros(6, np.float32), ValueError, r"values must be 2-dimensional, got shape \(6,\)"),
        ("truncated", np.zeros((2, 3), np.uint8).T, ValueError, "truncated must be contiguous"),
    ],
)
def test_wrong_arguments_are_named(name: str, block: Any, error: type[Exception], message: str) -> None:
    rollout = replace(random_rollout(3, 2, seed=0), **{name: block})
    blocks = rollout.blocks() | {key: np.zeros((3, 2), np.float32) for key in ("advantages", "targets")}
    with pytest.raises(error, match=message):
        _native.gae(**blocks, discount=0.9, gae_lambda=0.9)


def test_outputs_are_apart_and_n_is_positive() -> None:
    rollout = random_rollout(3, 2, seed=0)
    out = np.zeros((3, 2), np.float32)
    with pytest.raises(ValueError, match="targets overlaps advantages"):
        _native.gae(**rollout.blocks(), advantages=out, targets=out, discount=0.9, gae_lambda=0.9)
    with pytest.raises(ValueError, match="advantages overlaps rewards"):
        _native.gae(**rollout.blocks(), advantages=rollout.rewards, targets=out, discount=0.9, gae_lambda=0.9)
    with pytest.raises(ValueError, match="n must be at least 1"):
        n_step(rollout, 0)
