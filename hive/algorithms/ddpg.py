"""DDPG (Lillicrap et al. 2016): a deterministic actor that follows the gradient of a critic.

    target = R + discount^k Q_target(s', pi_target(s'))
    critic loss = mean of w (target - Q(s, a))^2
    actor loss  = -mean of Q(s, pi(s))

Actions are scaled to -1 ... 1.
"""

from __future__ import annotations

from hive.algorithms.agents import DeterministicAgent
from hive.algorithms.replaying import warmup_rounds
from hive.config import DDPGConfig
from hive.networks.act.distributions import ActionDistribution

__all__ = ["DDPG"]


class DDPG(DeterministicAgent):
    """Arguments: see ActorWithCritics. Raises TopologyError for actions without bounds, and a fraction of an update."""

    heads = ("deterministic_policy", "critic")
    config: DDPGConfig

    def __init__(
        self, config: DDPGConfig, distribution: ActionDistribution, workers: int = 1, round_steps: int = 1
    ) -> None:
        warmup = warmup_rounds(config, round_steps)
        super().__init__(config, distribution, config.exploration_noise, warmup, round_steps)
