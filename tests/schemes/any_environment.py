"""An environment of every kind of observation and action, and networks of a user, for tests that combine them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from hive.networks import PolicyHead, Spaces, ValueHead
from hive.networks.act.product import distribution_for
from hive.networks.rows.packed import seen_shape

OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-np.inf, np.inf, (3,), np.float32),
    "scalar": spaces.Box(-1.0, 1.0, (), np.float64),
    "bytes": spaces.Box(0, 255, (5,), np.uint8),
    "picture": spaces.Box(0, 255, (12, 12, 3), np.uint8),
    "discrete": spaces.Discrete(4, start=2),
    "multi-discrete": spaces.MultiDiscrete([3, 2]),
    "bits": spaces.MultiBinary(4),
    "integers": spaces.Box(-5, 5, (2,), np.int32),
    "parts": spaces.Dict(
        {
            "observation": spaces.Box(-1.0, 1.0, (2,)),
            "goal": spaces.Dict({"place": spaces.Discrete(3), "number": spaces.Box(-1.0, 1.0, ())}),
            "picture": spaces.Box(0, 255, (8, 8), np.uint8),
        }
    ),
    "tuple": spaces.Tuple([spaces.Box(-1.0, 1.0, (2,)), spaces.MultiBinary(2)]),
}
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3, start=1),
    "multi-discrete": spaces.MultiDiscrete([3, 2]),
    "bits": spaces.MultiBinary((2, 1)),
    "box": spaces.Box(-2.0, np.array([1.0, 3.0], np.float32), (2,)),
    "unbounded": spaces.Box(-np.inf, np.inf, (2,)),
    "parts": spaces.Dict({"turn": spaces.Discrete(2), "arm": spaces.Tuple([spaces.Box(-1.0, 1.0, (2,), np.float64)])}),
}
CHOICES = {"discrete": 3, "multi-discrete": 5, "bits": 4}  # length of the mask


class AnyEnv(gymnasium.Env[Any, Any]):
    """Random observations of the named space, a reward that depends on the action, and episodes of 3 to 9 steps.

    masked: "part": its observations are a dictionary with the mask; "info": the mask is in `info`.
    """

    def __init__(self, observation: str = "vector", action: str = "discrete", masked: str = "") -> None:
        seen = OBSERVATIONS[observation]
        self.action_space = ACTIONS[action]
        self._choices = CHOICES[action] if masked else 0
        self._masked = masked
        self._seen = seen
        if masked == "part":
            self.observation_space: Any = spaces.Dict({"seen": seen, "mask": spaces.MultiBinary(self._choices)})
        else:
            self.observation_space = seen

    def _observed(self) -> tuple[Any, dict[str, Any]]:
        seen = self._seen.sample()
        mask = np.ones(self._choices, np.int8)
        mask[-1:] = self._at % 2
        if self._masked == "part":
            return {"seen": seen, "mask": mask}, {}
        return seen, {"action_mask": mask} if self._masked else {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._seen.seed(int(self.np_random.integers(1 << 30)))
        self._at = 0
        self._end = int(self.np_random.integers(3, 10))
        return self._observed()

    def step(self, action: Any) -> Any:
        assert action in self.action_space, action
        self._at += 1
        reward = float(np.sum(spaces.flatten(self.action_space, action))) + float(self.np_random.normal())
        observation, info = self._observed()
        return observation, reward, self._at == self._end and self._end % 2 == 0, self._at == self._end, info


class Net(nn.Module):
    """A network of a user, with a frozen layer and a buffer."""

    def __init__(self, given: Spaces) -> None:
        super().__init__()
        size = sum(prod(seen_shape(seen)) for seen in given.observations.values())
        outputs = distribution_for(given.action).width
        self.base = nn.Linear(size, 8).requires_grad_(False)
        self.register_buffer("scale", torch.full((), 0.01))
        self.policy, self.value = nn.Linear(8, outputs), nn.Linear(8, 1)

    def forward(self, observations: Tensor | Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        parts = [observations] if isinstance(observations, Tensor) else list(observations.values())
        numbers = torch.cat([part.reshape(part.shape[0], -1).float() for part in parts], 1)
        hidden = torch.tanh(self.base(numbers * self.scale))
        return self.policy(hidden), self.value(hidden).squeeze(-1)


class First(nn.Module):
    """An extractor of a user, with a frozen layer and a buffer. It checks the form of what it is given."""

    def __init__(self, given: Spaces, width: int = 6) -> None:
        super().__init__()
        self.seen = given.observations
        self.base = nn.Linear(sum(prod(seen.shape) for seen in self.seen.values()), 8).requires_grad_(False)
        self.register_buffer("scale", torch.full((), 0.01))
        self.features = nn.Linear(8, width)

    def forward(self, observations: Tensor | Mapping[str, Tensor]) -> Tensor:
        named = dict.fromkeys(self.seen, observations) if isinstance(observations, Tensor) else observations
        for name, seen in self.seen.items() if not torch.jit.is_tracing() else ():
            assert (named[name].dtype, named[name].shape[1:]) == (torch.float32, seen.shape)
        numbers = torch.cat([named[name].reshape(named[name].shape[0], -1) for name in self.seen], 1)
        return torch.tanh(self.features(torch.tanh(self.base(numbers * self.scale))))


class Warm(PolicyHead):
    """Outputs at half of the temperature."""

    def forward(self, columns: Tensor) -> Tensor:
        return super().forward(columns) * 2.0


class Half(ValueHead):
    """Half of the value."""

    def forward(self, columns: Tensor) -> Tensor:
        return super().forward(columns) * 0.5
