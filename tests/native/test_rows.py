"""The copying of observations and the columns of results against NumPy and zip, and the checks of a row's arrays.

Episodes have their tests where they are used, in tests/envs/test_episodes.py.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hive import _native

FORMS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "C": lambda batch: batch,
    "Fortran": np.asfortranarray,
    "every other": lambda batch: np.repeat(batch, 2, axis=0)[::2],
    "backwards": lambda batch: batch[::-1].copy()[::-1],
    "transposed": lambda batch: np.ascontiguousarray(batch.T).T,
    "read-only": lambda batch: np.frombuffer(batch.tobytes(), batch.dtype).reshape(batch.shape),
    "list": list,
    "tuple": tuple,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("shape", "given", "stored"),
    [
        ((5, 4), np.float32, np.float32),
        ((5, 4), np.float64, np.float32),
        ((1, 1), np.float64, np.float32),
        ((3, 17), np.float32, np.float32),
        ((3, 2, 4), np.float64, np.float32),
        ((4, 6, 5, 2), np.uint8, np.uint8),
        ((4, 6), np.uint8, np.uint8),
        ((3, 0), np.float32, np.float32),
    ],
)
def test_observations_are_copied_or_left_to_numpy(form: str, shape: tuple[int, ...], given: Any, stored: Any) -> None:
    batch = (np.random.default_rng(3).normal(size=shape) * 50).astype(given)
    out = np.full(shape, 77, stored)
    done = _native.store_observations(FORMS[form](batch), out)
    usual = form in ("C", "read-only", "list", "tuple") or (len(shape) == 2 and given is not np.uint8)
    assert done or not usual, "the usual forms are not left"
    if done:
        np.testing.assert_array_equal(out, batch.astype(stored))


@pytest.mark.parametrize("given", [np.float32, np.float64])
@pytest.mark.parametrize("form", ["C", "Fortran", "list", "tuple"])
def test_every_number_that_is_not_finite_is_found(form: str, given: Any) -> None:
    batch, out = np.ones((5, 13), given), np.zeros((5, 13), np.float32)
    for index in np.ndindex(batch.shape):
        for bad in (np.nan, np.inf, -np.inf):
            batch[index] = bad
            assert not _native.store_observations(FORMS[form](batch), out)
        batch[index] = 3e38
        assert _native.store_observations(FORMS[form](batch), out)
    if given is np.float64:
        batch[2, 3] = 1e39
        assert not _native.store_observations(FORMS[form](batch), out)


class Index:
    """Is no number to NumPy."""

    def __index__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("given", "first"), [([0, 2], 0), ((np.int64(-1), np.int32(1)), -1), ([np.uint8(5), 6], 5), ([True, False], 0)]
)
def test_choices_set_one_element_of_each_row(given: Any, first: int) -> None:
    out = np.full((2, 4), 7, np.float32)[:, :3]
    assert _native.store_choices(given, first, out)
    np.testing.assert_array_equal(out, np.eye(3)[[int(one) - first for one in given]])


@pytest.mark.parametrize(
    "given",
    [[3, 0], [-1, 0], [2**80, 0], [1.0, 0], ["1", 0], [None, 0], [np.ones(1, int)] * 2, np.zeros(2, int), [Index()]],
)
def test_other_choices_are_left(given: Any) -> None:
    assert not _native.store_choices(given, 0, np.zeros((len(given), 3), np.float32))


def test_choices_beyond_a_row_are_left_wherever_it_begins() -> None:
    assert not _native.store_choices([0, 2**62 + 1], -(2**62), np.zeros((2, 3), np.float32))
    assert not _native.store_choices([0, 0], 0, np.zeros((1, 3), np.float32))


ROW = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    "observations",
    [
        np.zeros((2, 3), np.float32),
        np.zeros((3, 2), np.float32),
        np.zeros((2, 2, 1), np.float32),
        np.zeros(4, np.float32),
        np.zeros((2, 2), np.int64),
        np.zeros((2, 2), np.float16),
        np.zeros((2, 2), np.complex64),
        np.zeros((2, 2), ">f4"),
        np.frombuffer(b"-" + bytes(16), np.float32, offset=1).reshape(2, 2),
        np.zeros((2, 2), object),
        [ROW],
        [ROW] * 3,
        [ROW, np.zeros(3, np.float32)],
        [ROW, np.zeros((1, 2), np.float32)],
        [ROW, np.zeros(2, np.int32)],
        [ROW, [0.0, 0.0]],
        [ROW, None],
        (0.0, 0.0),
        {0: ROW, 1: ROW},
        None,
    ],
)
def test_what_is_not_usual_is_left(observations: Any) -> None:
    assert not _native.store_observations(observations, np.zeros((2, 2), np.float32))


@pytest.mark.parametrize(
    "out",
    [np.zeros((2, 2)), np.zeros((2, 4), np.float32)[:, ::2], np.zeros((2, 2), np.float32).T],
)
def test_outputs_of_another_layout_are_left(out: NDArray[Any]) -> None:
    assert not _native.store_observations([ROW, ROW], out)


@pytest.mark.parametrize("rows", [slice(None, None, 2), slice(None, None, -1)])
def test_rows_of_the_output_may_lie_apart(rows: slice) -> None:
    """As the parts of longer rows do (hive.envs.spaces.observation). Only single observations are written then."""
    whole = np.zeros((4, 5), np.float32)
    out = whole[rows, 1:3]
    observations = [np.array([2 * b + 1, 2 * b + 2], np.float32) for b in range(len(out))]
    assert _native.store_observations(observations, out)
    assert out.tolist() == [one.tolist() for one in observations]
    assert np.count_nonzero(whole) == out.size
    assert not _native.store_observations(np.array(observations), out)


def test_a_read_only_output_is_left() -> None:
    out = np.ones((2, 2), np.float32)
    out.flags.writeable = False
    assert not _native.store_observations([ROW, ROW], out)
    assert out.tolist() == [[1, 1], [1, 1]]
    with pytest.raises(TypeError):
        _native.store_observations([ROW, ROW], None)  # type: ignore[arg-type]


def test_columns_are_those_of_zip() -> None:
    results = [(object(), index, index > 1, index == 0, {}) for index in range(4)]
    assert _native.columns(results) == tuple(zip(*results, strict=True))[:4]
    assert _native.columns([]) == ((), (), (), ())


@pytest.mark.parametrize("wrong", [(1, 2, 3, 4), (1, 2, 3, 4, 5, 6), [1, 2, 3, 4, 5], None, 7])
@pytest.mark.parametrize("at", [0, 2])
def test_columns_of_other_results_are_left(wrong: Any, at: int) -> None:
    results: list[Any] = [(np.zeros(1), 1.0, False, False, {})] * 3
    results[at] = wrong
    assert _native.columns(results) is None


def test_columns_hold_one_reference_each() -> None:
    observation = object()
    before = sys.getrefcount(observation)
    for wrong in ([], [7]):
        kept = _native.columns([(observation, 1.0, False, False, {})] * 3 + wrong)
        assert sys.getrefcount(observation) == before + (0 if wrong else 3)
        del kept
        gc.collect()
        assert sys.getrefcount(observation) == before


def arrays(count: int) -> dict[str, Any]:
    flags = {name: np.zeros(count, np.uint8) for name in ("terminated", "truncated", "valid")}
    floats = {name: np.zeros(count, np.float32) for name in ("rewards", "episode_returns")}
    return flags | floats | {name: np.zeros(count, np.int32) for name in ("episode_lengths", "final_index")}


@pytest.mark.parametrize(
    ("name", "array", "error", "text"),
    [
        ("rewards", np.zeros(3), TypeError, "rewards must be float32, got float64"),
        ("valid", np.zeros(3, np.bool_), TypeError, "valid must be uint8, got bool"),
        ("truncated", None, TypeError, "truncated must be a numpy array of uint8, got NoneType"),
        ("episode_lengths", np.zeros(4, np.int32), ValueError, "episode_lengths and rewards must have the same shape"),
        ("final_index", np.zeros(6, np.int32)[::2], ValueError, "final_index must be contiguous and aligned"),
        ("terminated", np.zeros((3, 1), np.uint8), ValueError, "terminated must be 1-dimensional"),
        ("terminated", np.frombuffer(bytes(3), np.uint8), ValueError, "terminated is read-only"),
    ],
)
def test_a_rows_arrays_are_checked_when_it_is_made(name: str, array: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        _native.Row(**arrays(3) | {name: array})


def test_a_rows_arrays_are_apart_and_stay_alive() -> None:
    given = arrays(3)
    with pytest.raises(ValueError, match="episode_returns overlaps rewards"):
        _native.Row(**given | {"episode_returns": given["rewards"]})
    row = _native.Row(**given)
    rewards = given["rewards"]
    before = sys.getrefcount(rewards)
    del row
    gc.collect()
    assert sys.getrefcount(rewards) == before - 1
