"""DQN (Mnih et al. 2015): Q-learning on transitions of a replay memory, with a target network.

    target = R + discount^k max_a Q_target(s', a)                                       k steps with the rewards R
    target = R + discount^k Q_target(s', argmax_a Q(s', a))     double = true (van Hasselt et al. 2016)
    loss   = mean of w huber(target - Q(s, a))

w is the importance weight of a transition that is drawn by its priority (Schaul et al. 2016), otherwise 1. The policy
is epsilon-greedy, and epsilon decreases with the number of the rollout.
"""

from __future__ import annotations

import dataclasses

from hive.algorithms.q_learning import QLearning
from hive.algorithms.replaying import Batch, updates_in_round, warmup_rounds
from hive.config import DQNConfig
from hive.losses import QLoss
from hive.networks.distributions import ActionDistribution
from hive.networks.exploration import EpsilonGreedy

__all__ = ["DQN"]


class DQN(QLearning):
    """Makes one gradient per batch. Arguments: see QLearning. Raises TopologyError for a fraction of an update."""

    config: DQNConfig
    gradients_per_batch = 1

    def __init__(
        self, config: DQNConfig, distribution: ActionDistribution, workers: int = 1, round_steps: int = 1
    ) -> None:
        super().__init__(config, distribution, workers, round_steps)
        self.gradients_per_round = updates_in_round(config, round_steps) * self.gradients_per_batch
        explores: EpsilonGreedy = self.distribution  # type: ignore[assignment]
        self.distribution = dataclasses.replace(explores, warmup=warmup_rounds(config, round_steps))

    def gradient(self, batch: Batch) -> None:
        """Make the gradient of a batch."""
        values = self.q.target(batch.next_observations)
        if self.config.double:
            best = self.q.no_grad(batch.next_observations).argmax(-1, keepdim=True)
            following = values.gather(-1, best).squeeze(-1)
        else:
            following = values.amax(-1)
        loss = QLoss(
            batch.observations,
            batch.actions,
            batch.returns + batch.discounts * following,
            huber=self.config.huber_loss,
            importance=batch.importance,
            errors=batch.errors,
        )
        self.q.reinforce(loss, samples=len(batch))
