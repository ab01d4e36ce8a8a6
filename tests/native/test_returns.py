"""gae, n_step_returns and vtrace against their definitions in float64, over random masks and by hand."""

from __future__ import annotations

import math
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

    def with_successors(self) -> Rollout:
        """Where the episode goes on, V(successor) is the value of the next row, as in a real rollout."""
        next_values = self.next_values.copy()
        for t, b in np.ndindex(self.rewards.shape):
            if self.goes_on(t, b):
                next_values[t, b] = self.values[t + 1, b]
        return replace(self, next_values=next_values)


def random_rollout(steps: int, envs: int, seed: int, rate: float = 0.15) -> Rollout:
    generator = np.random.default_rng(seed)
    floats = [generator.standard_normal((steps, envs), dtype=np.float32) for _ in range(3)]
    masks = [(generator.random((steps, envs)) < rate).astype(np.uint8) for _ in range(3)]
    return Rollout(*floats, masks[0], masks[1], 1 - masks[2])


def column(rewards: list[float], values: list[float], next_values: list[float], **masks: list[int]) -> Rollout:
    """A rollout of one environment."""
    floats = [np.float32(row).reshape(-1, 1) for row in (rewards, values, next_values)]
    absent = [0] * len(rewards)
    ended = [np.uint8(masks.get(name, absent)).reshape(-1, 1) for name in ("terminated", "truncated")]
    return Rollout(*floats, *ended, np.uint8(masks.get("valid", [1] * len(rewards))).reshape(-1, 1))


def gae(rollout: Rollout, gae_lambda: float) -> tuple[Floats, Floats]:
    advantages, targets = (np.full_like(rollout.rewards, np.nan) for _ in range(2))
    _native.gae(**rollout.blocks(), advantages=advantages, targets=targets, discount=DISCOUNT, gae_lambda=gae_lambda)
    return advantages, targets


def n_step(rollout: Rollout, n: int) -> tuple[Floats, Floats]:
    advantages, targets = (np.full_like(rollout.rewards, np.nan) for _ in range(2))
    _native.n_step_returns(**rollout.blocks(), advantages=advantages, targets=targets, discount=DISCOUNT, n=n)
    return advantages, targets


def vtrace(
    rollout: Rollout, log_ratios: Any, gae_lambda: float = 1.0, rho_clip: float = 1.0, c_clip: float = 1.0
) -> tuple[Floats, Floats]:
    advantages, targets = (np.full_like(rollout.rewards, np.nan) for _ in range(2))
    _native.vtrace(
        **rollout.blocks(),
        log_ratios=np.float32(log_ratios).reshape(rollout.rewards.shape),
        advantages=advantages,
        targets=targets,
        discount=DISCOUNT,
        gae_lambda=gae_lambda,
        rho_clip=rho_clip,
        c_clip=c_clip,
    )
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


def reference_vtrace(
    rollout: Rollout, log_ratios: Floats, s: int, b: int, gae_lambda: float, rho_clip: float, c_clip: float
) -> float:
    """Equation 1 of Espeholt et al. 2018 as it stands: the sum over t >= s of each error times all c before it."""
    target, factor, t = float(rollout.values[s, b]), 1.0, s
    while True:
        ratio = math.exp(float(log_ratios[t, b]))
        follows = 0.0 if rollout.terminated[t, b] else float(rollout.next_values[t, b])
        error = float(rollout.rewards[t, b]) + DISCOUNT * follows - float(rollout.values[t, b])
        target += factor * min(rho_clip, ratio) * error
        if not rollout.goes_on(t, b):
            return target
        t, factor = t + 1, factor * DISCOUNT * gae_lambda * min(c_clip, ratio)


