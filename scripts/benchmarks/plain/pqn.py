"""PQN in one file: a round of steps, Q(lambda), epochs of minibatches with RAdam. Usage: benchmarks/plain/parts.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.plain.a2c import advantages_of
from benchmarks.plain.parts import Play, dense, environments, main


def train(settings: dict[str, Any], round_ended: Callable[[int, int], bool]) -> nn.Module:
    envs = environments(settings)
    (inputs,), actions = envs.single_observation_space.shape, int(envs.single_action_space.n)  # type: ignore[misc, attr-defined]
    network = dense([inputs, *settings["layers"], actions], 1.0, layer_norm=True)
    radam = torch.optim.RAdam(network.parameters(), settings["learning_rate"], eps=1e-5, foreach=True)
    epsilon, updates = settings["exploration_end"], 0

    def act(seen: Tensor) -> Tensor:
        best = network(seen).argmax(-1)
        return torch.where(torch.rand(len(seen)) < epsilon, torch.randint_like(best, actions), best)

    play = Play(envs, settings["rollout"], act)
    while not round_ended(play.steps, updates):
        play.round()
        valid = play.valid
        with torch.no_grad():
            values = network(play.observations).amax(-1)
            gains = advantages_of(play, values, settings["discount"], settings["q_lambda"])
        seen, taken, returns = play.observations[:-1][valid], play.actions[valid], (gains + values[:-1])[valid]
        for _ in range(settings["epochs"]):
            for rows in torch.randperm(len(seen)).chunk(settings["minibatches"]):
                chosen = network(seen[rows]).gather(-1, taken[rows].unsqueeze(-1)).squeeze(-1)
                loss = (returns[rows] - chosen).square().mean()
                radam.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(network.parameters(), settings["clip_gradients"])
                radam.step()
                updates += 1
    return network


if __name__ == "__main__":
    main(train)
