"""Tests the sums of the bare environment's rewards, beside those that wrappers have changed."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import ClipReward, NormalizeReward, RecordEpisodeStatistics, TimeLimit, TransformReward

from hive.envs.raw_returns import RAW_RETURN, sum_raw_returns
from hive.envs.wrappers import wrapped


class Counts(gymnasium.Env[Any, Any]):
    """Rewards of 1, 2, 3, 4, after which an episode ends. `lap` is an attribute that wrappers may use."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = Box(0, 9, (1,), np.float32), Discrete(2)
        self.lap = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 0
        self.lap += 1
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at += 1
        return np.full(1, self.at, np.float32), float(self.at), self.at == 4, False, {}


class Twice(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Two steps as one, with a reward of its own."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.env.step(action)
        observation, _, *rest = self.env.step(action)
        assert self.env.lap > 0  # type: ignore[attr-defined]
        return (observation, -1.0, *rest)  # type: ignore[return-value]


class Nested(Counts):
    """Calls its own step, and its own reset within a reset."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == 1:
            return self.step(0)
        return super().step(action)


class Slotted(Counts):
    def __setattr__(self, name: str, value: Any) -> None:
        if name == "step":
            raise AttributeError(name)
        super().__setattr__(name, value)


def played(environment: gymnasium.Env[Any, Any], action: int = 0) -> list[float]:
    """Return the values of two episodes."""
    found = []
    for _ in range(2):
        environment.reset(seed=1)
        ended = False
        while not ended:
            *_, terminated, truncated, info = environment.step(action)
            ended = terminated or truncated
        found.append(info[RAW_RETURN])
    return found


@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: TransformReward(env, lambda reward: 0.1 * float(reward)),
        lambda env: ClipReward(env, -1.0, 1.0),
        lambda env: NormalizeReward(env),
        lambda env: TimeLimit(ClipReward(RecordEpisodeStatistics(env), -1.0, 1.0), 100),
        lambda env: Twice(env),
    ],
)
def test_the_rewards_of_the_bare_environment_are_summed(wrap: Any) -> None:
    environment = wrap(Counts())
    assert sum_raw_returns(environment)
    assert sum_raw_returns(environment), "a second time changes nothing"
    assert played(environment) == [10.0, 10.0]
    assert played(copy.deepcopy(environment)) == [10.0, 10.0]


def test_a_limit_outside_ends_a_sum() -> None:
    environment = TimeLimit(ClipReward(Counts(), -1.0, 1.0), 3)
    assert sum_raw_returns(environment)
    assert played(environment) == [6.0, 6.0]


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: TimeLimit(RecordEpisodeStatistics(env), 9)])
def test_nothing_is_summed_where_no_wrapper_changes_rewards(wrap: Any) -> None:
    environment = wrap(Counts())
    assert not sum_raw_returns(environment)
    assert "step" not in vars(environment.unwrapped)


class Result(NamedTuple):
    seen: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


def test_a_result_keeps_its_type() -> None:
    class Named(Counts):
        def step(self, action: Any) -> Any:
            return Result(*super().step(action))

    class ReadsNames(gymnasium.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            result: Any = self.env.step(action)
            return result.seen, -result.reward, result.terminated, result.truncated, result.info

    environment = ReadsNames(Named())
    assert sum_raw_returns(environment)
    assert played(environment) == [10.0, 10.0]


def test_an_environment_that_calls_itself_counts_once() -> None:
    environment = ClipReward(Nested(), -1.0, 1.0)
    assert sum_raw_returns(environment)
    assert played(environment, action=1) == [10.0, 10.0]


def test_an_environment_whose_methods_cannot_be_replaced_has_no_sum() -> None:
    environment = ClipReward(Slotted(), -1.0, 1.0)
    assert not sum_raw_returns(environment)
    environment.reset()
    assert RAW_RETURN not in environment.step(0)[4]


def test_wrappers_of_a_config_are_found() -> None:
    environment = wrapped("Counts", Counts(), ["RecordEpisodeStatistics", {"name": "ClipReward", "max_reward": 1.0}])
    assert sum_raw_returns(environment)


class Binds(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Keeps the step of the bare environment from its constructor on."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._bound = env.unwrapped.step

    def step(self, action: Any) -> Any:
        observation, reward, *rest = self._bound(action)
        return observation, -float(reward), *rest


class Looks(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Changes no rewards."""


def test_a_step_that_a_wrapper_keeps_from_its_constructor_on_sums_too() -> None:
    environment = wrapped("Counts", Counts(), [f"{__name__}:Binds"])
    assert sum_raw_returns(environment)
    assert played(environment) == [10.0, 10.0]


def test_nothing_is_left_of_a_sum_that_no_wrapper_needs() -> None:
    environment = wrapped("Counts", Counts(), [f"{__name__}:Looks"])
    assert not {"step", "reset"} & vars(environment.unwrapped).keys()
