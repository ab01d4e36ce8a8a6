"""Parts of the plain loops: environments, networks, rounds of steps, and the count of their steps.

    python a2c.py SECONDS THREADS SETTINGS

    THREADS    number of threads of torch; 0 keeps its default, which is the number of cores
    SETTINGS   a JSON object: `work` of a setting (benchmarks.settings)

Environments start an episode one step after the end of the last one, as Gymnasium's vectors do by default. So the last
observation of an episode is where its value is needed, and the steps that only reset are masked: `valid` is False.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.counting import TwoLooks


def environments(settings: dict[str, Any]) -> gymnasium.vector.VectorEnv:
    """Return `settings["envs"]` environments: of the NumPy vector class if `vector` is "numpy", else of Python."""
    name, count = settings["env"], settings["envs"]
    if settings.get("vector") == "numpy":
        return gymnasium.make_vec(name, count, vectorization_mode="vector_entry_point")
    return gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(name) for _ in range(count)])


def dense(widths: Sequence[int], gain: float, *, layer_norm: bool = False) -> nn.Sequential:
    """Return dense layers, with tanh or with LayerNorm and relu between them. gain: of the last one's weights."""
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        layer, last = nn.Linear(inputs, outputs), i == len(widths) - 2
        nn.init.orthogonal_(layer.weight, gain if last else 2**0.5)
        nn.init.zeros_(layer.bias)
        layers.append(layer)
        if not last:
            layers += [nn.LayerNorm(outputs), nn.ReLU()] if layer_norm else [nn.Tanh()]
    return nn.Sequential(*layers)


class ActorCritic(nn.Module):
    """A policy over discrete actions and a value, which share no layer."""

    def __init__(self, inputs: int, actions: int, layers: Sequence[int]) -> None:
        super().__init__()
        self.policy = dense([inputs, *layers, actions], 0.01)
        self.value = dense([inputs, *layers, 1], 1.0)


class Play:
    """Plays rounds of `rollout` steps in all environments; keeps the rows of the last one.

    observations [T + 1, B, ...], actions [T, B], rewards, terminated, truncated, valid [T, B]: torch tensors.
    act: observations [B, ...] -> actions [B], int64.
    """

    def __init__(self, envs: gymnasium.vector.VectorEnv, rollout: int, act: Callable[[Tensor], Tensor]) -> None:
        self.envs, self.act = envs, act
        shape = (rollout, envs.num_envs)
        self.observations = torch.zeros(rollout + 1, *envs.observation_space.shape)  # type: ignore[misc]
        self.actions = torch.zeros(shape, dtype=torch.int64)
        self.rewards = torch.zeros(shape)
        self.terminated, self.truncated, self.valid = (torch.zeros(shape, dtype=torch.bool) for _ in range(3))
        self.ended = np.zeros(envs.num_envs, bool)
        self.observations[-1] = torch.from_numpy(envs.reset(seed=1)[0])
        self.steps = 0

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def round(self) -> None:
        """Play one round. Its first observation is the last one of the round before."""
        self.observations[0] = self.observations[-1]
        for t in range(len(self.actions)):
            self.valid[t] = torch.from_numpy(~self.ended)
            self.actions[t] = actions = self.act(self.observations[t])
            seen, rewards, terminated, truncated, _ = self.envs.step(actions.numpy())
            self.observations[t + 1] = torch.from_numpy(seen)
            self.rewards[t] = torch.from_numpy(rewards)
            self.terminated[t] = torch.from_numpy(terminated)
            self.truncated[t] = torch.from_numpy(truncated)
            self.ended = terminated | truncated
        self.steps += int(self.valid.sum())


def main(train: Callable[[dict[str, Any], Callable[[int, int], bool]], nn.Module]) -> None:
    """Train until the measurement is over, and print its figures.

    train: settings and a function of (steps, updates) to call after every round, which returns whether to stop ->
    the trained network.
    """
    seconds, threads, settings = float(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    if threads:
        torch.set_num_threads(threads)
    torch.manual_seed(1)
    looks = TwoLooks(seconds)
    network = train(settings, looks.round_ended)
    weights = sum(parameter.numel() for parameter in network.parameters())
    print(json.dumps({**looks.rates, "threads": torch.get_num_threads(), "weights": weights}))
