"""DQN (Mnih et al. 2015): Q-learning on transitions of a replay memory, with a target network.

    target = R + discount^k max_a Q_target(s', a)                                       k steps with the rewards R
    target = R + discount^k Q_target(s', argmax_a Q(s', a))     double = true (van Hasselt et al. 2016)
    loss   = mean of w huber(target - Q(s, a))

w is the importance weight of a transition that is drawn by its priority (Schaul et al. 2016), otherwise 1. With
`dueling`, Q has one stream of layers for the state's value and one for the advantages (Wang et al. 2016). The policy is
epsilon-greedy, and epsilon decreases with the number of the rollout.
"""

from __future__ import annotations

import torch

from hive.algorithms.losses.q_learning import QLoss, described_q_loss
from hive.algorithms.q_learning import ReplayedValues
from hive.algorithms.replaying import Batch
from hive.config import DQNConfig
from hive.experience import Replay
from hive.learning.described import Described
from hive.networks.build.parameters import DuelingQHeadParameters, HeadParameters


class DQN(ReplayedValues):
    """Makes one gradient per batch. Arguments: see QLearning. Raises TopologyError for a fraction of an update."""

    config: DQNConfig

    @property
    def heads(self) -> tuple[str | HeadParameters, ...]:
        """The values of all actions."""
        width = self.config.dueling
        return (DuelingQHeadParameters(hidden=width),) if width else super().heads

    def gradient(self, batch: Batch) -> None:
        """Make the gradient of a batch."""
        values = self.q.target(batch.next_observations)
        best = (self.q.no_grad(batch.next_observations) if self.config.double else values).argmax(-1, keepdim=True)
        targets = (batch.returns + batch.discounts * values.gather(-1, best).squeeze(-1)).numpy()
        loss = QLoss(
            batch.observations,
            batch.actions,
            torch.from_numpy(self.replaced("targets", batch, targets)),
            huber=self.config.huber_loss,
            importance=batch.importance,
            errors=batch.errors,
        )
        self.q.reinforce(self.with_addition(loss, lambda: batch), samples=len(batch))

    def described(self, memory: Replay) -> Described | str:
        """Return the gradients of batches of this memory for hive._native, or why only `gradient` makes them."""
        loss = described_q_loss(huber=self.config.huber_loss, importance=True)
        return self.described_values(memory, ("bootstrap", {}), loss)
