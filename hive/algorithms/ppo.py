"""PPO with a clipped surrogate (Schulman et al. 2017).

    ratio = pi(a|s) / pi_behaviour(a|s)
    loss = -mean(min(ratio A, clip(ratio, 1 - clip_range, 1 + clip_range) A))
           + value_loss_weight mean((R - V)^2) - entropy_weight mean(H)

Advantages A and lambda-returns R are computed once, with the values of the weights that the round begins with. Then
`epochs` times over the share, in a new order each time, in `minibatches` slices: every worker cuts its share into the
same number of slices, and slice m of epoch e is one update of all workers together.

Advantages are normalised over the whole round: with several workers the first thing a round yields are this worker's
moments, and the answer is everybody's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from hive.algorithms.advantages import generalised_advantages, merged, moments_of, normalized
from hive.algorithms.rows import acted_rows, flat, input_rows
from hive.algorithms.steps import Evaluate, Loss, Step, Steps
from hive.config import PPOConfig
from hive.networks import ActionDistribution
from hive.storage import Rollout

__all__ = ["PPO"]


class PPO:
    """`epochs` x `minibatches` gradients per round. `workers`: gradient workers of the run."""

    statistics: tuple[str, ...] = ("policy_loss", "value_loss", "entropy", "kl", "clipped")
    behaviour_log_probs = True

    def __init__(self, config: PPOConfig, distribution: ActionDistribution, workers: int = 1) -> None:
        self.distribution = distribution
        self.asks_for_moments = config.normalize_advantages and workers > 1
        self.gradients_per_round = config.epochs * config.minibatches + self.asks_for_moments
        self.reconfigure(config)

    def reconfigure(self, config: PPOConfig) -> None:
        """Works by these keys from the next loss on."""
        self.config = config
        self.factors = torch.tensor([1.0, config.value_loss_weight, -config.entropy_weight, 0.0, 0.0])

    def steps(self, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Steps:
        config = self.config
        inputs = input_rows(rollouts)
        outputs = yield Evaluate(inputs)
        advantages, targets = generalised_advantages(rollouts, outputs[1].numpy(), config.discount, config.gae_lambda)
        valid = flat([rollout.valid for rollout in rollouts]).astype(bool)
        if config.normalize_advantages:
            mine = moments_of(rollouts, advantages)
            advantages = normalized(advantages, (yield mine) if self.asks_for_moments else merged([mine]))
        batch = _Batch(
            acted_rows(rollouts, inputs)[torch.from_numpy(valid)],
            torch.from_numpy(flat([rollout.actions for rollout in rollouts])[valid]),
            torch.from_numpy(flat([rollout.log_probs for rollout in rollouts])[valid]),
            torch.from_numpy(advantages[valid]),
            torch.from_numpy(targets[valid]),
        )
        generator = noise or np.random.default_rng(0)
        for _ in range(config.epochs):
            for picked in np.array_split(generator.permutation(len(batch.inputs)), config.minibatches):
                part = batch.pick(torch.from_numpy(picked))
                yield Step(part.inputs, len(picked), lambda outputs, part=part: self._loss(part, outputs))  # type: ignore[misc]

    def _loss(self, part: _Batch, outputs: tuple[Tensor, ...]) -> Loss:
        policy, values = outputs[0], outputs[1]
        log_probs, entropies = self.distribution.log_prob_and_entropy(policy, part.actions)
        log_ratio = log_probs - part.log_probs
        ratio, limit = log_ratio.exp(), self.config.clip_range
        clipped = ratio.clamp(1.0 - limit, 1.0 + limit)
        policy_losses = -torch.minimum(ratio * part.advantages, clipped * part.advantages)
        value_losses = mse_loss(values, part.targets, reduction="none")
        with torch.no_grad():
            # k3 of Schulman, http://joschu.net/blog/kl-approx.html: unbiased and never negative.
            change = ratio - 1.0
            kl, outside = change - log_ratio, (change.abs() > limit).float()
        terms = policy_losses, value_losses, entropies, kl, outside
        return Loss.of_terms(terms, torch.full_like(kl, 1.0 / max(len(kl), 1)), self.factors)


class _Batch:
    """The samples of a share, or some of them: inputs [N, ...], actions [N, ...] and three columns [N]."""

    def __init__(self, inputs: Tensor, actions: Tensor, log_probs: Tensor, advantages: Tensor, targets: Tensor) -> None:
        self.inputs = inputs
        self.actions = actions
        self.log_probs = log_probs
        self.advantages = advantages
        self.targets = targets

    def pick(self, rows: Tensor) -> _Batch:
        return _Batch(
            self.inputs[rows], self.actions[rows], self.log_probs[rows], self.advantages[rows], self.targets[rows]
        )
