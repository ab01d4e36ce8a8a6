"""C51 (Bellemare et al. 2017, "A Distributional Perspective on Reinforcement Learning"): DQN with probabilities.

    a*     = argmax_a E[Z_target(s', a)]; with double = true argmax_a E[Z(s', a)], as in Rainbow (Hessel et al. 2018)
    target = projection of R + discount^k z_i with the probabilities p_target(s', a*)_i      onto the support z
    loss   = mean of w (cross entropy of target and p(s, a))

The support z has `atoms` equally spaced returns from `v_min` to `v_max`. Priorities are divergences KL(target || p), as
in Rainbow. Everything else is as in hive.algorithms.dqn.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hive import _native
from hive.algorithms.losses.q_learning import CategoricalQLoss, described_categorical_loss
from hive.algorithms.q_learning import ReturnDistributions
from hive.algorithms.replaying import Batch
from hive.config import C51Config
from hive.errors import NetworkError
from hive.experience import Replay
from hive.learning.described import Described
from hive.networks.act.distributions import ActionDistribution
from hive.networks.act.projection import LOOK_FOR, NOT_FINITE, categorical_support
from hive.networks.build.parameters import CategoricalQHeadParameters, HeadParameters


class C51(ReturnDistributions):
    """Makes one gradient per batch. Arguments: see QLearning. Raises NetworkError unless v_min < v_max."""

    config: C51Config
    support: Tensor

    def __init__(
        self, config: C51Config, distribution: ActionDistribution, workers: int = 1, round_steps: int = 1
    ) -> None:
        super().__init__(config, distribution, workers, round_steps)
        self.support = categorical_support(config.v_min, config.v_max, config.atoms)

    @property
    def heads(self) -> tuple[str | HeadParameters, ...]:
        """The probabilities of the returns of all actions."""
        config = self.config
        head = CategoricalQHeadParameters(
            atoms=config.atoms, v_min=config.v_min, v_max=config.v_max, dueling=config.dueling
        )
        return (head,)

    def gradient(self, batch: Batch) -> None:
        """Make the gradient of a batch."""
        targets = np.empty((len(batch), len(self.support)), np.float32)
        if _native.categorical_targets(self.support.numpy(), *self.following(batch), targets) >= 0:
            raise NetworkError(NOT_FINITE, hint=LOOK_FOR)
        loss = CategoricalQLoss(
            batch.observations,
            batch.actions,
            torch.from_numpy(self.replaced("targets", batch, targets)),
            self.support,
            importance=batch.importance,
            errors=batch.errors,
        )
        self.q.reinforce(self.with_addition(loss, lambda: batch), samples=len(batch))

    def described(self, memory: Replay) -> Described | str:
        """Return the gradients of batches of this memory for hive._native, or why only `gradient` makes them."""
        targets = "categorical_targets", {"support": self.support.tolist()}
        return self.described_values(memory, targets, described_categorical_loss(self.support))
