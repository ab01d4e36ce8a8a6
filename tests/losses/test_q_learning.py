"""The loss of action values against torch's own in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import huber_loss, mse_loss

from hive.algorithms.losses.q_learning import QLoss

ROWS, ACTIONS = 40, 5


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return 3 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


ACTIONS_TAKEN = torch.randint(ACTIONS, (ROWS,), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("huber", [False, True])
def test_loss_gradient_and_statistics_are_those_of_the_reference(huber: bool) -> None:
    """Errors lie on both sides of Huber's delta; a fifth of the rows counts nothing, whatever they hold."""
    outputs, targets = drawn(ROWS, ACTIONS).requires_grad_(), drawn(ROWS, seed=3)
    counts = torch.arange(ROWS) % 5 != 0
    weights = counts.float() / counts.sum()
    exact = outputs.detach().double()[counts].requires_grad_()
    taken = exact[torch.arange(len(exact)), ACTIONS_TAKEN[counts]]
    wanted = targets.double()[counts]
    total = (huber_loss if huber else mse_loss)(taken, wanted)
    assert 0 < ((taken - wanted).abs() > 1).sum() < len(exact)
    expected = torch.zeros(ROWS, ACTIONS)
    expected[counts] = torch.autograd.grad(total, exact)[0].float()

    targets[~counts] = 1e6  # not NaN: a target of 0 * NaN would be one
    value = QLoss(torch.zeros(ROWS, 3), ACTIONS_TAKEN, targets, weights, huber)(outputs)
    value.total.backward()
    torch.testing.assert_close(value.total.detach(), total.detach().float())
    torch.testing.assert_close(outputs.grad, expected)
    largest, errors = exact.max(1).values.mean().item(), (taken - wanted).abs().mean().item()
    assert value.statistics == pytest.approx((total.item(), taken.mean().item(), largest, errors), rel=1e-5)


def test_weights_need_not_be_equal() -> None:
    """As importance weights are not."""
    outputs, actions = torch.tensor([[1.0, 2.0], [5.0, 3.0]]), torch.tensor([1, 0])
    value = QLoss(torch.zeros(2, 3), actions, torch.tensor([0.0, 2.0]), torch.tensor([0.25, 0.75]))(outputs)
    assert value.total.item() == pytest.approx(0.25 * 4 + 0.75 * 9)
    assert value.statistics == pytest.approx((7.75, 0.25 * 2 + 0.75 * 5, 0.25 * 2 + 0.75 * 5, 0.25 * 2 + 0.75 * 3))


def test_only_the_values_of_actions_taken_learn() -> None:
    outputs = drawn(4, 3).requires_grad_()
    actions = torch.tensor([0, 2, 1, 1])
    QLoss(torch.zeros(4, 3), actions, torch.zeros(4), torch.full((4,), 0.25))(outputs).total.backward()
    assert outputs.grad is not None
    assert (outputs.grad != 0).nonzero().tolist() == [[0, 0], [1, 2], [2, 1], [3, 1]]
