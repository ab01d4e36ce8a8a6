"""DDPG (Lillicrap et al. 2016): a deterministic actor that follows the gradient of a critic.

    target = R + discount^k Q_target(s', pi_target(s'))
    critic loss = mean of w (target - Q(s, a))^2
    actor loss  = -mean of Q(s, pi(s))

Actions are scaled to -1 ... 1. In rollouts they get normal noise.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from hive import _native
from hive.algorithms.agents import ACTOR_ROWS, CRITIC_ROWS, TARGETS, ActorWithCritics, Losses, Statistics
from hive.algorithms.losses.agents import DeterministicActorLoss
from hive.algorithms.replaying import Batch, warmup_rounds
from hive.config import DDPGConfig
from hive.config.refusals import BOUNDED_BOX
from hive.errors import TopologyError
from hive.experience import Replay
from hive.learning.described import Described, Step
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
        targets = self.bootstrapped(batch, self.critic.target(batch.next_observations, following))
        return self.fit(self.taken(batch), targets, batch, factor=self.critic_factor)

    def target_noise(self, batch: Batch) -> tuple[Tensor | None, float, float]:
        """Return normal noise of the actions at which the target critics are evaluated, its deviation and its limit."""
        return None, 0.0, 0.0

    def actor_losses(self, batch: Batch) -> tuple[Losses, Statistics]:
        typed = DeterministicActorLoss(batch.observations, self.noisy, self.critic)
        computed, (reported,), added = self.extended(self.actor, typed, batch, "added_actor_loss")
        return [(self.actor, computed)], {"actor_loss": reported} | added

    def described(self, memory: Replay) -> Described | str:
        """Return the gradients of batches of this memory for hive._native, or why only `gradient` makes them."""
        return self.described_deterministic(memory, None, 0.0, 0.0)

    def described_deterministic(
        self, memory: Replay, noise: str | None, deviation: float, limit: float
    ) -> Described | str:
        """Return the same with noise of the next actions. noise: its register; None: there is none."""
        drawn = {"noise": noise, "deviation": deviation, "limit": limit}
        width = math.prod(self.noisy.shape)
        targets = (
            self.actor.native.described(f"next_{ACTOR_ROWS}", ("next_policy",), of_target=True),
            *([("noise", {"use": TARGETS, "width": width, "into": noise})] if noise else []),
            ("tanh_sample", {"outputs": "next_policy", "actions": "next_actions", **drawn}),
            self.described_join(f"next_{CRITIC_ROWS}", "next_actions", "next_rows"),
            self.described_critics("next_rows", "next", of_target=True),
            self.described_targets("next"),
        )
        quiet = {"noise": None, "deviation": 0.0, "limit": 0.0}
        sample: list[Step] = [("tanh_sample", {"outputs": "policy", "actions": "chosen", **quiet})]
        places = [self.statistics.index("actor_loss")]
        loss = {"noise": None, "log_probs": None, "temperature": 0.0, "log": -1, "places": places}
        return self.described_kinds(memory, targets, self.described_actor(sample, 1, loss))
