"""Losses of algorithms that learn a value for every action, or the distribution of its return, against targets.

QLoss              values [N, A] (Watkins 1989; Mnih et al. 2015, 2016)
CategoricalQLoss   distributions [N, A, atoms] by categories: C51
QuantileQLoss      distributions [N, A, atoms] by quantiles: QR-DQN
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import huber_loss, mse_loss

from hive import _native
from hive.learning.described import Step
from hive.learning.loss import Floats, LossSlopes, LossValue, weighted_mean
from hive.networks.build.value_heads import expected_return, quantile_midpoints, select_actions


def cross_entropies(log_probabilities: Tensor, targets: Tensor) -> Tensor:
    """Return -sum of target * log probability over the atoms, [N] from [N, atoms]; an impossible atom counts 0."""
    return -(targets * log_probabilities).sum(-1)


def quantile_losses(quantiles: Tensor, targets: Tensor, midpoints: Tensor, kappa: float = 1.0) -> Tensor:
    """Return the loss of quantile regression [N] of quantiles [N, atoms] against targets [N, any] (Dabney et al. 2018).

    It is the sum over the quantiles of the mean over the targets of |tau - [u < 0]| L(u) / kappa, where u is the target
    minus the quantile and L the Huber loss (equation 10; divided by kappa as in "Implicit Quantile Networks"). With
    kappa = 0 the terms are |tau - [u < 0]| |u|.

    midpoints: float32 [atoms], those of `quantile_midpoints`. No gradient flows through the side of an error.
    """
    errors = targets.unsqueeze(-2) - quantiles.unsqueeze(-1)  # [N, quantiles, targets]
    sizes = errors.abs()
    if kappa:
        inside = 0.5 * errors.square() / kappa
        sizes = torch.where(sizes <= kappa, inside, sizes - 0.5 * kappa)
    sides = (midpoints.unsqueeze(-1) - (errors.detach() < 0).to(errors.dtype)).abs()
    return (sides * sizes).mean(-1).sum(-1)


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


def described_q_loss(*, huber: bool, importance: bool) -> Step:
    """Return QLoss as a step of a `_native.Program`: of the registers `values`, `actions`, `targets` to `to_values`."""
    return "q", {"huber": huber, **_described(importance=importance)}


def described_categorical_loss(support: Tensor) -> Step:
    """Return CategoricalQLoss as a step of the same registers, with the importance of the rows."""
    return "categorical_loss", {"support": support.tolist(), **_described(importance=True)}


def described_quantile_loss(quantiles: int) -> Step:
    """Return QuantileQLoss as a step of the same registers, with the importance of the rows."""
    return "quantile_loss", {"atoms": quantiles, **_described(importance=True)}


def _described(*, importance: bool) -> dict[str, Any]:
    return {"importance": importance, "values": "values", "slopes": "to_values"}


@dataclass(frozen=True, eq=False, slots=True)
class CategoricalQLoss:
    """The cross entropy of target distributions and those of the actions that were taken (Bellemare et al. 2017).

    The network returns log probabilities of the returns `support`, float32 [atoms].

    inputs: [N, ...]. actions: int64 [N]. targets: probabilities float32 [N, atoms] of the same returns.
    importance: float32 [N], the factor of each row's loss, not of its statistics. errors: float32 [N], which receives
        the divergences KL(target || prediction), the priorities of Rainbow (Hessel et al. 2018).
    statistics: loss, mean expected return of the actions taken, mean of the largest expected returns, mean absolute
        difference between the expected returns of target and prediction.
    """

    inputs: Tensor
    actions: Tensor
    targets: Tensor
    support: Tensor
    importance: Tensor | None = None
    errors: NDArray[np.float32] | None = None

    def __call__(self, outputs: Tensor) -> LossValue:
        losses = cross_entropies(select_actions(outputs, self.actions), self.targets)
        with torch.no_grad():
            values = expected_return(outputs, self.support)
            entropies = -torch.special.xlogy(self.targets, self.targets).sum(-1)
            divergences = (losses - entropies).clamp_min(0.0)  # rounding can make it negative
        if self.errors is not None:
            self.errors[:] = divergences.numpy()
        return _weighted(losses, self.importance, values, self.actions, (self.targets * self.support).sum(-1))

    @property
    def is_native(self) -> bool:
        """Whether `differentiate` can be called."""
        return True

    def differentiate(self, outputs: tuple[Floats, ...]) -> LossSlopes:
        """Return the loss and its gradient, from NumPy outputs."""
        (log_probs,) = outputs
        slopes = np.empty_like(log_probs)
        importance = None if self.importance is None else self.importance.numpy()
        rows = self.actions.numpy(), self.targets.numpy(), importance, self.errors
        total, *means = _native.categorical_loss(self.support.numpy(), log_probs, *rows, slopes)
        return LossSlopes(total, (total, *means), (slopes,))


@dataclass(frozen=True, eq=False, slots=True)
class QuantileQLoss:
    """Quantile regression with Huber's loss, delta 1, of the actions that were taken (Dabney et al. 2018).

    The network returns quantiles of the returns.

    inputs: [N, ...]. actions: int64 [N]. targets: equally likely returns float32 [N, any number]. importance: as in
        CategoricalQLoss. errors: float32 [N], which receives the absolute differences of the expected returns.
    statistics: as in CategoricalQLoss.
    """

    inputs: Tensor
    actions: Tensor
    targets: Tensor
    importance: Tensor | None = None
    errors: NDArray[np.float32] | None = None

    def __call__(self, outputs: Tensor) -> LossValue:
        chosen = select_actions(outputs, self.actions)
        losses = quantile_losses(chosen, self.targets, quantile_midpoints(outputs.shape[-1]))
        with torch.no_grad():
            values, expected = expected_return(outputs, None), self.targets.mean(-1)
            if self.errors is not None:
                self.errors[:] = (expected - chosen.mean(-1)).abs().numpy()
        return _weighted(losses, self.importance, values, self.actions, expected)

    @property
    def is_native(self) -> bool:
        """Whether `differentiate` can be called."""
        return True

    def differentiate(self, outputs: tuple[Floats, ...]) -> LossSlopes:
        """Return the loss and its gradient, from NumPy outputs."""
        (quantiles,) = outputs
        slopes = np.empty_like(quantiles)
        importance = None if self.importance is None else self.importance.numpy()
        total, *means = _native.quantile_loss(
            quantiles, self.actions.numpy(), self.targets.numpy(), importance, self.errors, slopes
        )
        return LossSlopes(total, (total, *means), (slopes,))


def _weighted(
    losses: Tensor, importance: Tensor | None, values: Tensor, actions: Tensor, expected: Tensor
) -> LossValue:
    """Return the mean loss and the statistics. values: [N, A], expected: [N], the mean of each target."""
    taken = select_actions(values, actions)
    terms = (losses if importance is None else losses * importance), taken, values.amax(-1), (expected - taken).abs()
    weights = torch.full_like(taken, 1.0 / max(len(taken), 1))
    return weighted_mean(terms, weights, (1.0, 0.0, 0.0, 0.0))
