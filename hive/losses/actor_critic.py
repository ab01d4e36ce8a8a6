"""Losses of a policy and a value: A2C, PPO's clipped surrogate, IMPALA's V-trace.

All take the outputs (policy [N, W], values [N]) of one forward pass and compute

    policy loss + value_loss_weight * value loss - entropy_weight * entropy

as means over samples (Mnih et al. 2016, Schulman et al. 2017, Espeholt et al. 2018). hive.algorithms has the formulas
of their targets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from hive.losses.loss import Floats, LossSlopes, LossValue, acted_rows, value_fit, weighted_mean
from hive.losses.native import native_actions, policy_losses
from hive.networks.distributions import ActionDistribution
from hive.networks.sequences import Sequences

__all__ = ["EPSILON", "A2CLoss", "PPOLoss", "VTraceLoss", "acted_log_probs", "clipped_surrogate", "divergences"]

EPSILON = 1e-8
"""Added to the deviation of advantages, so that the normalisation of equal ones is finite."""


@dataclass(frozen=True, eq=False, slots=True)
class A2CLoss:
    """The loss of advantage actor-critic. M of the N rows were acted on; the others only bootstrap.

    inputs: [N, ...], or Sequences of N rows. actions: [M, ...].
    weights: float32 [M], the weight of each acted row, with the sum 1. sizes: as for `acted_rows`.
    targets: a function from the values of this forward pass, float32 [N], to advantages and returns, float32 [M] each.
    further: numbers that are only reported.
    statistics: policy loss, value loss, entropy, mean value, the two of `value_fit`, and `further`.
    """

    inputs: Tensor | Sequences
    actions: Tensor
    weights: Tensor
    sizes: Sequence[int]
    distribution: ActionDistribution
    targets: Callable[[Floats], tuple[Floats, Floats]]
    value_loss_weight: float = 0.5
    entropy_weight: float = 0.01
    further: tuple[float, ...] = ()

    def __call__(self, outputs: tuple[Tensor, ...]) -> LossValue:
        advantages, returns = self.targets(outputs[1].detach().numpy())
        policy, values = acted_rows(outputs[0], self.sizes), acted_rows(outputs[1], self.sizes)
        log_probs, entropies = self.distribution.log_prob_and_entropy(policy, self.actions)
        policy_losses = -log_probs * torch.from_numpy(advantages)
        value_losses = mse_loss(values, torch.from_numpy(returns), reduction="none")
        predicted = values.detach()
        terms = policy_losses, value_losses, entropies, predicted
        factors = (1.0, self.value_loss_weight, -self.entropy_weight, 0.0)
        return weighted_mean(
            terms, self.weights, factors, (*value_fit(predicted, returns, self.weights), *self.further)
        )

    @property
    def is_native(self) -> bool:
        """Whether `differentiate` can be called."""
        return policy_losses(self.distribution) is not None

    def differentiate(self, outputs: tuple[Floats, ...]) -> LossSlopes:
        """Return the loss and its gradients, from NumPy outputs."""
        advantages, returns = self.targets(outputs[1])
        found = _differentiated(self, outputs, advantages, returns)
        return dataclasses.replace(found, statistics=(*found.statistics, *self.further))


@dataclass(frozen=True, eq=False, slots=True)
class VTraceLoss:
    """The loss of IMPALA. It is as A2CLoss, for actions of a behaviour policy mu.

    behaviour_log_probs: float32 [M], log mu of the actions. targets: a function from values, float32 [N], and log
        ratios log pi - log mu, float32 [M], to advantages and value targets, float32 [M] each.
    rho_clip: maximum importance weight in the statistics.
    statistics: policy loss, value loss, entropy, mean value, the mean clipped importance weight (1 on-policy), and the
        two of `value_fit`.
    """

    inputs: Tensor | Sequences
    actions: Tensor
    behaviour_log_probs: Tensor
    weights: Tensor
    sizes: Sequence[int]
    distribution: ActionDistribution
    targets: Callable[[Floats, Floats], tuple[Floats, Floats]]
    rho_clip: float = 1.0
    value_loss_weight: float = 0.5
    entropy_weight: float = 0.01

    def __call__(self, outputs: tuple[Tensor, ...]) -> LossValue:
        policy, values = acted_rows(outputs[0], self.sizes), acted_rows(outputs[1], self.sizes)
        log_probs, entropies = self.distribution.log_prob_and_entropy(policy, self.actions)
        log_ratios = log_probs.detach() - self.behaviour_log_probs
        advantages, targets = self.targets(outputs[1].detach().numpy(), log_ratios.numpy())
        policy_losses = -log_probs * torch.from_numpy(advantages)
        value_losses = mse_loss(values, torch.from_numpy(targets), reduction="none")
        # Rows of weight 0 may have any values, also such that make the ratio infinite.
        rhos = log_ratios.exp().clamp_max(self.rho_clip).where(self.weights > 0.0, 0.0)
        predicted = values.detach()
        terms = policy_losses, value_losses, entropies, predicted, rhos
        factors = (1.0, self.value_loss_weight, -self.entropy_weight, 0.0, 0.0)
        return weighted_mean(terms, self.weights, factors, value_fit(predicted, targets, self.weights))

    @property
    def is_native(self) -> bool:
        """Whether `differentiate` can be called."""
        return policy_losses(self.distribution) is not None

    def differentiate(self, outputs: tuple[Floats, ...]) -> LossSlopes:
        """Return the loss and its gradients, from NumPy outputs."""
        log_ratios = acted_log_probs(self.distribution, outputs[0], self.actions, self.sizes)
        log_ratios -= self.behaviour_log_probs.numpy()
        advantages, targets = self.targets(outputs[1], log_ratios)
        weights = self.weights.numpy()
        with np.errstate(over="ignore"):
            rhos = np.minimum(
                np.exp(log_ratios), np.float32(self.rho_clip), where=weights > 0, out=np.zeros_like(weights)
            )
        return _differentiated(self, outputs, advantages, targets, float(rhos @ weights))


def acted_log_probs(distribution: ActionDistribution, outputs: Floats, actions: Tensor, sizes: Sequence[int]) -> Floats:
    """Return log pi of actions [M, ...], float32 [M], from the policy's outputs [N, W]; sizes: as for `acted_rows`."""
    if (losses := policy_losses(distribution)) is not None:
        found = np.empty(len(actions), np.float32)
        losses.log_probs(np.ascontiguousarray(outputs), native_actions(distribution, actions), list(sizes), found)
        return found
    with torch.no_grad():
        return distribution.log_prob_and_entropy(acted_rows(torch.from_numpy(outputs), sizes), actions)[0].numpy()


