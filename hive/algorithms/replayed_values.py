"""The base of algorithms that learn the value of every action from a replay memory: DQN, C51 and QR-DQN."""

from __future__ import annotations

import dataclasses
from typing import cast

from hive.algorithms.q_learning import QLearning
from hive.algorithms.replaying import updates_in_round, warmup_rounds
from hive.config import ReplayedValuesConfig
from hive.networks.act.distributions import ActionDistribution
from hive.networks.act.exploration import EpsilonGreedy

__all__ = ["ReplayedValues"]


class ReplayedValues(QLearning):
    """Makes one gradient per batch. Arguments: see QLearning. Raises TopologyError for a fraction of an update."""

    config: ReplayedValuesConfig
    gradients_per_batch = 1

    def __init__(
        self, config: ReplayedValuesConfig, distribution: ActionDistribution, workers: int = 1, round_steps: int = 1
    ) -> None:
        super().__init__(config, distribution, workers, round_steps)
        self.gradients_per_round = updates_in_round(config, round_steps) * self.gradients_per_batch
        explores = cast(EpsilonGreedy, self.distribution)
        warmup = warmup_rounds(config, round_steps)
        self.distribution = dataclasses.replace(explores, warmup=warmup, spread=config.exploration_spread)
