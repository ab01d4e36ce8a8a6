"""The distribution of several actions at once, and the choice of a distribution for an action.

The parts of a `ProductDistribution` are independent given the outputs. Its outputs, actions and noise are those of the
parts, flat and side by side; log probabilities and entropies are sums over the parts:

    outputs  [..., sum of widths]        actions  [..., sum of sizes]        noise  [..., sum of noise sizes]

Actions are float32 if those of a part are. Integers are exact in float32 up to 2^24.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hive.errors import NetworkError
from hive.networks.act.bounded import scaled_actions, squashed_distribution_for
from hive.networks.act.distributions import ActionDistribution, Categorical, DiagonalGaussian, MultiCategorical
from hive.networks.act.gsde import StateDependentGaussian
from hive.networks.build.spaces import (
    ActionSpec,
    BoundedAction,
    BoxAction,
    CompositeAction,
    DiscreteAction,
    MultiDiscreteAction,
    simple_actions,
)
from hive.networks.weights.flat import Floats


@dataclass(frozen=True)
class ProductDistribution(ActionDistribution):
    """Independent actions of several kinds."""

    parts: tuple[ActionDistribution, ...]
    noise = "both"

    @property
    def action_dtype(self) -> Literal["int64", "float32"]:  # type: ignore[override]
        """The dtype of an action: float32 if that of a part is."""
        return "float32" if any(part.action_dtype == "float32" for part in self.parts) else "int64"

    @property
    def width(self) -> int:
        return sum(part.width for part in self.parts)

    @property
    def noise_shape(self) -> tuple[int, ...]:
        return (sum(self._noise_sizes),)

    @property
    def action_shape(self) -> tuple[int, ...]:
        return (sum(self._action_sizes),)

    def draw_noise(self, generator: np.random.Generator, *shape: int) -> Floats:
        drawn = [part.draw_noise(generator, *shape).reshape(*shape, -1) for part in self.parts]
        return np.concatenate(drawn, -1)

    def prepare_noise(self, noise: Floats) -> Floats:
        parts = zip(self.parts, _split(noise, self._noise_sizes), strict=True)
        prepared = [part.prepare_noise(own.reshape(*own.shape[:-1], *part.noise_shape)) for part, own in parts]
        return np.concatenate([own.reshape(*noise.shape[:-1], -1) for own in prepared], -1)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        noises = noise.split_with_sizes(self._noise_sizes, -1)
        parts = zip(self.parts, self._outputs(outputs), noises, strict=True)
        return self._joined([part.sample(own, _shaped(drawn, part.noise_shape)) for part, own, drawn in parts], outputs)

    def sample_numpy(self, outputs: Floats, noise: Floats) -> npt.NDArray[Any]:
        actions = np.empty((*outputs.shape[:-1], *self.action_shape), self.action_dtype)
        noises = _split(noise, self._noise_sizes)
        own_outputs, columns = _split(outputs, self._widths), _split(actions, self._action_sizes)
        for part, own, drawn, out in zip(self.parts, own_outputs, noises, columns, strict=True):
            sampled = part.sample_numpy(own, drawn.reshape(*drawn.shape[:-1], *part.noise_shape))
            out[...] = sampled.reshape(out.shape)
        return actions

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        parts = zip(self.parts, self._outputs(outputs), self._actions(actions), strict=True)
        return torch.stack([part.log_prob(own, chosen) for part, own, chosen in parts]).sum(0)

    def entropy(self, outputs: Tensor) -> Tensor:
        parts = zip(self.parts, self._outputs(outputs), strict=True)
        return torch.stack([part.entropy(own) for part, own in parts]).sum(0)

    def log_prob_and_entropy(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        parts = zip(self.parts, self._outputs(outputs), self._actions(actions), strict=True)
        pairs = [part.log_prob_and_entropy(own, chosen) for part, own, chosen in parts]
        log_probs, entropies = zip(*pairs, strict=True)
        return torch.stack(log_probs).sum(0), torch.stack(entropies).sum(0)

    def mode(self, outputs: Tensor) -> Tensor:
        parts = zip(self.parts, self._outputs(outputs), strict=True)
        return self._joined([part.mode(own) for part, own in parts], outputs)

    @cached_property
    def _widths(self) -> list[int]:
        return [part.width for part in self.parts]

    @cached_property
    def _noise_sizes(self) -> list[int]:
        return [math.prod(part.noise_shape) for part in self.parts]

    @cached_property
    def _action_sizes(self) -> list[int]:
        return [math.prod(part.action_shape) for part in self.parts]

    def _outputs(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs of each part, [..., width]."""
        return outputs.split_with_sizes(self._widths, -1)

    def _actions(self, actions: Tensor) -> list[Tensor]:
        """The actions of each part, [..., *action_shape], of its dtype."""
        columns = zip(self.parts, actions.split_with_sizes(self._action_sizes, -1), strict=True)
        return [_shaped(own, part.action_shape).to(getattr(torch, part.action_dtype)) for part, own in columns]

    def _joined(self, actions: list[Tensor], outputs: Tensor) -> Tensor:
        dtype, leading = getattr(torch, self.action_dtype), outputs.shape[:-1]
        return torch.cat([own.reshape(*leading, -1).to(dtype) for own in actions], -1)


def distribution_for(
    action: ActionSpec, box: str = "gaussian", *, features: int = 0, noise_steps: int = 0
) -> ActionDistribution:
    """Return the distribution of an action.

    box: the distribution of box actions: "gaussian", "squashed" into their bounds by tanh, or "gsde". The first and the
    last act in the scale of the bounds if the action has `scaled` set (hive.networks.act.bounded). features,
    noise_steps: those of a StateDependentGaussian, for "gsde". Raises NetworkError for an action of no known kind, and
    for bounds that "squashed" cannot use.
    """
    if isinstance(action, CompositeAction):
        parts = simple_actions(action)
        each = [distribution_for(part, box, features=features, noise_steps=noise_steps) for part in parts]
        return ProductDistribution(tuple(each))
    choices = [action.n] if isinstance(action, DiscreteAction) else getattr(action, "nvec", [1])
    if min(choices, default=0) < 1:
        raise NetworkError(f"{action!r} leaves nothing to choose", hint="every discrete action has at least one value")
    if isinstance(action, DiscreteAction):
        return Categorical(int(action.n))
    if isinstance(action, MultiDiscreteAction):
        return MultiCategorical(tuple(int(n) for n in action.nvec))
    if isinstance(action, BoxAction):
        if box == "squashed":
            return squashed_distribution_for(action)
        shape = tuple(action.shape)
        gsde = box == "gsde"
        found = StateDependentGaussian(shape, features, noise_steps) if gsde else DiagonalGaussian(shape)
        if getattr(action, "scaled", False) and isinstance(action, BoundedAction):
            return scaled_actions(found, action.low, action.high)
        return found
    raise NetworkError(
        f"no action distribution for {action!r}",
        hint="an action is discrete (`n`), multi-discrete (`nvec`), a box (`shape`) or composite (`parts`)",
    )


def _shaped(columns: Tensor, shape: tuple[int, ...]) -> Tensor:
    return columns.reshape(*columns.shape[:-1], *shape)


def _split(array: npt.NDArray[Any], sizes: list[int]) -> list[npt.NDArray[Any]]:
    """Return views of the columns, [..., size] of each."""
    return [array[..., start:end] for start, end in pairwise(accumulate(sizes, initial=0))]
