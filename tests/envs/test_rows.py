"""The arrays of one step."""

from __future__ import annotations

import numpy as np
import pytest

from hive.envs.spaces.observation import ObservationSpec
from hive.envs.vectors.rows import FinalObservations, StepRow


def test_finals_are_copied_in_order() -> None:
    finals = FinalObservations(np.zeros((3, 2), np.float32))
    observation = np.array([1.0, 2.0], np.float32)
    assert finals.add(observation) == 0
    observation[:] = 9.0
    assert finals.add(observation) == 1
    assert finals.count == 2
    assert finals.observations.tolist() == [[1.0, 2.0], [9.0, 9.0], [0.0, 0.0]]


def test_finals_without_room_are_refused() -> None:
    """Left out, the observation that begins the next episode would count as what followed."""
    finals = FinalObservations(np.zeros((1, 2), np.float32))
    assert finals.add(np.ones(2, np.float32)) == 0
    with pytest.raises(IndexError):
        finals.add(np.full(2, 5.0, np.float32))
    assert finals.count == 1
    assert finals.observations.tolist() == [[1.0, 1.0]]


def test_finals_are_used_again_after_their_count_is_set_back() -> None:
    finals = FinalObservations(np.zeros((1, 2), np.float32))
    finals.add(np.ones(2, np.float32))
    finals.count = 0
    assert finals.add(np.full(2, 5.0, np.float32)) == 0
    assert finals.observations.tolist() == [[5.0, 5.0]]


def test_a_row_of_its_own_memory() -> None:
    row = StepRow.allocate(ObservationSpec((2, 3), "uint8"), 4)
    assert row.observations.shape == (4, 2, 3)
    assert row.observations.dtype == np.uint8
    dtypes = {
        "rewards": np.float32,
        "terminated": np.uint8,
        "truncated": np.uint8,
        "valid": np.uint8,
        "episode_returns": np.float32,
        "episode_lengths": np.int32,
        "final_index": np.int32,
    }
    for name, dtype in dtypes.items():
        array = getattr(row, name)
        assert array.shape == (4,), name
        assert array.dtype == dtype, name
    assert row.final_index.tolist() == [-1] * 4
    assert len(row.finals.observations) == 4
    assert row.finals.observations.dtype == np.uint8


def test_a_row_keeps_its_views() -> None:
    row = StepRow.allocate(ObservationSpec((2,), "float32"), 1)
    with pytest.raises(AttributeError):
        row.rewards = np.ones(1, np.float32)  # type: ignore[misc]
