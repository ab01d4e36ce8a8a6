"""Wrappers of the config: their order and arguments, the spaces and limits that follow, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import numpy as np
import pytest
from fake_environments import Counting
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from hive.envs import Recipe, StepRow, describe, make_environment, make_vector
from hive.envs.wrappers import needed_wrappers
from hive.errors import ConfigError, EnvironmentFailed, EnvironmentMissing

COUNTING = "fake_environments:Counting"


def times_ten(environment: Any) -> Any:
    """A function is a wrapper too."""
    return gymnasium.wrappers.TransformReward(environment, lambda reward: 10 * reward)


class Wider(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Declares `declared` elements and returns `returned`."""

    def __init__(self, environment: Any, declared: int, returned: int) -> None:
        super().__init__(environment)
        self.observation_space = spaces.Box(-np.inf, np.inf, (declared,))
        self.returned = returned

    def observation(self, observation: Any) -> Any:
        return np.zeros(self.returned, np.float32)


def forgets(environment: Any) -> None:
    """A wrapper without a return statement."""


@pytest.fixture(autouse=True)
def _module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "our_wrappers", __import__("sys").modules[__name__])


def lengths(wrappers: list[Any], steps: int, id: str = "CartPole-v1") -> tuple[list[tuple[int, int, int]], Any]:
    """(step, episode length, whether truncated) of each end of one environment that alternates its actions."""
    vector = make_vector(id, {}, 1, wrappers=wrappers)
    row = StepRow.allocate(describe(Recipe(id, wrappers=wrappers)).observation, 1)
    vector.reset([3], row.observations)
    ends = []
    for step, action in zip(range(1, steps + 1), itertools.cycle([0, 1])):
        row.finals.count = 0
        vector.step(np.array([action]), row)
        if row.episode_lengths[0]:
            ends.append((step, int(row.episode_lengths[0]), int(row.truncated[0])))
    return ends, vector


def test_wrappers_are_applied_in_order_with_their_arguments() -> None:
    clip = {"name": "ClipReward", "max_reward": 2.5}
    for wrappers, expected in (([clip, "our_wrappers:times_ten"], 25.0), (["our_wrappers:times_ten", clip], 2.5)):
        environment = make_environment(Recipe(COUNTING, wrappers=wrappers))
        environment.reset(seed=0)
        rewards = [environment.step(0)[1] for _ in range(3)]
        assert rewards[2] == expected


def test_arrays_are_tuples_for_wrappers_of_gymnasium() -> None:
    """TOML has no tuples, and ReshapeObservation refuses a list."""
    wrapper = {"name": "ReshapeObservation", "shape": [2, 2]}
    assert describe(Recipe("CartPole-v1", wrappers=[wrapper])).observation.shape == (2, 2)


def test_spaces_are_those_of_the_outermost_wrapper() -> None:
    wide = {"name": "our_wrappers:Wider", "declared": 5, "returned": 5}
    assert describe(Recipe(COUNTING, wrappers=[wide])).observation.shape == (5,)
    assert lengths([wide], 4, COUNTING)[0] == []


def test_a_wrapper_that_breaks_its_space_is_named_with_the_environment() -> None:
    wrong = {"name": "our_wrappers:Wider", "declared": 5, "returned": 4}
    text = rf"^{COUNTING} with `our_wrappers:times_ten`, `our_wrappers:Wider` returned an observation of shape"
    with pytest.raises(EnvironmentFailed, match=text):
        lengths(["our_wrappers:times_ten", wrong], 1, COUNTING)


@pytest.mark.parametrize(
    ("wrappers", "limit", "bypassed"),
    [
        ([{"name": "TimeLimit", "max_episode_steps": 6}], 6, True),
        ([{"name": "TimeLimit", "max_episode_steps": 6}, "FlattenObservation"], 6, False),
        (["FlattenObservation", {"name": "TimeLimit", "max_episode_steps": 6}], 6, True),
        ([{"name": "TimeLimit", "max_episode_steps": 7}, {"name": "RepeatAction", "num_repeats": 2}], 4, False),
        ([{"name": "RepeatAction", "num_repeats": 2}, {"name": "TimeLimit", "max_episode_steps": 3}], 3, True),
    ],
)
def test_a_time_limit_holds_wherever_it_is(wrappers: list[Any], limit: int, bypassed: bool) -> None:
    assert describe(Recipe("CartPole-v1", wrappers=wrappers)).max_episode_steps == limit
    ends, vector = lengths(wrappers, 3 * limit)
    assert ends == [(limit * n, limit, 1) for n in (1, 2, 3)]
    outer = vector.environments[0]
    assert (vector._steps[0] == outer.env.step) == (bypassed and type(outer) is TimeLimit)


REFUSED: list[tuple[Any, type[Exception], str, str]] = [
    ("FlattenObs", EnvironmentMissing, "no wrapper `FlattenObs`", "did you mean `FlattenObservation`?"),
    ("vector", EnvironmentMissing, "no wrapper `vector`", "package.module:Class"),
    ("our_wrappers:Wide", EnvironmentMissing, "no wrapper `our_wrappers:Wide`", "did you mean `our_wrappers:Wider`?"),
    ("our_wrappers:xyz", EnvironmentMissing, "no wrapper `our_wrappers:xyz`", "no callable `xyz`"),
    ("no_such:Wrapper", EnvironmentMissing, "there is no module `no_such`", "start hive in a folder"),
    ("TimeLimit", EnvironmentFailed, "with the wrapper `TimeLimit` cannot be built", "beside its name"),
    ({"name": "TimeLimit", "steps": 3}, EnvironmentFailed, "unexpected keyword argument 'steps'", "beside its name"),
    ("our_wrappers:forgets", EnvironmentFailed, "returned an object of type NoneType, expected a gymnasium.Env", ""),
]


@pytest.mark.parametrize(("wrapper", "error", "text", "hint"), REFUSED)
def test_refused_wrappers(wrapper: Any, error: type[Exception], text: str, hint: str) -> None:
    with pytest.raises(error) as caught:
        make_environment(Recipe(COUNTING, wrappers=["FlattenObservation", wrapper]))
    assert text in str(caught.value)
    assert hint in caught.value.hint  # type: ignore[attr-defined]


def test_wrappers_of_a_vectorized_class_are_refused() -> None:
    with pytest.raises(ConfigError, match="need single environments"):
        make_vector("CartPole-v1", {}, 2, "native", ["FlattenObservation"])
    with pytest.raises(ConfigError, match="need single environments"):
        describe(Recipe("CartPole-v1", kind="native", wrappers=["FlattenObservation"]))


def test_the_base_is_untouched_without_wrappers() -> None:
    assert type(make_environment(Recipe(COUNTING))) is Counting


@pytest.mark.parametrize(
    ("id", "needed"),
    [
        ("MiniGrid-DoorKey-5x5-v0", ["minigrid.wrappers:ImgObsWrapper"]),
        ("minigrid:BabyAI-GoToObj-v0", ["minigrid.wrappers:ImgObsWrapper"]),
        ("CartPole-v1", []),
        ("ALE/Pong-v5", []),
        ("minigrid_of_mine:Grid", []),
    ],
)
def test_wrappers_that_an_environment_needs(id: str, needed: list[str]) -> None:
    assert needed_wrappers(id) == needed
