"""Box actions with bounds: a Gaussian in the scale in which they are -1 and 1, and one that tanh maps into them.

    ScaledActions       a = middle + reach * u,         u of the Gaussian that the outputs of the network describe
    SquashedGaussian    a = middle + reach * tanh(u),   u ~ N(mean, std)

Rollouts hold `a`, in the environment's units.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hive.declared import is_bound
from hive.errors import NetworkError
from hive.networks.act.distributions import HALF_LOG_TWO_PI, ActionDistribution, GaussianColumns, tangents
from hive.networks.build.spaces import ActionSpec, BoundedAction
from hive.networks.weights.flat import Floats


class InBounds(ActionDistribution):
    """The base of distributions of box actions, float32 [..., *shape], and the scale of their bounds, -1 to 1."""

    @property
    @abstractmethod
    def middle_and_reach(self) -> tuple[Floats, Floats]:
        """The middle of the bounds and half the distance between them, each float32 [*shape]."""

    def scaled(self, actions: Tensor) -> Tensor:
        """Return actions of the environment's units in this scale."""
        middle, reach = self._bounds()
        return (actions - middle) / reach

    def unscaled(self, scaled: Tensor) -> Tensor:
        """Return actions of this scale in the environment's units."""
        middle, reach = self._bounds()
        return middle + reach * scaled

    def _bounds(self) -> tuple[Tensor, Tensor]:
        middle, reach = self.middle_and_reach
        return torch.from_numpy(middle), torch.from_numpy(reach)


