"""Every way in which an environment may fail to declare a space has an error that names it."""

from __future__ import annotations

import sys
import types
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from hive.envs.make import describe
from hive.envs.recipe import Recipe
from hive.envs.spaces.declared import spaces_of
from hive.envs.vectors.python_vector import PythonVector
from hive.errors import EnvironmentFailed

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
OLD = types.new_class("Box", exec_body=lambda body: body.update(__module__="gym.spaces.box"))


class Declares(gymnasium.Env[Any, Any]):
    """Has the spaces that it is given."""

    def __init__(self, **declared: Any) -> None:
        vars(self).update(declared)


class Raises(Declares):
    @property
    def observation_space(self) -> Any:  # type: ignore[override]
        raise NotImplementedError("later")


class Slips(Declares):
    @property
    def observation_space(self) -> Any:  # type: ignore[override]
        return self.obs_size  # type: ignore[attr-defined]


class Method(Declares):
    def observation_space(self) -> Any:  # type: ignore[override]
        return BOX


ACTS = {"action_space": spaces.Discrete(2)}
NONE = spaces.Box(0, 1, (0,), np.float32)


@pytest.mark.parametrize(
    ("environment", "text", "hint"),
    [
        (
            Declares(**ACTS),
            "`mine:Env` has no observation_space after its constructor",
            "set self.observation_space in",
        ),
        (Declares(observation_space=BOX), "`mine:Env` has no action_space after its", "spaces.Discrete(n)"),
        (Declares(observation_space=None, **ACTS), "`mine:Env` has no observation_space after", ""),
        (Declares(observation_space=spaces.Box, **ACTS), "is the class Box, expected an object of it", ""),
        (Declares(observation_space=(2,), **ACTS), "is of type tuple, expected one of gymnasium.spaces", ""),
        (Method(**ACTS), "is of type method, expected one of gymnasium.spaces", ""),
        (Raises(**ACTS), "`mine:Env` raised NotImplementedError: later", "set self.observation_space"),
        (Slips(**ACTS), "raised AttributeError: 'Slips' object has no attribute 'obs_size'", ""),
        (Declares(observation_space=OLD(), **ACTS), "is a Box of the old package `gym`", "import gymnasium as gym"),
        (Declares(observation_space=OLD, **ACTS), "is a Box of the old package `gym`", "import gymnasium as gym"),
        (Declares(observation_space=NONE, **ACTS), "the observations of `mine:Env` have no elements: Box(", "at least"),
        (Declares(observation_space=spaces.Box(0, 1, (3, 0)), **ACTS), "have no elements", ""),
        (Declares(observation_space=BOX, action_space=NONE), "the actions of `mine:Env` have no elements", ""),
        (
            Declares(observation_space=spaces.Dict(a=BOX, goal=NONE, z=BOX), **ACTS),
            "the part `goal` of the observations of `mine:Env` has no elements",
            'env.wrappers = [{ name = "FilterObservation", filter_keys = ["a", "z"] }]',
        ),
    ],
)
def test_spaces_that_cannot_be_used(environment: Any, text: str, hint: str) -> None:
    with pytest.raises(EnvironmentFailed) as caught:
        spaces_of("mine:Env", environment)
    assert text in str(caught.value)
    assert hint in caught.value.hint
    assert caught.value.permanent
    with pytest.raises(EnvironmentFailed) as again:
        PythonVector("mine:Env", [environment])
    assert str(again.value) == str(caught.value)


class Empty(Declares):
    """Has no spaces."""


def function() -> type:
    return Empty


@pytest.mark.parametrize(
    ("id", "wrappers", "text"),
    [
        ("declared_here:Empty", (), "`declared_here:Empty` has no observation_space"),
        ("declared_here:Empty", ["FlattenObservation"], "`declared_here:Empty` has no observation_space"),
        ("declared_here:function", (), "built the class Empty, expected a gymnasium.Env"),
        ("declared_here:OLD", (), "built an object of type Box of the old package `gym`, expected a gymnasium.Env"),
    ],
)
def test_what_a_constructor_may_return(id: str, wrappers: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "declared_here", sys.modules[__name__])
    with pytest.raises(EnvironmentFailed) as caught:
        describe(Recipe(id, wrappers=wrappers))
    assert text in str(caught.value)


def test_a_part_without_elements_can_be_left_out_as_the_hint_says(monkeypatch: pytest.MonkeyPatch) -> None:
    class Goal(Declares):
        def __init__(self) -> None:
            super().__init__(observation_space=spaces.Dict(a=BOX, goal=NONE), **ACTS)

    monkeypatch.setattr(sys.modules[__name__], "Goal", Goal, raising=False)
    monkeypatch.setitem(sys.modules, "declared_here", sys.modules[__name__])
    kept = [{"name": "FilterObservation", "filter_keys": ["a"]}]
    assert [part.name for part in describe(Recipe("declared_here:Goal", wrappers=kept)).observation.parts] == ["a"]
