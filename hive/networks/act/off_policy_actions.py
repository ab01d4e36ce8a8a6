"""Distributions of agents that learn from a replay memory: uniform actions first, then those of the policy.

    rollouts 0 .. warmup - 1      uniformly drawn between the bounds, or among the allowed discrete actions
    later rollouts                drawn by the policy:
        SoftActions               a squashed Gaussian (hive.networks.act.squashed)
        SoftChoices               a categorical distribution
        NoisyActions              middle + half * clip(tanh(output) + deviation * noise, -1, 1),  noise ~ N(0, 1)

The number of the rollout decides, so there is no counter to save, and a repeated rollout has the same actions. `mode`,
and every distribution without a rollout's number, is that of the policy. So are log probabilities and entropies.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hive.errors import NetworkError
from hive.networks.act.distributions import HALF_LOG_TWO_PI, Categorical, Floats
from hive.networks.act.exploration import ALLOWED
from hive.networks.act.squashed import BoundedColumns, SquashedGaussian
from hive.networks.rows.packed import FORBIDDEN

__all__ = ["NoisyActions", "SoftActions", "SoftChoices"]


@dataclass(frozen=True)
class UniformStart:
    """warmup: number of first rollouts with uniform actions. rollout: number of the current one; None: none of them."""

    warmup: int = 0
    rollout: int | None = None

    def for_rollout(self, number: int) -> Self:
        return dataclasses.replace(self, rollout=number)

    @property
    def uniform(self) -> bool:
        """Whether actions are drawn uniformly."""
        return self.rollout is not None and self.rollout < self.warmup


@dataclass(frozen=True)
class UniformBox(UniformStart, BoundedColumns):
    """The base of bounded box actions that are uniform at first: normal noise at its quantiles."""

    def uniform_actions(self, noise: Tensor) -> Tensor:
        """Return actions [..., *shape], uniform between the bounds for normal noise of this shape."""
        middle, reach = self._bounds()
        share: Tensor = torch.special.ndtr(noise)
        return middle + reach * (2.0 * share - 1.0)


@dataclass(frozen=True)
class SoftActions(UniformBox, SquashedGaussian):
    """A squashed Gaussian after uniform actions: the policy of SAC."""

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return self.uniform_actions(noise) if self.uniform else super().sample(outputs, noise)

    def sample_numpy(self, outputs: Floats, noise: Floats) -> npt.NDArray[Any]:
        if self.uniform:
            return self.uniform_actions(torch.from_numpy(noise)).numpy()
        return super().sample_numpy(outputs, noise)


@dataclass(frozen=True)
class SoftChoices(UniformStart, Categorical):
    """A categorical distribution after uniform choices: the policy of SAC for discrete actions."""

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        if self.uniform:
            outputs = torch.where(outputs > ALLOWED, 0.0, FORBIDDEN)
        return super().sample(outputs, noise)

    def sample_numpy(self, outputs: Floats, noise: Floats) -> npt.NDArray[Any]:
        if self.uniform:
            outputs = np.where(outputs > ALLOWED, np.float32(0.0), np.float32(FORBIDDEN))
        return super().sample_numpy(outputs, noise)


@dataclass(frozen=True)
class NoisyActions(UniformBox):
    """A deterministic policy with normal noise, after uniform actions: the policy of DDPG and TD3.

    deviation: standard deviation of the noise where the bounds are -1 and 1. `log_prob` and `entropy` are those of the
    actions before they are clipped. Raises NetworkError for a negative deviation.
    """

    deviation: float = 0.1

    def __post_init__(self) -> None:
        if self.deviation < 0.0:
            raise NetworkError(f"invalid deviation {self.deviation} of the noise", hint="give 0 or a positive number")

    @property
    def width(self) -> int:
        return super().width // 2  # no deviations

    def scaled_mode(self, outputs: Tensor) -> Tensor:
        """Return the actions without noise, [..., *shape], scaled to -1 ... 1."""
        return outputs.tanh().reshape(*outputs.shape[:-1], *self.shape)

    def mode(self, outputs: Tensor) -> Tensor:
        return self.unscaled(self.scaled_mode(outputs))

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        if self.uniform:
            return self.uniform_actions(noise)
        return self.unscaled((self.scaled_mode(outputs) + self.deviation * noise).clamp(-1.0, 1.0))

    def sample_numpy(self, outputs: Floats, noise: Floats) -> npt.NDArray[Any]:
        if self.uniform:
            return self.uniform_actions(torch.from_numpy(noise)).numpy()
        scaled = np.tanh(outputs).reshape(noise.shape) + np.float32(self.deviation) * noise
        middle, reach = self._middle_and_reach
        actions: npt.NDArray[Any] = middle + reach * np.clip(scaled, np.float32(-1.0), np.float32(1.0))
        return actions

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        deviation = self.deviation * self._bounds()[1]
        density = -0.5 * ((actions - self.mode(outputs)) / deviation).square() - deviation.log() - HALF_LOG_TWO_PI
        return density.reshape(*outputs.shape[:-1], -1).sum(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        elements = (self.deviation * self._bounds()[1]).log() + (0.5 + HALF_LOG_TWO_PI)
        return elements.sum().expand(outputs.shape[:-1])
