"""What only Coach's networks optimize with: clipping by value and by the norm of each array, and torch's L-BFGS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from hive import _native
from hive.networks.build.parameters import GradientClippingMethod
from hive.networks.weights.flat import Floats
from hive.networks.weights.optimizers import OptimizerSettings, clip_factor


def clip_gradient(
    gradient: Floats, parts: Sequence[Floats], norm: float, limit: float | None, method: GradientClippingMethod
) -> None:
    """Clip `gradient`, a finite block float32 [elements], in place.

    parts: a view of the block for each parameter. norm: its global norm. limit: None or 0: no clipping.
    A gradient within the limit stays bit-identical, see `clip_factor`.
    """
    if not limit:
        return
    if method is GradientClippingMethod.ClipByValue:
        np.clip(gradient, -limit, limit, out=gradient)
    elif method is GradientClippingMethod.ClipByGlobalNorm:
        gradient *= np.float32(clip_factor(norm, limit))
    else:
        for part in parts:
            part *= np.float32(clip_factor(_native.norm_and_finite(part.reshape(-1))[0], limit))


class LimitedMemoryBFGS:
    """torch.optim.LBFGS with FlatOptimizer's interface: one quasi-Newton iteration per step, no moment arrays.

    The caller passes the gradient of a step, so there is no line search and no second evaluation of the loss. A step
    with a non-finite result clears the history, because it would make every later step non-finite too.
    """

    moment_blocks = 0

    def __init__(self, settings: OptimizerSettings) -> None:
        self.settings = settings
        self._optimizer: Any = None

    def step(
        self,
        parameters_in: Floats,
        parameters_out: Floats,
        gradient: Floats,
        moments_in: Sequence[Floats],
        moments_out: Sequence[Floats],
        *,
        step: int,
        learning_rate: float,
        gradient_scale: float = 1.0,
    ) -> bool:
        """Do what FlatOptimizer.step does; `step` and the moments are not used."""
        if self._optimizer is None:  # made late because its import of torch._dynamo takes over a second
            weights = torch.nn.Parameter(torch.empty(len(parameters_out), dtype=torch.float32, device="cpu"))
            self._optimizer = torch.optim.LBFGS([weights], lr=learning_rate, max_iter=1)
        group = self._optimizer.param_groups[0]
        group["lr"] = learning_rate
        weights = group["params"][0]
        weights.data.copy_(torch.from_numpy(parameters_in))
        with np.errstate(over="ignore"):  # an overflow makes the result non-finite, which is checked below
            weights.grad = torch.from_numpy(gradient * np.float32(gradient_scale))
        self._optimizer.step(lambda: torch.zeros((), device="cpu"))
        np.copyto(parameters_out, weights.detach().numpy())
        finite = bool(np.isfinite(parameters_out).all())
        if not finite:
            self._optimizer = None
        return finite
