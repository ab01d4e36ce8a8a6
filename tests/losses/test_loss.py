"""The parts of losses: acted rows, weighted means, and a user-defined function as a loss."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass

import pytest
import torch
from torch import Tensor, nn

from hive.algorithms.losses.actor_critic import acted_rows
from hive.algorithms.losses.q_learning import QLoss
from hive.compat.autonomous import Approximation
from hive.learning.loss import LossValue, weighted_mean


def test_a_weighted_mean_is_the_sum_of_its_terms_times_their_factors() -> None:
    one, two = (torch.tensor(values, requires_grad=True) for values in ([1.0, 2.0, 5.0], [4.0, 8.0, 7.0]))
    value = weighted_mean((one, two, two.detach()), torch.tensor([0.25, 0.75, 0.0]), (1.0, -2.0, 0.0))
    assert value.statistics == (1.75, 7.0, 7.0)
    assert value.total.item() == 1.75 - 2.0 * 7.0
    value.total.backward()
    assert one.grad is not None
    assert two.grad is not None
    assert (one.grad.tolist(), two.grad.tolist()) == ([0.25, 0.75, 0.0], [-0.5, -1.5, 0.0])


@pytest.mark.parametrize("trailing", [(), (2,)])
def test_acted_rows_are_the_first_part_of_each_rollout(trailing: tuple[int, ...]) -> None:
    outputs = torch.arange(10.0).reshape(-1, *(1 for _ in trailing)).expand(10, *trailing)
    assert torch.equal(acted_rows(outputs, [7, 3]), outputs[:7])
    assert torch.equal(acted_rows(outputs, [2, 1, 0, 3, 3, 1]), outputs[[0, 1, 6, 7, 8]])
    assert acted_rows(outputs, [0, 10]).shape == (0, *trailing)


def test_acted_rows_of_one_rollout_are_not_copied() -> None:
    outputs = torch.zeros(10)
    assert acted_rows(outputs, [7, 3]).data_ptr() == outputs.data_ptr()


def test_a_loss_and_its_value_cannot_be_changed() -> None:
    value = LossValue(torch.zeros(()))
    with pytest.raises(FrozenInstanceError):
        value.total = torch.ones(())  # type: ignore[misc]
    loss = QLoss(torch.zeros(1, 3), torch.zeros(1, dtype=torch.int64), torch.zeros(1), torch.ones(1))
    with pytest.raises(FrozenInstanceError):
        loss.huber = True  # type: ignore[misc]


@dataclass(frozen=True)
class Squared:
    """A custom loss."""

    inputs: Tensor

    def __call__(self, outputs: Tensor) -> LossValue:
        total = outputs.square().mean()
        return LossValue(total, (total.item(), 3.0))


def test_a_custom_loss_is_reinforced_as_the_built_in_ones() -> None:
    torch.manual_seed(1)
    model, inputs = nn.Linear(3, 2), torch.randn(5, 3)
    expected = model.weight.detach() - torch.autograd.grad(model(inputs).square().mean(), model.weight)[0]
    approximation = Approximation(model, torch.optim.SGD(model.parameters(), lr=1.0))
    approximation.reinforce(Squared(inputs))
    torch.testing.assert_close(model.weight.detach(), expected)
    assert approximation.statistics[1] == 3.0
    assert approximation.inputs[0] is inputs
