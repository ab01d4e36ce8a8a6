"""Small environments whose every number can be computed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Counting(gymnasium.Env[Any, Any]):
    """Observes [episode, step]; rewards the number of the step (1, 2, ...).

    Terminates with step `terminates` and truncates with step `truncates`, counted in the episode. Keeps the
    actions it was given.
    """

    observation_space: Any = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space: Any = spaces.Discrete(2)

    def __init__(self, terminates: int = 0, truncates: int = 0) -> None:
        self.ends = terminates, truncates
        self.episode = -1
        self.at = 0
        self.actions: list[Any] = []
        self.closed = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode = 0 if seed is not None else self.episode + 1
        self.at = 0
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        self.at += 1
        terminates, truncates = self.ends
        return self.observation(), float(self.at), self.at == terminates, self.at == truncates, {}

    def observation(self) -> Any:
        return np.array([self.episode, self.at], np.float64)

    def close(self) -> None:
        self.closed = True


class Walk(Counting):
    """A random walk that ends by chance, from the environment's own generator."""

    def step(self, action: Any) -> Any:
        _, _, _, truncated, info = super().step(action)
        return self.observation(), self.np_random.normal(), self.np_random.random() < 0.2, truncated, info

    def observation(self) -> Any:
        return self.np_random.normal(size=2)


class Scripted(Counting):
    """Returns the given values in step `when` (0: in reset), or raises `result` if it is an error."""

    def __init__(self, when: int, observation: Any = None, reward: Any = 1.0, result: Any = None) -> None:
        super().__init__()
        self.when = when
        self.scripted = observation, reward, result

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self.answer((self.observation(), {}))

    def step(self, action: Any) -> Any:
        return self.answer(super().step(action))

    def answer(self, usual: tuple[Any, ...]) -> Any:
        if self.at != self.when:
            return usual
        observation, reward, result = self.scripted
        if isinstance(result, BaseException):
            raise result
        if result is not None:
            return result
        first = usual[0] if observation is None else observation
        return (first, reward, *usual[2:]) if len(usual) == 5 else (first, usual[1])


class Reuses(Counting):
    """Returns the same array from every call, overwritten."""

    def __init__(self, truncates: int) -> None:
        super().__init__(truncates=truncates)
        self.buffer = np.zeros(2)

    def observation(self) -> Any:
        self.buffer[:] = self.episode, self.at
        return self.buffer


class Images(Counting):
    """uint8 images filled with the number of the step, and multi-discrete actions that start at 1 and 2."""

    observation_space = spaces.Box(0, 255, (2, 3, 1), np.uint8)
    action_space = spaces.MultiDiscrete([3, 4], start=[1, 2])

    def observation(self) -> Any:
        return np.full((2, 3, 1), self.at, np.uint8)


class Cells(Counting):
    """A Discrete observation that counts from 5, and actions that count from -1."""

    observation_space = spaces.Discrete(4, start=5)
    action_space = spaces.Discrete(3, start=-1)

    def observation(self) -> Any:
        return 5 + self.at


class Boxed(Counting):
    """Box actions of float64 with bounds that float32 cannot hold."""

    action_space = spaces.Box(np.array([-0.1, -np.inf]), np.array([0.1, 2.0]), dtype=np.float64)


class Words(Counting):
    """Observations that hive refuses."""

    observation_space = spaces.Text(5)


class NotAnEnvironment:
    """Neither reset nor step."""


class Broken(Counting):
    """Cannot be built."""

    def __init__(self, error: Exception) -> None:
        raise error


def fakes(kind: type[Counting], count: int = 2, **options: Any) -> Sequence[Any]:
    """`count` environments of one kind."""
    return [kind(**options) for _ in range(count)]
