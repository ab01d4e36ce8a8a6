"""QR-DQN (Dabney et al. 2018, "Distributional Reinforcement Learning with Quantile Regression"): DQN with quantiles.

    a*      = argmax_a mean_j theta_target(s', a)_j;  with double = true argmax_a mean_j theta(s', a)_j
    targets = R + discount^k theta_target(s', a*)_j                        one for each of `quantiles` quantiles j
    loss    = mean of w (sum over i of the mean over j of |tau_i - [u_ij < 0]| huber(u_ij)),   u = target_j - theta_i

Priorities are the absolute differences between the means of targets and quantiles. Everything else is as in
hive.algorithms.dqn.
"""

from __future__ import annotations

import numpy as np
import torch

from hive import _native
from hive.algorithms.losses.q_learning import QuantileQLoss, described_quantile_loss
from hive.algorithms.q_learning import ReturnDistributions
from hive.algorithms.replaying import Batch
from hive.config import QRDQNConfig
from hive.experience import Replay
from hive.learning.described import Described
from hive.networks.build.parameters import HeadParameters, QuantileQHeadParameters


class QRDQN(ReturnDistributions):
    """Makes one gradient per batch. Arguments: see QLearning."""

    config: QRDQNConfig

    @property
    def heads(self) -> tuple[str | HeadParameters, ...]:
        """The quantiles of the returns of all actions."""
        return (QuantileQHeadParameters(atoms=self.config.quantiles, dueling=self.config.dueling),)

    def gradient(self, batch: Batch) -> None:
        """Make the gradient of a batch."""
        targets = np.empty((len(batch), self.config.quantiles), np.float32)
        _native.quantile_targets(*self.following(batch), targets)
        loss = QuantileQLoss(
            batch.observations,
            batch.actions,
            torch.from_numpy(self.replaced("targets", batch, targets)),
            importance=batch.importance,
            errors=batch.errors,
        )
        self.q.reinforce(self.with_addition(loss, lambda: batch), samples=len(batch))

    def described(self, memory: Replay) -> Described | str:
        """Return the gradients of batches of this memory for hive._native, or why only `gradient` makes them."""
        atoms = self.config.quantiles
        return self.described_values(memory, ("quantile_targets", {"atoms": atoms}), described_quantile_loss(atoms))