def _differentiated(
    loss: A2CLoss | VTraceLoss, outputs: tuple[Floats, ...], advantages: Floats, targets: Floats, *further: float
) -> LossSlopes:
    """Return the loss of a policy and a value, and its gradients. further: statistics before those of `value_fit`."""
    losses, sizes, weights = policy_losses(loss.distribution), list(loss.sizes), loss.weights.numpy()
    assert losses is not None
    slopes = np.empty_like(outputs[0]), np.empty_like(outputs[1])
    total, *means = losses.actor_critic(
        outputs[0],
        outputs[1],
        native_actions(loss.distribution, loss.actions),
        sizes,
        advantages,
        targets,
        weights,
        loss.value_loss_weight,
        loss.entropy_weight,
        *slopes,
    )
    fit = value_fit(acted_rows(torch.from_numpy(outputs[1]), sizes), targets, loss.weights)
    return LossSlopes(total, (*means, *further, *fit), slopes)


def clipped_surrogate(ratio: Tensor, advantages: Tensor, clip_range: float) -> Tensor:
    """Return PPO's loss of each sample, [N], for the ratios of probabilities new / old (Schulman et al. 2017)."""
    return -torch.minimum(ratio * advantages, ratio.clamp(1.0 - clip_range, 1.0 + clip_range) * advantages)


def divergences(ratio: Tensor, log_ratio: Tensor) -> Tensor:
    """Return an estimate of KL(old || new) for each sample, [N]: unbiased, and never negative.

    It is k3 of Schulman, http://joschu.net/blog/kl-approx.html.
    """
    return ratio - 1.0 - log_ratio


@dataclass(frozen=True, eq=False, slots=True)
class PPOLoss:
    """PPO's clipped surrogate on M samples of equal weight, of a batch of N.

    inputs: [M, ...], or Sequences of M rows. rows: int64 [M], the numbers of these samples in the batch; None: all of
        it, in order.
    actions: [N, ...]. behaviour_log_probs, advantages, returns: float32 [N].
    clip_range: the distance from 1 at which the ratio of probabilities is clipped.
    behaviour_values: float32 [N], the values before the round's first update; with them a value counts as changed by at
        most `value_clip_range`, as in OpenAI's baselines (without the maximum of both losses) and Stable-Baselines3.
    fit: what `value_fit` returned for the whole round, before its first update; it is only reported.
    normalizes: whether the advantages of the M samples are normalised to mean 0 and deviation 1, if there are two.
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

    def __call__(self, outputs: tuple[Tensor, ...]) -> LossValue:
        policy, values = outputs[0], outputs[1]
        log_probs, entropies = self.distribution.log_prob_and_entropy(policy, self._picked(self.actions))
        log_ratio = log_probs - self._picked(self.behaviour_log_probs)
        ratio, limit = log_ratio.exp(), self.clip_range
        advantages = self._picked(self.advantages)
        if self.normalizes and len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + EPSILON)
        policy_losses = clipped_surrogate(ratio, advantages, limit)
        if self.behaviour_values is not None:
            before = self._picked(self.behaviour_values)
            moved = values - before
            values = before + moved.clamp(-self.value_clip_range, self.value_clip_range)
        value_losses = mse_loss(values, self._picked(self.returns), reduction="none")
        with torch.no_grad():
            kl, outside = divergences(ratio, log_ratio), ((ratio - 1.0).abs() > limit).float()
        terms = policy_losses, value_losses, entropies, kl, outside
        weights = torch.full_like(kl, 1.0 / max(len(kl), 1))
        factors = (1.0, self.value_loss_weight, -self.entropy_weight, 0.0, 0.0)
        return weighted_mean(terms, weights, factors, self.fit)

    @property
    def is_native(self) -> bool:
        """Whether `differentiate` can be called."""
        return policy_losses(self.distribution) is not None

    def differentiate(self, outputs: tuple[Floats, ...]) -> LossSlopes:
        """Return the loss and its gradients, from NumPy outputs."""
        losses = policy_losses(self.distribution)
        assert losses is not None
        slopes = np.empty_like(outputs[0]), np.empty_like(outputs[1])
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
