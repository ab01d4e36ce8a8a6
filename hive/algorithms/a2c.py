"""A2C: synchronous advantage actor-critic (Mnih et al. 2016), with generalized advantages (Schulman et al. 2016).

    loss = -mean(log pi(a|s) A) + value_loss_weight mean((R - V)^2) - entropy_weight mean(H)

over the valid steps of a share of a round. The advantages A and the lambda-returns R = A + V are constants, computed
from the values of the same forward pass that the loss differentiates. One pass over [T+1, B] rows and the last
observations of truncated episodes gives policies, values and bootstraps. A truncated episode is bootstrapped with the
value of its true last observation, a terminated one with 0. In rollouts with lag each advantage is multiplied by the
importance weight of hive.algorithms.batches.advantages. `gae_lambda = 1` gives n-step returns to the rollout's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from hive.algorithms.algorithm import AnyOptimizer, Gradients
from hive.algorithms.batches.advantages import (
    IMPORTANCE,
    advantage_moments,
    generalized_advantages,
    importance_of,
    importance_statistics,
    is_corrected,
    merged,
    normalized,
    proximal,
)
from hive.algorithms.batches.rows import flat, input_rows, network_input, progress_of, row_counts, weights
from hive.algorithms.losses.actor_critic import VALUE_FIT, A2CLoss, is_native
from hive.algorithms.overrides import OfRollouts
from hive.algorithms.parameters import scheduled
from hive.config import A2CConfig
from hive.experience import Rollout
from hive.learning import ActorCritic, TargetNetwork
from hive.learning.loss import Floats
from hive.networks.act.distributions import ActionDistribution


class A2C(OfRollouts):
    """Makes one gradient per share of a round. `workers`: gradient workers of the run.

    Advantages are normalized over the whole round, so with several workers a round first yields this worker's moments.
    """

    statistics: tuple[str, ...] = ("policy_loss", "value_loss", "entropy", "value_mean", *VALUE_FIT)
    behaviour_log_probs = False
    expects_lag = False
    model: ActorCritic

    def __init__(self, config: A2CConfig, distribution: ActionDistribution, workers: int = 1) -> None:
        self.distribution = distribution
        self.asks_for_moments = config.normalize_advantages and workers > 1
        self.gradients_per_round = 1 + self.asks_for_moments
        self.behaviour_log_probs |= self.overrides("added_loss")  # its batches have them
        self.reconfigure(config)

    def expect_lag(self) -> None:
        """Correct rollouts of older policies, and report the weights: rollouts hold log-probabilities for that."""
        self.expects_lag = self.behaviour_log_probs = True
        self.statistics = (*type(self).statistics, *IMPORTANCE)

    def reconfigure(self, config: A2CConfig) -> None:
        """Use these keys from the next loss on."""
        self.config = config

    def connect(self, network: nn.Module, optimizer: AnyOptimizer = None, target: TargetNetwork | None = None) -> None:
        """Make the actor-critic that learns. It has no target network, so `target` is ignored."""
        self.model = ActorCritic(network, optimizer)

    def gradients(self, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Gradients:
        """Yield Moments if workers share a round, then one gradient. `noise` is not used."""
        samples = sum(rollout.samples for rollout in rollouts)
        if not samples:
            return
        config, moments = self.config, None
        inputs = network_input(rollouts, input_rows(rollouts, self.model.device))
        if self.asks_for_moments:
            advantages, _, _ = self._estimates(rollouts, self.model.no_grad(inputs))
            moments = yield advantage_moments(rollouts, advantages)

        extended = self.overrides("added_loss")
        forward = self.model.begin(inputs, native=is_native(self.distribution) and not extended)
        advantages, returns, log_ratios = self._estimates(rollouts, forward.outputs)
        if config.normalize_advantages:
            advantages = normalized(advantages, moments or merged([advantage_moments(rollouts, advantages)]))
        if log_ratios is not None:
            advantages = advantages * importance_of(log_ratios, config.importance_clip)
        share = weights(rollouts, samples)
        further = importance_statistics(log_ratios, share.numpy(), config.importance_clip) if self.expects_lag else ()
        loss = A2CLoss(
            inputs,
            torch.from_numpy(flat([rollout.actions for rollout in rollouts])),
            share,
            row_counts(rollouts),
            self.distribution,
            advantages,
            returns,
            config.value_loss_weight,
            scheduled(config.entropy_weight, config.entropy_weight_schedule, progress_of(rollouts)),
            further=further,
        )
        yield self.model.reinforce(self.with_rollouts(loss, rollouts), samples=samples, forward=forward)

    def _estimates(self, rollouts: Sequence[Rollout], outputs: Sequence[Any]) -> tuple[Floats, Floats, Floats | None]:
        """Return advantages, returns and log ratios of all acted rows, float32 [sum of T * B] each.

        outputs: the network's, [N, ...]. Log ratios: those of the proximal and the acting policy; None without lag.
        """
        config, log_ratios = self.config, None
        policy, values = map(np.asarray, outputs[:2])
        if is_corrected(rollouts, config.importance_clip):
            log_ratios = proximal(rollouts, self.distribution, policy)[1]
        ratios = log_ratios if config.vtrace else None
        found = generalized_advantages(rollouts, values, config.discount, config.gae_lambda, ratios)
        return self.replaced_advantages(rollouts, found[0]), found[1], log_ratios
