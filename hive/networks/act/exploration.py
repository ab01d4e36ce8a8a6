"""Actions that explore: more in the first rollouts of a run than in later ones.

    EpsilonGreedy    the best action, or a random one with a probability that falls with the rollout's number
    SoftActions      a squashed Gaussian (hive.networks.act.bounded),
    SoftChoices      a categorical distribution,
    NoisyActions     or a deterministic policy with noise; these three begin with uniform actions

The number of the rollout decides, so the schedule has no counter to save, and a repeated rollout has the same actions.
Actions whose output is FORBIDDEN (hive.networks.rows.packed) are never drawn.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hive.errors import NetworkError
from hive.networks.act.bounded import BoundedColumns, SquashedGaussian
from hive.networks.act.distributions import HALF_LOG_TWO_PI, ActionDistribution, Categorical, tangents
from hive.networks.act.projection import categorical_support
from hive.networks.build.parameters import CategoricalQHeadParameters, HeadParameters, QuantileQHeadParameters
from hive.networks.build.value_heads import expected_return
from hive.networks.rows.packed import FORBIDDEN
from hive.networks.weights.flat import Floats

ALLOWED = FORBIDDEN / 2  # values of allowed actions lie above it


@dataclass(frozen=True)
class EpsilonGreedy(ActionDistribution):
    """The action of the largest of `n` values, or with probability `epsilon` a uniform choice among the allowed ones.

        epsilon(r) = start + (end - start) * min(1, r / rollouts),   1 in the first `warmup` rollouts

    and environment i of N takes epsilon(r)^(1 + spread * i / (N - 1)) (Ape-X, Horgan et al. 2018). The outputs are
    action values [..., n], where other distributions have logits.

    start, end: epsilon of rollout 0, and of rollout number `rollouts` and all later ones. rollout: the number of the
    current rollout; None: epsilon is `end`, as in evaluations that sample actions. warmup: number of first rollouts
    with epsilon 1. spread: how much less the last environment of a run explores. powers: the exponent of
    each environment of one collector, [B]; set by `for_collector`.

    Raises NetworkError unless `start` and `end` are from 0 to 1 and `rollouts` is at least 1.
    """

    n: int
    start: float = 1.0
    end: float = 0.05
    rollouts: int = 1
    rollout: int | None = None
    warmup: int = 0
    spread: float = 0.0
    powers: tuple[float, ...] = ()
    noise = "uniform"
    action_dtype = "int64"

    def __post_init__(self) -> None:
        if not (0.0 <= self.start <= 1.0 and 0.0 <= self.end <= 1.0 and self.rollouts >= 1):
            raise NetworkError(
                f"invalid exploration from {self.start} to {self.end} in {self.rollouts} rollouts",
                hint="give two probabilities, and at least one rollout",
            )

    def for_rollout(self, number: int) -> EpsilonGreedy:
        later = self.rollout is None and number >= max(self.rollouts, self.warmup)
        return self if later else dataclasses.replace(self, rollout=number)

    def for_collector(self, first: int, count: int, of: int) -> EpsilonGreedy:
        if not self.spread:
            return self
        powers = (1.0 + self.spread * number / max(of - 1, 1) for number in range(first, first + count))
        return dataclasses.replace(self, powers=tuple(powers))

    @property
    def epsilons(self) -> float | Floats:
        """Epsilon, or that of each environment of a collector, float32 [B]."""
        return np.power(self.epsilon, self.powers, dtype=np.float32) if self.powers else self.epsilon

    @property
    def epsilon(self) -> float:
        """The probability of a uniformly drawn action."""
        if self.rollout is not None and self.rollout < self.warmup:
            return 1.0
        done = 1.0 if self.rollout is None else min(1.0, self.rollout / self.rollouts)
        return self.start + (self.end - self.start) * done

    @property
    def width(self) -> int:
        return self.n

    @property
    def noise_shape(self) -> tuple[int, ...]:
        return (2,)  # whether to explore, and with which action

    @property
    def action_shape(self) -> tuple[int, ...]:
        return ()

    def prepare_noise(self, noise: Floats) -> Floats:
        return noise

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        drawn = (noise[..., 1] * self.n).long()
        if (allowed := outputs > ALLOWED).logical_not().any():
            number = (noise[..., 1] * allowed.sum(-1).float()).long()  # among the allowed actions
            drawn = (allowed.cumsum(-1) > number[..., None]).long().argmax(-1)
        return torch.where(
            noise[..., 0] < torch.as_tensor(self.epsilons, device=noise.device), drawn, outputs.argmax(-1)
        )

    def sample_numpy(self, outputs: Floats, noise: Floats) -> npt.NDArray[Any]:
        drawn = (noise[..., 1] * self.n).astype(np.int64)
        if not (allowed := outputs > ALLOWED).all():
            number = (noise[..., 1] * allowed.sum(-1).astype(np.float32)).astype(np.int64)
            drawn = (allowed.cumsum(-1) > number[..., None]).argmax(-1)
        actions: npt.NDArray[Any] = np.where(noise[..., 0] < self.epsilons, drawn, outputs.argmax(-1))
        return actions

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        greedy = outputs.argmax(-1) == actions
        allowed = outputs > ALLOWED
        drawn = allowed.gather(-1, actions.unsqueeze(-1)).squeeze(-1).float() * self.epsilon
        chances: Tensor = drawn / allowed.sum(-1) + (1.0 - self.epsilon) * greedy.float()
        return chances.log()

    def entropy(self, outputs: Tensor) -> Tensor:
        count = (outputs > ALLOWED).sum(-1)
        other = self.epsilon / count
        best = other + 1.0 - self.epsilon
        terms: Tensor = torch.special.xlogy(best, best) + (count - 1) * torch.special.xlogy(other, other)
        return -terms

    def mode(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(-1)

    def action_values(self, outputs: Tensor) -> Tensor:
        """Return the action values [..., n] in outputs of the network."""
        return outputs

    def values(self, outputs: Floats) -> Floats:
        """Do what `action_values` does, for arrays."""
        return outputs


@dataclass(frozen=True)
class ExpectedGreedy(EpsilonGreedy):
    """EpsilonGreedy for distributions of returns [..., n, atoms].

    support: the atoms of outputs that are log probabilities, in the unit of the returns; empty: the outputs are
    quantiles. The greedy action has the largest expected return.
    """

    support: tuple[float, ...] = ()

    @functools.cached_property
    def _atoms(self) -> Tensor | None:
        return torch.tensor(self.support, dtype=torch.float32, device="cpu") if self.support else None

    def action_values(self, outputs: Tensor) -> Tensor:
        return expected_return(outputs, self._atoms)

    def values(self, outputs: Floats) -> Floats:
        return self.action_values(torch.from_numpy(outputs)).numpy()

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return super().sample(self.action_values(outputs), noise)

    def sample_numpy(self, outputs: Floats, noise: Floats) -> npt.NDArray[Any]:
        return super().sample_numpy(self.values(outputs), noise)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        return super().log_prob(self.action_values(outputs), actions)

    def entropy(self, outputs: Tensor) -> Tensor:
        return super().entropy(self.action_values(outputs))

    def mode(self, outputs: Tensor) -> Tensor:
        return super().mode(self.action_values(outputs))


def epsilon_greedy(head: str | HeadParameters, n: int, start: float, end: float, rollouts: int = 1) -> EpsilonGreedy:
    """Return the epsilon-greedy distribution for the outputs of this head: values, or distributions of returns."""
    if isinstance(head, CategoricalQHeadParameters):
        support = categorical_support(head.v_min, head.v_max, head.atoms)
        return ExpectedGreedy(n, start, end, rollouts, support=tuple(support.tolist()))
    kind = ExpectedGreedy if isinstance(head, QuantileQHeadParameters) else EpsilonGreedy
    return kind(n, start, end, rollouts)


@dataclass(frozen=True)
class UniformStart:
    """A policy that begins with uniform actions. `mode`, log probabilities and entropies are those of the policy.

    warmup: number of first rollouts with uniform actions. rollout: number of the current one; None: none of them.
    """

    warmup: int = 0
    rollout: int | None = None

    def for_rollout(self, number: int) -> Self:
        later = self.rollout is None and number >= self.warmup
        return self if later else dataclasses.replace(self, rollout=number)

    @property
    def uniform(self) -> bool:
        """Whether actions are drawn uniformly."""
        return self.rollout is not None and self.rollout < self.warmup


@dataclass(frozen=True)
class UniformBox(UniformStart, BoundedColumns):
    """The base of bounded box actions that are uniform at first: normal noise at its quantiles."""

    def uniform_actions(self, noise: Tensor) -> Tensor:
        """Return actions [..., *shape], uniform between the bounds for normal noise of this shape."""
        share: Tensor = torch.special.ndtr(noise)
        return self.unscaled(2.0 * share - 1.0)


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

        middle + reach * clip(tanh(output) + deviation * noise, -1, 1),   noise ~ N(0, 1)

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
        scaled = tangents(outputs).reshape(noise.shape) + np.float32(self.deviation) * noise
        middle, reach = self.middle_and_reach
        actions: npt.NDArray[Any] = middle + reach * np.clip(scaled, np.float32(-1.0), np.float32(1.0))
        return actions

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        deviation = self.deviation * self._bounds()[1]
        density = -0.5 * ((actions - self.mode(outputs)) / deviation).square() - deviation.log() - HALF_LOG_TWO_PI
        return density.reshape(*outputs.shape[:-1], math.prod(self.shape)).sum(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        elements = (self.deviation * self._bounds()[1]).log() + (0.5 + HALF_LOG_TWO_PI)
        return elements.sum().expand(outputs.shape[:-1])
