"""Dictionaries and tuples become rows of bytes, and every part is found again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from hive.config import load_config
from hive.envs.spaces.actions import Discrete
from hive.envs.spaces.meaning import configured_meaning
from hive.envs.spaces.observation import ArraySpec, ObservationSpec, observation_spec
from hive.envs.spaces.spec import EnvironmentSpec
from hive.envs.vectors.checks import Checks, store
from hive.errors import EnvironmentFailed

NESTED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (2, 3), np.uint8),
        "arm": spaces.Dict({"joints": spaces.Box(-1, 1, (2,), np.float64), "grip": spaces.Discrete(3, start=4)}),
        "doors": spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3], start=[0, 1])]),
    }
)


def an_observation(shift: int = 0) -> dict[str, Any]:
    return {
        "camera": np.arange(6, dtype=np.uint8).reshape(2, 3) + np.uint8(shift),
        "arm": {"joints": np.array([0.5, -0.25]) + shift, "grip": 5},
        "doors": (np.array([1, 0], np.int8), np.array([1, 3])),
    }


def test_numbers_lie_first_and_rows_are_aligned() -> None:
    spec = observation_spec("Any-v0", NESTED)
    assert [(part.name, part.dtype, part.offset) for part in spec.parts] == [
        ("arm.grip", "float32", 0),
        ("arm.joints", "float32", 12),
        ("doors.0", "float32", 20),
        ("doors.1", "float32", 28),
        ("camera", "uint8", 48),
    ]
    assert (spec.shape, spec.dtype, spec.floats) == ((56,), "uint8", 12)  # 48 + 6 bytes, filled up to 56


def test_every_part_is_found_again() -> None:
    spec = observation_spec("Any-v0", NESTED)
    rows = np.full((3, *spec.shape), 255, np.uint8)
    assert store(spec, [an_observation(), an_observation(1), an_observation(2)], rows)
    found = {part.name: part.view(rows)[1].tolist() for part in spec.parts}
    assert found == {
        "arm.grip": [0.0, 1.0, 0.0],
        "arm.joints": [1.5, 0.75],
        "doors.0": [1.0, 0.0],
        "doors.1": [0.0, 1.0, 0.0, 0.0, 1.0],
        "camera": [[1, 2, 3], [4, 5, 6]],
    }
    assert spec.numbers(rows)[1].tolist() == [0, 1, 0, 1.5, 0.75, 1, 0, 0, 1, 0, 0, 1]


def test_an_observation_without_parts_is_its_own_input() -> None:
    spec = observation_spec("Any-v0", spaces.Box(-1, 1, (2, 2)))
    assert (spec.parts, spec.inputs, spec.floats) == ((), (spec,), 4)
    assert spec.numbers(np.ones((3, 2, 2), np.float32)).shape == (3, 4)


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.MultiBinary((2, 2)), ArraySpec((2, 2), "float32")),
        (spaces.MultiDiscrete([2, 3], start=[1, 0]), ArraySpec((5,), "float32", (2, 3), (1, 0))),
    ],
)
def test_several_discrete_values(space: spaces.Space[Any], expected: ArraySpec) -> None:
    assert observation_spec("Any-v0", space) == ObservationSpec(**vars(expected))


def without(observation: dict[str, Any], *path: str) -> dict[str, Any]:
    *most, last = path
    inner = observation
    for key in most:
        inner = inner[key]
    del inner[last]
    return observation


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        (without(an_observation(), "camera"), "an observation without its part `camera`"),
        (without(an_observation(), "arm", "grip"), "an observation without its part `arm.grip`"),
        ({**an_observation(), "arm": 7}, "an observation without its part `arm.grip`"),
        (7, "an observation without its part `arm.grip`"),
        (
            {**an_observation(), "camera": np.zeros((3, 2), np.uint8)},
            "an observation part `camera` of shape (3, 2), expected (2, 3)",
        ),
        (
            {**an_observation(), "camera": np.zeros((2, 3))},
            "an observation part `camera` of float64, expected uint8",
        ),
        (
            {**an_observation(), "arm": {"joints": np.array([0.0, np.nan]), "grip": 4}},
            "an observation part `arm.joints` with nan in it",
        ),
        (
            {**an_observation(), "arm": {"joints": np.zeros(2), "grip": 7}},
            "the observation part `arm.grip` 7, expected an integer from 4 to 6",
        ),
        (
            {**an_observation(), "doors": (np.zeros(2, np.int8), np.array([0, 4]))},
            "the observation part `doors.1` array([0, 4]), expected integers from 0 to 1, 1 to 3",
        ),
    ],
)
def test_the_part_at_fault_is_named(observation: Any, text: str) -> None:
    spec = observation_spec("Any-v0", NESTED)
    with pytest.raises(EnvironmentFailed) as caught:
        Checks("Any-v0", spec).observations([an_observation(), observation], np.zeros((2, *spec.shape), np.uint8))
    assert str(caught.value) == f"Any-v0 returned {text} (env 1, step 0 of this collector)"


def test_batches_of_a_vectorized_class() -> None:
    spec = observation_spec("Any-v0", NESTED)
    one, two = an_observation(), an_observation(3)
    batch = {
        "camera": np.stack([one["camera"], two["camera"]]),
        "arm": {"joints": np.stack([one["arm"]["joints"], two["arm"]["joints"]]), "grip": np.array([5, 5])},
        "doors": tuple(np.stack([a, b]) for a, b in zip(one["doors"], two["doors"], strict=True)),
    }
    rows, expected = np.zeros((2, 2, *spec.shape), np.uint8)
    Checks("Any-v0", spec).batches(batch, rows)
    assert store(spec, [one, two], expected)
    np.testing.assert_array_equal(rows, expected)


def test_a_batch_at_fault_is_named() -> None:
    spec = observation_spec("Any-v0", spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(2)}))
    rows = np.zeros((2, *spec.shape), np.uint8)
    good = np.zeros((2, 2), np.float32)
    for batch, text in (
        ({"a": good}, "an observation without its part `b`"),
        ({"a": good, "b": np.array([0, 2])}, r"the observation part `b` np.int64\(2\), .* \(env 1,"),
        ({"a": good[:1], "b": np.array([0])}, "observations that are not arrays of 2 environments"),
    ):
        with pytest.raises(EnvironmentFailed, match=text):
            Checks("Any-v0", spec).batches(batch, rows)


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (spaces.Dict({}), "has observations without any part"),
        (spaces.Dict({"a": spaces.Dict({"b": spaces.Text(3)})}), "has Text as part `a.b` of its observations"),
    ],
)
def test_what_cannot_be_stored_is_refused(space: spaces.Space[Any], text: str) -> None:
    with pytest.raises(EnvironmentFailed, match=text):
        observation_spec("Any-v0", space)


@pytest.mark.parametrize(
    ("low", "high", "dtype", "scale"),
    [
        (0, 255, "uint8", (0, 255)),
        (0, 65_535, "uint16", None),  # of a counter: 0 and 50 would be one constant
        (0, 65_534, "uint16", (0, 65_534)),
        (-(1 << 15), (1 << 15) - 1, "int16", None),  # 0 and 5 would be one constant
        (-1000, 1000, "int16", (-1000, 1000)),
        (0, 65_535, "int64", (0, 65_535)),
        (0, 65_536, "int64", None),
        (-(1 << 31), (1 << 31) - 1, "int64", None),  # any int32: of NetHack
        (0, (1 << 32) - 1, "uint32", None),
        (-128, 127, "int8", None),
        (-1, 1, "int8", (-1, 1)),
    ],
)
def test_bounds_of_integers_declare_a_scale_up_to_two_to_the_sixteen(
    low: int, high: int, dtype: str, scale: tuple[int, int] | None
) -> None:
    spec = observation_spec("Any-v0", spaces.Box(low, high, (2,), np.dtype(dtype).type))
    assert (spec.low, spec.high) == (((), ()) if scale is None else ((scale[0],), (scale[1],)))


def test_a_picture_of_16_bits_has_the_scale_of_its_dtype() -> None:
    spec = observation_spec("Any-v0", spaces.Box(0, 65_535, (8, 8, 1), np.uint16))
    assert (spec.low, spec.high) == ((0.0,), (65_535.0,))


@pytest.mark.parametrize(
    ("shape", "refused"),
    [
        ((4, 84, 84, 3), True),
        ((3, 3, 32, 32), True),
        ((4, 84, 84, 1), True),
        ((32, 32, 32, 1), False),  # a grid in space
        ((2, 8, 8, 3), False),  # planes of boards
        ((4, 84, 84, 7), False),
        ((84, 84, 4), False),
    ],
)
def test_stacked_pictures_name_the_key_that_stacks(shape: tuple[int, ...], refused: bool) -> None:
    whole = observation_spec("Any-v0", spaces.Dict(camera=spaces.Box(0, 255, shape, np.uint8)))
    spec = EnvironmentSpec("Any-v0", whole, Discrete(2))
    meanings = {
        images: load_config("a.toml", [f'env.images="{images}"'], text='[env]\nid = "Any-v0"\n').env
        for images in ("auto", "none")
    }
    assert configured_meaning(spec, meanings["none"]).observation == whole
    if not refused:
        configured_meaning(spec, meanings["auto"])
        return
    with pytest.raises(EnvironmentFailed, match=r"camera uint8 .* has four axes") as caught:
        configured_meaning(spec, meanings["auto"])
    assert f"env.frame_stack = {shape[0]}" in caught.value.hint


def test_parts_of_the_same_name_are_ordered_by_path() -> None:
    space = spaces.Dict({"a.b": spaces.Discrete(2), "a": spaces.Dict({"b": spaces.Discrete(3)})})
    assert [part.path for part in observation_spec("Any-v0", space).parts] == [("a", "b"), ("a.b",)]
