"""The base of agents of an actor and critics that learn from a replay memory: SAC, TD3 and DDPG.

    number of a gradient      0        1       2        3
    critic_first = false      all      all     all      all         one gradient of all networks at the same weights
    critic_first = true       critic   actor   critic   actor       two per batch; the actor's reads the new critic

With critic_first the order of updates is that of Stable-Baselines3. Which networks a gradient has follows from its
number. The learner steps only the parameter groups that a gradient has (hive.networks.weights.flat).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from hive import _native
from hive.algorithms.algorithm import AnyOptimizer
from hive.algorithms.losses.agents import CriticLoss
from hive.algorithms.replaying import Batch, updates_in_round
from hive.config import AgentConfig
from hive.errors import TopologyError
from hive.learning import Approximation, ComputedPart, SingleOutput, TargetNetwork, jointly
from hive.networks.act.bounded import BoundedColumns
from hive.networks.act.distributions import ActionDistribution
from hive.networks.build.agents import AgentNetwork
from hive.networks.rows.inputs import ACTION_INPUT
from hive.networks.weights.flat import Floats

Losses = list[tuple[Approximation, Tensor | ComputedPart]]
Statistics = dict[str, float]

TARGETS, ACTIONS = range(2)  # uses of noise: actions of the critics' targets, and those that the actor learns from
USES = 2

UNKNOWN = float("nan")  # a statistic of a network that this gradient does not have


class ActorWithCritics:
    """Holds `actor` and `critic`. A subclass computes their losses from a batch.

    round_steps: environment steps in a round over all collectors. Raises TopologyError for a fraction of an update.
    """

    statistics: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    gradients_per_round: int
    gradients_per_batch: int
    asks_for_moments = False
    behaviour_log_probs = False
    distribution: ActionDistribution
    actor: Approximation
    critic: Approximation

    def __init__(self, config: AgentConfig, distribution: ActionDistribution, round_steps: int = 1) -> None:
        self.distribution = distribution
        self.gradients_per_batch = 2 if config.critic_first else 1
        self.gradients_per_round = updates_in_round(config, round_steps) * self.gradients_per_batch
        self.reconfigure(config)

    def reconfigure(self, config: Any) -> None:
        """Use these keys from the next loss on."""
        self.config = config

    def connect(self, network: nn.Module, optimizer: AnyOptimizer = None, target: TargetNetwork | None = None) -> None:
        """Make the actor and the critic that learn, with their targets. Raises TopologyError without critics."""
        if not isinstance(network, AgentNetwork):
            raise TopologyError(
                f"{self.config.name} needs a network with critics, not {type(network).__name__}",
                hint=f"its heads are {', '.join(self.heads)}",
            )
        self.actor, self.critic = (
            Approximation(model, optimizer, name=name, target=copy.copy(target))
            for name, model in (("actor", SingleOutput(network.actor)), ("critic", network.critic))
        )

    def gradient(self, batch: Batch) -> None:
        """Make gradient `batch.number`. A gradient that has the critic fills the errors of the batch."""
        part = batch.number % self.gradients_per_batch
        losses: Losses = []
        found: Statistics = {}
        if part == 0:
            losses, found = self.critic_losses(batch)
        if part == self.gradients_per_batch - 1 and self.actor_is_due(batch.number // self.gradients_per_batch):
            further, more = self.actor_losses(batch)
            losses, found = losses + further, found | more
        if not losses:
            self.critic.reinforce(samples=0)
            return
        jointly(*losses, samples=len(batch), statistics=[found.get(name, UNKNOWN) for name in self.statistics])

    def actor_is_due(self, number: int) -> bool:
        """Whether the actor learns from batch `number`, counted from 0."""
        return True

    def critic_losses(self, batch: Batch) -> tuple[Losses, Statistics]:
        """Return the losses of the critic, and statistics by name."""
        raise NotImplementedError

    def actor_losses(self, batch: Batch) -> tuple[Losses, Statistics]:
        """Return the losses of the actor and of what learns with it, and statistics by name."""
        raise NotImplementedError

    def draw(self, batch: Batch, use: int, shape: Sequence[int]) -> Tensor:
        """Return normal noise float32 [N, *shape] of the gradient of a batch.

        Its stream is that of the seed of torch's generator, which is seeded for each gradient, of the gradient's number
        and of its `use`, TARGETS or ACTIONS.
        """
        noise = np.empty(len(batch) * math.prod(shape), np.float32)
        _native.philox_normals(torch.default_generator.initial_seed(), USES * batch.number + use, noise)
        return torch.from_numpy(noise.reshape(-1, *shape))

    def fit(
        self, inputs: Any, targets: Tensor, batch: Batch, *, factor: float, actions: Tensor | None = None
    ) -> tuple[Losses, Statistics]:
        """Return the squared errors of the critics to targets [N], times `factor`, and fill the errors of the batch.

        inputs: those of the critics. actions: int64 [N], if they return the values of all actions.
        """
        loss = CriticLoss(inputs, targets, batch.importance, batch.errors, factor, actions)
        computed = self.critic.computed(loss)
        return [(self.critic, computed)], dict(
            zip(("critic_loss", "q_mean", "td_error"), self.critic.statistics, strict=True)
        )

    def targets(self, batch: Batch, values: Tensor, log_probs: Floats | None = None, weight: float = 0.0) -> Tensor:
        """Return the targets [N] of values [critics, N] of the following actions; see _native.soft_targets."""
        targets = np.empty(len(batch), np.float32)
        returns, discounts = batch.returns.numpy(), batch.discounts.numpy()
        _native.soft_targets(tuple(values.numpy()), log_probs, weight, returns, discounts, targets)
        return torch.from_numpy(targets)

    def taken(self, batch: Batch) -> dict[str, Tensor]:
        """Return the inputs of critics that take the actions of the batch, scaled to -1 ... 1."""
        scaled = cast(BoundedColumns, self.distribution).scaled(batch.actions)
        return {"observation": batch.observations, ACTION_INPUT: scaled}
