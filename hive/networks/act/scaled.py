"""A Gaussian of actions in the scale in which their bounds are -1 and 1.

    a = middle + reach * u,   u of the Gaussian that the outputs of the network describe

So a policy explores `Box(100, 200)` from its middle to its bounds with the initial deviation, as RLlib's
`normalize_actions` does. Rollouts hold `a`, in the environment's units. Log densities and entropies are those of `u`:
they differ from those of `a` by log(reach), a constant, which no gradient and no ratio of policies depends on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hive.declared import is_bound
from hive.networks.act.distributions import ActionDistribution, Floats

__all__ = ["ScaledActions", "scaled_actions"]


@dataclass(frozen=True)
class ScaledActions(ActionDistribution):
    """`inner`, a distribution of float32 actions [..., *shape], in the scale of the module.

    middle, reach: of each element, flat.
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
        middle, reach = self._arrays
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

    def scaled(self, actions: Tensor) -> Tensor:
        """Return actions [..., *shape] of the environment's units in the scale of `inner`."""
        middle, reach = self._tensors
        return (actions - middle) / reach

    def scaled_numpy(self, actions: npt.NDArray[Any]) -> Floats:
        """`scaled` for NumPy arrays."""
        middle, reach = self._arrays
        found: Floats = (actions - middle) / reach
        return found

    def unscaled(self, scaled: Tensor) -> Tensor:
        """Return actions of the scale of `inner` in the environment's units."""
        middle, reach = self._tensors
        return middle + reach * scaled

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats]:
        shape = self.action_shape
        return np.array(self.middle, np.float32).reshape(shape), np.array(self.reach, np.float32).reshape(shape)

    @cached_property
    def _tensors(self) -> tuple[Tensor, Tensor]:
        middle, reach = self._arrays
        return torch.from_numpy(middle), torch.from_numpy(reach)


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
