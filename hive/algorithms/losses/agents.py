"""Losses of an actor and critics that learn from a replay memory: SAC, TD3, DDPG. hive.algorithms has the formulas.

An actor's loss is a function of the critics' values of its actions, so it holds an object that computes these. Actions
are scaled to -1 ... 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hive.learning.loss import Floats, LossSlopes, LossValue
from hive.networks.act.exploration import NoisyActions, SoftActions


class CriticOfActions(Protocol):
    """Critics that an actor follows. Both functions leave the gradients of their parameters alone."""

    def fixed(self, observations: Any, actions: Tensor, count: int | None = None) -> Tensor:
        """Return the values [critics, N] of the first `count` critics, with a graph of the actions."""

    def climb(
        self, observations: Any, actions: Tensor, count: int | None, slopes: Callable[[Floats], Floats]
    ) -> tuple[Floats, Floats] | None:
        """Return (values [critics, N], gradient of the actions [N, ...]) without a graph; None if torch has a part.

        slopes: maps the values to the gradient of a loss with respect to them.
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
        return self.actions is None

    def differentiate(self, outputs: tuple[Floats, ...]) -> LossSlopes:
        """Return the loss and its gradients, from NumPy outputs."""
        values = np.stack(outputs)
        errors = values - self.targets.numpy()
        weighted = errors * (self.importance.numpy() * np.float32(self.factor / len(self.errors)))
        absolute = np.abs(errors).mean(0)
        self.errors[:] = absolute
        loss = float(np.vdot(weighted, errors))
        slopes = np.float32(2.0) * weighted
        return LossSlopes(loss, (loss, float(values.mean()), float(absolute.mean())), tuple(slopes))


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
        noise = self.noise.numpy()
        actions, log_probs = self.distribution.scaled_sample_numpy(columns, noise)
        rows = np.float32(1.0 / len(columns))

        def least(values: Floats) -> Floats:
            lowest = values == values.min(0)
            shares = lowest / lowest.sum(0, dtype=np.float32)  # torch divides ties so, too
            return np.asarray(-rows * shares, np.float32)

        found = self.critic.climb(self.inputs, torch.from_numpy(actions), None, least)
        if found is None:
            return None
        values, to_actions = found
        weight = np.float32(self.temperature) * rows
        taken, noise = actions.reshape(len(columns), -1), noise.reshape(len(columns), -1)
        # u = mean + std * noise, a = tanh(u): da/du = 1 - a^2, d log pi / du = 2 a (see hive.networks.act.bounded).
        to_variables = to_actions.reshape(taken.shape) * (1 - taken * taken) + 2 * weight * taken
        half = taken.shape[1]
        slopes = np.empty_like(columns)
        slopes[:, :half] = to_variables
        np.subtract(to_variables * np.exp(columns[:, half:]) * noise, weight, out=slopes[:, half:])
        mean = float(log_probs.mean())
        total = self.temperature * mean - float(values.min(0).mean())
        return LossSlopes(total, (total, mean), (slopes,))


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
        with torch.no_grad():
            actions = self.distribution.scaled_mode(torch.from_numpy(columns))
        found = self.critic.climb(
            self.inputs, actions, 1, lambda values: np.full_like(values, np.float32(-1.0 / len(columns)))
        )
        if found is None:
            return None
        values, to_actions = found
        taken = actions.numpy().reshape(columns.shape)
        slopes = to_actions.reshape(columns.shape) * (1 - taken * taken)
        total = -float(values.mean())
        return LossSlopes(total, (total,), (slopes,))
