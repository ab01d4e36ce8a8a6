"""Losses of an actor and critics that learn from a replay memory: SAC, TD3, DDPG. hive.algorithms has the formulas.

An actor's loss is a function of the critics' values of its actions, so it holds an object that computes these. Actions
are scaled to -1 ... 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hive import _native
from hive.learning.loss import Floats, LossSlopes, LossValue
from hive.networks.act.exploration import ALLOWED, NoisyActions, SoftActions

OfCritics: TypeAlias = Sequence[Floats]
"""Arrays float32 [N], or of all discrete actions [N, A], one of each critic."""


class CriticOfActions(Protocol):
    """Critics that an actor follows. Both functions leave the gradients of their parameters alone."""

    def fixed(self, observations: Any, actions: Tensor, count: int | None = None) -> Tensor:
        """Return the values [critics, N] of the first `count` critics, with a graph of the actions."""

    def climb(
        self, observations: Any, actions: Floats, count: int | None, slopes: Callable[[OfCritics], OfCritics]
    ) -> Floats | None:
        """Return the gradient of the actions [N, ...] without a graph; None if torch has a part.

        slopes: maps the values of the critics to the gradients of a loss with respect to them.
        """


@dataclass(frozen=True, eq=False, slots=True)
class CriticLoss:
    """Squared errors of critics, summed over them: mean of factor * importance * (value - target)^2.

    inputs: those of the critics, which return values [critics, N], or with `actions` int64 [N] those of all actions,
        [critics, N, A]. targets, importance: float32 [N]. errors: float32 [N], which receives the absolute errors,
        means over the critics.
    statistics: loss, mean value, mean absolute error.
    """

    inputs: Any
    targets: Tensor
    importance: Tensor
    errors: NDArray[np.float32]
    factor: float = 1.0
    actions: Tensor | None = None

    def __call__(self, outputs: Tensor) -> LossValue:
        values = outputs
        if self.actions is not None:
            values = outputs.gather(-1, self.actions.expand(outputs.shape[:-1]).unsqueeze(-1)).squeeze(-1)
        errors = values - self.targets
        loss = (errors.square() * self.importance).sum() * (self.factor / len(self.targets))
        with torch.no_grad():
            absolute = errors.abs().mean(0)
            self.errors[:] = absolute.numpy()
            numbers = torch.stack([loss.detach(), values.mean(), absolute.mean()]).tolist()
        return LossValue(loss, tuple(numbers))

    @property
    def is_native(self) -> bool:
        """Whether `differentiate` can be called."""
        return True

    def differentiate(self, outputs: tuple[Floats, ...]) -> LossSlopes:
        """Return the loss and its gradients, from NumPy outputs."""
        slopes = tuple(map(np.empty_like, outputs))
        actions, rows = self.actions, (self.targets.numpy(), self.importance.numpy(), self.errors)
        total, mean, error = _native.critic_loss(
            *(outputs, None if actions is None else actions.numpy(), *rows, slopes, self.factor, False)
        )
        return LossSlopes(total, (total, mean, error), slopes)


@dataclass(frozen=True, eq=False, slots=True)
class SoftActorLoss:
    """Mean of temperature * log pi(a|s) - min Q(s, a), a ~ pi(s) by the reparametrisation trick (Haarnoja et al. 2018).

    inputs: observations, of which the actor returns the outputs of `distribution`. noise: float32 [N, *shape].
    statistics: loss, mean log probability.
    """

    inputs: Tensor
    noise: Tensor
    distribution: SoftActions
    temperature: float
    critic: CriticOfActions

    def __call__(self, outputs: Tensor) -> LossValue:
        actions, log_probs = self.distribution.scaled_sample(outputs, self.noise)
        loss = (self.temperature * log_probs - self.critic.fixed(self.inputs, actions).amin(0)).mean()
        reported, mean = torch.stack([loss.detach(), log_probs.detach().mean()]).tolist()
        return LossValue(loss, (reported, mean))

    @property
    def is_native(self) -> bool:
        """Whether `differentiate` can be called."""
        return True

    def differentiate(self, outputs: tuple[Floats, ...]) -> LossSlopes | None:
        """Return the loss and its gradients, from NumPy outputs; None if torch has a part in the critics."""
        (columns,) = outputs
        rows = len(columns)
        noise = self.noise.numpy().reshape(rows, -1)
        actions, log_probs, slopes = np.empty_like(noise), np.empty(rows, np.float32), np.empty_like(columns)
        _native.squashed_sample(columns, noise, actions, log_probs)
        value = 0.0

        def least(values: OfCritics) -> OfCritics:
            nonlocal value
            to_values = tuple(map(np.empty_like, values))
            value = _native.least_values(values, to_values)
            return to_values

        to_actions = self.critic.climb(self.inputs, actions.reshape(self.noise.shape), None, least)
        if to_actions is None:
            return None
        given = to_actions.reshape(noise.shape)
        _native.squashed_slopes(columns, noise, actions, given, self.temperature / max(rows, 1), slopes)
        mean = _native.mean(log_probs)
        total = self.temperature * mean - value
        return LossSlopes(total, (total, mean), (slopes,))


@dataclass(frozen=True, eq=False, slots=True)
class SoftChoiceLoss:
    """Mean of the sum over discrete actions of pi(a|s) (temperature * log pi(a|s) - min Q(s, a)) (Christodoulou 2019).

    inputs: observations, of which the actor returns logits [N, A]. values: those of the critics, [critics, N, A].
    statistics: loss, mean log probability, greatest entropy that the masks allow.
    """

    inputs: Tensor
    values: Tensor
    temperature: float

    def __call__(self, outputs: Tensor) -> LossValue:
        log_policy = outputs.log_softmax(-1)
        policy = log_policy.exp()
        log_probs = (policy * log_policy).sum(-1)
        loss = (self.temperature * log_probs - (policy * self.values.amin(0)).sum(-1)).mean()
        reported, mean = torch.stack([loss.detach(), log_probs.detach().mean()]).tolist()
        return LossValue(loss, (reported, mean, greatest_entropy(outputs.detach().numpy())))

    @property
    def is_native(self) -> bool:
        """Whether `differentiate` can be called."""
        return True

    def differentiate(self, outputs: tuple[Floats, ...]) -> LossSlopes:
        """Return the loss and its gradient, from NumPy outputs."""
        (logits,) = outputs
        slopes = np.empty_like(logits)
        found = _native.soft_choice_loss(logits, tuple(self.values.numpy()), self.temperature, slopes)
        return LossSlopes(found[0], found, (slopes,))


def greatest_entropy(logits: Floats) -> float:
    """Return the mean over rows [N, A] of log(allowed actions), the entropy of uniform actions.

    Where all actions are allowed it is exactly log(A).
    """
    allowed = (logits > ALLOWED).sum(-1)
    if (allowed == logits.shape[-1]).all():
        return math.log(logits.shape[-1])
    return float(np.log(np.maximum(allowed, 1)).mean())


@dataclass(frozen=True, eq=False, slots=True)
class DeterministicActorLoss:
    """Minus the mean of Q1(s, pi(s)) (Silver et al. 2014).

    inputs: observations, of which the actor returns the outputs of `distribution`. statistics: loss.
    """

    inputs: Tensor
    distribution: NoisyActions
    critic: CriticOfActions

    def __call__(self, outputs: Tensor) -> LossValue:
        actions = self.distribution.scaled_mode(outputs)
        loss = -self.critic.fixed(self.inputs, actions, 1).mean()
        return LossValue(loss, (loss.item(),))

    @property
    def is_native(self) -> bool:
        """Whether `differentiate` can be called."""
        return True

    def differentiate(self, outputs: tuple[Floats, ...]) -> LossSlopes | None:
        """Return the loss and its gradients, from NumPy outputs; None if torch has a part in the critics."""
        (columns,) = outputs
        actions, slopes = np.empty_like(columns), np.empty_like(columns)
        _native.tanh_actions(columns, None, 0.0, 0.0, actions)
        total = 0.0

        def falling(values: OfCritics) -> OfCritics:
            nonlocal total
            to_values = tuple(map(np.empty_like, values))
            total = -_native.least_values(values, to_values)
            return to_values

        to_actions = self.critic.climb(self.inputs, actions.reshape(-1, *self.distribution.shape), 1, falling)
        if to_actions is None:
            return None
        _native.tanh_slopes(actions, to_actions.reshape(columns.shape), slopes)
        return LossSlopes(total, (total,), (slopes,))
