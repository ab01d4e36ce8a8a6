"""NaN dumps: complete or absent, limited in number and size, and read back unchanged."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from hive.errors import RecordError
from hive.records import nan_dumps, read_nan_dump, write_nan_dump

ARRAYS = {
    "inputs": np.array([[1.0, np.nan], [np.inf, -np.inf]], np.float32),
    "rollout-0-17.actions": np.arange(6).reshape(2, 3).T,  # not in the order of rows
    "rollout-0-17.valid": np.ones((2, 3), np.uint8),
    "rollout-0-17.final_index": np.full((2, 3), -1, np.int32),
}
FACTS = {"cause": "loss", "text": "the loss is nan", "state_version": 16}


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    path = write_nan_dump(tmp_path / "not-finite", "gradient-worker-0-000017", ARRAYS, FACTS)
    assert path == tmp_path / "not-finite" / "gradient-worker-0-000017"
    arrays, facts = read_nan_dump(path)
    assert facts == {**FACTS, "left_out": []}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_one_of_a_name_and_ten_of_a_run_are_enough(tmp_path: Path) -> None:
    written = [write_nan_dump(tmp_path, f"gradient-worker-0-{n % 20:06d}", ARRAYS, FACTS) for n in range(40)]
    assert [path is not None for path in written] == [True] * nan_dumps.KEPT + [False] * (40 - nan_dumps.KEPT)
    (tmp_path / "gradient-worker-0-000000" / "DONE").unlink()
    assert write_nan_dump(tmp_path, "gradient-worker-0-000000", ARRAYS, FACTS) is None


def test_a_killed_writer_does_not_count(tmp_path: Path) -> None:
    for n in range(nan_dumps.KEPT):
        (tmp_path / f".gradient-worker-{n}-000000.hive-tmp").mkdir()
    assert write_nan_dump(tmp_path, "gradient-worker-0-000000", ARRAYS, FACTS) is not None


def test_the_largest_arrays_are_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nan_dumps, "LARGEST_BYTES", 40)
    path = write_nan_dump(tmp_path, "a", ARRAYS, FACTS)
    assert path is not None
    arrays, facts = read_nan_dump(path)
    assert set(arrays) == {"inputs", "rollout-0-17.valid"}
    assert facts["left_out"] == ["rollout-0-17.actions", "rollout-0-17.final_index"]


def test_a_damaged_one_is_refused_by_name(tmp_path: Path) -> None:
    path = write_nan_dump(tmp_path, "a", ARRAYS, FACTS)
    assert path is not None
    file = path / nan_dumps.ARRAYS_FILE
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(RecordError, match=r"arrays\.safetensors` is damaged"):
        read_nan_dump(path)


def test_where_nothing_can_be_written_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot make"):
        write_nan_dump(tmp_path / "file" / "not-finite", "a", ARRAYS, FACTS)
    assert os.listdir(tmp_path) == ["file"]
