"""Losses of a batch, and arrays that must be refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from hive.compat.coach.losses import HeadLoss, checked_tensor, extra_input_names, head_loss, l2_loss, weighted_losses
from hive.envs.spaces.actions import Discrete
from hive.errors import NetworkError
from hive.networks import HeadParameters, PolicyHead, ValueHead

VALUES = torch.tensor([1.0, 2.0, 5.0])
RETURNS = np.float32([1.5, 2.0, 2.0])
ADVANTAGES = np.float32([1.0, -1.0, 2.0])
LOGITS = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.5, 0.5]])
ACTIONS = np.array([0, 1, 1])


def policy(**parameters: Any) -> HeadLoss:
    return head_loss(PolicyHead(HeadParameters("policy", **parameters), Discrete(2)))


def value(huber: bool = False, **parameters: Any) -> HeadLoss:
    return head_loss(ValueHead(HeadParameters("value", **parameters)), huber=huber)


def test_the_value_loss_is_the_squared_error_or_hubers() -> None:
    expected = functional.mse_loss(VALUES, torch.from_numpy(RETURNS))
    assert weighted_losses([value()], [VALUES], {}, RETURNS) == [expected]
    expected = functional.huber_loss(VALUES, torch.from_numpy(RETURNS))
    assert weighted_losses([value(huber=True)], [VALUES], {}, RETURNS) == [expected]


def test_the_policy_loss_is_the_policy_gradient() -> None:
    (loss,) = weighted_losses([policy()], [LOGITS], {"output_0_0": ACTIONS}, ADVANTAGES)
    expected = functional.cross_entropy(LOGITS, torch.from_numpy(ACTIONS), reduction="none")
    torch.testing.assert_close(loss, (expected * torch.from_numpy(ADVANTAGES)).mean())


def test_weights_of_heads_and_samples() -> None:
    heads, outputs = [value(loss_weight=0.5), value()], [VALUES, 2 * VALUES]
    plain = weighted_losses(heads, outputs, {}, [RETURNS, RETURNS])
    unweighted = weighted_losses([value(), value()], outputs, {}, [RETURNS, RETURNS])
    assert plain == [0.5 * unweighted[0], unweighted[1]]
    first = np.float32([3.0, 0.0, 0.0])
    shared = weighted_losses(heads, outputs, {}, [RETURNS, RETURNS], first)
    each = weighted_losses(heads, outputs, {}, [RETURNS, RETURNS], [first, np.ones(3)])
    assert shared[0] == each[0] == 0.5 * 0.25
    assert shared[1] == 0.25
    assert each[1] == plain[1]


def test_targets_may_be_computed_from_the_outputs() -> None:
    outputs = VALUES.clone().requires_grad_()
    seen = []

    def targets(arrays: tuple[np.ndarray, ...]) -> list[np.ndarray]:
        seen.extend(arrays)
        return [arrays[0] + 1.0]

    (loss,) = weighted_losses([value()], [outputs], {}, targets)
    assert np.array_equal(seen[0], VALUES.numpy())
    assert loss == 1.0
    loss.backward()
    assert outputs.grad is not None
    torch.testing.assert_close(outputs.grad, torch.full((3,), -2.0 / 3.0))  # none through the targets


def test_regularisation_counts_trainable_matrices_once() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    for parameter in module.parameters():
        nn.init.ones_(parameter)
    module[1].weight.requires_grad_(False)
    assert float(l2_loss(module, 0.1).detach()) == pytest.approx(0.5 * 0.1 * 4)
    assert l2_loss(nn.Identity(), 0.1) == 0.0


def test_extra_inputs_are_numbered_by_output() -> None:
    assert extra_input_names([value(), policy(), policy()]) == ["output_1_0", "output_2_0"]


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        ({}, ADVANTAGES, "input `output_0_0` is missing"),
        ({"output_0_0": ACTIONS[:2]}, ADVANTAGES, r"input `output_0_0` is int64 \[2\], expected int64 \[3\]"),
        ({"output_0_0": np.ones(3)}, ADVANTAGES, r"is float64 \[3\], expected int64"),
        (
            {"output_0_0": ACTIONS},
            ADVANTAGES[:, None],
            r"target 0 is float32 \[3, 1\], expected float32 \[3\]",
        ),
        ({"output_0_0": ACTIONS}, [ADVANTAGES, ADVANTAGES], "there are 1 outputs and 2 targets"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(inputs: Any, targets: Any, message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        weighted_losses([policy()], [LOGITS], inputs, targets)


def test_arrays_are_converted_within_their_kind_only() -> None:
    assert checked_tensor(np.ones(2), "float32", (2,), "x").dtype == torch.float32
    assert checked_tensor(np.ones(2, np.int32), "int64", (2,), "x").dtype == torch.int64
    with pytest.raises(NetworkError, match=r"x is float64 \[2\], expected uint8 \[2\]"):
        checked_tensor(np.ones(2), "uint8", (2,), "x")
