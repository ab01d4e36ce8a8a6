"""n-step Q-learning with a target network (Mnih et al. 2016, "Asynchronous methods", algorithm S2), on rollouts.

    R_t  = r_t + discount r_t+1 + ... + discount^k max_a Q_target(s_t+k, a)
    loss = mean of huber(R_t - Q(s_t, a_t))

over the valid steps of a share of a round. k is `n_step`, or less if the rollout or the episode ends earlier. A
terminated episode is bootstrapped with 0, a truncated one with the value of its true last observation. The policy is
epsilon-greedy, and epsilon decreases with the number of the rollout. There is no replay: each rollout is used once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from hive import _native
from hive.algorithms.advantages import returns_by
from hive.algorithms.algorithm import AnyOptimizer, Gradients
from hive.algorithms.rows import flat, input_rows, sizes, weights
from hive.approximation import QNetwork, SingleOutput, TargetNetwork
from hive.config import NStepQConfig
from hive.errors import TopologyError
from hive.losses import QLoss, acted_rows
from hive.networks import ActionDistribution, Categorical, EpsilonGreedy
from hive.storage import Rollout

__all__ = ["NStepQ"]


class NStepQ:
    """Makes one gradient per share of a round.

    distribution: Categorical, that of a discrete action. workers: not used. round_steps: environment steps in a round
    over all collectors; it converts `exploration_steps` to rollouts. Raises TopologyError for other actions.
    """

    statistics: tuple[str, ...] = ("q_loss", "q_mean", "q_max", "td_error")
    heads = ("q",)
    gradients_per_round = 1
    asks_for_moments = False
    behaviour_log_probs = False
    q: QNetwork

    def __init__(
        self, config: NStepQConfig, distribution: ActionDistribution, workers: int = 1, round_steps: int = 1
    ) -> None:
        if not isinstance(distribution, Categorical):
            raise TopologyError(
                "nstep-q learns a value for every action, so it needs a single discrete action",
                hint="use ppo, a2c or impala for this environment",
            )
        rollouts = math.ceil(config.exploration_steps / round_steps)
        start, end = config.exploration_start, config.exploration_end
        self.distribution: ActionDistribution = EpsilonGreedy(distribution.n, start, end, rollouts)
        self.reconfigure(config)

    def reconfigure(self, config: NStepQConfig) -> None:
        """Use these keys from the next loss on."""
        self.config = config

    def connect(self, network: nn.Module, optimizer: AnyOptimizer = None, target: TargetNetwork | None = None) -> None:
        """Make the action values that learn, with their target network."""
        self.q = QNetwork(SingleOutput(network), optimizer, target=target)

    def gradients(self, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Gradients:
        """Yield one gradient. `noise` is not used."""
        samples = sum(rollout.samples for rollout in rollouts)
        if samples:
            inputs = input_rows(rollouts)
            values = self.q.target(inputs).amax(-1).numpy()
            options = {"discount": self.config.discount, "n": self.config.n_step}
            _, returns = returns_by(_native.n_step_returns, rollouts, values, **options)
            loss = QLoss(
                acted_rows(inputs, sizes(rollouts)),
                torch.from_numpy(flat([rollout.actions for rollout in rollouts])),
                torch.from_numpy(returns),
                weights(rollouts, samples),
                self.config.huber_loss,
            )
            yield self.q.reinforce(loss, samples=samples)
