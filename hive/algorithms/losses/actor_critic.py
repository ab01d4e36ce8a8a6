"""Losses of a policy and a value: that of A2C and IMPALA, and PPO's clipped surrogate.

All take the outputs (policy [N, W], values [N]) of one forward pass and compute

    policy loss + value_loss_weight * value loss - entropy_weight * entropy

as means over samples (Mnih et al. 2016, Schulman et al. 2017, Espeholt et al. 2018). hive.algorithms has the formulas
of their targets.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import mse_loss

from hive import _native
from hive.learning.described import Step
from hive.learning.loss import Floats, LossSlopes, LossValue, weighted_mean
from hive.networks.act.bounded import ScaledActions
from hive.networks.act.distributions import ActionDistribution, Categorical, DiagonalGaussian, MultiCategorical
from hive.networks.rows.inputs import Sequences, observation_of

EPSILON = 1e-8
"""Added to the deviation of advantages, so that the normalization of equal ones is finite."""


VALUE_FIT = ("explained_variance", "target_rms")
"""The names of the two statistics of `value_fit`."""


@dataclass(frozen=True, eq=False, slots=True)
class RolloutBatch:
    """M valid steps of rollouts, of which a gradient is made. All are constants.

    observations: [M, ...] in the form of the network that `connect` got, on its device, and not yet normalized. A
    policy without memory may be called with them again. actions: [M, ...], as the environment got them. log_probs:
    float32 [M], of these actions by the policy that acted. advantages: float32 [M], as the loss multiplies by them.
    returns: float32 [M], the targets of the values.
    """

    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    advantages: Tensor
    returns: Tensor

    def __len__(self) -> int:
        return len(self.returns)


class _PolicyLoss:
    """The part that the losses of policies have in common: whether there is a native pass, and what it needs."""

    __slots__ = ()
    distribution: ActionDistribution

    @property
    def is_native(self) -> bool:
        """Whether `differentiate` can be called."""
        return policy_losses(self.distribution) is not None

    def _native_losses(self, outputs: tuple[Floats, ...]) -> tuple[_native.PolicyLosses, tuple[Floats, Floats]]:
        """Return the native losses, and arrays for the gradients of policy and values."""
        losses = policy_losses(self.distribution)
        assert losses is not None
        return losses, (np.empty_like(outputs[0]), np.empty_like(outputs[1]))


@dataclass(frozen=True, eq=False, slots=True)
class A2CLoss(_PolicyLoss):
    """The loss of advantage actor-critic, of A2C and IMPALA. M of the N rows were acted on; the others only bootstrap.

    inputs: [N, ...], or Sequences of N rows. actions: [M, ...].
    weights: float32 [M], the weight of each acted row, with the sum 1. sizes: as for `acted_rows`.
    advantages, returns: float32 [M], constants.
    means, further: numbers that are only reported, before and after those of `value_fit`.
    statistics: policy loss, value loss, entropy, mean value, `means`, the two of `value_fit`, and `further`.
    """

    inputs: Tensor | Sequences
    actions: Tensor
    weights: Tensor
    sizes: Sequence[int]
    distribution: ActionDistribution
    advantages: Floats
    returns: Floats
    value_loss_weight: float = 0.5
    entropy_weight: float = 0.01
    means: tuple[float, ...] = ()
    further: tuple[float, ...] = ()

    def __call__(self, outputs: tuple[Tensor, ...]) -> LossValue:
        policy, values = acted_rows(outputs[0], self.sizes), acted_rows(outputs[1], self.sizes)
        log_probs, entropies = self.distribution.log_prob_and_entropy(policy, self.actions)
        policy_losses = -log_probs * torch.from_numpy(self.advantages)
        value_losses = mse_loss(values, torch.from_numpy(self.returns), reduction="none")
        predicted = values.detach()
        terms = policy_losses, value_losses, entropies, predicted
        factors = (1.0, self.value_loss_weight, -self.entropy_weight, 0.0)
        fit = value_fit(predicted, self.returns, self.weights)
        return weighted_mean(terms, self.weights, factors, (*self.means, *fit, *self.further))

    def batch(self, log_probs: Floats) -> RolloutBatch:
        """Return the rows with a weight. log_probs: of the acting policy, float32 [M]."""
        columns = self.actions, *map(torch.from_numpy, (log_probs, self.advantages, self.returns))
        kept = self.weights > 0
        seen = acted_rows(observation_of(self.inputs), self.sizes)[kept]
        return RolloutBatch(seen, *(column[kept] for column in columns))

    def batch_rows(self, outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the rows of the network's outputs that `batch` has."""
        return tuple(acted_rows(output, self.sizes)[self.weights > 0] for output in outputs)

    def differentiate(self, outputs: tuple[Floats, ...]) -> LossSlopes:
        """Return the loss and its gradients, from NumPy outputs."""
        losses, slopes = self._native_losses(outputs)
        total, *means = losses.actor_critic(
            outputs[0],
            outputs[1],
            native_actions(self.distribution, self.actions),
            list(self.sizes),
            self.advantages,
            self.returns,
            self.weights.numpy(),
            self.value_loss_weight,
            self.entropy_weight,
            *slopes,
        )
        fit = value_fit(acted_rows(torch.from_numpy(outputs[1]), self.sizes), self.returns, self.weights)
        return LossSlopes(total, (*means, *self.means, *fit, *self.further), slopes)