@dataclass(frozen=True)
class ScaledActions(InBounds):
    """`inner`, a distribution of float32 actions [..., *shape], in the scale in which the bounds are -1 and 1.

    So a policy explores `Box(100, 200)` from its middle to its bounds with the initial deviation, as RLlib's
    `normalize_actions` does. Log densities and entropies are those of `u`: they differ from those of `a` by log(reach),
    a constant, which no gradient and no ratio of policies depends on. middle, reach: of each element, flat.
    """

    inner: ActionDistribution
    middle: tuple[float, ...]
    reach: tuple[float, ...]
    noise = "normal"
    action_dtype = "float32"

    @property
    def width(self) -> int:
        return self.inner.width

    @property
    def noise_shape(self) -> tuple[int, ...]:
        return self.inner.noise_shape

    @property
    def action_shape(self) -> tuple[int, ...]:
        return self.inner.action_shape

    def prepare_noise(self, noise: Floats) -> Floats:
        return self.inner.prepare_noise(noise)

    def draw_noise(self, generator: np.random.Generator, *shape: int) -> Floats:
        return self.inner.draw_noise(generator, *shape)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return self.unscaled(self.inner.sample(outputs, noise))

    def sample_numpy(self, outputs: Floats, noise: Floats) -> npt.NDArray[Any]:
        middle, reach = self.middle_and_reach
        actions: npt.NDArray[Any] = middle + reach * self.inner.sample_numpy(outputs, noise)
        return actions

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        return self.inner.log_prob(outputs, self.scaled(actions))

    def entropy(self, outputs: Tensor) -> Tensor:
        return self.inner.entropy(outputs)

    def log_prob_and_entropy(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner.log_prob_and_entropy(outputs, self.scaled(actions))

    def mode(self, outputs: Tensor) -> Tensor:
        return self.unscaled(self.inner.mode(outputs))

    def scaled_numpy(self, actions: npt.NDArray[Any]) -> Floats:
        """`scaled` for NumPy arrays."""
        middle, reach = self.middle_and_reach
        found: Floats = (actions - middle) / reach
        return found

    @cached_property
    def middle_and_reach(self) -> tuple[Floats, Floats]:
        shape = self.action_shape
        return np.array(self.middle, np.float32).reshape(shape), np.array(self.reach, np.float32).reshape(shape)


def scaled_actions(inner: ActionDistribution, low: Sequence[float], high: Sequence[float]) -> ActionDistribution:
    """Return `inner` in the scale of bounds, flat; `inner` itself if there are none, or they are -1 and 1.

    Elements without two bounds keep their scale. One whose bounds are equal has them as its middle.
    """
    middle, reach = [], []
    for least, most in zip(low, high, strict=True):
        bounded = is_bound(least) and is_bound(most)
        middle.append(least / 2 + most / 2 if bounded else 0.0)
        reach.append(most / 2 - least / 2 if bounded and least < most else 1.0)
    if not any(middle) and set(reach) <= {1.0}:
        return inner
    return ScaledActions(inner, tuple(middle), tuple(reach))


# Bounds of a log standard deviation that depends on the observation (from the code of Haarnoja et al.); outside,
# densities over- or underflow.
LOG_STD_BOUNDS = (-20.0, 2.0)

# Nodes and weights of an expectation under N(0, 1). With 32, entropies are exact to 2e-4 for deviations of u up to 2,
# and to 0.02 up to 4, where nearly all actions are at the bounds.
NODES, NODE_WEIGHTS = (torch.from_numpy(array.astype(np.float32)) for array in np.polynomial.hermite_e.hermegauss(32))
NODE_WEIGHTS /= NODE_WEIGHTS.sum()

# `log_prob` clamps |tanh u| to the second largest float32 below 1, where atanh is finite.
LARGEST_TANH = 1.0 - 2.0**-23


@dataclass(frozen=True)
class BoundedColumns(InBounds, GaussianColumns):
    """The base of distributions of actions float32 [..., *shape] between `low` and `high`, which are flat."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @cached_property
    def middle_and_reach(self) -> tuple[Floats, Floats]:
        low, high = (np.array(bound, np.float32).reshape(self.shape) for bound in (self.low, self.high))
        return np.asarray((low + high) / 2), np.asarray((high - low) / 2)


@dataclass(frozen=True)
class SquashedGaussian(BoundedColumns):
    """A Gaussian squashed by tanh; the means and log standard deviations in the outputs are those of u.

        log p(a) = log N(u) - sum of log(reach * (1 - tanh(u)^2)),   log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u))

    Haarnoja et al. 2018, "Soft Actor-Critic", appendix C; the last form is finite for any u. Near the bounds a float32
    action determines u only roughly. Use `sample_and_log_prob`, which computes the density from u itself, for actions
    that the policy samples. The entropy is that of u plus the expectation of the log slope, by Gauss-Hermite
    quadrature.
    """

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return self.unscaled(self._variables(outputs, noise).tanh())

    def sample_numpy(self, outputs: Floats, noise: Floats) -> npt.NDArray[Any]:
        middle, reach = self.middle_and_reach
        actions: npt.NDArray[Any] = middle + reach * tangents(self._variables_numpy(outputs, noise))
        return actions

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        squashed = self.scaled(actions).clamp(-LARGEST_TANH, LARGEST_TANH)
        return self._log_density(outputs, squashed.atanh())

    def sample_and_log_prob(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions [..., *shape] and their log densities [...], exact up to the bounds.

        Gradients flow through both (the reparametrization trick, Kingma and Welling 2014).
        """
        actions, log_probs = self.scaled_sample(outputs, noise)
        return self.unscaled(actions), log_probs - self._bounds()[1].log().sum()

    def scaled_sample(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Do what `sample_and_log_prob` does, with actions scaled to -1 ... 1 and the densities of these."""
        mean, log_std = self._split(outputs)
        variables = mean + log_std.exp() * noise
        elements = _log_slope(variables) + log_std + (0.5 * noise.square() + HALF_LOG_TWO_PI)
        return variables.tanh(), -elements.reshape(*outputs.shape[:-1], math.prod(self.shape)).sum(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the entropy float32 [...] in nats, with gradients for means and deviations."""
        mean, log_std = self._split(outputs)
        nodes = mean.unsqueeze(-1) + log_std.exp().unsqueeze(-1) * NODES
        slope = (_log_slope(nodes) * NODE_WEIGHTS).sum(-1)
        elements = log_std + (0.5 + HALF_LOG_TWO_PI) + slope + self._bounds()[1].log()
        return elements.reshape(*outputs.shape[:-1], math.prod(self.shape)).sum(-1)

    def mode(self, outputs: Tensor) -> Tensor:
        """Return the squashed mean, which is the median of each element: the action without exploration."""
        return self.unscaled(self._split(outputs)[0].tanh())

    def _log_density(self, outputs: Tensor, variables: Tensor) -> Tensor:
        densities = self._log_densities(outputs, variables) - _log_slope(variables) - self._bounds()[1].log()
        return densities.reshape(*outputs.shape[:-1], math.prod(self.shape)).sum(-1)


def _log_slope(variables: Tensor) -> Tensor:
    """Return log(1 - tanh(u)^2)."""
    return 2.0 * (math.log(2.0) - variables - torch.nn.functional.softplus(-2.0 * variables))


def clamp_log_std(outputs: Tensor) -> Tensor:
    """Return outputs [..., 2 * D], means and log standard deviations, with the latter inside LOG_STD_BOUNDS.

    A log standard deviation outside has gradient 0.
    """
    mean, log_std = outputs.chunk(2, -1)
    low, high = LOG_STD_BOUNDS
    # Unlike that of `clamp` in torch 2.14, this gradient is 1 at the bounds, as in native code and in older versions.
    log_std = torch.where(log_std < low, low, torch.where(log_std > high, high, log_std))
    return torch.cat([mean, log_std], -1)


def squashed_distribution_for(action: ActionSpec) -> SquashedGaussian:
    """Return the squashed Gaussian of an action with finite bounds; raises NetworkError for any other action."""
    if not isinstance(action, BoundedAction):
        raise NetworkError(
            f"a squashed Gaussian needs a box action with bounds, not {action!r}",
            hint='use a `policy` head with action_distribution = "gaussian" for it, or another algorithm',
        )
    shape = tuple(action.shape)
    given = (np.asarray(bound, np.float32) for bound in (action.low, action.high))  # of this shape, flat, or one number
    bounds = [np.broadcast_to(b.reshape(shape) if b.size == math.prod(shape) else b, shape) for b in given]
    for least, most in zip(*(bound.ravel().tolist() for bound in bounds), strict=True):
        if is_bound(least) and is_bound(most) and least < most:
            continue
        endless = ", which stands for infinity" if np.isfinite([least, most]).all() and least < most else ""
        raise NetworkError(
            f"a squashed Gaussian needs actions with finite bounds low < high, not {least:g} to {most:g}{endless}",
            hint="declare the bounds that actions have, in the class or in a wrapper (TransformAction), or use ppo or "
            'a2c with action_distribution = "gaussian"',
        )
    low, high = (tuple(float(value) for value in bound.reshape(-1)) for bound in bounds)
    return SquashedGaussian(shape, low, high)
