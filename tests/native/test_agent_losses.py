"""Samples, targets and losses of SAC, TD3 and DDPG against torch in float64: values and gradients."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from hive import _native
from hive.algorithms.losses import SoftChoiceLoss
from hive.networks.act.bounded import SquashedGaussian, clamp_log_std

Floats = NDArray[np.float32]
ROWS, DIMENSIONS, CRITICS, SEEDS = st.integers(1, 70), st.integers(1, 9), st.integers(1, 3), st.integers(0, 1000)


def close(found: Any, expected: Tensor | float, scale: float = 1.0) -> None:
    """Compare within 1e-6, relative to each number and to `scale`, that of the terms of its sum."""
    wanted = expected.detach().numpy() if isinstance(expected, Tensor) else expected
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * scale)


def exact(array: Floats) -> Tensor:
    return torch.from_numpy(array).double().requires_grad_()


def like(array: Floats) -> Floats:
    return np.full_like(array, np.nan)


def normal(generator: np.random.Generator, *shape: int, scale: float = 1.0) -> Floats:
    return (scale * generator.standard_normal(shape)).astype(np.float32)


@given(ROWS, DIMENSIONS, SEEDS)
def test_a_squashed_gaussian_is_that_of_torch(rows: int, dimensions: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    outputs = normal(generator, rows, 2 * dimensions, scale=2.0).clip(-6.0, 2.0)
    noise, to_actions = normal(generator, rows, dimensions), normal(generator, rows, dimensions)
    actions, log_probs = like(noise), np.empty(rows, np.float32)
    _native.squashed_sample(outputs, noise, actions, log_probs)
    reference, drawn = exact(outputs), torch.from_numpy(noise).double()
    gaussian = SquashedGaussian((dimensions,), (-1.0,) * dimensions, (1.0,) * dimensions)
    taken, densities = gaussian.scaled_sample(reference, drawn)
    close(actions, taken)
    close(log_probs, densities, scale=dimensions)
    slopes = like(outputs)
    _native.squashed_slopes(outputs, noise, actions, to_actions, 0.3, slopes)
    (torch.from_numpy(to_actions).double() * taken).sum().backward(retain_graph=True)
    (np.float32(0.3).item() * densities.sum()).backward()
    assert reference.grad is not None
    # 1 - a^2 of an action that was rounded to float32 is off by that rounding, times twice the action.
    deviations = np.exp(outputs[:, dimensions:]) * np.abs(noise)
    close(slopes, reference.grad, scale=float(1.0 + np.abs(to_actions).max() * max(1.0, deviations.max())))


def test_a_squashed_gaussian_is_finite_at_the_ends() -> None:
    outputs = np.array([[1e30, -1e30, 2.0, -20.0], [0.0, 1e-20, -20.0, -20.0]], np.float32)
    noise = np.array([[3.0, -3.0], [0.0, 1e-3]], np.float32)
    actions, log_probs = like(noise), np.empty(2, np.float32)
    _native.squashed_sample(outputs, noise, actions, log_probs)
    np.testing.assert_allclose(actions, [[1.0, -1.0], [0.0, 2.0611537e-12]], rtol=1e-6)
    assert log_probs[0] > 1e30
    assert np.isfinite(log_probs).all()
    outputs[0, 0] = np.nan
    _native.squashed_sample(outputs, noise, actions, log_probs)
    assert np.isnan([actions[0, 0], log_probs[0]]).all()
    assert np.isfinite(log_probs[1])


@given(ROWS, DIMENSIONS, SEEDS, st.booleans())
def test_clamped_deviations_are_those_of_torch(rows: int, dimensions: int, seed: int, in_place: bool) -> None:
    generator = np.random.default_rng(seed)
    columns = normal(generator, rows, 2 * dimensions, scale=10.0)
    columns[0, -1], columns[-1, dimensions] = 2.0, -20.0
    to_outputs, reference = normal(generator, rows, 2 * dimensions), torch.from_numpy(columns.copy()).requires_grad_()
    expected = clamp_log_std(reference)
    (expected * torch.from_numpy(to_outputs)).sum().backward()
    to_columns = to_outputs.copy() if in_place else like(columns)
    _native.clamp_deviations_back(columns, to_columns if in_place else to_outputs, to_columns)
    assert reference.grad is not None
    np.testing.assert_array_equal(to_columns, reference.grad)
    outputs = columns if in_place else like(columns)
    _native.clamp_deviations(columns, outputs)
    np.testing.assert_array_equal(outputs, expected.detach())


@given(ROWS, DIMENSIONS, SEEDS, st.sampled_from([None, 0.0, 0.2]))
def test_smoothed_actions_are_those_of_torch(rows: int, dimensions: int, seed: int, deviation: float | None) -> None:
    generator = np.random.default_rng(seed)
    outputs, noise = normal(generator, rows, dimensions, scale=3.0), normal(generator, rows, dimensions, scale=2.0)
    outputs[0, 0] = 1e-12
    actions = like(outputs)
    _native.tanh_actions(outputs, None if deviation is None else noise, deviation or 0.0, 0.5, actions)
    expected = torch.from_numpy(outputs).double().tanh()
    if deviation is None:
        assert actions[0, 0] == np.float32(1e-12)
    else:
        expected = (expected + (torch.from_numpy(noise).double() * deviation).clamp(-0.5, 0.5)).clamp(-1.0, 1.0)
    close(actions, expected)
    reference, to_actions = exact(outputs), normal(generator, rows, dimensions)
    _native.tanh_actions(outputs, None, 0.0, 0.0, actions)
    slopes = to_actions.copy()
    _native.tanh_slopes(actions, slopes, slopes)
    (reference.tanh() * torch.from_numpy(to_actions).double()).sum().backward()
    assert reference.grad is not None
    close(slopes, reference.grad, scale=float(np.abs(to_actions).max()))


@given(ROWS, CRITICS, SEEDS, st.booleans())
def test_soft_targets_are_those_of_torch(rows: int, critics: int, seed: int, soft: bool) -> None:
    generator = np.random.default_rng(seed)
    values = [normal(generator, rows) for _ in range(critics)]
    log_probs, returns = normal(generator, rows), normal(generator, rows)
    discounts, targets = generator.random(rows, np.float32), np.empty(rows, np.float32)
    _native.soft_targets(values, log_probs if soft else None, 0.7, returns, discounts, targets)
    least = np.stack(values).astype(np.float64).min(0)
    following = least - 0.7 * log_probs.astype(np.float64) if soft else least
    close(targets, torch.from_numpy(returns + discounts.astype(np.float64) * following), scale=3.0)


@given(ROWS, st.integers(1, 7), CRITICS, SEEDS, st.booleans(), st.booleans())
def test_losses_of_critics_are_those_of_torch(
    rows: int, count: int, critics: int, seed: int, choices: bool, huber: bool
) -> None:
    generator = np.random.default_rng(seed)
    values = [normal(generator, rows, count) if choices else normal(generator, rows) for _ in range(critics)]
    targets, importance = normal(generator, rows), generator.random(rows, np.float32)
    actions = generator.integers(0, count, rows)
    errors, slopes = np.empty(rows, np.float32), [like(each) for each in values]
    total, mean, error = _native.critic_loss(
        values, actions if choices else None, targets, importance, errors, slopes, 0.5, huber
    )
    references = [exact(each) for each in values]
    chosen = torch.stack([each[torch.arange(rows), actions] if choices else each for each in references])
    wanted, weights = torch.from_numpy(targets).double(), torch.from_numpy(importance).double()
    differences = chosen - wanted
    each = (
        torch.nn.functional.huber_loss(chosen, wanted.expand_as(chosen), reduction="none") if huber else differences**2
    )
    loss = 0.5 * (each * weights).mean(1).sum()
    loss.backward()
    close(total, loss)
    close(mean, chosen.mean())
    close(error, differences.abs().mean())
    close(errors, differences.abs().mean(0), scale=3.0)
    for slope, reference in zip(slopes, references, strict=True):
        assert reference.grad is not None
        close(slope, reference.grad, scale=3.0 / rows)


@given(ROWS, CRITICS, SEEDS)
def test_least_values_share_the_slope_of_ties(rows: int, critics: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    values = [generator.integers(0, 3, rows).astype(np.float32) for _ in range(critics)]
    slopes = [like(each) for each in values]
    references = [exact(each) for each in values]
    loss = -torch.stack(references).amin(0).mean()
    loss.backward()
    close(-_native.least_values(values, slopes), loss)
    for slope, reference in zip(slopes, references, strict=True):
        assert reference.grad is not None
        close(slope, reference.grad)


@given(ROWS, st.integers(1, 9), CRITICS, SEEDS)
def test_choices_are_those_of_torch(rows: int, count: int, critics: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    logits, values = normal(generator, rows, count), [normal(generator, rows, count) for _ in range(critics)]
    if count > 1:
        logits[0, 0] = -1e8  # an action that a mask forbids
    reference, least = exact(logits), torch.from_numpy(np.stack(values).min(0)).double()
    log_policy = reference.log_softmax(-1)
    policy = log_policy.exp()
    log_probs = (policy * log_policy).sum(-1)
    loss = (0.3 * log_probs - (policy * least).sum(-1)).mean()
    loss.backward()
    slopes = like(logits)
    total, mean, _ = _native.soft_choice_loss(logits, values, 0.3, slopes)
    close(total, loss)
    close(mean, log_probs.mean())
    assert reference.grad is not None
    close(slopes, reference.grad, scale=1.0 / rows)
    returns, discounts, targets = (
        normal(generator, rows),
        generator.random(rows, np.float32),
        np.empty(rows, np.float32),
    )
    _native.soft_choice_targets(logits, values, 0.3, returns, discounts, targets)
    expected = (policy * (least - 0.3 * log_policy)).sum(-1)
    close(targets, torch.from_numpy(returns) + torch.from_numpy(discounts) * expected, scale=3.0)


def test_both_forms_of_the_loss_report_the_greatest_entropy() -> None:
    """Exactly log(A) where all actions are allowed, as the native rounds compute it."""
    logits = normal(np.random.default_rng(1), 100, 7)
    for forbidden in (0, 3):
        logits[: 10 * forbidden, :forbidden] = -1e8
        loss = SoftChoiceLoss(torch.empty(0), torch.zeros(2, 100, 7), 0.3)
        found = loss(torch.from_numpy(logits)).statistics[2], loss.differentiate((logits,)).statistics[2]
        for greatest in found:
            assert greatest == (pytest.approx(0.7 * math.log(7) + 0.3 * math.log(4)) if forbidden else math.log(7))


@settings(max_examples=20)
@given(st.floats(-3.0, 3.0), st.floats(-5.0, 5.0), st.floats(-5.0, 5.0))
def test_the_loss_of_a_temperature_is_that_of_torch(log: float, mean: float, wanted: float) -> None:
    reference = torch.tensor(np.float32(log).item(), dtype=torch.float64, requires_grad=True)
    loss = -reference * (mean + wanted)
    loss.backward()
    total, slope = _native.temperature_loss(log, mean, wanted)
    assert reference.grad is not None
    close(total, loss)
    close(slope, reference.grad)
    close(_native.soft_temperature(0.5, log), 0.5 * math.exp(log))


def drawn(stream: int, *shape: int) -> Floats:
    values = np.empty(math.prod(shape), np.float32)
    _native.philox_normals(1, stream, values)
    return values.reshape(shape)


def test_bytes_never_change() -> None:
    """Every instruction set, C library and version must compute these: runs are repeated by them."""
    outputs, noise, logits, values = drawn(1, 97, 10), drawn(2, 97, 5), drawn(3, 97, 3), list(drawn(4, 2, 97, 3))
    actions, log_probs, to_outputs = like(noise), np.empty(97, np.float32), like(outputs)
    smoothed, to_logits, targets = like(noise), like(logits), np.empty(97, np.float32)
    _native.squashed_sample(outputs, noise, actions, log_probs)
    _native.squashed_slopes(outputs, noise, actions, noise, 0.1, to_outputs)
    _native.tanh_actions(noise, actions, 0.2, 0.5, smoothed)
    _native.soft_choice_loss(logits, values, 0.3, to_logits)
    _native.soft_choice_targets(logits, values, 0.3, log_probs, log_probs.copy(), targets)
    arrays = (actions, log_probs, to_outputs, smoothed, to_logits, targets)
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    assert digest == "cf20f6faacb17f94bddb141e0825364d839b5e7722c0ed384d6d1202f8d0ea3e"


def test_nan_is_the_least_value() -> None:
    rows = np.ones(3, np.float32)
    values, slopes = [rows.copy(), rows.copy()], [like(rows), like(rows)]
    values[1][1] = np.nan
    assert math.isnan(_native.least_values(values, slopes))
    targets = np.empty(3, np.float32)
    _native.soft_targets(values, None, 0.0, rows, rows, targets)
    np.testing.assert_array_equal(targets, [2.0, np.nan, 2.0])


@pytest.mark.parametrize("action", [-1, 2])
def test_actions_that_do_not_exist_are_refused(action: int) -> None:
    rows, table = np.ones(3, np.float32), np.ones((3, 2), np.float32)
    with pytest.raises(ValueError, match="the action of row 1 does not exist"):
        _native.critic_loss([table], np.array([0, action, 0]), rows, rows, like(rows), [like(table)], 1.0, False)


def test_other_shapes_are_refused() -> None:
    rows, table, wide = np.ones(3, np.float32), np.ones((3, 2), np.float32), np.ones((3, 6), np.float32)
    with pytest.raises(ValueError, match="columns of outputs: 6, expected 4"):
        _native.squashed_sample(wide, table, like(table), like(rows))
    with pytest.raises(ValueError, match="an even number"):
        _native.clamp_deviations(np.ones((3, 3), np.float32), np.ones((3, 3), np.float32))
    with pytest.raises(ValueError, match="arrays of to_values: 1, expected 2"):
        _native.least_values([rows, like(rows)], [like(rows)])
    with pytest.raises(ValueError, match="values has no arrays"):
        _native.least_values([], [])
