"""Losses that hive._native computes, against the same losses by torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hive.algorithms.losses.actor_critic import A2CLoss, PPOLoss, is_native
from hive.algorithms.losses.q_learning import CategoricalQLoss, QLoss, QuantileQLoss
from hive.networks import Categorical, DiagonalGaussian, MultiCategorical, SquashedGaussian
from hive.networks.act.distributions import ActionDistribution

DISTRIBUTIONS: list[ActionDistribution] = [
    Categorical(1),
    Categorical(4),
    MultiCategorical((2, 3, 5)),
    DiagonalGaussian(()),
    DiagonalGaussian((2, 2)),
]
SIZES = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 5)), min_size=1, max_size=3)


class Draws:
    """Tensors of a seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator)

    def actions(self, distribution: ActionDistribution, rows: int) -> Tensor:
        if isinstance(distribution, DiagonalGaussian):
            return self.normal(rows, *distribution.shape)
        counts = distribution.nvec if isinstance(distribution, MultiCategorical) else (distribution.width,)
        columns = [torch.randint(0, count, (rows,), generator=self.generator) for count in counts]
        return torch.stack(columns, 1) if isinstance(distribution, MultiCategorical) else columns[0]

    def weights(self, rows: int) -> Tensor:
        """Some are 0; their sum is 1."""
        weights = torch.rand(rows, generator=self.generator)
        weights[1::3] = 0.0
        return weights / weights.sum()


def compare(loss: Any, *outputs: Tensor) -> None:
    assert loss.is_native
    leaves = [output.clone().requires_grad_() for output in outputs]
    expected = loss(tuple(leaves) if len(leaves) > 1 else leaves[0])
    expected.total.backward()
    found = loss.differentiate(tuple(output.numpy() for output in outputs))
    assert found.total == pytest.approx(expected.total.item(), rel=1e-5, abs=1e-5)
    assert found.statistics == pytest.approx(expected.statistics, rel=1e-5, abs=1e-5, nan_ok=True)
    for slopes, leaf in zip(found.slopes, leaves, strict=True):
        wanted = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        np.testing.assert_allclose(slopes, wanted.numpy(), rtol=1e-5, atol=2e-6 * float(wanted.abs().max()) + 1e-12)


@settings(max_examples=25, deadline=None)
@given(distribution=st.sampled_from(DISTRIBUTIONS), sizes=SIZES, seed=st.integers(0, 1000))
def test_actor_critic(distribution: ActionDistribution, sizes: list[tuple[int, int]], seed: int) -> None:
    draws, flat = Draws(seed), [size for pair in sizes for size in pair]
    rows, acted = sum(flat), sum(flat[::2])
    policy, values = draws.normal(rows, distribution.width), draws.normal(rows)
    actions, weights = draws.actions(distribution, acted), draws.weights(acted)
    advantages, returns = draws.normal(acted).numpy(), draws.normal(acted).numpy()
    compare(A2CLoss(policy, actions, weights, flat, distribution, advantages, returns), policy, values)


