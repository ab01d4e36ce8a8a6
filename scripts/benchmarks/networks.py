"""A network of the user, as `network.module` names one: what hive's own layers are compared with."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

WIDTH = 64  # of the dense layers, as those of the tasks that it is used for


class Dense(nn.Module):
    """Policy and value with two dense layers of tanh each, for one vector and one discrete action."""

    def __init__(self, spaces: Any) -> None:
        super().__init__()
        (observation,) = spaces.observations.values()
        self.policy = self.layers(observation.shape[0], spaces.action.n)
        self.value = self.layers(observation.shape[0], 1)

    def layers(self, elements: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Linear(elements, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, outputs)
        )

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy(observations), self.value(observations).squeeze(-1)
