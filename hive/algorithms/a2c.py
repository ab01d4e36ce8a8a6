"""A2C: synchronous advantage actor-critic (Mnih et al. 2016), with generalised advantages (Schulman et al. 2016).

    loss = -mean(log pi(a|s) A) + value_loss_weight mean((R - V)^2) - entropy_weight mean(H)

over the valid steps of a share of a round. A and the lambda-returns R = A + V come from the values of the very forward
pass that the loss differentiates, as constants: one pass over [T+1, B] rows and the last observations of truncated
episodes gives policies, values and bootstraps. A truncated episode is bootstrapped with the value of its true last
observation, a terminated one with nothing. `gae_lambda = 1` gives n-step returns to the rollout's end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from hive.algorithms.advantages import Floats, generalised_advantages, merged, moments_of, normalized
from hive.algorithms.rows import acted_rows, flat, input_rows, weights
from hive.algorithms.steps import Evaluate, Loss, Step, Steps
from hive.config import A2CConfig
from hive.networks import ActionDistribution
from hive.storage import Rollout

__all__ = ["A2C"]


class A2C:
    """One gradient per share of a round. `workers`: gradient workers of the run.

    Normalised advantages are so over the whole round: with several workers a round first yields this worker's moments.
    """

    statistics: tuple[str, ...] = ("policy_loss", "value_loss", "entropy", "value_mean")
    behaviour_log_probs = False

    def __init__(self, config: A2CConfig, distribution: ActionDistribution, workers: int = 1) -> None:
        self.distribution = distribution
        self.asks_for_moments = config.normalize_advantages and workers > 1
        self.gradients_per_round = 1 + self.asks_for_moments
        self.reconfigure(config)

    def reconfigure(self, config: A2CConfig) -> None:
        """Works by these keys from the next loss on."""
        self.config = config
        self.factors = torch.tensor([1.0, config.value_loss_weight, -config.entropy_weight, 0.0])

    def steps(self, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Steps:
        samples = sum(rollout.samples for rollout in rollouts)
        inputs, moments = input_rows(rollouts), None
        if samples and self.asks_for_moments:
            outputs = yield Evaluate(inputs)
            moments = yield moments_of(rollouts, self._targets(rollouts, outputs[1])[0])
        if samples:
            yield Step(inputs, samples, lambda outputs: self._loss(rollouts, samples, outputs, moments))

    def _targets(self, rollouts: Sequence[Rollout], values: Tensor) -> tuple[Floats, Floats]:
        return generalised_advantages(rollouts, values.detach().numpy(), self.config.discount, self.config.gae_lambda)

    def _loss(
        self,
        rollouts: Sequence[Rollout],
        samples: int,
        outputs: tuple[Tensor, ...],
        moments: tuple[float, float] | None,
    ) -> Loss:
        advantages, targets = self._targets(rollouts, outputs[1])
        if self.config.normalize_advantages:
            advantages = normalized(advantages, moments or merged([moments_of(rollouts, advantages)]))
        policy, values = acted_rows(rollouts, outputs[0]), acted_rows(rollouts, outputs[1])
        actions = torch.from_numpy(flat([rollout.actions for rollout in rollouts]))
        log_probs, entropies = self.distribution.log_prob_and_entropy(policy, actions)
        policy_losses = -log_probs * torch.from_numpy(advantages)
        value_losses = mse_loss(values, torch.from_numpy(targets), reduction="none")
        terms = policy_losses, value_losses, entropies, values.detach()
        return Loss.of_terms(terms, weights(rollouts, samples), self.factors)
