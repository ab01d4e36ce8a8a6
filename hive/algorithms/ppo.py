"""PPO with a clipped surrogate (Schulman et al. 2017).

    ratio = pi(a|s) / pi_behaviour(a|s)
    loss = -mean(min(ratio A, clip(ratio, 1 - clip_range, 1 + clip_range) A))
           + value_loss_weight mean((R - V)^2) - entropy_weight mean(H)

Advantages A and lambda-returns R are computed once, with the weights at the beginning of the round. Each of `epochs`
epochs permutes the share and divides it into `minibatches` slices. Every worker has the same number of slices, and all
workers together make one update from slice m of epoch e of every worker.

normalize_over = "minibatch": each worker normalises the advantages of each of its slices separately; a single sample
stays as it is. "round": advantages are normalised over the whole round. With several workers a round then first yields
this worker's moments, and receives those of all workers.

A recurrent policy learns from whole sequences, as in SB3-Contrib's RecurrentPPO: an epoch permutes the environments of
the share, and a slice has all valid steps of some of them, from the state that the rollout stores.

Rollouts with lag are corrected (hive.algorithms.batches.lag): the proximal policy, that of the round's first gradient,
takes the place of the acting one in the ratio, and each advantage, normalised, is multiplied by its importance weight.
With `vtrace` the ratios of later steps correct advantages and returns, too.

target_kl: a worker that finds the policy too far from the proximal one on its next slice makes no more gradients in
this round. The gradients of the other workers still count: each worker judges its own slices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from hive.algorithms.algorithm import AnyOptimizer, Gradients
from hive.algorithms.batches.advantages import (
    corrected_advantages,
    generalised_advantages,
    merged,
    moments_of,
    normalized,
)
from hive.algorithms.batches.lag import IMPORTANCE, described, importance_of, is_lagged, proximal, weighted
from hive.algorithms.batches.rows import acted_inputs, batches, evaluated, flat, input_rows, progress_of, sizes
from hive.algorithms.losses.actor_critic import VALUE_FIT, PPOLoss, acted_rows, value_fit
from hive.algorithms.schedules import scheduled
from hive.config import PPOConfig
from hive.experience import Rollout
from hive.learning import ActorCritic, TargetNetwork
from hive.networks.act.distributions import ActionDistribution
from hive.networks.rows.inputs import Sequences

__all__ = ["PPO"]

KL_MARGIN = 1.5  # the KL divergence at which a round ends, as a multiple of target_kl


class PPO:
    """Makes `epochs` x `minibatches` gradients per share of a round. `workers`: gradient workers of the run."""

    statistics: tuple[str, ...] = ("policy_loss", "value_loss", "entropy", "kl", "clipped", *VALUE_FIT)
    behaviour_log_probs = True
    expects_lag = False
    model: ActorCritic

    def __init__(self, config: PPOConfig, distribution: ActionDistribution, workers: int = 1) -> None:
        self.distribution = distribution
        self.asks_for_moments = config.normalize_advantages and config.normalize_over == "round" and workers > 1
        self.gradients_per_round = config.epochs * config.minibatches + self.asks_for_moments
        self.reconfigure(config)

    def expect_lag(self) -> None:
        """Report importance weights, too: rollouts may be made by older policies."""
        self.expects_lag = True
        self.statistics = (*type(self).statistics, *IMPORTANCE)

    def reconfigure(self, config: PPOConfig) -> None:
        """Use these keys from the next loss on."""
        self.config = config

    def connect(self, network: nn.Module, optimizer: AnyOptimizer = None, target: TargetNetwork | None = None) -> None:
        """Make the actor-critic that learns. It has no target network, so `target` is ignored."""
        self.model = ActorCritic(network, optimizer)

    def gradients(self, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Gradients:
        """Yield Moments if workers share a round, then the gradients of all minibatches, permuted by `noise`."""
        config = self.config
        inputs = input_rows(rollouts, self.model.device)
        corrects = config.importance_clip > 0 and is_lagged(rollouts)
        heads = slice(2) if corrects else slice(1, 2)
        *policies, values = evaluated(lambda rows: self.model.no_grad(rows)[heads], rollouts, inputs)
        valid = flat([rollout.valid for rollout in rollouts]).astype(bool)
        log_probs, log_ratios = flat([rollout.log_probs for rollout in rollouts]), np.zeros(len(valid), np.float32)
        if corrects:
            log_probs, log_ratios = proximal(rollouts, self.distribution, policies[0])
        sums = config.discount, config.gae_lambda
        if corrects and config.vtrace:
            advantages, returns = corrected_advantages(rollouts, values, log_ratios, *sums)
        else:
            advantages, returns = generalised_advantages(rollouts, values, *sums)
        if config.normalize_advantages and config.normalize_over == "round":
            mine = moments_of(rollouts, advantages)
            advantages = normalized(advantages, (yield mine) if self.asks_for_moments else merged([mine]))
        importance = torch.from_numpy(importance_of(log_ratios[valid], config.importance_clip)) if corrects else None
        acted, kept = sizes(rollouts), torch.from_numpy(valid)
        observations = acted_inputs(inputs, acted)[kept]
        batch = (
            torch.from_numpy(flat([rollout.actions for rollout in rollouts])[valid]),
            torch.from_numpy(log_probs[valid]),
            torch.from_numpy(advantages[valid]),
            torch.from_numpy(returns[valid]),
            acted_rows(torch.from_numpy(values), acted)[kept],
        )
        equal = torch.full((len(batch[-1]),), 1.0 / max(len(batch[-1]), 1))
        fit: tuple[float, ...] = value_fit(batch[-1], returns[valid], equal)
        if self.expects_lag:
            fit += described(log_ratios[valid], equal.numpy(), config.importance_clip or math.inf)
        progress = progress_of(rollouts)
        for rows, some in batches(rollouts, observations, config.epochs, config.minibatches, noise):
            loss = self._loss(some, batch, rows, progress, fit, importance)
            samples = len(observations) if rows is None else len(rows)
            if samples and self._too_far(loss):
                return  # the worker fills the rest of the round with gradients of zero samples
            yield self.model.reinforce(loss, samples=samples)

    def _loss(
        self,
        inputs: Tensor | Sequences,
        batch: tuple[Tensor, ...],
        rows: Tensor | None,
        progress: float,
        fit: tuple[float, ...],
        importance: Tensor | None,
    ) -> PPOLoss:
        """Return the loss of these rows of the batch, with the current keys, after `progress` (0 to 1) of the run.

        inputs: the network's, for these rows.
        """
        config = self.config
        actions, log_probs, advantages, returns, values = batch
        normalizes = config.normalize_advantages and config.normalize_over == "minibatch"
        if importance is not None:
            advantages, normalizes = weighted(advantages, importance, rows, normalizes), False
        return PPOLoss(
            inputs,
            actions,
            log_probs,
            advantages,
            returns,
            self.distribution,
            scheduled(config.clip_range, config.clip_range_schedule, progress),
            config.value_loss_weight,
            scheduled(config.entropy_weight, config.entropy_weight_schedule, progress),
            values if config.value_clip_range else None,
            config.value_clip_range,
            fit,
            rows,
            normalizes=normalizes,
        )

    def _too_far(self, loss: PPOLoss) -> bool:
        """Whether the policy has left the acting one by more than `target_kl` allows, judged before the step.

        The limit is 1.5 times `target_kl`, as in OpenAI's Spinning Up and in Stable-Baselines3.
        """
        if not self.config.target_kl:
            return False
        statistics = loss(self.model.no_grad(loss.inputs)).statistics
        return statistics[self.statistics.index("kl")] > KL_MARGIN * self.config.target_kl