def clipped_surrogate(ratio: Tensor, advantages: Tensor, clip_range: float) -> Tensor:
    """Return PPO's loss of each sample, [N], for the ratios of probabilities new / old (Schulman et al. 2017)."""
    return -torch.minimum(ratio * advantages, ratio.clamp(1.0 - clip_range, 1.0 + clip_range) * advantages)


def divergences(ratio: Tensor, log_ratio: Tensor) -> Tensor:
    """Return an estimate of KL(old || new) for each sample, [N]: unbiased, and never negative.

    It is k3 of Schulman, http://joschu.net/blog/kl-approx.html.
    """
    return ratio - 1.0 - log_ratio


@dataclass(frozen=True, eq=False, slots=True)
class PPOLoss(_PolicyLoss):
    """PPO's clipped surrogate on M samples of equal weight, of a batch of N.

    inputs: [M, ...], or Sequences of M rows. rows: int64 [M], the numbers of these samples in the batch; None: all of
        it, in order.
    actions: [N, ...]. behaviour_log_probs, advantages, returns: float32 [N].
    clip_range: the distance from 1 at which the ratio of probabilities is clipped.
    behaviour_values: float32 [N], the values before the round's first update. With them the value loss clips the change
        of each value to `value_clip_range`, as Stable-Baselines3 does; OpenAI's baselines take the larger of the
        clipped and the plain loss.
    fit: what `value_fit` returned for the whole round, before its first update; it is only reported.
    normalizes: whether the advantages of the M samples are normalized to mean 0 and deviation 1, if there are two.
    statistics: policy loss, value loss, entropy, KL divergence from the acting policy, share of clipped ratios, and
        `fit`.
    """

    inputs: Tensor | Sequences
    actions: Tensor
    behaviour_log_probs: Tensor
    advantages: Tensor
    returns: Tensor
    distribution: ActionDistribution
    clip_range: float = 0.2
    value_loss_weight: float = 0.5
    entropy_weight: float = 0.01
    behaviour_values: Tensor | None = None
    value_clip_range: float = 0.0
    fit: tuple[float, ...] = ()
    rows: Tensor | None = None
    normalizes: bool = False

    def _picked(self, column: Tensor) -> Tensor:
        return column if self.rows is None else column.index_select(0, self.rows)

    def batch(self) -> RolloutBatch:
        """Return the M samples."""
        advantages = self._picked(self.advantages)
        if self.normalizes and len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + EPSILON)
        columns = self._picked(self.actions), self._picked(self.behaviour_log_probs)
        return RolloutBatch(observation_of(self.inputs), *columns, advantages, self._picked(self.returns))

    def __call__(self, outputs: tuple[Tensor, ...]) -> LossValue:
        policy, values, batch = outputs[0], outputs[1], self.batch()
        log_probs, entropies = self.distribution.log_prob_and_entropy(policy, batch.actions)
        log_ratio = log_probs - batch.log_probs
        ratio, limit = log_ratio.exp(), self.clip_range
        policy_losses = clipped_surrogate(ratio, batch.advantages, limit)
        if self.behaviour_values is not None:
            before = self._picked(self.behaviour_values)
            moved = values - before
            values = before + moved.clamp(-self.value_clip_range, self.value_clip_range)
        value_losses = mse_loss(values, batch.returns, reduction="none")
        with torch.no_grad():
            kl, outside = divergences(ratio, log_ratio), ((ratio - 1.0).abs() > limit).float()
        terms = policy_losses, value_losses, entropies, kl, outside
        weights = torch.full_like(kl, 1.0 / max(len(kl), 1))
        factors = (1.0, self.value_loss_weight, -self.entropy_weight, 0.0, 0.0)
        return weighted_mean(terms, weights, factors, self.fit)

    def differentiate(self, outputs: tuple[Floats, ...]) -> LossSlopes:
        """Return the loss and its gradients, from NumPy outputs."""
        losses, slopes = self._native_losses(outputs)
        total, *means = losses.ppo(
            outputs[0],
            outputs[1],
            native_actions(self.distribution, self.actions),
            self.behaviour_log_probs.numpy(),
            self.advantages.numpy(),
            self.returns.numpy(),
            None if self.behaviour_values is None else self.behaviour_values.numpy(),
            None if self.rows is None else self.rows.numpy(),
            self.normalizes,
            self.clip_range,
            self.value_loss_weight,
            self.entropy_weight,
            self.value_clip_range,
            *slopes,
        )
        return LossSlopes(total, (*means, *self.fit), slopes)

    def described(self, most_divergence: float = 0.0) -> Step:
        """Return this loss of all rows of the batch as a step of a `_native.Program`, which picks the rows.

        It reads the registers `policy` and `values`, and writes `to_policy` and `to_values`. most_divergence: the KL
        divergence above which Python makes the gradient; 0: none.
        """
        return "ppo", {
            "policy": policy_losses(self.distribution),
            "actions": native_actions(self.distribution, self.actions),
            "behaviour_log_probs": self.behaviour_log_probs.numpy(),
            "advantages": self.advantages.numpy(),
            "returns": self.returns.numpy(),
            "behaviour_values": None if self.behaviour_values is None else self.behaviour_values.numpy(),
            "clip_range": self.clip_range,
            "value_weight": self.value_loss_weight,
            "entropy_weight": self.entropy_weight,
            "value_clip_range": self.value_clip_range,
            "normalizes": self.normalizes,
            "most_divergence": most_divergence,
            "fit": list(self.fit),
        }


