"""A loaded policy takes what its observation space holds, in any form, and names what it does not hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from hive.envs.spaces.masked_space import MaskedSpace
from hive.envs.spaces.observation import BESIDE_MASK, MASK_KEY, ObservationSpec, observation_spec
from hive.policy.given_observations import GivenObservations

BYTES = spaces.Box(0, 255, (2, 2, 1), np.uint8)
FLOATS = spaces.Box(-1.0, 1.0, (2,), np.float32)
PARTS = spaces.Dict(
    {"a": FLOATS, "inner": spaces.Dict({"n": spaces.Discrete(3, start=5), "bits": spaces.MultiBinary(2)})}
)
PAIR = spaces.Tuple([FLOATS, spaces.MultiDiscrete([3])])
FROM_INFO = MaskedSpace({BESIDE_MASK: FLOATS, MASK_KEY: spaces.MultiBinary(3)}, (MASK_KEY,), (3,))
AS_PART = MaskedSpace({"seen": FLOATS, "mask": spaces.MultiBinary(3)}, ("mask",), (3,))
ONE: Any = {"a": np.zeros(2, np.float32), "inner": {"n": 6, "bits": np.array([0, 1], np.int8)}}
BATCH: Any = {"a": np.zeros((3, 2), np.float32), "inner": {"n": np.full(3, 6), "bits": np.ones((3, 2), np.int8)}}


def given(space: spaces.Space[Any], observation: Any, mask: Any = None) -> tuple[Any, bool]:
    return GivenObservations(observation_spec("", space))(observation, mask)


def stored(space: spaces.Space[Any], observation: Any) -> list[Any]:
    return given(space, observation)[0].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("space", "observation", "expected"),
    [
        (BYTES, np.full((2, 2, 1), 7, np.int64), 7),
        (BYTES, torch.full((2, 2, 1), 255.0), 255),
        (BYTES, [[[3], [3]], [[3], [3]]], 3),
        (spaces.Box(-5, 5, (2,), np.int32), np.array([9.0, 9.0]), 9),  # bounds are not checked
        (spaces.Box(-5, 5, (2,), np.int32), [-5, -5], -5),
        (FLOATS, [7, 7], 7),
        (FLOATS, torch.full((2,), 0.5, dtype=torch.bfloat16), 0.5),
        (FLOATS, torch.full((2,), 0.5, requires_grad=True), 0.5),
        (spaces.Box(-1.0, 1.0, (), np.float64), 2, 2),
        (spaces.MultiBinary(2), [True, True], 1),
    ],
)
def test_values_of_the_space_in_any_form(space: spaces.Space[Any], observation: Any, expected: Any) -> None:
    rows, single = given(space, observation)
    assert single
    assert (rows == expected).all()
    assert rows.dtype == ("uint8" if space is BYTES else "float32")
    twice = [observation, observation] if not isinstance(observation, torch.Tensor) else torch.stack([observation] * 2)
    rows, single = given(space, twice)
    assert (len(rows), single) == (2, False)
    assert (rows == expected).all()


def test_discrete_values_in_any_form() -> None:
    space = spaces.Discrete(3, start=5)
    one = [[0.0, 1.0, 0.0]]
    for observation in (6, np.uint8(6), torch.tensor(6), np.array([0.0, 1.0, 0.0])):
        assert given(space, observation)[0].tolist() == one
    assert stored(spaces.Discrete(2), True) == [[0.0, 1.0]]
    assert given(spaces.MultiDiscrete([3]), np.array([2]))[1], "one observation of one element"
    assert not given(spaces.MultiDiscrete([3]), np.array([[2]]))[1]


@pytest.mark.parametrize(
    ("space", "observation", "text"),
    [
        (
            BYTES,
            np.full((2, 2, 1), 0.7),
            "got 0.7 in an observation, expected whole numbers from 0 to 255; give",
        ),
        (BYTES, np.full((2, 2, 1), -1), "got -1 in"),
        (BYTES, np.full((2, 2, 1), 300), "got 300 in"),
        (BYTES, np.full((2, 2, 1), np.nan), "got nan in"),
        (BYTES, np.array([["a"]]), "expected numbers"),
        (BYTES, None, "of type NoneType"),
        (FLOATS, [np.nan, 0.0], "got nan in an observation, expected finite numbers"),
        (FLOATS, [np.inf, 0.0], "got inf in"),
        (FLOATS, [1e39, 0.0], r"got 1e\+39 in"),
        (FLOATS, [1j, 0.0], "expected numbers"),
        (FLOATS, [[1.0, 0.0], [1.0]], "different shapes"),
        (FLOATS, np.zeros((2, 3)), r"of shape \[2, 3\], expected \[2\] or a batch"),
        (FLOATS, {"a": 1}, "of type dict"),
        (spaces.Box(-5, 5, (2,), np.int32), [0.5, 0.0], "got 0.5 in an observation, expected whole numbers from -2147"),
        (spaces.Box(0, 3, (1,), np.int8), [200], "from -128 to 127"),
        (spaces.MultiBinary(2), [0.5, 1.0], "from 0 to 1"),
        (spaces.MultiBinary(2), [2, 1], "from 0 to 1"),
        (spaces.Discrete(3, start=5), 4, "expected an integer from 5 to 7"),
        (spaces.Discrete(3, start=5), 6.0, "expected an integer from 5 to 7"),
        (spaces.Discrete(3, start=5), [5, 8], "expected an integer from 5 to 7"),
        (spaces.Discrete(3, start=5), [0.2, 0.8, 0.0], "no one-hot vectors, expected integers from 5 to 7"),
        (spaces.MultiDiscrete([3, 2]), [0, 2], "0 to 2, 0 to 1"),
        (PARTS, {"a": ONE["a"]}, "without its part `inner`"),
        (PARTS, {**ONE, "inner": {"n": 6}}, r"without its part `inner\.bits`"),
        (PARTS, {**ONE, "b": 1}, "with the part `b`, which the policy has not seen; its parts are `a`, `inner`"),
        (PARTS, {**ONE, "inner": {**ONE["inner"], "n": 9}}, r"part `inner\.n`: got the observation .*from 5 to 7"),
        (PARTS, {**ONE, "inner": 3}, r"part `inner`: got int, expected a dictionary with the parts `inner\.bits`"),
        (
            PARTS,
            {**BATCH, "a": np.zeros((2, 2))},
            "got 2 observations of the part `a` and 3 of the part `inner",
        ),
        (
            PARTS,
            {**BATCH, "a": np.zeros(2)},
            r"batch of the part `inner\.bits` and a single observation of",
        ),
        (PARTS, ONE["a"], "got ndarray, expected a dictionary with the parts `a`, `inner`"),
        (PAIR, (ONE["a"],), "without its part `1`"),
        (PAIR, (ONE["a"], [1], 3), "with the part `2`"),
        (PAIR, {"a": 1}, "without its part `0`, `1`"),
    ],
)
def test_values_that_the_space_does_not_hold(space: spaces.Space[Any], observation: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        given(space, observation)


def test_a_description_of_an_older_run_knows_no_dtypes() -> None:
    older = GivenObservations(ObservationSpec((2,), "float32"))
    assert older(np.array([0.5, 0.5]), None)[0].tolist() == [[0.5, 0.5]]
    with pytest.raises(ValueError, match="whole numbers from 0 to 255"):
        GivenObservations(ObservationSpec((2,), "uint8"))(np.array([0.5, 0.5]), None)


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (BYTES, np.zeros((0, 2, 2, 1), np.uint8)),
        (FLOATS, []),
        (spaces.Discrete(3), np.zeros(0, np.int64)),
        (spaces.MultiDiscrete([3, 2]), np.zeros((0, 2), np.int64)),
        (PARTS, {"a": np.zeros((0, 2)), "inner": {"n": [], "bits": np.zeros((0, 2), np.int8)}}),
        (AS_PART, {"seen": [], "mask": np.zeros((0, 3), np.int8)}),
    ],
)
def test_an_empty_batch(space: spaces.Space[Any], observation: Any) -> None:
    rows, single = given(space, observation)
    assert (len(rows), single) == (0, False)


def test_masks() -> None:
    one, three = np.zeros(2, np.float32), np.zeros((3, 2), np.float32)
    spec = observation_spec("", FROM_INFO)
    assert spec.mask is not None
    rows, single = given(FROM_INFO, one, [1, 0, 1])
    assert single
    assert spec.mask.view(rows).tolist() == [[1, 0, 1]]
    assert given(FROM_INFO, {BESIDE_MASK: one, MASK_KEY: [1, 0, 1]})[0].tolist() == rows.tolist()
    rows, single = given(FROM_INFO, three, np.eye(3, dtype=bool))
    assert spec.mask.view(rows).tolist() == np.eye(3).tolist()


@pytest.mark.parametrize(
    ("space", "observation", "mask", "text"),
    [
        (FLOATS, np.zeros(2), [1, 1], "trained without action masks: leave action_mask out"),
        (PARTS, ONE, [1, 1], "trained without action masks"),
        (AS_PART, {"seen": np.zeros(2), "mask": [1, 1, 1]}, [1, 1, 1], "reads its action mask from part `mask`"),
        (AS_PART, {"seen": np.zeros(2)}, None, "without its part `mask`"),
        (FROM_INFO, np.zeros(2), None, r"call policy\(observation, action_mask=info"),
        (FROM_INFO, np.zeros(2), [1, 1], r"got an action mask of int64 \[2\], expected 3 zeros and ones"),
        (FROM_INFO, np.zeros(2), [0, 0, 0], "allows no action"),
        (FROM_INFO, np.zeros(2), [0.0, -1e8, 0.0], "-100000000.0 in it, expected 1 for allowed"),
        (FROM_INFO, np.zeros((2, 2)), [1, 1, 1], r"expected 3 zeros and ones for each of 2 observations"),
    ],
)
def test_masks_that_do_not_fit(space: spaces.Space[Any], observation: Any, mask: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        given(space, observation, mask)
