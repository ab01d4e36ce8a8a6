"""n-step Q-learning with a target network (Mnih et al. 2016, "Asynchronous methods", algorithm S2), on rollouts.

    R_t  = r_t + discount r_t+1 + ... + discount^k max_a Q_target(s_t+k, a)
    loss = mean of huber(R_t - Q(s_t, a_t))

over the valid steps of a share of a round. k is `n_step`, or less if the rollout or the episode ends earlier. A
terminated episode is bootstrapped with 0, a truncated one with the value of its true last observation. The policy is
epsilon-greedy, and epsilon decreases with the number of the rollout. There is no replay: each rollout is used once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from hive import _native
from hive.algorithms.algorithm import Gradients
from hive.algorithms.batches.advantages import returns_by
from hive.algorithms.batches.rows import flat, input_rows, row_counts, together, weights
from hive.algorithms.losses.actor_critic import acted_rows
from hive.algorithms.losses.q_learning import QLoss
from hive.algorithms.q_learning import QLearning
from hive.config import NStepQConfig
from hive.experience import Rollout


class NStepQ(QLearning):
    """Makes one gradient per share of a round. Arguments: see QLearning."""

    config: NStepQConfig
    gradients_per_round = 1

    def gradients(self, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Gradients:
        """Yield one gradient. `noise` is not used."""
        samples = sum(rollout.samples for rollout in rollouts)
        if samples:
            inputs = together(input_rows(rollouts, self.q.device))
            values = self.q.target(inputs).amax(-1).numpy()
            options = {"discount": self.config.discount, "n": self.config.n_step}
            _, returns = returns_by(_native.n_step_returns, rollouts, values, **options)
            loss = QLoss(
                acted_rows(inputs, row_counts(rollouts)),
                torch.from_numpy(flat([rollout.actions for rollout in rollouts])),
                torch.from_numpy(returns),
                weights(rollouts, samples),
                self.config.huber_loss,
            )
            yield self.q.reinforce(loss, samples=samples)
