"""SAC (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications"): rewards plus the policy's entropy.

    V(s')       = min(Q1_target(s', a'), Q2_target(s', a')) - temperature log pi(a'|s'),   a' ~ pi(s')
    critic loss = mean of w (R + discount^k V(s') - Q(s, a))^2 / 2, over both critics
    actor loss  = mean of temperature log pi(a|s) - min(Q1(s, a), Q2(s, a)),   a ~ pi(s)
    temperature loss = mean of -log(temperature) (log pi(a|s) + target entropy)

For a discrete action (Christodoulou 2019) the critics return the values of all actions, and expectations over actions
take the place of samples. The target entropy is then a share of log(allowed actions), in each row that of its own mask.
The learned temperature is `temperature` times a factor, whose logarithm is a parameter.

Box actions are scaled to -1 ... 1. Log densities and entropies are those of scaled actions, as in Stable-Baselines3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from hive import _native
from hive.algorithms.agents import (
    ACTIONS,
    ACTOR_ROWS,
    CRITIC_ROWS,
    TARGETS,
    ActorWithCritics,
    Losses,
    Statistics,
    described_backward,
)
from hive.algorithms.algorithm import AnyOptimizer
from hive.algorithms.losses.agents import SoftActorLoss, SoftChoiceLoss
from hive.algorithms.replaying import Batch, warmup_rounds
from hive.config import SACConfig
from hive.config.refusals import BOUNDED_OR_DISCRETE
from hive.errors import TopologyError
from hive.experience import Replay
from hive.learning import Approximation, NativePart, TargetNetwork
from hive.learning.described import TORCH_COMPUTES, Described, Step
from hive.networks.act.bounded import SquashedGaussian
from hive.networks.act.distributions import ActionDistribution, Categorical
from hive.networks.act.exploration import SoftActions, SoftChoices
from hive.networks.build.agents import LogSlope, Temperature

Steps = list[Step | None]


class SAC(ActorWithCritics):
    """Arguments: see ActorWithCritics.

    Raises TopologyError for other actions than a box with bounds or a single discrete action, and for a fraction of an
    update.
    """

    statistics: tuple[str, ...] = ("critic_loss", "actor_loss", "q_mean", "td_error", "entropy", "temperature")
    config: SACConfig
    critic_factor = 0.5
    temperature: Approximation | None = None
    _slope: LogSlope | None = None

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
        """The entropy, in nats, at which a learned temperature holds the policy; lower where masks forbid actions."""
        if isinstance(self.distribution, SoftChoices):
            return self.config.target_entropy_share * math.log(self.distribution.n)
        return self.config.target_entropy * math.prod(self.distribution.action_shape)

    def weight(self) -> float:
        """Return the temperature, the weight of the entropy."""
        scale, temperature = self.config.temperature, self._learned
        return scale if temperature is None else _native.soft_temperature(scale, temperature.log.item())

    @property
    def _learned(self) -> Temperature | None:
        """The module of the learned temperature."""
        return None if self.temperature is None else cast(Temperature, self.temperature.model)

    def critic_losses(self, batch: Batch) -> tuple[Losses, Statistics]:
        targets = self._soft_targets(batch)
        if isinstance(self.distribution, SoftActions):
            return self.fit(self.taken(batch), targets, batch, factor=self.critic_factor)
        return self.fit(batch.observations, targets, batch, factor=self.critic_factor, actions=batch.actions)

    def actor_losses(self, batch: Batch) -> tuple[Losses, Statistics]:
        weight = self.weight()
        typed: SoftActorLoss | SoftChoiceLoss
        if isinstance(self.distribution, SoftActions):
            noise = self.draw(batch, ACTIONS, self.distribution.noise_shape)
            typed = SoftActorLoss(batch.observations, noise, self.distribution, weight, self.critic)
        else:
            typed = SoftChoiceLoss(batch.observations, self.critic.no_grad(batch.observations), weight)
        computed, (reported, mean, *choices), added = self.extended(self.actor, typed, batch, "added_actor_loss")
        losses: Losses = [(self.actor, computed)]
        if self.temperature is not None:
            target = self.config.target_entropy_share * choices[0] if choices else self.target_entropy
            losses.append((self.temperature, self._temperature_loss(self.temperature, mean, target)))
        return losses, {"actor_loss": reported, "entropy": -mean, "temperature": weight} | added

    def _temperature_loss(self, temperature: Approximation, mean: float, target: float) -> Tensor | NativePart:
        """Return the loss of the temperature.

        mean: the mean log probability of the policy's actions. target: the mean target entropy of the rows, in nats.
        """
        dense, log = self.actor.native.dense, cast(Temperature, temperature.model).log
        if dense is None or not log.requires_grad:
            loss: Tensor = -temperature() * (mean + target)
            return loss
        if self._slope is None or self._slope.flat is not dense.flat:
            self._slope = LogSlope(dense.flat, log)
        total, slope = _native.temperature_loss(log.item(), mean, target)
        return NativePart(total, (), self._slope, (np.array(slope, np.float32),))

    def _soft_targets(self, batch: Batch) -> Tensor:
        """Return the targets [N] of the critics, for actions of the current policy."""
        following, rows = batch.next_observations, len(batch)
        outputs, weight = self.actor.no_grad(following).numpy(), self.weight()
        if isinstance(self.distribution, SoftActions):
            noise = self.draw(batch, TARGETS, self.distribution.noise_shape)
            actions, log_probs = np.empty((rows, outputs.shape[1] // 2), np.float32), np.empty(rows, np.float32)
            _native.squashed_sample(outputs, noise.numpy().reshape(actions.shape), actions, log_probs)
            values = self.critic.target(following, torch.from_numpy(actions).view(noise.shape))
            return self.bootstrapped(batch, values, log_probs, weight)
        targets = np.empty(rows, np.float32)
        values = tuple(self.critic.target(following).numpy())
        returns, discounts = batch.returns.numpy(), batch.discounts.numpy()
        _native.soft_choice_targets(outputs, values, weight, returns, discounts, targets)
        return torch.from_numpy(targets)

    def described(self, memory: Replay) -> Described | str:
        """Return the gradients of batches of this memory for hive._native, or why only `gradient` makes them."""
        dense, learned = self.actor.native.dense, self._learned
        if dense is None or (learned is not None and not learned.log.requires_grad):
            return TORCH_COMPUTES
        slope = None if learned is None else LogSlope(dense.flat, learned.log)
        weight = {"temperature": self.config.temperature, "log": -1 if slope is None else slope.place}
        samples = isinstance(self.distribution, SoftActions)
        targets, actor = self._described_samples(weight) if samples else self._described_choices(weight)
        if slope is not None:
            target = self.target_entropy if samples else self.config.target_entropy_share
            actor.append(("temperature", {"log": slope.place, "target": target, "of_greatest": not samples}))
        return self.described_kinds(memory, targets, actor, [] if slope is None else [slope.mask])

    def _described_samples(self, weight: dict[str, Any]) -> tuple[Steps, Steps]:
        """Return the steps of targets and of the actor's loss. weight: the keys of the temperature."""
        width = math.prod(self.distribution.action_shape)
        targets = [
            self.actor.native.described(f"next_{ACTOR_ROWS}", ("next_policy",)),
            *_described_sample("next_policy", TARGETS, width, "next_actions", "next_log_probs"),
            self.described_join(f"next_{CRITIC_ROWS}", "next_actions", "next_rows"),
            self.described_critics("next_rows", "next", of_target=True),
            self.described_targets("next", log_probs="next_log_probs", **weight),
        ]
        loss = {"noise": "noise_chosen", "log_probs": "log_probs", **weight, "places": self._actor_places}
        sample = _described_sample("policy", ACTIONS, width, "chosen", "log_probs")
        return targets, [*self.described_actor(sample, None, loss)]

    def _described_choices(self, weight: dict[str, Any]) -> tuple[Steps, Steps]:
        """Return the same for discrete actions."""
        actor, names = self.actor.native, self.described_names
        following = {"logits": "next_policy", "values": names("next"), **weight}
        loss = {"logits": "policy", "values": names("judged"), "slopes": "to_policy", "places": self._actor_places}
        targets = [
            actor.described(f"next_{ACTOR_ROWS}", ("next_policy",)),
            self.described_critics(f"next_{CRITIC_ROWS}", "next", of_target=True),
            ("soft_choice_targets", following),
        ]
        of_actor = [
            self.described_critics(CRITIC_ROWS, "judged"),
            actor.described(ACTOR_ROWS, ("policy",), ("to_policy",), name="actor"),
            ("soft_choice_loss", {**loss, **weight}),
            described_backward("actor"),
        ]
        return targets, of_actor

    @property
    def _actor_places(self) -> list[int]:
        """The places of the actor's statistics."""
        return [self.statistics.index(name) for name in ("actor_loss", "entropy", "temperature")]


def _described_sample(outputs: str, use: int, width: int, actions: str, log_probs: str) -> Sequence[Step]:
    """Return the steps that draw actions of a squashed Gaussian from its outputs."""
    noise = f"noise_{actions}"
    return (
        ("noise", {"use": use, "width": width, "into": noise}),
        ("squashed_sample", {"outputs": outputs, "noise": noise, "actions": actions, "log_probs": log_probs}),
    )
