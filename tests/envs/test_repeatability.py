"""Environments that do not repeat themselves: the first difference is named."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch
from fake_environments import Counting, Walk
from gymnasium import spaces

from hive.envs import Recipe
from hive.envs.look import look

FRESH = itertools.count()


class Remembers(Walk):
    """Keeps a state across resets with a seed."""

    resets = 0

    def reset(self, **given: Any) -> Any:
        self.resets += 1
        return super().reset(**given)

    def observation(self) -> Any:
        return super().observation() + (self.at >= 3) * self.resets


class Global(Walk):
    """Draws from a generator of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.own = next(FRESH)

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, float(self.own), *rest


class Unseeded(Walk):
    """Draws from a generator that nothing can seed."""

    def __init__(self) -> None:
        super().__init__()
        self.own = np.random.default_rng()

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, float(self.own.random()), *rest


class Seeded(Walk):
    """Draws from global generators, which a run seeds, when it is built, reset and stepped."""

    def __init__(self) -> None:
        super().__init__()
        self.built = np.random.rand()  # noqa: NPY002

    def reset(self, **given: Any) -> Any:
        self.drawn = random.random()
        return super().reset(**given)

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, self.built + self.drawn + np.random.rand() + torch.rand(()).item(), *rest  # noqa: NPY002


class Reseeds(Walk):
    """Makes a generator in each reset, also in one without a seed."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.own = np.random.default_rng(seed)
        return super().reset(seed=seed)

    def observation(self) -> Any:
        return super().observation() + self.own.random(dtype=np.float32)


class Raises(Counting):
    """Can be reset with a seed only once."""

    resets = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.resets += 1
            assert self.resets == 1, "already reset"
        return super().reset(seed=seed)


class Tree(Walk):
    """Observes a dictionary."""

    observation_space = spaces.Dict(walk=Counting.observation_space, at=spaces.Discrete(1000))

    def observation(self) -> Any:
        return {"walk": super().observation(), "at": np.int64(self.at)}


@pytest.mark.parametrize(
    ("id", "expected"),
    [
        ("fake_environments:Walk", ""),
        ("CartPole-v1", ""),
        ("repeated_here:Tree", ""),
        ("repeated_here:Remembers", "a second reset with the same seed gave another observation in step "),
        ("repeated_here:Global", "a second environment with the same seed gave another reward in step 1; draw all"),
        (
            "repeated_here:Unseeded",
            "a second reset with the same seed gave another reward in step 1; draw all random numb",
        ),
        (
            "repeated_here:Reseeds",
            "a second reset with the same seed gave another observation after the end of an episode, in step ",
        ),
        ("repeated_here:Seeded", ""),
        (
            "repeated_here:Raises",
            "it failed when it was reset with a seed that had been used before: repeated_here:Rai",
        ),
    ],
)
def test_the_first_difference(id: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "repeated_here", __import__("sys").modules[__name__])
    found = look(Recipe(id), 60.0, 2, beside=False, steps=60).differs
    assert found.startswith(expected) if expected else found == ""


def test_values_of_info_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    class Informs(Walk):
        def step(self, action: Any) -> Any:
            *rest, _ = super().step(action)
            return *rest, {"fresh": float(next(FRESH))}

    monkeypatch.setitem(__import__("sys").modules, "informs", type("Module", (), {"Informs": Informs}))
    assert look(Recipe("informs:Informs", info=("fresh",)), 60.0, 2, beside=True).differs == ""
