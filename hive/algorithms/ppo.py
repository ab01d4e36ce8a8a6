"""PPO with a clipped surrogate (Schulman et al. 2017).

    ratio = pi(a|s) / pi_behaviour(a|s)
    loss = -mean(min(ratio A, clip(ratio, 1 - clip_range, 1 + clip_range) A))
           + value_loss_weight mean((R - V)^2) - entropy_weight mean(H)

Advantages A and lambda-returns R are computed once, with the weights at the beginning of the round. Each of `epochs`
epochs permutes the share and divides it into `minibatches` slices. Every worker has the same number of slices, and all
workers together make one update from slice m of epoch e of every worker.

normalize_over = "minibatch": each worker normalizes the advantages of each of its slices separately; a single sample
stays as it is. "round": advantages are normalized over the whole round. With several workers a round then first yields
this worker's moments, and receives those of all workers.

A recurrent policy learns from whole sequences, as in SB3-Contrib's RecurrentPPO: an epoch permutes the environments of
the share, and a slice has all valid steps of some of them, from the state that the rollout stores.

Rollouts with lag are corrected (hive.algorithms.batches.advantages): the proximal policy, that of the first gradient of
the round, takes the place of the acting one in the ratio, and each advantage, normalized, is multiplied by its
importance weight. With `vtrace` the ratios of later steps correct advantages and returns, too.

target_kl: a worker that finds the policy too far from the proximal one on its next slice makes no more gradients in
this round. The gradients of the other workers still count: each worker judges its own slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

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
    weighted,
)
from hive.algorithms.batches.frames import StackedRows
from hive.algorithms.batches.rows import (
    Batches,
    acted_inputs,
    batches,
    evaluated,
    flat,
    input_rows,
    progress_of,
    remembers,
    row_counts,
    together,
)
from hive.algorithms.losses.actor_critic import VALUE_FIT, PPOLoss, acted_rows, is_native, value_fit
from hive.algorithms.overrides import OfRollouts
from hive.algorithms.parameters import Progress, scheduled
from hive.config import PPOConfig
from hive.experience import Rollout
from hive.learning import ActorCritic, TargetNetwork
from hive.learning.described import BACKWARD, MEMORY, TORCH_COMPUTES, Described, Step, described, without_samples
from hive.learning.loss import Floats
from hive.learning.passes import Forward, GraphPass
from hive.networks.act.distributions import ActionDistribution
from hive.networks.rows.inputs import Sequences

KL_MARGIN = 1.5  # the KL divergence at which a round ends, as a multiple of target_kl


@dataclass(frozen=True, eq=False)
class _Share:
    """The N valid acted rows of a share of a round, in which they are constants.

    values: before the round's first update. importance: the weights of the advantages; None without lag. fit: numbers
    that are only reported. progress: that of the run.
    """

    observations: Tensor | StackedRows
    actions: Tensor
    log_probs: Tensor
    advantages: Tensor
    returns: Tensor
    values: Tensor
    importance: Tensor | None
    fit: tuple[float, ...]
    progress: Progress


class PPO(OfRollouts):
    """Makes `epochs` x `minibatches` gradients per share of a round. `workers`: gradient workers of the run."""

    statistics: tuple[str, ...] = ("policy_loss", "value_loss", "entropy", "kl", "clipped", *VALUE_FIT)
    behaviour_log_probs = True
    expects_lag = False
    model: ActorCritic
    _round: tuple[_Share, Batches] | None = None  # the round in progress, of a policy without memory
    _ended = False  # whether the policy has left the proximal one too far in it
    _described: tuple[tuple[_Share, Batches], PPOConfig, Described | str] | None = None  # with what it describes

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
        corrects = is_corrected(rollouts, config.importance_clip)
        heads = slice(2) if corrects else slice(1, 2)
        *policies, values = evaluated(lambda rows: self.model.no_grad(rows)[heads], rollouts, inputs)
        log_probs, log_ratios = flat([rollout.log_probs for rollout in rollouts]), None
        if corrects:
            log_probs, log_ratios = proximal(rollouts, self.distribution, policies[0])
        ratios = log_ratios if config.vtrace else None
        advantages, returns = generalized_advantages(rollouts, values, config.discount, config.gae_lambda, ratios)
        advantages = self.replaced_advantages(rollouts, advantages)
        if config.normalize_advantages and config.normalize_over == "round":
            moments = advantage_moments(rollouts, advantages)
            over_round = (yield moments) if self.asks_for_moments else merged([moments])
            advantages = normalized(advantages, over_round)
        share = self._share(rollouts, inputs, values, advantages, returns, log_probs, log_ratios)
        observations = share.observations
        parts = batches(rollouts, observations, config.epochs, config.minibatches, noise)
        self._round, self._ended = None if remembers(rollouts) else (share, parts), False
        for rows, network_rows in parts:
            loss, forward = self._loss(network_rows, share, rows), None
            samples = len(observations) if rows is None else len(rows)
            if samples and self.config.target_kl:
                forward = self.model.begin(loss.inputs, native=loss.is_native and not self.overrides("added_loss"))
                self._ended = self._too_far(loss, forward)
            if self._ended:
                return  # the worker fills the rest of the round with gradients of zero samples
            yield self.model.reinforce(self.with_addition(loss, loss.batch), samples=samples, forward=forward)

    def described(self) -> Described | str:
        """Return the gradients that are left of the round for hive._native, or why only `gradients` makes them."""
        if self._round is None:
            return MEMORY
        dense = self.model.native.dense
        if self._ended and dense is not None:
            return without_samples(len(dense.mask))
        if self._described is None or self._described[:2] != (self._round, self.config):
            self._described = self._round, self.config, self._describe(*self._round)
        return self._described[2]

    def _describe(self, share: _Share, parts: Batches) -> Described | str:
        passes = self.model.native
        if share.importance is not None:
            return "collection.max_lag: rollouts of older policies are corrected"
        if passes.dense is None or not is_native(self.distribution):
            return TORCH_COMPUTES
        observations = together(share.observations)
        rows = passes.rows(observations)
        if rows is None:
            return TORCH_COMPUTES
        picks: list[Step | None] = [("pick", {"source": rows, "into": "rows"})]
        if passes.is_masked:
            picks.append(("pick", {"source": observations.numpy(), "into": "observations"}))
        forward = passes.described("rows", ("policy", "values"), ("to_policy", "to_values"))
        loss = self._loss(observations, share, None).described(self._most_divergence)
        return described([*picks, forward, loss, BACKWARD], passes.dense.mask, parts)

    def _share(
        self,
        rollouts: Sequence[Rollout],
        inputs: Tensor | StackedRows,
        values: Floats,
        advantages: Floats,
        returns: Floats,
        log_probs: Floats,
        log_ratios: Floats | None,
    ) -> _Share:
        """Return the valid acted rows of a share of a round. log_ratios: None: no advantage has a weight."""
        valid, acted = flat([rollout.valid for rollout in rollouts]).astype(bool), row_counts(rollouts)
        kept, clip = torch.from_numpy(valid), self.config.importance_clip
        ratios = None if log_ratios is None else log_ratios[valid]
        before = acted_rows(torch.from_numpy(values), acted)[kept]
        equal = torch.full((len(before),), 1.0 / max(len(before), 1))
        fit: tuple[float, ...] = value_fit(before, returns[valid], equal)
        if self.expects_lag:
            fit += importance_statistics(ratios, equal.numpy(), clip)
        return _Share(
            acted_inputs(inputs, acted)[kept],
            torch.from_numpy(flat([rollout.actions for rollout in rollouts])[valid]),
            torch.from_numpy(log_probs[valid]),
            torch.from_numpy(advantages[valid]),
            torch.from_numpy(returns[valid]),
            before,
            None if ratios is None else torch.from_numpy(importance_of(ratios, clip)),
            fit,
            progress_of(rollouts),
        )

    def _loss(self, inputs: Tensor | Sequences, share: _Share, rows: Tensor | None) -> PPOLoss:
        """Return the loss of these rows of the share, with the current keys. inputs: the network's, for these rows."""
        config, advantages = self.config, share.advantages
        normalizes = config.normalize_advantages and config.normalize_over == "minibatch"
        if share.importance is not None:
            advantages, normalizes = weighted(advantages, share.importance, rows, normalizes), False
        return PPOLoss(
            inputs,
            share.actions,
            share.log_probs,
            advantages,
            share.returns,
            self.distribution,
            scheduled(config.clip_range, config.clip_range_schedule, share.progress),
            config.value_loss_weight,
            scheduled(config.entropy_weight, config.entropy_weight_schedule, share.progress),
            share.values if config.value_clip_range else None,
            config.value_clip_range,
            share.fit,
            rows,
            normalizes=normalizes,
        )

    @property
    def _most_divergence(self) -> float:
        """The KL divergence at which a round ends, as in OpenAI's Spinning Up and in Stable-Baselines3; 0: none."""
        return KL_MARGIN * self.config.target_kl

    def _too_far(self, loss: PPOLoss, forward: Forward) -> bool:
        """Whether the policy has left the acting one by more than `target_kl` allows, judged before the step.

        forward: the pass that the step is made of.
        """
        of = loss(forward.tensors) if isinstance(forward, GraphPass) else loss.differentiate(forward.outputs)
        return of.statistics[PPO.statistics.index("kl")] > self._most_divergence
