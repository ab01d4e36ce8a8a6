"""The gradient's norm, its check and its clipping, on lists of parameters."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from hive.compat.autonomous.stepping import (
    STAGES,
    StepReport,
    clip_gradients,
    gradient_norm,
    not_finite_name,
    parameters_with_gradients,
    scale_gradients,
)


def parameters(*gradients: float) -> list[torch.Tensor]:
    made = []
    for gradient in gradients:
        parameter = nn.Parameter(torch.zeros(1))
        parameter.grad = torch.tensor([gradient])
        made.append(parameter)
    return made


def gradients_of(made: list[torch.Tensor]) -> list[float]:
    return [float(parameter.grad) for parameter in made if parameter.grad is not None]


def test_the_norm_is_that_of_all_gradients_together() -> None:
    assert float(gradient_norm(parameters(3.0, -4.0))) == 5.0


def test_the_norm_is_finite_even_if_squares_overflow() -> None:
    made = parameters(3e30, 4e30)
    norm = gradient_norm(made)
    assert float(norm) == pytest.approx(5e30)
    assert clip_gradients(made, 1.0, norm) == pytest.approx(1.0)
    assert gradients_of(made) == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_shows_in_the_norm(bad: float) -> None:
    assert not math.isfinite(gradient_norm(parameters(1.0, bad)))


@pytest.mark.parametrize(("limit", "expected"), [(1.0, [0.6, -0.8]), (5.5, [3.0, -4.0])])
def test_clipping_scales_down_gradients_above_the_limit(limit: float, expected: list[float]) -> None:
    made = parameters(3.0, -4.0)
    after = clip_gradients(made, limit, gradient_norm(made))
    assert gradients_of(made) == pytest.approx(expected, abs=1e-5)
    assert after == pytest.approx(min(limit, 5.0), abs=1e-5)


@pytest.mark.parametrize("scale", [1e-6, 1e-4, 1.0, 1e6])
def test_clipping_is_that_of_torch(scale: float) -> None:
    made, other = parameters(3.0 * scale, -4.0 * scale), parameters(3.0 * scale, -4.0 * scale)
    clip_gradients(made, 2.0 * scale, gradient_norm(made))
    torch.nn.utils.clip_grad_norm_(other, 2.0 * scale)
    assert gradients_of(made) == pytest.approx(gradients_of(other), rel=1e-6)


def test_scaling() -> None:
    made = parameters(3.0, -4.0)
    scale_gradients(made, 0.5)
    assert gradients_of(made) == [1.5, -2.0]


def test_only_parameters_with_gradients_count() -> None:
    made = parameters(1.0)
    optimizer = torch.optim.SGD([*made, nn.Parameter(torch.zeros(1))], lr=0.1)
    assert parameters_with_gradients(optimizer) == made


def test_a_non_finite_gradient_is_named_also_outside_of_the_model() -> None:
    model = nn.Linear(1, 1)
    stranger = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([{"params": list(model.parameters())}, {"params": [stranger]}], lr=0.1)
    assert not_finite_name(optimizer, model) == ""
    stranger.grad = torch.tensor([math.nan])
    assert not_finite_name(optimizer, model) == "parameter 0 of group 1"
    model.bias.grad = torch.tensor([math.inf])
    assert not_finite_name(optimizer, model) == "bias"


def test_a_report_without_the_optimizers_stage_is_of_a_step_that_was_skipped() -> None:
    assert not StepReport(1, STAGES, 1.0, 1.0, 0.1).skipped
    assert StepReport(0, ("check", "zero_grad"), math.nan, None, 0.1, "bias").skipped