@settings(max_examples=25, deadline=None)
@given(
    distribution=st.sampled_from(DISTRIBUTIONS),
    rows=st.integers(1, 40),
    clips=st.booleans(),
    normalizes=st.booleans(),
    picked=st.one_of(st.none(), st.integers(1, 30)),
    seed=st.integers(0, 1000),
)
def test_ppo(
    distribution: ActionDistribution, rows: int, clips: bool, normalizes: bool, picked: int | None, seed: int
) -> None:
    draws = Draws(seed)
    policy, values = draws.normal(rows, distribution.width), draws.normal(rows)
    actions = draws.actions(distribution, rows)
    behaviour = distribution.log_prob(policy, actions) + 0.3 * draws.normal(rows)
    picks = None if picked is None else torch.randperm(rows, generator=draws.generator)[:picked]
    loss = PPOLoss(
        policy,
        actions,
        behaviour,
        draws.normal(rows),
        draws.normal(rows),
        distribution,
        behaviour_values=values + 0.3 * draws.normal(rows) if clips else None,
        value_clip_range=0.2 if clips else 0.0,
        fit=(0.5, 1.0),
        rows=picks,
        normalizes=normalizes,
    )
    if picks is not None:
        policy, values = policy[picks], values[picks]
    compare(loss, policy, values)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 40),
    actions=st.integers(1, 6),
    huber=st.booleans(),
    weighted=st.booleans(),
    drawn=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_action_values(rows: int, actions: int, huber: bool, weighted: bool, drawn: bool, seed: int) -> None:
    draws = Draws(seed)
    values, errors = 2.0 * draws.normal(rows, actions), np.zeros(rows, np.float32)
    taken, targets = torch.randint(0, actions, (rows,), generator=draws.generator), draws.normal(rows)
    loss = QLoss(
        values,
        taken,
        targets,
        draws.weights(rows) if weighted else None,
        huber,
        torch.rand(rows, generator=draws.generator) if drawn else None,
        errors,
    )
    compare(loss, values)
    np.testing.assert_allclose(errors, (values.gather(1, taken[:, None])[:, 0] - targets).abs().numpy(), rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 20),
    actions=st.integers(1, 4),
    atoms=st.integers(2, 40),
    targets=st.integers(1, 40),
    drawn=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_distributions_of_returns(rows: int, actions: int, atoms: int, targets: int, drawn: bool, seed: int) -> None:
    draws = Draws(seed)
    taken = torch.randint(0, actions, (rows,), generator=draws.generator)
    importance = torch.rand(rows, generator=draws.generator) if drawn else None
    quantiles, wanted = 2.0 * draws.normal(rows, actions, atoms), 2.0 * draws.normal(rows, targets)
    chances, support = draws.normal(rows, atoms).softmax(-1), draws.normal(atoms)
    errors = np.zeros(rows, np.float32)
    by_quantiles = QuantileQLoss(quantiles, taken, wanted, importance, errors)
    by_categories = CategoricalQLoss(quantiles, taken, chances, support, importance, errors)
    losses: Any = [(by_quantiles, quantiles), (by_categories, quantiles.log_softmax(-1))]
    for loss, outputs in losses:
        loss(outputs)
        expected = errors.copy()
        errors[:] = -1.0
        compare(loss, outputs)
        np.testing.assert_allclose(errors, expected, rtol=1e-5, atol=1e-5)


def test_rows_of_weight_zero_may_have_any_values() -> None:
    policy, values = torch.zeros(3, 2), torch.tensor([1.0, torch.inf, 2.0])
    advantages = np.array([1.0, np.nan, 1.0], np.float32)
    weights = torch.tensor([0.5, 0.0, 0.5])
    loss = A2CLoss(policy, torch.zeros(3, dtype=torch.int64), weights, [3, 0], Categorical(2), advantages, advantages)
    found = loss.differentiate((policy.numpy(), values.numpy()))
    assert np.isfinite(found.total)
    assert all(np.isfinite(slopes).all() for slopes in found.slopes)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_output_that_is_not_finite_makes_the_loss_not_finite(value: float) -> None:
    policy = torch.zeros(4, 3)
    policy[2, 1] = value
    values, numbers = torch.zeros(4), torch.ones(4)
    actions = torch.zeros(4, dtype=torch.int64)
    loss = PPOLoss(policy, actions, numbers, numbers, numbers, Categorical(3))
    assert not np.isfinite(loss.differentiate((policy.numpy(), values.numpy())).total)
    q_loss = QLoss(policy, torch.ones(4, dtype=torch.int64), numbers)
    assert not np.isfinite(q_loss.differentiate((policy.numpy(),)).total)


def test_a_row_outside_of_the_batch_is_refused() -> None:
    zeros, actions = torch.zeros(2), torch.zeros(2, dtype=torch.int64)
    for row in (-1, 2):
        loss = PPOLoss(zeros, actions, zeros, zeros, zeros, Categorical(3), rows=torch.tensor([0, row]))
        with pytest.raises(ValueError, match=f"the batch has no row {row}"):
            loss.differentiate((np.zeros((2, 3), np.float32), np.zeros(2, np.float32)))


def test_an_unknown_action_is_refused() -> None:
    zeros = torch.zeros(2)
    loss = PPOLoss(torch.zeros(2, 3), torch.tensor([0, 3]), zeros, zeros, zeros, Categorical(3))
    with pytest.raises(ValueError, match="the action of row 1 does not exist"):
        loss.differentiate((np.zeros((2, 3), np.float32), np.zeros(2, np.float32)))


def test_other_distributions_are_left_to_torch() -> None:
    assert not is_native(SquashedGaussian((1,), (-1.0,), (1.0,)))
