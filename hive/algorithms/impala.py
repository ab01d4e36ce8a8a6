"""IMPALA's learner: actor-critic with V-trace (Espeholt et al. 2018), for rollouts of a policy that is not the newest.

    loss = -mean(log pi(a|s) A) + value_loss_weight mean((v - V)^2) - entropy_weight mean(H)

over the valid steps of a share of a round. The targets v and the advantages A are those of V-trace: each step counts
by pi(a|s) / mu(a|s), clipped at `rho_clip`, and what follows it by the same ratio clipped at `c_clip`. mu is the policy
that acted, its log probabilities come with the rollout; pi and V are of the forward pass that the loss differentiates,
as constants. Where pi = mu this is A2C with `gae_lambda`-returns, whose advantages look one step ahead, to v: with
`gae_lambda = 1` the very gradient of A2C. Truncated episodes are bootstrapped as in A2C.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import mse_loss

from hive import _native
from hive.algorithms.rows import acted_rows, flat, input_rows, unflat, values_of, weights
from hive.algorithms.steps import Loss, Step, Steps
from hive.config import IMPALAConfig
from hive.networks import ActionDistribution
from hive.storage import Rollout

__all__ = ["IMPALA"]

Floats = NDArray[np.float32]


class IMPALA:
    """One gradient per share of a round. `rho_mean` is the mean clipped importance weight: 1 on-policy."""

    statistics: tuple[str, ...] = ("policy_loss", "value_loss", "entropy", "value_mean", "rho_mean")
    gradients_per_round = 1
    behaviour_log_probs = True
    asks_for_moments = False

    def __init__(self, config: IMPALAConfig, distribution: ActionDistribution) -> None:
        self.distribution = distribution
        self.reconfigure(config)

    def reconfigure(self, config: IMPALAConfig) -> None:
        """Works by these keys from the next loss on."""
        self.config = config
        self.factors = torch.tensor([1.0, config.value_loss_weight, -config.entropy_weight, 0.0, 0.0])

    def steps(self, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Steps:
        samples = sum(rollout.samples for rollout in rollouts)
        if samples:
            yield Step(input_rows(rollouts), samples, lambda outputs: self._loss(rollouts, samples, outputs))

    def _loss(self, rollouts: Sequence[Rollout], samples: int, outputs: tuple[Tensor, ...]) -> Loss:
        policy, values = acted_rows(rollouts, outputs[0]), acted_rows(rollouts, outputs[1])
        log_probs, entropies = self.distribution.log_prob_and_entropy(
            policy, torch.from_numpy(flat([rollout.actions for rollout in rollouts]))
        )
        log_ratios = log_probs.detach() - torch.from_numpy(flat([rollout.log_probs for rollout in rollouts]))
        advantages, targets = self._targets(rollouts, outputs[1].detach().numpy(), log_ratios.numpy())
        policy_losses = -log_probs * torch.from_numpy(advantages)
        value_losses = mse_loss(values, torch.from_numpy(targets), reduction="none")
        weight = weights(rollouts, samples)
        rhos = log_ratios.exp().clamp_max(self.config.rho_clip).where(weight > 0.0, 0.0)  # of the others: anything
        terms = policy_losses, value_losses, entropies, values.detach(), rhos
        return Loss.of_terms(terms, weight, self.factors)

    def _targets(self, rollouts: Sequence[Rollout], values: Floats, log_ratios: Floats) -> tuple[Floats, Floats]:
        """Advantages and value targets of all acted rows, flat."""
        advantages, targets = [], []
        for (rollout, mine, following), ratios in zip(
            values_of(rollouts, values), unflat(rollouts, log_ratios), strict=True
        ):
            a, v = np.empty_like(mine), np.empty_like(mine)
            _native.vtrace(
                rollout.rewards,
                mine,
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