def reference_vtrace_advantage(rollout: Rollout, log_ratios: Floats, t: int, b: int, *clips: float) -> float:
    follows = 0.0 if rollout.terminated[t, b] else float(rollout.next_values[t, b])
    if rollout.goes_on(t, b):
        follows = reference_vtrace(rollout, log_ratios, t + 1, b, *clips)
    rho = min(clips[1], math.exp(float(log_ratios[t, b])))
    return rho * (float(rollout.rewards[t, b]) + DISCOUNT * follows - float(rollout.values[t, b]))


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
        [reference_return(rollout, t, b, n) if rollout.valid[t, b] else rollout.values[t, b] for b in range(envs)]
        for t in range(steps)
    ]
    np.testing.assert_allclose(targets, expected, atol=1e-5)
    np.testing.assert_allclose(advantages, expected - rollout.values, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_returns_to_the_end_are_gae_with_lambda_one(seed: int) -> None:
    rollout = random_rollout(30, 9, seed).with_successors()
    np.testing.assert_allclose(n_step(rollout, 30)[1], gae(rollout, 1.0)[1], atol=1e-5)
    np.testing.assert_allclose(n_step(rollout, 1)[1], gae(rollout, 0.0)[1], atol=1e-6)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(**shapes, clips=st.sampled_from([(1.0, 1.0, 1.0), (0.95, 2.0, 1.0), (0.5, 0.5, 0.8), (1.0, 1e9, 1e9)]))
def test_vtrace_is_its_definition(steps: int, envs: int, seed: int, clips: tuple[float, float, float]) -> None:
    rollout = random_rollout(steps, envs, seed).with_successors()
    log_ratios = np.random.default_rng(seed + 1).normal(0, 0.7, (steps, envs)).astype(np.float32)
    advantages, targets = vtrace(rollout, log_ratios, *clips)
    for t, b in np.ndindex(steps, envs):
        if rollout.valid[t, b]:
            exact = reference_vtrace(rollout, log_ratios, t, b, *clips)
            exact_advantage = reference_vtrace_advantage(rollout, log_ratios, t, b, *clips)
            assert targets[t, b] == pytest.approx(exact, rel=1e-4, abs=1e-4)
            assert advantages[t, b] == pytest.approx(exact_advantage, rel=1e-4, abs=1e-4)
        else:
            assert (advantages[t, b], targets[t, b]) == (0.0, rollout.values[t, b])


@pytest.mark.parametrize(("gae_lambda", "clip"), [(1.0, 1.0), (0.9, 3.0), (0.0, 1.0)])
def test_vtrace_on_policy_is_gae_to_the_bit(gae_lambda: float, clip: float) -> None:
    """The targets are; the advantages only with lambda = 1, else they look one step ahead, to the next target."""
    rollout = random_rollout(30, 9, seed=3).with_successors()
    advantages, targets = vtrace(rollout, np.zeros((30, 9)), gae_lambda, clip, clip)
    expected_advantages, expected_targets = gae(rollout, gae_lambda)
    np.testing.assert_array_equal(targets, expected_targets)
    assert np.array_equal(advantages, expected_advantages) == (gae_lambda == 1.0)


def test_vtrace_by_hand() -> None:
    """Ratios 1/2 and 4: rho = 0.5, 2 and c = 0.8 * 0.5, 0.8 * 1."""
    rollout = column([1, 2], [10, 20], [20, 30])
    advantages, targets = vtrace(rollout, np.log([0.5, 4.0]), 0.8, rho_clip=2.0, c_clip=1.0)
    # Errors are 9 and 9, so v_1 = 20 + 2 * 9 = 38 and v_0 = 10 + 0.5 * 9 + 0.9 * 0.4 * 18.
    np.testing.assert_allclose(targets[:, 0], [14.5 + 6.48, 38], rtol=1e-6)
    np.testing.assert_allclose(advantages[:, 0], [0.5 * (1 + 0.9 * 38 - 10), 18], rtol=1e-6)


def test_vtrace_at_ends_by_hand() -> None:
    """After a terminated step nothing, after a truncated one the value of its last observation; rho = c = 0.5."""
    half = np.log([0.5] * 3)
    advantages, targets = vtrace(column([1, 2, 3], [10, 20, 30], [20, np.nan, 40], terminated=[0, 1, 0]), half)
    np.testing.assert_allclose(targets[:, 0], [10 + 4.5 - 0.45 * 9, 20 - 9, 30 + 4.5], rtol=1e-6)
    np.testing.assert_allclose(advantages[:, 0], [0.5 * (1 + 0.9 * 11 - 10), -9, 4.5], rtol=1e-6)
    advantages, targets = vtrace(column([1, 2, 3], [10, 20, 30], [20, 50, 40], truncated=[0, 1, 0]), half)
    np.testing.assert_allclose(targets[:, 0], [10 + 4.5 + 0.45 * 13.5, 33.5, 34.5], rtol=1e-6)
    np.testing.assert_allclose(advantages[:, 0], [0.5 * (1 + 0.9 * 33.5 - 10), 13.5, 4.5], rtol=1e-6)


def test_vtrace_does_not_read_the_ratio_of_a_reset_step() -> None:
    rollout = column([1, np.nan, 3], [10, 20, 30], [50, np.nan, 40], truncated=[1, 0, 0], valid=[1, 0, 1])
    advantages, targets = vtrace(rollout, [0.0, np.nan, 0.0])
    np.testing.assert_allclose(advantages[:, 0], [1 + 45 - 10, 0, 9], rtol=1e-6)
    np.testing.assert_allclose(targets[:, 0], [46, 20, 39], rtol=1e-6)


def test_vtrace_ratios_are_exact_and_never_overflow() -> None:
    log_ratios = np.concatenate([np.linspace(-88, 88, 4001), [-np.inf, np.inf, 1e30, np.nan]]).astype(np.float32)
    size = len(log_ratios)
    rollout = column([1.0] * size, [0.0] * size, [0.0] * size, terminated=[1] * size)
    weights = vtrace(rollout, log_ratios, rho_clip=np.inf)[0][:, 0]
    exact = np.exp(log_ratios[:-4].astype(np.float64))
    np.testing.assert_allclose(weights[:-4], exact, rtol=1e-7, atol=1e-44)  # denormal numbers are coarser
    assert weights[-4] == weights[0] < 1e-38
    assert weights[-3] == weights[-2] == weights[-5] < np.inf
    assert np.isnan(weights[-1])
    clipped = vtrace(rollout, log_ratios, rho_clip=2.5)[0][:, 0]
    np.testing.assert_array_equal(clipped, np.minimum(weights, np.float32(2.5)))


def test_vtrace_checks_the_ratios() -> None:
    rollout = random_rollout(3, 2, seed=0)
    blocks = rollout.blocks() | {key: np.zeros((3, 2), np.float32) for key in ("advantages", "targets")}
    options = {"discount": 0.9, "gae_lambda": 1.0, "rho_clip": 1.0, "c_clip": 1.0}
    with pytest.raises(TypeError, match="log_ratios must be float32, got float64"):
        _native.vtrace(**blocks, log_ratios=np.zeros((3, 2)), **options)
    with pytest.raises(ValueError, match="log_ratios and rewards must have the same shape"):
        _native.vtrace(**blocks, log_ratios=np.zeros((2, 2), np.float32), **options)
    with pytest.raises(ValueError, match="log_ratios overlaps targets"):
        _native.vtrace(**blocks, log_ratios=blocks["targets"], **options)


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
    for compute in (
        lambda r: gae(r, 0.95),
        lambda r: n_step(r, 4),
        lambda r: vtrace(r, np.full(len(r.rewards), -0.5)),
    ):
        np.testing.assert_array_equal(compute(rollout)[1][:2], compute(whole)[1])


@pytest.mark.parametrize("mask", ["terminated", "truncated"])
def test_no_leak_over_an_episode_boundary(mask: str) -> None:
    rollout = random_rollout(10, 4, seed=7, rate=0.0)
    getattr(rollout, mask)[5] = 1
    changed = replace(rollout, rewards=rollout.rewards.copy(), values=rollout.values.copy())
    changed.rewards[6:] += 100
    changed.values[6:] -= 100
    for compute in (
        lambda r: gae(r, 0.95),
        lambda r: n_step(r, 10),
        lambda r: n_step(r, 4),
        lambda r: vtrace(r, np.full((10, 4), -0.1)),
    ):
        for before, after in zip(compute(rollout), compute(changed), strict=True):
            np.testing.assert_array_equal(before[:6], after[:6])
            assert not np.array_equal(before[6:], after[6:])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_empty_rollouts(shape: tuple[int, int]) -> None:
    rollout = random_rollout(*shape, seed=0)
    assert gae(rollout, 0.95)[0].shape == n_step(rollout, 5)[0].shape == shape
    assert vtrace(rollout, np.zeros(shape))[1].shape == shape


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


# --- how well values predict their targets


def fit(values: list[float], targets: list[float], weights: list[float] | None = None) -> tuple[float, float]:
    given = weights or [1 / len(values)] * len(values)
    return _native.value_fit(*(np.array(column, np.float32) for column in (values, targets, given)))


@pytest.mark.parametrize(
    ("values", "targets", "explained", "rms"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 1.0, math.sqrt(14 / 3)),
        ([11.0, 12.0, 13.0], [1.0, 2.0, 3.0], 1.0, math.sqrt(14 / 3)),  # up to a constant
        ([7.0, 7.0, 7.0], [1.0, 2.0, 3.0], 0.0, math.sqrt(14 / 3)),
        ([1.0, 2.0, 3.0], [0.0, 4.0, 6.0], 1 - 78 / 168, math.sqrt(52 / 3)),
        ([3.0, 2.0, 1.0], [1.0, 2.0, 3.0], -1.0, math.sqrt(14 / 3)),  # -3, held at -1
        ([5.0, -2.0], [4.0, 4.0], math.nan, 4.0),  # equal targets: nothing to explain
        ([5.0, -2.0], [0.0, 0.0], math.nan, 0.0),
    ],
)
def test_the_fit_of_values(values: list[float], targets: list[float], explained: float, rms: float) -> None:
    assert fit(values, targets) == pytest.approx((explained, rms), rel=1e-6, nan_ok=True)


