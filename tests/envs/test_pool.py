"""Environments of EnvPool: how they are found, seeded and stepped. EnvPool itself is an optional package."""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from hive.envs import make_vector
from hive.envs.make import describe
from hive.envs.recipe import Recipe
from hive.envs.spaces.observation import observation_spec
from hive.envs.vectors.rows import StepRow
from hive.errors import EnvironmentMissing

ID = "envpool:Line-v0"
LIMIT = 9


class Line:
    """A pool of lines that begin at the seed; an episode ends after two steps."""

    def __init__(self, num_envs: int, seed: int, num_threads: int, max_episode_steps: int, step: float = 1.0) -> None:
        self.single_observation_space = Box(-np.inf, np.inf, (1,), np.float32)
        self.single_action_space = Discrete(2)
        self.seed, self.step_size, self.num_threads, self.limit = seed, step, num_threads, max_episode_steps
        self.at = np.zeros(num_envs, np.int64)
        self.closed = False

    def reset(self) -> tuple[Any, dict[str, Any]]:
        self.at[:] = 0
        return self.seen(), {}

    def step(self, actions: Any) -> tuple[Any, ...]:
        resets = self.at == 2
        self.at = np.where(resets, 0, self.at + 1)
        ended = self.at == 2
        return self.seen(), (~resets).astype(np.float32), ended, np.zeros_like(ended), {}

    def seen(self) -> Any:
        return (self.seed + self.step_size * self.at[:, None]).astype(np.float32)

    def close(self) -> None:
        self.closed = True


class LineConfig(NamedTuple):
    max_episode_steps: int = LIMIT


class FakeEnvPool(ModuleType):
    """The parts of the package that hive calls. `pools`: those it has made."""

    def __init__(self) -> None:
        super().__init__("envpool")
        self.pools: list[Line] = []

    def list_all_envs(self) -> list[str]:
        return ["Line-v0"]

    def make_spec(self, name: str) -> Any:
        self.config = LineConfig()
        return self

    def make_gymnasium(self, name: str, **options: Any) -> Line:
        self.pools.append(Line(**options))
        return self.pools[-1]


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> FakeEnvPool:
    package = FakeEnvPool()
    monkeypatch.setitem(sys.modules, "envpool", package)
    return package


def test_the_spaces_and_the_limit_are_those_of_the_pool(package: FakeEnvPool) -> None:
    spec = describe(Recipe(ID))
    assert (spec.observation.shape, spec.max_episode_steps) == ((1,), LIMIT)
    assert package.pools[-1].closed


def test_each_reset_makes_a_pool_with_its_seed(package: FakeEnvPool) -> None:
    vector = make_vector(ID, {"step": 0.5}, 3)
    row = StepRow.allocate(observation_spec(ID, package.pools[0].single_observation_space), 3)
    for seed in (5, 6):
        vector.reset([seed, 0, 0], row.observations)
        assert row.observations.tolist() == [[seed]] * 3
        vector.step(np.zeros(3, np.int64), row)
        assert row.observations.tolist() == [[seed + 0.5]] * 3
    assert [pool.closed for pool in package.pools] == [True, True, False]
    assert (package.pools[-1].num_threads, package.pools[-1].limit) == (1, LIMIT)
    vector.close()
    assert package.pools[-1].closed


def test_the_step_after_an_end_resets_and_is_not_valid(package: FakeEnvPool) -> None:
    vector = make_vector(ID, {}, 1)
    row = StepRow.allocate(observation_spec(ID, package.pools[0].single_observation_space), 1)
    vector.reset([4], row.observations)
    seen = []
    for _ in range(4):
        vector.step(np.zeros(1, np.int64), row)
        seen.append((row.observations[0, 0].item(), row.terminated[0].item(), row.valid[0].item()))
    assert seen == [(5.0, 0, 1), (6.0, 1, 1), (4.0, 0, 0), (5.0, 0, 1)]


def test_an_unknown_name_is_an_error(package: FakeEnvPool) -> None:
    with pytest.raises(EnvironmentMissing, match=re.escape("no environment `envpool:Circle-v0`: EnvPool has none")):
        describe(Recipe("envpool:Circle-v0"))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(EnvironmentMissing) as caught:
        describe(Recipe(ID))
    assert "`envpool`" in str(caught.value)
    assert "pip install envpool" in str(caught.value.hint)
