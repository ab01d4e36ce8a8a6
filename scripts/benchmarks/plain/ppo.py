"""PPO in one file: a round of steps, GAE, epochs of minibatches with Adam. Usage: benchmarks/plain/parts.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.plain.a2c import advantages_of, drawn
from benchmarks.plain.parts import ActorCritic, Play, environments, main


def chances_of(network: ActorCritic, seen: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log probabilities of the actions, and the entropies. seen: [N, ...], actions: [N]."""
    chances = network.policy(seen).log_softmax(-1)
    return chances.gather(-1, actions.unsqueeze(-1)).squeeze(-1), -(chances.exp() * chances).sum(-1)


def train(settings: dict[str, Any], round_ended: Callable[[int, int], bool]) -> nn.Module:
    envs = environments(settings)
    (inputs,), actions = envs.single_observation_space.shape, int(envs.single_action_space.n)  # type: ignore[misc, attr-defined]
    network = ActorCritic(inputs, actions, settings["layers"])
    adam = torch.optim.Adam(network.parameters(), settings["learning_rate"], eps=1e-5, foreach=True)
    play = Play(envs, settings["rollout"], lambda seen: drawn(network.policy(seen)))
    clip, updates = settings["clip_range"], 0
    while not round_ended(play.steps, updates):
        play.round()
        valid = play.valid
        seen, taken = play.observations[:-1][valid], play.actions[valid]
        with torch.no_grad():
            values = network.value(play.observations).squeeze(-1)
            every = advantages_of(play, values, settings["discount"], settings["gae_lambda"])
            old, _ = chances_of(network, seen, taken)
        gains, returns = every[valid], (every + values[:-1])[valid]
        for _ in range(settings["epochs"]):
            for rows in torch.randperm(len(seen)).split(settings["minibatch"]):
                chances, entropies = chances_of(network, seen[rows], taken[rows])
                ratios = (chances - old[rows]).exp()
                gain = gains[rows]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                policy_loss = -torch.minimum(gain * ratios, gain * ratios.clamp(1.0 - clip, 1.0 + clip)).mean()
                value_loss = (returns[rows] - network.value(seen[rows]).squeeze(-1)).square().mean()
                loss = policy_loss + settings["value_loss_weight"] * value_loss
                loss = loss - settings["entropy_weight"] * entropies.mean()
                adam.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(network.parameters(), settings["clip_gradients"])
                adam.step()
                updates += 1
    return network


if __name__ == "__main__":
    main(train)
