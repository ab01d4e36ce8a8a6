"""Values that environments are given: in whichever layer has the name, and between two episodes."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from hive.envs import StepRow
from hive.envs.vectors.attributes import set_attribute, set_attributes, takes_attributes
from hive.envs.vectors.python_vector import PythonVector
from hive.envs.vectors.vector import make_vector
from hive.errors import EnvironmentFailed


class Level(gymnasium.Env[Any, Any]):
    """Shows its level; episodes of `2 + level` steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)
    level = 0

    def __init__(self) -> None:
        self.at = 0
        self.speed = 1.0
        self.called: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.at = 0
        return np.array([self.level], np.float32), {}

    def step(self, action: Any) -> Any:
        self.at += 1
        return np.array([self.level], np.float32), 1.0, self.at >= 2 + self.level, False, {}

    def difficulty(self, value: Any) -> None:
        self.called.append(value)

    def set_wind(self, value: Any) -> None:
        self.called.append(("wind", value))

    @property
    def fixed(self) -> int:
        return 1


class Outer(gymnasium.Wrapper[Any, Any, Any, Any]):
    scale = 1.0


def test_the_layer_that_has_the_name_gets_the_value() -> None:
    inner = Level()
    outer = Outer(gymnasium.wrappers.TimeLimit(inner, 10))
    set_attribute(outer, "scale", 2.0)
    set_attribute(outer, "speed", 3.0)
    set_attribute(outer, "level", 4)
    set_attribute(outer, "difficulty", 5)
    set_attribute(outer, "wind", 6)
    assert (outer.scale, inner.speed, inner.level, Level.level) == (2.0, 3.0, 4, 0)
    assert inner.called == [5, ("wind", 6)]
    assert "speed" not in vars(outer)


@pytest.mark.parametrize(("name", "text"), [("spead", "did you mean `speed`"), ("fixed", "raised AttributeError")])
def test_a_name_that_cannot_be_set_is_an_error_with_the_way_out(name: str, text: str) -> None:
    with pytest.raises(EnvironmentFailed, match=text) as raised:
        set_attribute(Outer(Level()), name, 1)
    assert raised.value.permanent


def test_each_environment_has_it_from_its_next_episode_on() -> None:
    vector = PythonVector("level", [Level(), Level()])
    row = StepRow.allocate(vector.observation, 2)
    first = np.zeros((2, 1), np.float32)
    vector.reset([1, 2], first)
    vector.step(np.zeros(2, np.int64), row)
    set_attributes(vector, {"level": 1})
    assert row.observations[:, 0].tolist() == [0, 0]
    seen = []
    for _ in range(5):
        vector.step(np.zeros(2, np.int64), row)
        seen.append((row.observations[0, 0], row.episode_lengths[0]))
    # The open episode ends after 2 steps, as it began; the next ones have 3.
    assert seen == [(1, 2), (1, 0), (1, 0), (1, 3), (1, 0)]


def test_the_limit_of_time_limit_can_be_lowered_and_a_longer_one_names_the_way() -> None:
    gymnasium.register("OfLevels-v0", Level, max_episode_steps=5)
    try:
        environments = [gymnasium.make("OfLevels-v0", disable_env_checker=True) for _ in range(2)]
    finally:
        del gymnasium.registry["OfLevels-v0"]
    vector = PythonVector(
        "levels", [one.env if type(one).__name__ == "OrderEnforcing" else one for one in environments]
    )
    set_attributes(vector, {"level": 100})
    row = StepRow.allocate(vector.observation, 2)

    def lengths(steps: int) -> list[int]:
        found = []
        for _ in range(steps):
            row.finals.count = 0
            vector.step(np.zeros(2, np.int64), row)
            assert bool(row.truncated[0]) == bool(row.episode_lengths[0])
            found += [int(row.episode_lengths[0])] * bool(row.truncated[0])
        return found

    vector.reset([1, 2], np.zeros((2, 1), np.float32))
    assert lengths(5) == [5]
    set_attributes(vector, {"_max_episode_steps": 2})
    assert lengths(9) == [5, 2, 2], "the open episode ends as it began"
    with pytest.raises(EnvironmentFailed, match="at most 5 steps") as caught:
        set_attributes(vector, {"_max_episode_steps": 50})
    assert "env.options(max_episode_steps" in caught.value.hint
    vector.close()


def test_compiled_environments_take_none() -> None:
    vector = make_vector("CartPole-v1", {}, 2)
    assert not takes_attributes(vector)
    with pytest.raises(EnvironmentFailed, match="compiled environments and programs have no attributes"):
        set_attributes(vector, {"gravity": 1.0})
    vector.close()
