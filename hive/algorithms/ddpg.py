"""DDPG (Lillicrap et al. 2016): a deterministic actor that follows the gradient of a critic.

    target = R + discount^k Q_target(s', pi_target(s'))
    critic loss = mean of w (target - Q(s, a))^2
    actor loss  = -mean of Q(s, pi(s))

Actions are scaled to -1 ... 1. In rollouts they get normal noise.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hive import _native
from hive.algorithms.agents import ActorWithCritics, Losses, Statistics
from hive.algorithms.losses.agents import DeterministicActorLoss
from hive.algorithms.replaying import Batch, warmup_rounds
from hive.config import DDPGConfig
from hive.config.refusals import BOUNDED_BOX
from hive.errors import TopologyError
from hive.networks.act.bounded import SquashedGaussian
from hive.networks.act.distributions import ActionDistribution
from hive.networks.act.exploration import NoisyActions


class DDPG(ActorWithCritics):
    """Arguments: see ActorWithCritics. Raises TopologyError for actions without bounds, and a fraction of an update."""

    statistics: tuple[str, ...] = ("critic_loss", "actor_loss", "q_mean", "td_error")
    heads: tuple[str, ...] = ("deterministic_policy", "critic")

    def __init__(
        self, config: DDPGConfig, distribution: ActionDistribution, workers: int = 1, round_steps: int = 1
    ) -> None:
        if not isinstance(distribution, SquashedGaussian):
            raise TopologyError(f"{config.name} {BOUNDED_BOX.reason}", hint=BOUNDED_BOX.instead)
        bounds, warmup = (distribution.shape, distribution.low, distribution.high), warmup_rounds(config, round_steps)
        self.noisy = NoisyActions(*bounds, warmup=warmup, deviation=config.exploration_noise)
        super().__init__(config, self.noisy, round_steps)

    def critic_losses(self, batch: Batch) -> tuple[Losses, Statistics]:
        outputs = self.actor.target(batch.next_observations).numpy()
        noise, deviation, limit = self.target_noise(batch)
        actions = np.empty_like(outputs)
        drawn = None if noise is None else noise.numpy().reshape(outputs.shape)
        _native.tanh_actions(outputs, drawn, deviation, limit, actions)
        following = torch.from_numpy(actions).view(-1, *self.noisy.shape)
        targets = self.targets(batch, self.critic.target(batch.next_observations, following))
        return self.fit(self.taken(batch), targets, batch, factor=1.0)

    def target_noise(self, batch: Batch) -> tuple[Tensor | None, float, float]:
        """Return normal noise of the actions at which the target critics are evaluated, its deviation and its limit."""
        return None, 0.0, 0.0

    def actor_losses(self, batch: Batch) -> tuple[Losses, Statistics]:
        loss = self.actor.computed(DeterministicActorLoss(batch.observations, self.noisy, self.critic))
        return [(self.actor, loss)], {"actor_loss": self.actor.statistics[0]}