def test_rows_without_a_weight_have_no_part_in_the_fit() -> None:
    assert fit([1, 2, math.nan, 3], [0, 4, 8, 6], [1 / 3, 1 / 3, 0, 1 / 3]) == pytest.approx(fit([1, 2, 3], [0, 4, 6]))
    assert fit([1, 2], [0, 4], [0.75, 0.25]) == pytest.approx(fit([1, 1, 1, 2], [0, 0, 0, 4]))


def test_large_targets_keep_their_small_differences() -> None:
    """The sums are of float64: in float32 the variance of 10,000 and 10,001 would be lost in its mean."""
    values, targets = [10_000.0, 10_001.0] * 2000, [10_000.0, 10_001.0] * 1000 + [10_001.0, 10_000.0] * 1000
    assert fit(targets, targets)[0] == 1.0
    assert fit(values, targets)[0] == pytest.approx(-1.0, rel=1e-5)


def test_targets_count_as_equal_at_the_rounding_of_float32() -> None:
    assert math.isnan(fit([0.0, 1.0], [1000.0, 1000.0 + 1e-3])[0])
    assert fit([0.0, 1.0], [1000.0, 1000.0 + 1e-1])[0] == -1.0


def test_a_fit_of_nan_is_nan() -> None:
    assert all(math.isnan(part) for part in fit([math.nan, 1.0], [1.0, math.nan]))
