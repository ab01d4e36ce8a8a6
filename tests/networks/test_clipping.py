"""The one clip factor, and three ways of clipping a block."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hive.compat.coach.optimization import clip_gradient
from hive.networks.build.parameters import GradientClippingMethod
from hive.networks.weights.optimizers import clip_factor

BY_GLOBAL_NORM, BY_NORM, BY_VALUE = GradientClippingMethod


@pytest.mark.parametrize("norm", [0.0, 1e-7, 0.1, 0.5, 0.7, 1e6])
@pytest.mark.parametrize("limit", [1e-6, 0.5, 3.0])
def test_the_factor_is_that_of_torch(norm: float, limit: float) -> None:
    parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    parameter.grad = torch.tensor([norm], dtype=torch.float64)
    torch.nn.utils.clip_grad_norm_([parameter], limit)
    assert clip_factor(norm, limit) * norm == pytest.approx(parameter.grad.item(), rel=1e-12)


@pytest.mark.parametrize("limit", [None, 0, 0.0])
def test_without_a_limit_the_factor_is_one(limit: float | None) -> None:
    assert [clip_factor(norm, limit) for norm in (0.0, 1.0, float("inf"))] == [1.0, 1.0, 1.0]


def clipped(limit: float | None, method: GradientClippingMethod) -> list[float]:
    gradient = np.float32([3.0, 4.0, 0.0, 12.0])
    clip_gradient(gradient, [gradient[:2], gradient[2:]], 13.0, limit, method)
    return [float(value) for value in gradient.round(5)]


def test_each_method_limits_its_quantity() -> None:
    assert clipped(6.5, BY_GLOBAL_NORM) == [1.5, 2.0, 0.0, 6.0]
    assert clipped(6.0, BY_NORM) == [3.0, 4.0, 0.0, 6.0]
    assert clipped(3.5, BY_VALUE) == [3.0, 3.5, 0.0, 3.5]


@pytest.mark.parametrize("method", GradientClippingMethod)
@pytest.mark.parametrize("limit", [None, 0, 13.1, 1e9])
def test_without_a_limit_and_within_it_nothing_changes(method: GradientClippingMethod, limit: float | None) -> None:
    assert clipped(limit, method) == [3.0, 4.0, 0.0, 12.0]


@pytest.mark.parametrize("method", [BY_GLOBAL_NORM, BY_NORM])
def test_a_gradient_of_zero_stays(method: GradientClippingMethod) -> None:
    gradient = np.zeros(3, np.float32)
    clip_gradient(gradient, [gradient], 0.0, 1.0, method)
    assert not gradient.any()


def test_a_gradient_whose_squares_overflow_is_not_clipped_to_zero() -> None:
    gradient = np.float32([3e30, 4e30, 0.5])
    clip_gradient(gradient, [gradient[:2], gradient[2:]], 5e30, 1.0, BY_NORM)
    np.testing.assert_allclose(gradient, [0.6, 0.8, 0.5], rtol=1e-6)
