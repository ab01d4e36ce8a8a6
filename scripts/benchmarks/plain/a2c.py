"""A2C in one file: a round of steps, n-step returns or GAE, one update of Adam. Usage: benchmarks/plain/parts.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.plain.parts import ActorCritic, Play, environments, main


def drawn(logits: Tensor) -> Tensor:
    """Draw one action per row, [B]: the first of as many exponential clocks with these rates. Logits: [B, actions]."""
    return (logits.softmax(-1) / torch.empty_like(logits).exponential_()).argmax(-1)


def advantages_of(play: Play, values: Tensor, discount: float, gae_lambda: float) -> Tensor:
    """Return generalized advantages [T, B]. values: [T + 1, B] of the round's observations."""
    goes_on = ~play.terminated
    same_episode = goes_on & ~play.truncated & play.valid
    errors = play.rewards + discount * goes_on * values[1:] - values[:-1]
    decays = discount * gae_lambda * same_episode
    advantages = torch.empty_like(errors)
    following = torch.zeros(errors.shape[1])
    for t in reversed(range(len(errors))):
        following = torch.addcmul(errors[t], decays[t], following, out=advantages[t])
    return advantages


def train(settings: dict[str, Any], round_ended: Callable[[int, int], bool]) -> nn.Module:
    envs = environments(settings)
    (inputs,), actions = envs.single_observation_space.shape, int(envs.single_action_space.n)  # type: ignore[misc, attr-defined]
    network = ActorCritic(inputs, actions, settings["layers"])
    adam = torch.optim.Adam(network.parameters(), settings["learning_rate"], eps=1e-5, foreach=True)
    play = Play(envs, settings["rollout"], lambda seen: drawn(network.policy(seen)))
    updates = 0
    while not round_ended(play.steps, updates):
        play.round()
        values = network.value(play.observations).squeeze(-1)
        advantages = advantages_of(play, values.detach(), settings["discount"], settings["gae_lambda"])
        returns = advantages + values.detach()[:-1]
        chances = network.policy(play.observations[:-1]).log_softmax(-1)
        chosen = chances.gather(-1, play.actions.unsqueeze(-1)).squeeze(-1)
        entropy = -(chances.exp() * chances).sum(-1)
        losses = (
            -chosen * advantages
            + settings["value_loss_weight"] * (returns - values[:-1]).square()
            - settings["entropy_weight"] * entropy
        )
        loss = losses[play.valid].mean()
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), settings["clip_gradients"])
        adam.step()
        updates += 1
    return network


if __name__ == "__main__":
    main(train)
