"""Values from environments are copied correctly, or refused with an error that names the fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from hive.envs.spaces.observation import ObservationSpec, observation_spec
from hive.envs.vectors.checks import Checks
from hive.envs.vectors.rows import FinalObservations
from hive.errors import EnvironmentFailed

VECTORS = ObservationSpec((2,), "float32")
IMAGES = ObservationSpec((2, 2), "uint8")
CELLS = ObservationSpec((3,), "float32", counts=(3,), firsts=(5,))
SCALARS = ObservationSpec((), "float32")
BITS = ObservationSpec((2,), "float32", counts=(2,), firsts=(0,))
PAIRS = ObservationSpec((5,), "float32", counts=(2, 3), firsts=(0, 0))


def copied(spec: ObservationSpec, observations: Any) -> Any:
    out = np.full((len(observations), *spec.shape), 77, spec.dtype)
    Checks("Any-v0", spec).observations(observations, out)
    return out.tolist()


@pytest.mark.parametrize(
    ("spec", "observations", "expected"),
    [
        (VECTORS, [np.array([1.0, 2.0]), np.array([3.0, 4.0])], [[1.0, 2.0], [3.0, 4.0]]),
        (VECTORS, [np.array([1, 2]), [True, 0.5]], [[1.0, 2.0], [1.0, 0.5]]),
        (VECTORS, [np.array([1e30, -1e30])], [[np.float32(1e30), np.float32(-1e30)]]),
        (VECTORS, np.array([[1.0, 2.0], [3.0, 4.0]], np.float16), [[1.0, 2.0], [3.0, 4.0]]),
        (IMAGES, [np.array([[0, 255], [7, 8]], np.uint8)], [[[0, 255], [7, 8]]]),
        (IMAGES, [np.array([[0, 1], [1, 0]], np.bool_)], [[[0, 1], [1, 0]]]),
        (IMAGES, [[[0, 255], [7, 8]]], [[[0, 255], [7, 8]]]),
        (IMAGES, [np.array([[0, 255], [7, 8]], np.int64)], [[[0, 255], [7, 8]]]),
        (IMAGES, [[[True, 255], [7, 8]], np.zeros((2, 2), np.uint8)], [[[1, 255], [7, 8]], [[0, 0], [0, 0]]]),
        (BITS, [True, np.False_, np.int8(1), np.array(0)], [[0, 1], [1, 0], [0, 1], [1, 0]]),
        (BITS, [1, np.array([1])], [[0, 1], [0, 1]]),  # shapes that differ are stored one by one
        (PAIRS, [np.array([1.0, 2.0]), [True, 0]], [[0, 1, 0, 0, 1], [0, 1, 1, 0, 0]]),
        (CELLS, [5, np.int64(7)], [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]),
        (CELLS, np.array([6, 6], np.uint8), [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]),
        (SCALARS, [np.array(1.5), 2.0], [1.5, 2.0]),
    ],
)
def test_good_observations(spec: ObservationSpec, observations: Any, expected: list[Any]) -> None:
    assert copied(spec, observations) == expected


GRID = observation_spec("Grid-v0", spaces.MultiDiscrete([[2, 2], [2, 2]]))
GOOD = {
    GRID: [[0, 0], [0, 0]],
    PAIRS: [0, 0],
    VECTORS: np.zeros(2),
    IMAGES: np.zeros((2, 2), np.uint8),
    CELLS: 5,
    SCALARS: 0.0,
}


@pytest.mark.parametrize(
    ("spec", "bad", "text"),
    [
        (VECTORS, np.zeros(5), "an observation of shape (5,), expected (2,)"),
        (VECTORS, np.zeros(1), "an observation of shape (1,), expected (2,)"),
        (VECTORS, 0.0, "an observation of shape (), expected (2,)"),
        (VECTORS, np.zeros((1, 2)), "an observation of shape (1, 2), expected (2,)"),
        (VECTORS, None, "an observation of type NoneType, expected an array of shape (2,)"),
        (VECTORS, {"a": 1}, "an observation of type dict, expected an array of shape (2,)"),
        (VECTORS, [[1.0], [1.0, 2.0]], "an observation of type list, expected an array of shape (2,)"),
        (VECTORS, ["1.0", "2.0"], "an observation of <U3, expected float32"),
        (VECTORS, np.array([1j, 0]), "an observation of complex128, expected float32"),
        (VECTORS, np.array([0.0, np.nan]), "an observation with nan in it"),
        (VECTORS, np.array([-np.inf, 0.0]), "an observation with inf in it"),
        (VECTORS, np.array([np.inf, -np.inf]), "an observation with inf in it"),
        (SCALARS, np.nan, "an observation with nan in it"),
        (IMAGES, np.zeros((2, 2)), "an observation of float64, expected uint8"),
        (IMAGES, np.full((2, 2), 256), "an observation with 256 in it, expected 0 to 255"),
        (IMAGES, np.full((2, 2), -1), "an observation with -1 in it, expected 0 to 255"),
        (PAIRS, np.array([0.5, 0]), "the observation array([0.5, 0. ]), expected integers from 0 to 1, 0 to 2"),
        (PAIRS, np.array([np.nan, 0]), "the observation array([nan, 0.]), expected integers from 0 to 1, 0 to 2"),
        (VECTORS, torch.zeros(2, requires_grad=True), "an observation of type Tensor, expected an array of shape (2,)"),
        (IMAGES, np.zeros((3, 2), np.uint8), "an observation of shape (3, 2), expected (2, 2)"),
        (CELLS, 4, "the observation 4, expected an integer from 5 to 7"),
        (CELLS, 8, "the observation 8, expected an integer from 5 to 7"),
        (CELLS, 5.5, "the observation 5.5, expected an integer from 5 to 7"),
        (CELLS, np.zeros(3), "an observation of shape (3,), expected ()"),
        (GRID, [[0, 1], [2, 0]], "the observation [[0, 1], [2, 0]], expected integers from 0 to 1, 0 to 1, 0 to 1,"),
        (GRID, np.zeros((2, 3)), "an observation of shape (2, 3), expected (2, 2)"),
    ],
)
@pytest.mark.parametrize(("count", "at"), [(1, 0), (4, 0), (4, 3)])
def test_bad_observations_are_named(spec: ObservationSpec, bad: Any, text: str, count: int, at: int) -> None:
    observations = [GOOD[spec]] * count
    observations[at] = bad
    checks = Checks("CartPole-v1", spec)
    checks.steps = 1204
    with pytest.raises(EnvironmentFailed) as caught:
        checks.observations(observations, np.zeros((count, *spec.shape), spec.dtype))
    assert str(caught.value).startswith(f"CartPole-v1 returned {text}")
    assert str(caught.value).endswith(f" (env {at}, step 1,204 of this collector)")
    assert caught.value.permanent


def test_a_number_too_large_for_float32() -> None:
    with (
        pytest.warns(RuntimeWarning, match="overflow"),
        pytest.raises(EnvironmentFailed, match="an observation with inf in it"),
    ):
        copied(VECTORS, [np.array([1e300, 0.0])])


def test_two_shapes_that_together_have_the_right_size() -> None:
    with pytest.raises(EnvironmentFailed, match=r"shape \(3,\), expected \(2,\) \(env 0,"):
        copied(VECTORS, [np.zeros(3), np.zeros(1)])


def test_a_vectorized_class_with_too_few() -> None:
    checks = Checks("Any-v0", VECTORS)
    with pytest.raises(EnvironmentFailed, match=r"returned 3 observations, expected 4 \(step 0 of this collector\)"):
        checks.observations(np.zeros((3, 2)), np.zeros((4, 2), np.float32))
    with pytest.raises(EnvironmentFailed, match="returned 1 rewards, expected 4"):
        checks.rewards(np.zeros(1), np.zeros(4, np.float32))


def test_finals_are_checked_and_converted() -> None:
    finals = FinalObservations(np.zeros((2, 3), np.float32))
    checks = Checks("Any-v0", CELLS)
    assert checks.final(0, 6, finals) == 0
    assert checks.final(1, 7, finals) == 1
    assert finals.observations.tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    with pytest.raises(EnvironmentFailed, match=r"the observation 8, expected an integer from 5 to 7 \(env 3,"):
        checks.final(3, 8, finals)
    assert finals.count == 2


@pytest.mark.parametrize(
    "rewards",
    [
        [1.0, -2.0, 0.0],
        [1, -2, False],
        [np.float32(1.0), np.float64(-2.0), np.int8(0)],
        [np.array(1.0), -2, 0.0],
        np.array([1, -2, 0]),
    ],
)
def test_good_rewards(rewards: Any) -> None:
    out = np.zeros(3, np.float32)
    Checks("Any-v0", VECTORS).rewards(rewards, out)
    assert out.tolist() == [1.0, -2.0, 0.0]


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (None, "None"),
        ("1.0", "'1.0'"),
        (1j, "1j"),
        ([1.0], "[1.0]"),
        (np.array([1.0]), "array([1.])"),
        ([[1.0], [1.0, 2.0]], "[[1.0], [1.0, 2.0]]"),
    ],
)
@pytest.mark.parametrize(("count", "at"), [(1, 0), (3, 1)])
def test_bad_rewards_are_named(bad: Any, text: str, count: int, at: int) -> None:
    rewards: list[Any] = [0.0] * count
    rewards[at] = bad
    with pytest.raises(EnvironmentFailed) as caught:
        Checks("My-v0", VECTORS).rewards(rewards, np.zeros(count, np.float32))
    place = f"(env {at}, step 0 of this collector)"
    assert str(caught.value) == f"My-v0 returned the reward {text}, expected a finite number {place}"
    assert caught.value.permanent


def test_errors_of_calls() -> None:
    checks = Checks("My-v0", VECTORS)
    checks.steps = 17
    raised = checks.raised(ValueError("no fuel"), "step", 3)
    assert str(raised) == "My-v0 raised ValueError: no fuel in step (env 3, step 17 of this collector)"
    assert not raised.permanent
    assert str(checks.raised(KeyError(), "reset")) == "My-v0 raised KeyError in reset (step 17 of this collector)"
    wrong = checks.wrong_result((1, 2, 3, 4), "step", 0)
    expected = "expected (observation, reward, terminated, truncated, info)"
    assert str(wrong) == f"My-v0 returned 4 values from step, {expected} (env 0, step 17 of this collector)"
    assert wrong.permanent
    assert "an object of type list from reset" in str(checks.wrong_result([], "reset"))
