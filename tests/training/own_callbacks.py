"""Callbacks of users, and an environment whose level they change."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Leveled(gymnasium.Env[Any, Any]):
    """Episodes of `length + level` steps; an observation is the level and a drawn side, which is the right action."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 4) -> None:
        self.length = length
        self.level = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.at = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.at += 1
        reward = float(action == self.side)
        return self._seen(), reward, self.at >= self.length + self.level, False, {"level": self.level}

    def _seen(self) -> Any:
        self.side = int(self.np_random.integers(2))
        return np.array([self.level, self.side], np.float32)


class Growing(Leveled):
    """Grows when it is told to."""

    def grow(self, levels: int) -> None:
        self.level += levels


class Grows:
    """Calls `grow` after each of the first rounds, as often as `times` says."""

    def __init__(self, times: int) -> None:
        self.times = times

    def on_round(self, event: Any) -> None:
        if event.number <= self.times:
            event.env.set("grow", event.number)


class Follows:
    """Writes down what it is called with, and draws a level every third round."""

    def __init__(self, stop_after: int = 0) -> None:
        self.stop_after = stop_after
        self.rounds: list[int] = []
        self.lengths: dict[int, int] = {}  # environment -> length of its last episode
        self.episodes = 0
        self.values: list[float] = []

    def on_episode(self, event: Any) -> None:
        assert event.info["level"] >= 0
        self.episodes += 1
        self.lengths[event.environment] = event.length

    def on_round(self, event: Any) -> None:
        assert self.episodes == event.number_of_episodes
        self.rounds.append(event.number)
        if event.number % 3 == 0:
            event.env.set("level", int(np.random.randint(1, 5)))  # noqa: NPY002 - the global generator is seeded
        if event.number == 4:
            event.set("algorithm.entropy_weight", 0.5)
        event.log(rounds=event.number, longest=max(self.lengths.values(), default=0))
        if event.number == self.stop_after:
            event.stop("enough rounds")

    def on_evaluation(self, event: Any) -> None:
        self.values.append(event.mean_return)
        event.log({"mine/best": float(event.is_best)})

    def on_end(self, event: Any) -> None:
        print(f"ended: {event.reason}, {event.finished}, {len(self.values)} evaluations")


class Raises:
    def on_round(self, event: Any) -> None:
        if event.number == 2:
            raise ValueError("my mistake")


class Empty:
    """Has no method of a callback."""


def watch(event: Any, word: str = "watched") -> None:
    """Follows rounds as a function."""
    print(word, event.env_steps)


def nothing() -> None:
    """Makes no callback, and takes no event."""


class Discounts:
    """Sets the discount after the second round."""

    def on_round(self, event: Any) -> None:
        if event.number == 2:
            event.set("discount", 0.5)


class StopsAfter:
    """Ends the run after `rounds` rounds, and counts them in a metric."""

    def __init__(self, rounds: int = 3) -> None:
        self.rounds = rounds
        self.counted = 0

    def on_round(self, event: Any) -> None:
        self.counted += 1
        event.log(counted=self.counted)
        if self.counted == self.rounds:
            event.stop("enough")


class Sets:
    """Sets a key and an option after the second round."""

    def on_round(self, event: Any) -> None:
        if event.number == 2:
            event.set("algorithm.entropy_weight", 0.5)
            event.env.options(length=8)
