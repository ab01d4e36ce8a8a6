"""Every space of actions that hive serves: what is stored, and what the environment gets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from hive.envs.spaces.actions import (
    ActionSpec,
    Box,
    Composite,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    action_converter,
    action_spec,
    choices_of,
    each_action,
)
from hive.errors import EnvironmentFailed
from hive.networks import distribution_for

GRIP = spaces.MultiBinary(2)
ARM = spaces.Dict({"grip": GRIP, "turn": spaces.Box(-2.0, 2.0, (2,), np.float64)})
ROBOT = spaces.Dict({"arm": ARM, "mode": spaces.Discrete(3, start=5)})


@pytest.mark.parametrize(
    ("space", "expected", "shape", "dtype"),
    [
        (spaces.MultiBinary(3), MultiBinary((3,)), (3,), "int64"),
        (spaces.MultiBinary([2, 2]), MultiBinary((2, 2)), (4,), "int64"),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), MultiDiscrete((2, 3, 4, 5), (), (2, 2)), (4,), "int64"),
        (spaces.Box(-1, 3, (2,), np.int8), MultiDiscrete((5, 5), (-1, -1)), (2,), "int64"),
        (spaces.Box(0, 255, (1, 2), np.uint8), MultiDiscrete((256, 256), (), (1, 2)), (2,), "int64"),
        (spaces.Box(0, 1, (), np.int64), MultiDiscrete((2,), (), ()), (1,), "int64"),
        (spaces.Tuple([spaces.Discrete(2), GRIP]), Composite((Discrete(2), MultiBinary((2,)))), (3,), "int64"),
        (
            ROBOT,
            Composite(
                (Composite((MultiBinary((2,)), Box((2,), (-2.0,) * 2, (2.0,) * 2)), ("grip", "turn")), Discrete(3, 5)),
                ("arm", "mode"),
            ),
            (5,),
            "float32",
        ),
    ],
    ids=str,
)
def test_what_is_stored(space: spaces.Space[Any], expected: ActionSpec, shape: tuple[int, ...], dtype: str) -> None:
    spec = action_spec("Any-v0", space)
    assert spec == expected
    assert (spec.shape, spec.dtype) == (shape, dtype)


def test_the_parts_of_an_action_reach_the_environment() -> None:
    converter = action_converter(action_spec("Any-v0", ROBOT))
    stored = np.array([[0, 1, 0.5, 9.0, 2], [1, 1, -7.0, 0.25, 0]], np.float32)
    batch = converter(stored)
    assert batch["mode"].tolist() == [7, 5]
    assert batch["arm"]["grip"].dtype == np.int8
    first, second = each_action(batch)
    assert first["arm"]["grip"].tolist() == [0, 1]
    assert first["arm"]["turn"].tolist() == [0.5, 2.0]
    assert second["arm"]["turn"].tolist() == [-2.0, 0.25]
    assert [first["mode"], second["mode"]] == [7, 5]
    assert ROBOT.contains(first)


@pytest.mark.parametrize("dtype", [np.int16, np.uint8, np.int64])
def test_integers_have_the_dtype_and_the_shape_of_their_space(dtype: type[np.integer[Any]]) -> None:
    space = spaces.Box(3, 6, (2, 1), dtype)
    (one,) = each_action(action_converter(action_spec("Any-v0", space))(np.array([[0, 3]])))
    assert (one.dtype, one.tolist()) == (dtype, [[3], [6]])
    assert space.contains(one)


def simple_spaces() -> st.SearchStrategy[spaces.Space[Any]]:
    counts, shapes = st.integers(1, 4), st.lists(st.integers(1, 3), min_size=1, max_size=2)
    dtypes: Any = st.sampled_from([np.int8, np.int32, np.int64])
    floats: Any = st.sampled_from([np.float16, np.float32, np.float64])
    return st.one_of(
        st.builds(spaces.Discrete, counts, start=st.integers(-3, 3)),
        st.builds(lambda shape: spaces.MultiBinary(shape), shapes),
        st.builds(
            lambda shape, n, start, dtype: spaces.MultiDiscrete(
                np.full(shape, n, dtype), dtype=dtype, start=np.full(shape, start, dtype)
            ),
            *(shapes, counts, st.integers(-3, 3), dtypes),
        ),
        st.builds(lambda shape, low, dtype: spaces.Box(low, low + 3, shape, dtype), shapes, st.integers(-3, 3), dtypes),
        st.builds(lambda shape, low, dtype: spaces.Box(low, low + 3, shape, dtype), shapes, st.integers(-3, 3), floats),
        st.builds(lambda shape, dtype: spaces.Box(-np.inf, np.inf, shape, dtype), shapes, floats),
    )


NESTED = st.recursive(
    simple_spaces(),
    lambda inner: st.one_of(
        st.builds(spaces.Tuple, st.lists(inner, min_size=1, max_size=3)),
        st.builds(spaces.Dict, st.dictionaries(st.text("abc.", min_size=1, max_size=2), inner, min_size=1, max_size=3)),
    ),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(NESTED, st.integers(0, 99))
def test_a_sampled_action_is_in_its_space(space: spaces.Space[Any], seed: int) -> None:
    """The distribution samples rows in the stored form, and the space contains the converted actions."""
    spec, generator = action_spec("Any-v0", space), np.random.default_rng(seed)
    distribution = distribution_for(spec)
    assert (distribution.action_shape, distribution.action_dtype) == (spec.shape, spec.dtype)
    outputs = generator.standard_normal((4, distribution.width), np.float32)
    stored = distribution.sample_numpy(outputs, distribution.draw_noise(generator, 4))
    before = stored.copy()
    actions = [*each_action(action_converter(spec)(stored))]
    assert len(actions) == 4
    assert all(space.contains(action) for action in actions)
    overwrite(actions)
    assert np.array_equal(stored, before), "an environment may write into its action"


def overwrite(action: Any) -> None:
    for part in action.values() if isinstance(action, dict) else action:
        if isinstance(part, np.ndarray):
            part[...] = 0
        elif isinstance(part, dict | tuple):
            overwrite(part)


def test_a_batch_is_what_vectorized_classes_take() -> None:
    space = spaces.Tuple([spaces.Discrete(3), spaces.Dict({"x": spaces.Box(-1.0, 1.0, (2,), np.float32)})])
    batch = action_converter(action_spec("Any-v0", space))(np.zeros((4, 3), np.float32))
    assert isinstance(batch, tuple)
    assert (batch[0].shape, batch[0].dtype, batch[1]["x"].shape) == ((4,), np.int64, (4, 2))


def bounded(low: float, high: float, dtype: Any = np.float32) -> spaces.Box:
    """A Box with bounds that its constructor may refuse."""
    space = spaces.Box(-1, 1, (1,), dtype)
    space.low, space.high = np.full(1, low, space.low.dtype), np.full(1, high, space.high.dtype)
    return space


def empty_discrete() -> spaces.Discrete:
    space = spaces.Discrete(1)
    space.n = np.int64(0)
    return space


@pytest.mark.parametrize(
    ("space", "text", "hint"),
    [
        (spaces.Text(5), r"Text\(.*\), expected Discrete, MultiDiscrete, MultiBinary, Box, or", "TransformAction"),
        (spaces.Sequence(GRIP), r"Sequence\(.*\), expected Discrete", "TransformAction"),
        (spaces.Graph(GRIP, None), r"Graph\(.*\), expected Discrete", "TransformAction"),
        (empty_discrete(), r"Discrete\(0\), which leaves nothing to choose", "leave it out"),
        (spaces.Dict({}), r"Dict\(\), which leaves nothing to choose", "leave it out"),
        (spaces.Tuple([]), r"Tuple\(\), which leaves nothing to choose", "leave it out"),
        (spaces.Box(0, 1, (0,)), r"Box\(.*\), which leaves nothing to choose", "leave it out"),
        (bounded(math.nan, 1.0), r"Box\(.*\), whose bounds are not numbers low <= high", "correct the bounds"),
        (bounded(2.0, 1.0), r"Box\(.*\), whose bounds are not numbers low <= high", "correct the bounds"),
        (spaces.Box(0, 256, (2,), np.int32), r"Box\(.*\), expected at most 256 values per element", "round them"),
        (spaces.Box(0, 1, (2,), np.bool_), r"Box\(.*\), expected a Box of floats or integers", "MultiBinary"),
    ],
)
def test_other_spaces_are_refused_by_the_name_of_the_part(space: spaces.Space[Any], text: str, hint: str) -> None:
    with pytest.raises(EnvironmentFailed, match=rf"^actions of `Odd-v0` are {text}") as caught:
        action_spec("Odd-v0", space)
    assert caught.value.permanent
    assert hint in caught.value.hint
    nested = spaces.Dict({"arm": spaces.Tuple([spaces.Discrete(2), spaces.Dict({"grip": space})])})
    with pytest.raises(EnvironmentFailed, match=rf"^actions of `Odd-v0`: part `arm\.1\.grip` is {text}"):
        action_spec("Odd-v0", nested)


@pytest.mark.parametrize(
    ("space", "choices"),
    [
        (spaces.Discrete(3), (3,)),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), (2, 3, 4, 5)),
        (
            spaces.Dict({"grip": GRIP, "mode": spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 3, (1,), int)])}),
            (2, 2, 3, 4),
        ),
        (spaces.Tuple([GRIP, spaces.Discrete(3)]), (2, 2, 3)),
        (ROBOT, None),
    ],
    ids=str,
)
def test_the_choices_of_an_action(space: spaces.Space[Any], choices: tuple[int, ...] | None) -> None:
    assert choices_of(action_spec("Any-v0", space)) == choices
