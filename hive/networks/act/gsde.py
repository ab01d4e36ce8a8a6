"""Generalized state-dependent exploration: a Gaussian whose noise is a linear function of the network's features.

    a_j = mean_j + sum_i f_i sigma_ij e_ij,   e_ij ~ N(0, 1)
    so given the features f, a_j ~ N(mean_j, sum_i (f_i sigma_ij)^2 + EPSILON)

Raffin, Kober and Stulp 2021, "Smooth Exploration for Robotic Reinforcement Learning". While e is kept, the noise is a
smooth function of the state, so a robot is not shaken; a collector draws it again after `noise_steps` steps and with
each rollout. The features are the outputs of the last layer before the heads. The outputs of the policy are the means
and the products f_i sigma_ij, so that a distribution needs nothing else; `hive.networks.build.heads` computes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hive.networks.act.distributions import HALF_LOG_TWO_PI, ActionDistribution
from hive.networks.weights.flat import Floats

EPSILON = 1e-6  # added to variances, as Stable-Baselines3 does: features may all be 0


@dataclass(frozen=True)
class StateDependentGaussian(ActionDistribution):
    """Actions float32 [..., *shape] of D = prod(shape) elements, from outputs [..., D + features * D].

    The outputs are the means, flat, then the products f_i sigma_ij in the order of i, then j. features: their number.
    noise_steps: steps for which a collector keeps the noise; 0: the whole rollout.
    """

    shape: tuple[int, ...]
    features: int
    noise_steps: int = 0
    noise = "normal"
    action_dtype = "float32"

    @property
    def elements(self) -> int:
        """D, the number of elements of an action."""
        return math.prod(self.shape)

    @property
    def width(self) -> int:
        return self.elements * (1 + self.features)

    @property
    def noise_shape(self) -> tuple[int, ...]:
        return (self.features, self.elements)

    @property
    def action_shape(self) -> tuple[int, ...]:
        return self.shape

    def prepare_noise(self, noise: Floats) -> Floats:
        return noise

    def draw_noise(self, generator: np.random.Generator, *shape: int) -> Floats:
        """Return noise float32 [*shape, features, D]; for two axes, steps and environments, kept for `noise_steps`."""
        if len(shape) < 2:
            return super().draw_noise(generator, *shape)
        kept = self.noise_steps or max(shape[0], 1)
        drawn = super().draw_noise(generator, -(-shape[0] // kept), *shape[1:])
        return np.repeat(drawn, kept, 0)[: shape[0]]

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        mean, products = self._split(outputs)
        return (mean + (products * noise).sum(-2)).reshape(*outputs.shape[:-1], *self.shape)

    def sample_numpy(self, outputs: Floats, noise: Floats) -> npt.NDArray[Any]:
        leading = outputs.shape[:-1]
        products = outputs[..., self.elements :].reshape(*leading, *self.noise_shape)
        actions: npt.NDArray[Any] = outputs[..., : self.elements] + (products * noise).sum(-2)
        return actions.reshape(*leading, *self.shape)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        return self.log_prob_and_entropy(outputs, actions)[0]

    def entropy(self, outputs: Tensor) -> Tensor:
        return self._entropy(self.variance(outputs))

    def log_prob_and_entropy(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        variance = self.variance(outputs)
        errors = actions.reshape(*outputs.shape[:-1], self.elements) - outputs[..., : self.elements]
        density = -0.5 * (errors.square() / variance + variance.log()) - HALF_LOG_TWO_PI
        return density.sum(-1), self._entropy(variance)

    def mode(self, outputs: Tensor) -> Tensor:
        return outputs[..., : self.elements].reshape(*outputs.shape[:-1], *self.shape)

    def _split(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return means [..., D] and products [..., features, D]."""
        mean, products = outputs.split_with_sizes([self.elements, self.width - self.elements], -1)
        return mean, products.reshape(*outputs.shape[:-1], *self.noise_shape)

    def variance(self, outputs: Tensor) -> Tensor:
        """Return variances [..., D]."""
        return self._split(outputs)[1].square().sum(-2) + EPSILON

    def _entropy(self, variance: Tensor) -> Tensor:
        return (0.5 * torch.log(variance) + (0.5 + HALF_LOG_TWO_PI)).sum(-1)


def noise_products(features: Tensor, log_std: Tensor) -> Tensor:
    """Return f_i sigma_ij, [N, F * D], of features [N, F], which get no gradient, and logarithms of sigma [F, D]."""
    return (features.detach().unsqueeze(-1) * log_std.exp()).flatten(-2)
