"""SAC (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications"): rewards plus the policy's entropy.

    V(s')       = min(Q1_target(s', a'), Q2_target(s', a')) - temperature log pi(a'|s'),   a' ~ pi(s')
    critic loss = mean of w (R + discount^k V(s') - Q(s, a))^2 / 2, over both critics
    actor loss  = mean of temperature log pi(a|s) - min(Q1(s, a), Q2(s, a)),   a ~ pi(s)
    temperature loss = mean of -log(temperature) (log pi(a|s) + target entropy)

For a discrete action (Christodoulou 2019) the critics return the values of all actions, and expectations over actions
take the place of samples. The learned temperature is `temperature` times a factor, whose logarithm is a parameter.

Box actions are scaled to -1 ... 1. Log densities and entropies are those of scaled actions, as in Stable-Baselines3.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hive.algorithms.agents import ActorWithCritics, Losses, Statistics
from hive.algorithms.algorithm import AnyOptimizer
from hive.algorithms.losses.agents import SoftActorLoss
from hive.algorithms.replaying import Batch, warmup_rounds
from hive.config import SACConfig
from hive.config.refusals import BOUNDED_OR_DISCRETE
from hive.errors import TopologyError
from hive.learning import Approximation, TargetNetwork
from hive.networks.act.bounded import SquashedGaussian
from hive.networks.act.distributions import ActionDistribution, Categorical
from hive.networks.act.exploration import SoftActions, SoftChoices


class SAC(ActorWithCritics):
    """Arguments: see ActorWithCritics.

    Raises TopologyError for other actions than a box with bounds or a single discrete action, and for a fraction of an
    update.
    """

    statistics: tuple[str, ...] = ("critic_loss", "actor_loss", "q_mean", "td_error", "entropy", "temperature")
    config: SACConfig
    temperature: Approximation | None = None

    def __init__(
        self, config: SACConfig, distribution: ActionDistribution, workers: int = 1, round_steps: int = 1
    ) -> None:
        warmup = warmup_rounds(config, round_steps)
        explores: SoftActions | SoftChoices
        if isinstance(distribution, SquashedGaussian):
            explores = SoftActions(distribution.shape, distribution.low, distribution.high, warmup=warmup)
        elif isinstance(distribution, Categorical):
            explores = SoftChoices(distribution.n, warmup=warmup)
        else:
            raise TopologyError(f"{config.name} {BOUNDED_OR_DISCRETE.reason}", hint=BOUNDED_OR_DISCRETE.instead)
        policy = "policy" if isinstance(explores, SoftChoices) else "squashed_policy"
        self.heads = (policy, "critic", "critic", *(("temperature",) if config.learn_temperature else ()))
        super().__init__(config, explores, round_steps)

    def connect(self, network: nn.Module, optimizer: AnyOptimizer = None, target: TargetNetwork | None = None) -> None:
        super().connect(network, optimizer, target)
        if isinstance(learned := network.temperature, nn.Module):
            self.temperature = Approximation(learned, optimizer, name="temperature")

    @property
    def target_entropy(self) -> float:
        """The entropy, in nats, at which a learned temperature holds the policy."""
        if isinstance(self.distribution, SoftChoices):
            return self.config.target_entropy_share * math.log(self.distribution.n)
        return self.config.target_entropy * math.prod(self.distribution.action_shape)

    def weight(self) -> float:
        """Return the temperature, the weight of the entropy."""
        factor = 1.0 if self.temperature is None else math.exp(self.temperature.no_grad().item())
        return self.config.temperature * factor

    def critic_losses(self, batch: Batch) -> tuple[Losses, Statistics]:
        with torch.no_grad():
            following = self._soft_values(batch.next_observations)
            targets = batch.returns + batch.discounts * following
        if isinstance(self.distribution, SoftActions):
            return self.fit(self.taken(batch), targets, batch, factor=0.5)
        return self.fit(batch.observations, targets, batch, factor=0.5, actions=batch.actions)

    def actor_losses(self, batch: Batch) -> tuple[Losses, Statistics]:
        weight = self.weight()
        if isinstance(self.distribution, SoftActions):
            noise = self._noise(batch.observations)
            typed = SoftActorLoss(batch.observations, noise, self.distribution, weight, self.critic)
            losses: Losses = [(self.actor, self.actor.computed(typed))]
            reported, mean = self.actor.statistics
        else:
            log_policy = self.actor(batch.observations).log_softmax(-1)
            policy, values = log_policy.exp(), self.critic.no_grad(batch.observations).amin(0)
            log_probs = (policy * log_policy).sum(-1)
            loss = (weight * log_probs - (policy * values).sum(-1)).mean()
            losses = [(self.actor, loss)]
            mean, reported = torch.stack([log_probs.detach().mean(), loss.detach()]).tolist()
        if self.temperature is not None:
            losses.append((self.temperature, -self.temperature() * (mean + self.target_entropy)))
        return losses, {"actor_loss": reported, "entropy": -mean, "temperature": weight}

    def _soft_values(self, observations: Tensor) -> Tensor:
        """Return V [N] of the target critics, for actions of the current policy."""
        outputs, weight = self.actor.no_grad(observations), self.weight()
        values: Tensor
        if isinstance(self.distribution, SoftActions):
            noise = self._noise(observations).numpy()
            actions, log_probs = map(torch.from_numpy, self.distribution.scaled_sample_numpy(outputs.numpy(), noise))
            values = self.critic.target(observations, actions).amin(0)
            return values - weight * log_probs
        log_policy, values = outputs.log_softmax(-1), self.critic.target(observations).amin(0)
        expected: Tensor = (log_policy.exp() * (values - weight * log_policy)).sum(-1)
        return expected

    def _noise(self, observations: Tensor) -> Tensor:
        return self.draw((len(observations), *self.distribution.noise_shape))
