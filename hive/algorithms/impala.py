"""IMPALA's learner: actor-critic with V-trace (Espeholt et al. 2018), for rollouts of an older policy.

    loss = -mean(log pi(a|s) A) + value_loss_weight mean((v - V)^2) - entropy_weight mean(H)

over the valid steps of a share of a round. The targets v and the advantages A are those of V-trace: each step is
weighted by pi(a|s) / mu(a|s), clipped at `rho_clip`, and the steps after it by the same ratio clipped at `c_clip`. mu
is the behaviour policy, whose log probabilities are in the rollout. pi and V come from the forward pass that the loss
differentiates; in v and A they are constants. If pi = mu, this is A2C with `gae_lambda`-returns, except that an
advantage looks one step ahead, to v. With `gae_lambda = 1` the gradient is that of A2C. Truncated episodes are
bootstrapped as in A2C.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from hive import _native
from hive.algorithms.algorithm import AnyOptimizer, Gradients
from hive.algorithms.batches.rows import (
    flat,
    input_rows,
    network_input,
    progress_of,
    row_counts,
    unflat,
    values_of,
    weights,
)
from hive.algorithms.losses.actor_critic import VALUE_FIT, A2CLoss, acted_log_probs, is_native
from hive.algorithms.overrides import OfRollouts
from hive.algorithms.parameters import scheduled
from hive.config import IMPALAConfig
from hive.experience import Rollout
from hive.learning import ActorCritic, GraphPass, TargetNetwork
from hive.learning.loss import Floats
from hive.networks.act.distributions import ActionDistribution


class IMPALA(OfRollouts):
    """Makes one gradient per share of a round. `rho_mean` is the mean clipped importance weight, 1 on-policy.

    workers: not used.
    """

    statistics: tuple[str, ...] = ("policy_loss", "value_loss", "entropy", "value_mean", "rho_mean", *VALUE_FIT)
    gradients_per_round = 1
    behaviour_log_probs = True
    asks_for_moments = False
    model: ActorCritic

    def __init__(self, config: IMPALAConfig, distribution: ActionDistribution, workers: int = 1) -> None:
        self.distribution = distribution
        self.reconfigure(config)

    def reconfigure(self, config: IMPALAConfig) -> None:
        """Use these keys from the next loss on."""
        self.config = config

    def connect(self, network: nn.Module, optimizer: AnyOptimizer = None, target: TargetNetwork | None = None) -> None:
        """Make the actor-critic that learns. It has no target network, so `target` is ignored."""
        self.model = ActorCritic(network, optimizer)

    def gradients(self, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Gradients:
        """Yield one gradient. `noise` is not used."""
        samples = sum(rollout.samples for rollout in rollouts)
        if not samples:
            return
        config, shape = self.config, row_counts(rollouts)
        inputs = network_input(rollouts, input_rows(rollouts, self.model.device))
        actions = torch.from_numpy(flat([rollout.actions for rollout in rollouts]))
        extended = self.overrides("added_loss")
        forward = self.model.begin(inputs, native=is_native(self.distribution) and not extended)
        policy, values = forward.outputs[:2]
        log_ratios = acted_log_probs(self.distribution, policy, actions, shape, by_torch=isinstance(forward, GraphPass))
        log_ratios -= flat([rollout.log_probs for rollout in rollouts])
        advantages, targets = self._targets(rollouts, values, log_ratios)
        advantages = self.replaced_advantages(rollouts, advantages)
        share = weights(rollouts, samples)
        loss = A2CLoss(
            inputs,
            actions,
            share,
            shape,
            self.distribution,
            advantages,
            targets,
            config.value_loss_weight,
            scheduled(config.entropy_weight, config.entropy_weight_schedule, progress_of(rollouts)),
            means=(clipped_mean(log_ratios, share.numpy(), config.rho_clip),),
        )
        yield self.model.reinforce(self.with_rollouts(loss, rollouts), samples=samples, forward=forward)

    def _targets(self, rollouts: Sequence[Rollout], values: Floats, log_ratios: Floats) -> tuple[Floats, Floats]:
        """Return advantages and value targets of all acted rows, float32 [sum of T * B] each."""
        advantages, targets = [], []
        for (rollout, current, following), ratios in zip(
            values_of(rollouts, values), unflat(rollouts, log_ratios), strict=True
        ):
            a, v = np.empty_like(current), np.empty_like(current)
            _native.vtrace(
                rollout.rewards,
                current,
                following,
                ratios,
                rollout.terminated,
                rollout.truncated,
                rollout.valid,
                a,
                v,
                discount=self.config.discount,
                gae_lambda=self.config.gae_lambda,
                rho_clip=self.config.rho_clip,
                c_clip=self.config.c_clip,
            )
            advantages.append(a)
            targets.append(v)
        return flat(advantages), flat(targets)


def clipped_mean(log_ratios: Floats, weights: Floats, clip: float) -> float:
    """Return the weighted mean of the ratios, clipped. Rows of weight 0 may have any, also an infinite one."""
    with np.errstate(over="ignore"):
        ratios = np.minimum(np.exp(log_ratios), np.float32(clip), where=weights > 0, out=np.zeros_like(weights))
    return float(ratios @ weights)
