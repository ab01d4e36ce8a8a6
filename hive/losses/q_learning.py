"""The loss of action values against targets: Q-learning (Watkins 1989; Mnih et al. 2015, 2016)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import huber_loss, mse_loss

from hive import _native
from hive.losses.loss import Floats, LossSlopes, LossValue, weighted_mean

__all__ = ["QLoss"]


@dataclass(frozen=True, eq=False, slots=True)
class QLoss:
    """The loss of the values of the actions that were taken. The network returns the values of all actions, [N, A].

    inputs: [N, ...]. actions: int64 [N]. targets: float32 [N]. weights: float32 [N], the weight of each row, with the
        sum 1; None: equal weights. huber: whether to use Huber's loss with delta 1 instead of the squared error.
        importance: float32 [N], the factor of each row's loss, not of its statistics. errors: float32 [N], which
        receives the absolute errors.
    statistics: loss, mean value of the actions taken, mean of the largest values, mean absolute error.
    """

    inputs: Tensor
    actions: Tensor
    targets: Tensor
    weights: Tensor | None = None
    huber: bool = False
    importance: Tensor | None = None
    errors: NDArray[np.float32] | None = None

    def __call__(self, outputs: Tensor) -> LossValue:
        values = outputs.gather(-1, self.actions.unsqueeze(-1)).squeeze(-1)
        losses = (huber_loss if self.huber else mse_loss)(values, self.targets, reduction="none")
        with torch.no_grad():
            errors, largest = (values - self.targets).abs(), outputs.amax(-1)
        if self.errors is not None:
            self.errors[:] = errors.numpy()
        if self.importance is not None:
            losses = losses * self.importance
        weights = torch.full_like(errors, 1.0 / max(len(errors), 1)) if self.weights is None else self.weights
        return weighted_mean((losses, values.detach(), largest, errors), weights, (1.0, 0.0, 0.0, 0.0))

    @property
    def is_native(self) -> bool:
        """Whether `differentiate` can be called."""
        return True

    def differentiate(self, outputs: tuple[Floats, ...]) -> LossSlopes:
        """Return the loss and its gradient, from NumPy outputs."""
        (values,) = outputs
        slopes = np.empty_like(values)
        weights, importance = (None if each is None else each.numpy() for each in (self.weights, self.importance))
        total, *means = _native.q_loss(
            *(values, self.actions.numpy(), self.targets.numpy(), weights, importance, self.errors, self.huber, slopes)
        )
        return LossSlopes(total, (total, *means), (slopes,))
