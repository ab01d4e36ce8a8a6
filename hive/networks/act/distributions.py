"""Action distributions as plain arithmetic on a network's outputs.

A distribution object defines the meaning of the last axis of the policy outputs:

    Categorical        logits [..., n]                      actions int64 [...]
    MultiCategorical   logits [..., sum(nvec)]              actions int64 [..., len(nvec)]
    DiagonalGaussian   mean and log std [..., 2 * D]        actions float32 [..., *shape], D = prod(shape)

Leading axes are free. The caller passes the noise of a sample, so the same noise gives the same actions in every
process. `prepare_noise` does the part of sampling that depends on the noise alone, for a whole rollout at once.
Actions are not clipped to bounds, so log probabilities are those of the sampled actions. `torch.distributions` is
not used because its validation and allocations cost several times as much. `product` has the distribution of several
actions at once, and chooses the distribution of an action.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hive import _native
from hive.networks.weights.flat import Floats

# Uniform noise may be exactly 0, whose logarithm is infinite, so it is raised to the smallest normal number.
TINY = float(np.finfo(np.float32).tiny)

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class ActionDistribution(ABC):
    """The interface of all distributions. `outputs` is float32 [..., width]; the module has the other shapes."""

    noise: Literal["uniform", "normal", "both"]  # the input of `prepare_noise`, float32: uniform in [0, 1), or N(0, 1)
    action_dtype: Literal["int64", "float32"]

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of network outputs that describe one action."""

    @property
    @abstractmethod
    def noise_shape(self) -> tuple[int, ...]:
        """The shape of the noise of one action."""

    @property
    @abstractmethod
    def action_shape(self) -> tuple[int, ...]:
        """The shape of one action."""

    @abstractmethod
    def prepare_noise(self, noise: Floats) -> Floats:
        """Convert noise float32 [..., *noise_shape] to the argument of `sample`, of the same shape."""

    def draw_noise(self, generator: np.random.Generator, *shape: int) -> Floats:
        """Return prepared noise float32 [*shape, *noise_shape], from the next numbers of `generator`."""
        draw = generator.random if self.noise == "uniform" else generator.standard_normal
        return self.prepare_noise(draw((*shape, *self.noise_shape), np.float32))

    @abstractmethod
    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Return actions [..., *action_shape] computed from `outputs` and prepared noise."""

    @abstractmethod
    def sample_numpy(self, outputs: Floats, noise: Floats) -> npt.NDArray[Any]:
        """`sample` for NumPy arrays, in the hot loop of a collector. Its rounding may differ from torch's."""

    @abstractmethod
    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Return the log probabilities (log densities) float32 [...] of `actions`."""

    @abstractmethod
    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the entropy float32 [...] in nats."""

    def log_prob_and_entropy(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return `log_prob` and `entropy`, each [...]; subclasses compute common terms once."""
        return self.log_prob(outputs, actions), self.entropy(outputs)

    @abstractmethod
    def mode(self, outputs: Tensor) -> Tensor:
        """Return the most likely actions [..., *action_shape]."""

    def for_collector(self, first: int, count: int, of: int) -> ActionDistribution:
        """Return the distribution for `count` of the run's `of` environments, from number `first` on.

        This one, unless environments explore differently.
        """
        return self

    def for_rollout(self, number: int) -> ActionDistribution:
        """Return the distribution for a collector's rollout `number`: this one, unless exploration has a schedule."""
        return self


@dataclass(frozen=True)
class Categorical(ActionDistribution):
    """One of `n` actions, from logits. Sampling: Gumbel-max (Gumbel 1954; Maddison et al. 2014)."""

    n: int
    noise = "uniform"
    action_dtype = "int64"

    @property
    def width(self) -> int:
        return self.n

    @property
    def noise_shape(self) -> tuple[int, ...]:
        return (self.n,)

    @property
    def action_shape(self) -> tuple[int, ...]:
        return ()

    def prepare_noise(self, noise: Floats) -> Floats:
        return _gumbel(noise)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return (outputs + noise).argmax(-1)

    def sample_numpy(self, outputs: Floats, noise: Floats) -> npt.NDArray[Any]:
        actions: npt.NDArray[Any] = (outputs + noise).argmax(-1)
        return actions

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        return _chosen(outputs.log_softmax(-1), actions)

    def entropy(self, outputs: Tensor) -> Tensor:
        return _entropy(outputs.log_softmax(-1))

    def log_prob_and_entropy(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        log_probabilities = outputs.log_softmax(-1)
        return _chosen(log_probabilities, actions), _entropy(log_probabilities)

    def mode(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(-1)


@dataclass(frozen=True)
class MultiCategorical(ActionDistribution):
    """Independent categorical choices with concatenated logits; log probabilities and entropies are sums over them."""

    nvec: tuple[int, ...]
    noise = "uniform"
    action_dtype = "int64"

    @property
    def width(self) -> int:
        return sum(self.nvec)

    @property
    def noise_shape(self) -> tuple[int, ...]:
        return (self.width,)

    @property
    def action_shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)

    def prepare_noise(self, noise: Floats) -> Floats:
        return _gumbel(noise)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return self.mode(outputs + noise)

    def sample_numpy(self, outputs: Floats, noise: Floats) -> npt.NDArray[Any]:
        parts = np.split(outputs + noise, np.cumsum(self.nvec[:-1]), axis=-1)
        return np.stack([part.argmax(-1) for part in parts], axis=-1)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        return self._log_prob(self._log_probabilities(outputs), actions)

    def entropy(self, outputs: Tensor) -> Tensor:
        return self._entropy(self._log_probabilities(outputs))

    def log_prob_and_entropy(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        parts = self._log_probabilities(outputs)
        return self._log_prob(parts, actions), self._entropy(parts)

    def mode(self, outputs: Tensor) -> Tensor:
        return torch.stack([logits.argmax(-1) for logits in self._split(outputs)], -1)

    def _split(self, outputs: Tensor) -> tuple[Tensor, ...]:
        return outputs.split_with_sizes(self.nvec, -1)

    def _log_probabilities(self, outputs: Tensor) -> list[Tensor]:
        return [logits.log_softmax(-1) for logits in self._split(outputs)]

    def _log_prob(self, parts: list[Tensor], actions: Tensor) -> Tensor:
        choices = zip(parts, actions.unbind(-1), strict=True)
        return torch.stack([_chosen(log_probabilities, choice) for log_probabilities, choice in choices]).sum(0)

    def _entropy(self, parts: list[Tensor]) -> Tensor:
        return torch.stack([_entropy(log_probabilities) for log_probabilities in parts]).sum(0)


@dataclass(frozen=True)
class GaussianColumns(ActionDistribution):
    """The base of distributions over 2 D outputs: all means, flattened, then all log standard deviations."""

    shape: tuple[int, ...]
    noise = "normal"
    action_dtype = "float32"

    @property
    def width(self) -> int:
        return 2 * math.prod(self.shape)

    @property
    def noise_shape(self) -> tuple[int, ...]:
        return self.shape

    @property
    def action_shape(self) -> tuple[int, ...]:
        return self.shape

    def prepare_noise(self, noise: Floats) -> Floats:
        return noise

    def _variables(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Return mean + deviation * noise, [..., *shape]."""
        mean, log_std = self._split(outputs)
        return mean + log_std.exp() * noise

    def _variables_numpy(self, outputs: Floats, noise: Floats) -> npt.NDArray[Any]:
        size = math.prod(self.shape)
        variables = np.empty(noise.shape, np.float32)
        rows = np.ascontiguousarray(noise).reshape(-1, size)
        # The function of native rollouts, so that both have the same bytes.
        _native.gaussian_variables(
            np.ascontiguousarray(outputs).reshape(-1, 2 * size), rows, variables.reshape(-1, size)
        )
        return variables

    def _log_densities(self, outputs: Tensor, variables: Tensor) -> Tensor:
        """Return the log density of each element of variables [..., *shape]."""
        mean, log_std = self._split(outputs)
        scaled = (variables - mean) * (-log_std).exp()
        return -0.5 * scaled.square() - log_std - HALF_LOG_TWO_PI

    def _split(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log standard deviation, each [..., *shape]."""
        mean, log_std = outputs.reshape(*outputs.shape[:-1], 2, *self.shape).unbind(-1 - len(self.shape))
        return mean, log_std


@dataclass(frozen=True)
class DiagonalGaussian(GaussianColumns):
    """Independent normal variables."""

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return self._variables(outputs, noise)

    def sample_numpy(self, outputs: Floats, noise: Floats) -> npt.NDArray[Any]:
        return self._variables_numpy(outputs, noise)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        return self._log_densities(outputs, actions).reshape(*outputs.shape[:-1], math.prod(self.shape)).sum(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        return (outputs[..., self.width // 2 :] + (0.5 + HALF_LOG_TWO_PI)).sum(-1)

    def mode(self, outputs: Tensor) -> Tensor:
        return self._split(outputs)[0]


def tangents(values: Floats) -> Floats:
    """Return tanh of each number, as native rollouts compute it."""
    found = np.empty(values.shape, np.float32)
    _native.tangents(np.ascontiguousarray(values).reshape(-1), found.reshape(-1))
    return found


def _gumbel(noise: Floats) -> Floats:
    """Convert uniform noise to Gumbel noise: the argmax of logits plus Gumbel noise is a sample of the softmax."""
    gumbel = np.maximum(noise, TINY)
    for _ in range(2):
        np.negative(np.log(gumbel, out=gumbel), out=gumbel)
    return gumbel


def _chosen(log_probabilities: Tensor, actions: Tensor) -> Tensor:
    return log_probabilities.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def _entropy(log_probabilities: Tensor) -> Tensor:
    return -(log_probabilities.exp() * log_probabilities).sum(-1)