def acted_log_probs(
    distribution: ActionDistribution, outputs: Floats, actions: Tensor, sizes: Sequence[int], *, by_torch: bool = False
) -> Floats:
    """Return log pi of actions [M, ...], float32 [M], from the policy's outputs [N, W]; sizes: as for `acted_rows`.

    by_torch: compute it by torch even where hive._native could, with the bits of a loss that torch computes.
    """
    if not by_torch and (losses := policy_losses(distribution)) is not None:
        found = np.empty(len(actions), np.float32)
        losses.log_probs(np.ascontiguousarray(outputs), native_actions(distribution, actions), list(sizes), found)
        return found
    with torch.no_grad():
        return distribution.log_prob_and_entropy(acted_rows(torch.from_numpy(outputs), sizes), actions)[0].numpy()


@functools.lru_cache(maxsize=64)  # more distributions than a program has
def policy_losses(distribution: ActionDistribution) -> _native.PolicyLosses | None:
    """Return the native losses of a policy with this distribution; None if there are none."""
    if type(distribution) is Categorical:
        return _native.PolicyLosses([distribution.n])
    if type(distribution) is MultiCategorical:
        return _native.PolicyLosses(list(distribution.nvec))
    if isinstance(distribution, ScaledActions):
        return policy_losses(distribution.inner)
    if type(distribution) is DiagonalGaussian and distribution.width:
        return _native.PolicyLosses([], math.prod(distribution.shape))
    return None


def is_native(distribution: ActionDistribution) -> bool:
    """Return whether losses of a policy with this distribution are computed by hive._native."""
    return policy_losses(distribution) is not None


def native_actions(distribution: ActionDistribution, actions: Tensor) -> NDArray[Any]:
    """Return the actions [M, ...] that these losses take: stored ones, in the scale in which the policy acts."""
    given = actions.numpy()
    return distribution.scaled_numpy(given) if isinstance(distribution, ScaledActions) else given


def value_fit(values: Tensor, targets: Floats, weights: Tensor) -> tuple[float, float]:
    """Return (explained variance, root mean square of the targets) of values that predict targets, each [M].

    weights: float32 [M], with the sum 1; rows of weight 0 are not read. The explained variance is
    1 - Var(targets - values) / Var(targets), as in OpenAI's baselines and Stable-Baselines3, but at least -1; NaN if
    all targets are equal.
    """
    return _native.value_fit(values.contiguous().numpy(), targets, weights.numpy())


def acted_rows(outputs: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the rows of `outputs` [N, ...] in which an action was taken, [M, ...].

    sizes: two numbers for each rollout, its acted rows and its rows that only bootstrap.
    """
    if len(sizes) == 2:
        return outputs.narrow(0, 0, sizes[0])
    return torch.cat(outputs.split_with_sizes(list(sizes))[::2])
