"""The base of algorithms that learn a value for every action and act epsilon-greedily.

Epsilon decreases with the number of the rollout (`hive.networks.EpsilonGreedy`), so it is no state of the run.
"""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from hive.algorithms.algorithm import AnyOptimizer
from hive.config import EpsilonGreedyConfig
from hive.config.refusals import ONE_DISCRETE
from hive.errors import TopologyError
from hive.learning import Approximation, SingleOutput, TargetNetwork
from hive.networks.act.distributions import ActionDistribution, Categorical
from hive.networks.act.exploration import epsilon_greedy
from hive.networks.build.parameters import HeadParameters

__all__ = ["QLearning"]


class QLearning:
    """Holds the action values, `q`, and the epsilon-greedy distribution of the policy.

    distribution: Categorical, that of a discrete action. workers: not used. round_steps: environment steps in a round
    over all collectors; it converts `exploration_steps` to rollouts. Raises TopologyError for other actions.
    """

    statistics: tuple[str, ...] = ("q_loss", "q_mean", "q_max", "td_error")
    asks_for_moments = False
    behaviour_log_probs = False
    q: Approximation

    def __init__(
        self, config: EpsilonGreedyConfig, distribution: ActionDistribution, workers: int = 1, round_steps: int = 1
    ) -> None:
        if not isinstance(distribution, Categorical):
            raise TopologyError(f"{config.name} {ONE_DISCRETE.reason}", hint=ONE_DISCRETE.instead)
        rollouts = math.ceil(config.exploration_steps / round_steps)
        start, end = config.exploration_start, config.exploration_end
        self.reconfigure(config)
        self.distribution: ActionDistribution = epsilon_greedy(self.heads[0], distribution.n, start, end, rollouts)

    @property
    def heads(self) -> tuple[str | HeadParameters, ...]:
        """The heads of the network, whose first output the policy compares actions by."""
        return ("q",)

    def reconfigure(self, config: Any) -> None:
        """Use these keys from the next loss on."""
        self.config = config

    def connect(self, network: nn.Module, optimizer: AnyOptimizer = None, target: TargetNetwork | None = None) -> None:
        """Make the action values that learn, with their target network if the algorithm has one."""
        self.q = Approximation(SingleOutput(network), optimizer, "q", target)
