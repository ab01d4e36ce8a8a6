"""Flat optimizers against torch.optim over several steps, in place and out of place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from hive.compat.coach.optimization import LimitedMemoryBFGS
from hive.errors import NetworkError
from hive.networks import FlatOptimizer, OptimizerSettings

SIZE, STEPS, RATE = 48, 5, 0.05

SETTINGS: dict[str, tuple[OptimizerSettings, int, Callable[[Any], Any]]] = {
    "adam": (
        OptimizerSettings("adam", (0.8, 0.95), 1e-5, weight_decay=0.1),
        2,
        lambda p: torch.optim.Adam(p, RATE, betas=(0.8, 0.95), eps=1e-5, weight_decay=0.1),
    ),
    "adamw": (
        OptimizerSettings("adamw", weight_decay=0.1),
        2,
        lambda p: torch.optim.AdamW(p, RATE, weight_decay=0.1),
    ),
    "radam": (
        OptimizerSettings("radam", epsilon=1e-5, weight_decay=0.1),
        2,
        lambda p: torch.optim.RAdam(p, RATE, eps=1e-5, weight_decay=0.1),
    ),
    "rmsprop": (
        OptimizerSettings("rmsprop", decay=0.9, epsilon=1e-3),
        1,
        lambda p: torch.optim.RMSprop(p, RATE, alpha=0.9, eps=1e-3),
    ),
    "rmsprop with momentum": (
        OptimizerSettings("rmsprop", momentum=0.7),
        2,
        lambda p: torch.optim.RMSprop(p, RATE, momentum=0.7),
    ),
    "sgd": (OptimizerSettings("sgd"), 0, lambda p: torch.optim.SGD(p, RATE)),
    "sgd with momentum": (
        OptimizerSettings("sgd", momentum=0.9, weight_decay=0.01),
        1,
        lambda p: torch.optim.SGD(p, RATE, momentum=0.9, weight_decay=0.01),
    ),
}


def arrays() -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(5)
    return rng.standard_normal(SIZE, dtype=np.float32), list(rng.standard_normal((STEPS, SIZE), dtype=np.float32))


@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "out of place"])
@pytest.mark.parametrize("case", SETTINGS)
def test_steps_are_torchs(case: str, in_place: bool) -> None:
    settings, moment_blocks, reference = SETTINGS[case]
    weights, gradients = arrays()
    parameter = torch.nn.Parameter(torch.from_numpy(weights.copy()))
    torch_optimizer = reference([parameter])
    optimizer = FlatOptimizer(settings)
    assert optimizer.moment_blocks == moment_blocks
    moments = [np.zeros(SIZE, np.float32) for _ in range(moment_blocks)]
    for step, gradient in enumerate(gradients, start=1):
        given = gradient.copy()
        before = weights.copy(), [moment.copy() for moment in moments]
        out = weights if in_place else np.empty_like(weights)
        moments_out = moments if in_place else [np.empty_like(moment) for moment in moments]
        optimizer.step(weights, out, gradient, moments, moments_out, step=step, learning_rate=RATE, gradient_scale=0.5)
        assert np.array_equal(gradient, given)
        if not in_place:
            assert np.array_equal(weights, before[0])
            assert all(np.array_equal(now, then) for now, then in zip(moments, before[1], strict=True))
        weights, moments = out, moments_out
        parameter.grad = torch.from_numpy(0.5 * gradient)
        torch_optimizer.step()
        np.testing.assert_allclose(weights, parameter.detach().numpy(), rtol=2e-6, atol=1e-7)


def test_lbfgs_walks_down_a_bowl() -> None:
    optimizer = LimitedMemoryBFGS(OptimizerSettings("lbfgs"))
    weights, _ = arrays()
    scale = np.linspace(1.0, 20.0, SIZE, dtype=np.float32)
    losses = []
    for step in range(1, 31):
        gradient = scale * weights
        optimizer.step(weights, weights, 2.0 * gradient, [], [], step=step, learning_rate=0.5, gradient_scale=0.5)
        losses.append(float((scale * weights**2).sum()))
    assert losses[-1] < 1e-2 * losses[0]


def test_unknown_names_and_missing_moments_are_refused() -> None:
    with pytest.raises(NetworkError, match="unknown optimizer `Adam`") as error:
        OptimizerSettings("Adam")
    assert "adam, adamw, radam, rmsprop, sgd, lbfgs" in error.value.hint
    with pytest.raises(NetworkError, match="lbfgs stores its history outside of blocks"):
        FlatOptimizer(OptimizerSettings("lbfgs"))
    weights, (gradient, *_) = arrays()
    with pytest.raises(NetworkError, match="adam needs 2 moment arrays, got 0 and 0"):
        FlatOptimizer(OptimizerSettings()).step(weights, weights, gradient, [], [], step=1, learning_rate=0.1)
