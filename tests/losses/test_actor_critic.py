"""A2C, V-trace and PPO on outputs that are given, against torch.distributions in float64.

Here are weights, rows, statistics and which targets a loss asks for; tests/algorithms has their values.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical as TorchCategorical

from hive.algorithms.losses.actor_critic import A2CLoss, PPOLoss
from hive.networks import Categorical

SIZES = [3, 2, 0, 1, 4, 2]  # sizes of three rollouts, the second without an acted row
ACTED = [0, 1, 2, 6, 7, 8, 9]
ROWS, KEPT = 12, [0, 2, 3, 5, 6]  # acted rows, and those of them with a weight
WEIGHTS = torch.zeros(7).index_fill(0, torch.tensor(KEPT), 1 / len(KEPT))


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


ACTIONS = torch.randint(4, (7,), generator=torch.Generator().manual_seed(5))
ADVANTAGES, RETURNS, BEHAVIOUR = drawn(7, seed=6).numpy(), drawn(7, seed=7).numpy(), drawn(7, seed=8) / 2 - 1.4


def outputs() -> tuple[Tensor, Tensor]:
    return drawn(ROWS, 4, seed=1).requires_grad_(), drawn(ROWS, seed=2).requires_grad_()


class Exact:
    """Terms of the rows that count in float64, and the gradient of their mean."""

    def __init__(self) -> None:
        self.outputs = tuple(output.detach().double().requires_grad_() for output in outputs())
        policy, values = (output[ACTED][KEPT] for output in self.outputs)
        distribution = TorchCategorical(logits=policy)
        self.log_probs, self.entropy = distribution.log_prob(ACTIONS[KEPT]), distribution.entropy().mean()
        self.values = values
        self.policy_loss = -(self.log_probs * torch.from_numpy(ADVANTAGES).double()[KEPT]).mean()
        self.value_loss = (values - torch.from_numpy(RETURNS).double()[KEPT]).square().mean()
        self.ratios = (self.log_probs - BEHAVIOUR.double()[KEPT]).exp()

    def fit(self) -> tuple[float, float]:
        """The explained variance of RETURNS and their root mean square."""
        returns = torch.from_numpy(RETURNS).double()[KEPT]
        explained = 1 - (returns - self.values.detach()).var() / returns.var()
        return max(explained.item(), -1.0), returns.square().mean().sqrt().item()

    def gradients(self, total: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(total, self.outputs)


def check(loss: Any, exact: Exact, total: Tensor, statistics: list[float]) -> None:
    given = outputs()
    value = loss(given)
    torch.testing.assert_close(value.total.detach(), total.detach().float())
    assert value.statistics == pytest.approx(statistics, rel=1e-5, abs=1e-6)
    value.total.backward()
    for output, expected in zip(given, exact.gradients(total), strict=True):
        torch.testing.assert_close(output.grad, expected.float())


def test_a2c_of_several_rollouts_with_rows_that_do_not_count() -> None:
    exact = Exact()
    loss = A2CLoss(
        *(torch.zeros(ROWS, 3), ACTIONS, WEIGHTS, SIZES, Categorical(4), ADVANTAGES, RETURNS, 0.7, 0.3),
        means=(5.0,),
        further=(6.0, 7.0),
    )
    total = exact.policy_loss + 0.7 * exact.value_loss - 0.3 * exact.entropy
    parts = [exact.policy_loss, exact.value_loss, exact.entropy, exact.values.mean()]
    check(loss, exact, total, [*(part.item() for part in parts), 5.0, *exact.fit(), 6.0, 7.0])


def test_ppo_takes_all_its_rows_alike() -> None:
    exact = Exact()
    picked = torch.tensor(KEPT)
    advantages, returns = (torch.from_numpy(part)[picked] for part in (ADVANTAGES, RETURNS))
    loss = PPOLoss(
        torch.zeros(5, 3),
        ACTIONS[picked],
        BEHAVIOUR[picked],
        advantages,
        returns,
        Categorical(4),
        0.35,
        0.7,
        0.3,
        fit=(0.5, 2.0),
    )
    clipped = exact.ratios.clamp(0.65, 1.35)
    gained = torch.minimum(exact.ratios * advantages.double(), clipped * advantages.double()).mean()
    total = -gained + 0.7 * exact.value_loss - 0.3 * exact.entropy
    kl, outside = (exact.ratios - 1 - exact.ratios.log()).mean(), ((exact.ratios - 1).abs() > 0.35).double().mean()
    parts = [-gained, exact.value_loss, exact.entropy, kl, outside]
    assert 0 < outside < 1
    given = tuple(output[ACTED][KEPT].detach().requires_grad_() for output in outputs())
    value = loss(given)
    assert value.total.item() == pytest.approx(total.item(), rel=1e-5)
    assert value.statistics == pytest.approx([*(part.item() for part in parts), 0.5, 2.0], rel=1e-5)
    value.total.backward()
    for output, expected in zip(given, exact.gradients(total), strict=True):
        torch.testing.assert_close(output.grad, expected[ACTED][KEPT].float())


def test_ppo_clips_values_around_those_before_the_round() -> None:
    """Below, at, inside and above the range; outside there is no gradient, also where the return lies further out."""
    before = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0])
    moved, returns = torch.tensor([-0.5, -0.1, 0.2, 0.5, 0.5]), torch.tensor([-3.0, 2.0, 0.0, 5.0, -5.0])
    exact_values = (before + moved).double().requires_grad_()
    clipped = before.double() + (exact_values - before.double()).clip(-0.25, 0.25)
    expected = (clipped - returns.double()).square().mean()
    expected.backward()
    zeros = torch.zeros(5)
    values = (before + moved).requires_grad_()
    loss = PPOLoss(
        *(torch.zeros(5, 3), torch.zeros(5, dtype=torch.int64), zeros, zeros, returns, Categorical(4)),
        *(0.2, 1.0, 0.0),
        behaviour_values=before,
        value_clip_range=0.25,
    )
    value = loss((torch.zeros(5, 4), values))
    value.total.backward()
    assert value.statistics[1] == pytest.approx(expected.item())
    assert values.grad is not None
    torch.testing.assert_close(values.grad, exact_values.grad.float())
    assert (values.grad != 0).tolist() == [False, True, True, False, False]


def test_a_term_of_factor_0_has_no_gradient() -> None:
    """The mean value, importance weights, the divergence and the share of clipped ratios."""
    policy, values = outputs()
    loss = A2CLoss(torch.zeros(ROWS, 3), ACTIONS, WEIGHTS, SIZES, Categorical(4), ADVANTAGES, RETURNS, 0.0, 0.0)
    loss((policy, values)).total.backward()
    assert values.grad is None or not values.grad.any()


def test_ppo_of_nothing_is_zero_and_not_nan() -> None:
    nothing = torch.zeros(0)
    loss = PPOLoss(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), nothing, nothing, nothing, Categorical(4))
    value = loss((torch.zeros(0, 4, requires_grad=True), torch.zeros(0, requires_grad=True)))
    assert value.total.item() == 0.0
    assert not any(map(math.isnan, value.statistics))
