"""Checks of the caller's arrays, before any layer reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hive.compat.coach.arrays import checked_inputs, first_not_finite, refuse_misfits
from hive.errors import NetworkError
from hive.networks import InputArray

SPECS = {"observation": InputArray((2,), "float32"), "goal": InputArray((), "uint8")}
GIVEN = {"observation": np.zeros((4, 2), np.float32), "goal": np.zeros(4, np.uint8)}
NAN = np.float32([1.0, np.nan])


def checked(inputs: Any, needed: Any = ("observation", "goal"), state_width: int = 0, **more: Any) -> Any:
    return checked_inputs(inputs, SPECS, needed, [], state_width, "main", **more)


def test_several_inputs_come_by_name_and_one_alone() -> None:
    tensors, count = checked(GIVEN)
    assert (list(tensors), count) == (["observation", "goal"], 4)
    only = {"observation": SPECS["observation"]}
    tensor, count = checked_inputs({"observation": np.ones((3, 2))}, only, ["observation"], [], 0, "main")
    assert (tuple(tensor.shape), count) == ((3, 2), 3)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"other": np.zeros(4)}, "network `main` has no input `other`"),
        ({"goal": None}, "network `main` needs the input `goal`"),
        ({"goal": np.zeros(3, np.uint8)}, r"input `goal` is uint8 \[3\], expected uint8 \[4\]"),
        ({"goal": np.zeros(4, np.float32)}, r"input `goal` is float32 \[4\], expected uint8"),
        ({"observation": np.zeros((4, 2), np.complex64)}, "is complex64"),
    ],
)
def test_inputs_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    inputs = {name: array for name, array in {**GIVEN, **change}.items() if array is not None}
    with pytest.raises(NetworkError, match=message):
        checked(inputs)


def test_training_needs_samples_that_are_finite() -> None:
    with pytest.raises(NetworkError, match="input `observation` of network `main` is not finite"):
        checked({**GIVEN, "observation": np.full((4, 2), np.inf, np.float32)}, training=True)
    empty = {name: array[:0] for name, array in GIVEN.items()}
    with pytest.raises(NetworkError, match="a batch of no samples"):
        checked(empty, training=True)
    assert checked(empty)[1] == 0


def test_a_memory_is_an_input() -> None:
    state = np.zeros((2, 6), np.float32)
    tensors, _ = checked({**GIVEN, "recurrent_state": state, "episode_starts": np.zeros(4, bool)}, state_width=6)
    assert tuple(tensors["recurrent_state"].shape) == (2, 6)
    with pytest.raises(NetworkError, match="needs the input `recurrent_state`") as error:
        checked(GIVEN, state_width=6)
    assert "initial_state" in error.value.hint
    for wrong in (np.zeros((3, 6), np.float32), np.zeros(6, np.float32), np.zeros((0, 6), np.float32)):
        with pytest.raises(NetworkError, match=r"input `recurrent_state` is float32 .* for a batch of 4 rows"):
            checked({**GIVEN, "recurrent_state": wrong}, state_width=6)
    with pytest.raises(NetworkError, match=r"expected float32 \[2, 6\]"):
        checked({**GIVEN, "recurrent_state": np.zeros((2, 5), np.float32)}, state_width=6)
    with pytest.raises(NetworkError, match="has no input `recurrent_state`"):
        checked({**GIVEN, "recurrent_state": state})


def test_the_first_array_that_is_not_finite_is_named() -> None:
    good = np.ones(2, np.float32)
    assert first_not_finite({"observation": good}, [good, good], None) == ""
    assert first_not_finite({"observation": NAN}, [NAN], NAN) == "input `observation`"
    assert first_not_finite({"observation": good}, [good, NAN], None) == "target 1"
    assert first_not_finite({"observation": good}, NAN, None) == "target 0"
    assert first_not_finite({}, lambda outputs: [NAN], [good, NAN]) == "importance weights of output 1"


def test_misfits() -> None:
    view = np.zeros((2, 3), np.float32)
    refuse_misfits([view], [np.ones((2, 3))], "weights")
    with pytest.raises(NetworkError, match=r"weights do not fit: shapes \[\(3, 2\)\], expected \[\(2, 3\)\]"):
        refuse_misfits([view], [view.T], "weights")
    with pytest.raises(NetworkError, match="weights do not fit: complex128 where float32 is expected"):
        refuse_misfits([view], [np.ones((2, 3), complex)], "weights")
