"""The squashed Gaussian: a normal variable bent into the bounds of an action by tanh.

    a = middle + half * tanh(u),   u ~ N(mean, std)
    log p(a) = log N(u) - sum of log(half * (1 - tanh(u)^2)),   log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u))

Haarnoja et al. 2018, "Soft Actor-Critic", appendix C; the last form stays finite for any u. Near the bounds an
action of float32 says little of its u, so `sample_and_log_prob` computes the density from u itself: use that where
the actions are the policy's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hive.errors import NetworkError
from hive.networks.distributions import HALF_LOG_TWO_PI, Floats, GaussianColumns
from hive.networks.spaces import ActionSpec, BoundedAction

__all__ = ["LOG_STD_BOUNDS", "SquashedGaussian", "squashed_distribution_for"]

# Of the log standard deviation (Haarnoja et al.'s own code): outside, densities over- and underflow.
LOG_STD_BOUNDS = (-20.0, 2.0)

# The largest |tanh u| that `log_prob` takes an action for: the last float32 but one before 1.
LARGEST_TANH = 1.0 - 2.0**-23


@dataclass(frozen=True)
class SquashedGaussian(GaussianColumns):
    """Actions float32 [..., *shape] strictly between `low` and `high`, which are flat.

    The means and log standard deviations of its outputs are those of the variables before they are squashed.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return self._squash(self._variables(outputs, noise))

    def sample_numpy(self, outputs: Floats, noise: Floats) -> npt.NDArray[Any]:
        half = self.width // 2
        std = np.exp(outputs[..., half:]).reshape(noise.shape)
        middle, reach = (bound.numpy() for bound in self._bounds())
        actions: npt.NDArray[Any] = middle + reach * np.tanh(outputs[..., :half].reshape(noise.shape) + std * noise)
        return actions

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        middle, reach = self._bounds()
        squashed = ((actions - middle) / reach).clamp(-LARGEST_TANH, LARGEST_TANH)
        return self._log_density(outputs, squashed.atanh())

    def sample_and_log_prob(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions and their log densities [...], exact up to the bounds; gradients flow through both."""
        variables = self._variables(outputs, noise)
        return self._squash(variables), self._log_density(outputs, variables)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Raises NetworkError: there is no closed form."""
        raise NetworkError(
            "the entropy of a squashed Gaussian has no closed form",
            hint="-log_prob of sample_and_log_prob is an unbiased estimate",
        )

    def mode(self, outputs: Tensor) -> Tensor:
        """The squashed mean: the median of each element, and what policies act by when they do not explore."""
        return self._squash(self._split(outputs)[0])

    def _variables(self, outputs: Tensor, noise: Tensor) -> Tensor:
        mean, log_std = self._split(outputs)
        return mean + log_std.exp() * noise

    def _squash(self, variables: Tensor) -> Tensor:
        middle, reach = self._bounds()
        return middle + reach * variables.tanh()

    def _log_density(self, outputs: Tensor, variables: Tensor) -> Tensor:
        mean, log_std = self._split(outputs)
        scaled = (variables - mean) * (-log_std).exp()
        normal = -0.5 * scaled.square() - log_std - HALF_LOG_TWO_PI
        slope = 2.0 * (math.log(2.0) - variables - torch.nn.functional.softplus(-2.0 * variables))
        return (normal - slope - self._bounds()[1].log()).reshape(*outputs.shape[:-1], -1).sum(-1)

    def _split(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation, each [..., *shape]."""
        mean, log_std = outputs.reshape(*outputs.shape[:-1], 2, *self.shape).unbind(-1 - len(self.shape))
        return mean, log_std

    def _bounds(self) -> tuple[Tensor, Tensor]:
        """The middle of the bounds and the distance from it, each [*shape]."""
        low, high = (torch.tensor(bound, dtype=torch.float32).reshape(self.shape) for bound in (self.low, self.high))
        return (low + high) / 2, (high - low) / 2


def squashed_distribution_for(action: ActionSpec) -> SquashedGaussian:
    """The squashed Gaussian of an action with finite bounds; NetworkError for any other."""
    if not isinstance(action, BoundedAction):
        raise NetworkError(
            f"only a box with bounds can be squashed into, not {action!r}", hint="use a `policy` head for it"
        )
    shape = tuple(action.shape)
    bounds = [np.broadcast_to(np.asarray(bound, np.float32), shape) for bound in _flat(action, shape)]
    if not all(np.isfinite(bound).all() for bound in bounds) or not (bounds[0] < bounds[1]).all():
        raise NetworkError(
            "an action without finite bounds cannot be squashed into them",
            hint="use a `policy` head, whose Gaussian is unbounded, or bound the action",
        )
    low, high = (tuple(float(value) for value in bound.reshape(-1)) for bound in bounds)
    return SquashedGaussian(shape, low, high)


def _flat(action: BoundedAction, shape: tuple[int, ...]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Low and high, each [*shape] or one number."""
    low, high = np.asarray(action.low, np.float32), np.asarray(action.high, np.float32)
    return tuple(bound.reshape(shape) if bound.size == math.prod(shape) else bound for bound in (low, high))  # type: ignore[return-value]
