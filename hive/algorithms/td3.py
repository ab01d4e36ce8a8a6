"""TD3 (Fujimoto et al. 2018): DDPG with two critics, smoothed targets, and an actor that learns more rarely.

    a'     = clip(pi_target(s') + clip(target_noise * noise, -target_noise_clip, target_noise_clip), -1, 1)
    target = R + discount^k min(Q1_target(s', a'), Q2_target(s', a'))
    critic loss = mean of w ((target - Q1(s, a))^2 + (target - Q2(s, a))^2)
    actor loss  = -mean of Q1(s, pi(s)), of every `policy_delay`-th batch

The target networks follow after each update of the actor, as in Stable-Baselines3. Actions are scaled to -1 ... 1.
"""

from __future__ import annotations

from torch import Tensor

from hive.algorithms.agents import TARGETS
from hive.algorithms.ddpg import DDPG
from hive.algorithms.replaying import Batch
from hive.config import TD3Config
from hive.experience import Replay
from hive.learning.described import Described
from hive.networks.act.distributions import ActionDistribution


class TD3(DDPG):
    """Arguments: see ActorWithCritics. Raises TopologyError for actions without bounds, and a fraction of an update."""

    heads = ("deterministic_policy", "critic", "critic")
    config: TD3Config

    def __init__(
        self, config: TD3Config, distribution: ActionDistribution, workers: int = 1, round_steps: int = 1
    ) -> None:
        super().__init__(config, distribution, workers, round_steps)

    def actor_is_due(self, number: int) -> bool:
        return (number + 1) % self.config.policy_delay == 0

    def target_noise(self, batch: Batch) -> tuple[Tensor | None, float, float]:
        noise = self.draw(batch, TARGETS, self.noisy.shape)
        return noise, self.config.target_noise, self.config.target_noise_clip

    def described(self, memory: Replay) -> Described | str:
        """Return the gradients of batches of this memory for hive._native, or why only `gradient` makes them."""
        noise = self.config.target_noise, self.config.target_noise_clip
        return self.described_deterministic(memory, "noise_next_actions", *noise)
