"""Spaces become specs, and stored actions become the environment's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from hive.envs.spaces.actions import Box, Discrete, MultiDiscrete, action_converter, action_spec
from hive.envs.spaces.observation import ObservationSpec, observation_spec
from hive.envs.spaces.spec import EnvironmentSpec
from hive.errors import EnvironmentFailed


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Box(-1, 1, (4,), np.float32), ObservationSpec((4,), "float32")),
        (spaces.Box(-1, 1, (2, 3), np.float64), ObservationSpec((2, 3), "float32")),
        (spaces.Box(-1, 1, (), np.float32), ObservationSpec((), "float32")),
        (spaces.Box(0, 255, (84, 84, 4), np.uint8), ObservationSpec((84, 84, 4), "uint8")),
        (spaces.Box(0, 9, (3,), np.int64), ObservationSpec((3,), "float32")),
        (spaces.Discrete(7), ObservationSpec((7,), "float32", counts=(7,), firsts=(0,))),
        (spaces.Discrete(7, start=-2), ObservationSpec((7,), "float32", counts=(7,), firsts=(-2,))),
    ],
)
def test_observations_are_stored_as_float32_or_uint8(space: spaces.Space[Any], expected: ObservationSpec) -> None:
    assert observation_spec("Any-v0", space) == expected


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(2)),
    ],
)
def test_other_observations_are_refused_with_a_way_out(space: spaces.Space[Any]) -> None:
    with pytest.raises(EnvironmentFailed) as caught:
        observation_spec("Odd-v0", space)
    expected = "expected Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple"
    assert str(caught.value) == f"`Odd-v0` has {type(space).__name__} observations, {expected}"
    assert "ObservationWrapper" in caught.value.hint
    assert caught.value.permanent


def test_actions() -> None:
    assert action_spec("Any-v0", spaces.Discrete(3, start=1)) == Discrete(3, 1)
    assert action_spec("Any-v0", spaces.MultiDiscrete([2, 5])) == MultiDiscrete((2, 5))
    box = action_spec("Any-v0", spaces.Box(np.array([[-1.0, -np.inf]]), np.array([[1.0, 3.0]]), dtype=np.float64))
    assert box == Box((1, 2), (-1.0, -math.inf), (1.0, 3.0))


@pytest.mark.parametrize(
    ("spec", "shape", "dtype"),
    [
        (Discrete(3), (), "int64"),
        (MultiDiscrete((2, 5, 3)), (3,), "int64"),
        (Box((2, 2), (0.0,) * 4, (1.0,) * 4), (2, 2), "float32"),
    ],
)
def test_actions_say_how_they_are_stored(
    spec: Discrete | MultiDiscrete | Box, shape: tuple[int, ...], dtype: str
) -> None:
    assert spec.shape == shape
    assert spec.dtype == dtype
    assert np.zeros((7, *spec.shape), spec.dtype).dtype == dtype


def test_specs_are_values() -> None:
    one = EnvironmentSpec("A-v0", ObservationSpec((4,), "float32"), Discrete(2), 500)
    assert one == EnvironmentSpec("A-v0", ObservationSpec((4,), "float32"), Discrete(2), 500)
    assert hash(one) == hash(EnvironmentSpec("A-v0", ObservationSpec((4,), "float32"), Discrete(2), 500))
    with pytest.raises(AttributeError):
        one.id = "B-v0"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("space", "stored", "expected"),
    [
        (spaces.Discrete(3), [0, 2], [0, 2]),
        (spaces.Discrete(3, start=-1), [0, 2], [-1, 1]),
        (spaces.MultiDiscrete([3, 4]), [[0, 3], [2, 1]], [[0, 3], [2, 1]]),
        (spaces.MultiDiscrete([3, 4], start=[1, 2]), [[0, 3], [2, 1]], [[1, 5], [3, 3]]),
        (spaces.MultiDiscrete([3, 4], dtype=np.int8), [[0, 3], [2, 1]], [[0, 3], [2, 1]]),
        (spaces.MultiDiscrete([3, 4], dtype=np.int32, start=[-1, 2]), [[0, 3], [2, 1]], [[-1, 5], [1, 3]]),
    ],
)
def test_discrete_actions_are_counted_from_the_environments_start(
    space: spaces.Space[Any], stored: list[Any], expected: list[Any]
) -> None:
    actions = np.array(stored, np.int64)
    converted = action_converter(action_spec("Any-v0", space))(actions)
    assert converted.tolist() == expected
    assert all(space.contains(action) for action in converted)
    converted[:] = 99
    assert actions.tolist() == stored, "an environment may write into its action"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_box_actions_are_clipped_into_bounds_of_the_environments_dtype(dtype: type[np.floating[Any]]) -> None:
    space = spaces.Box(np.array([-0.1, -np.inf], dtype), np.array([0.1, 2.0], dtype), dtype=dtype)
    actions = np.array([[-0.1, -1e4], [5.0, 5.0], [0.05, 1.5]], np.float32)
    converted = action_converter(action_spec("Any-v0", space))(actions)
    assert converted.dtype == dtype
    assert all(space.contains(action) for action in converted)
    assert converted[0, 1] == dtype(-1e4)
    assert converted[1].tolist() == space.high.tolist()
    assert converted[2].tolist() == actions[2].astype(dtype).tolist()
    assert not np.shares_memory(converted, actions)
