from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from hive.errors import RecordError
from hive.records.atomic import atomic_folder, check_folder
from hive.records.checkpoints.weights import STATE_FILE, WEIGHTS_FILE, load_weights, save_weights, weights_sha256

TENSORS = {
    "policy.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "policy.transposed": np.arange(12, dtype=np.float32).reshape(3, 4).T,
    "moments": np.array([1e-300, math.nan, -0.0]),
    "half": np.ones((2, 1, 3), np.float16),
    "steps": np.array(2**53 + 1, np.int64),
    "block": np.arange(256, dtype=np.uint8),
    "empty": np.zeros((0, 3), np.float32),
}
STATE: dict[str, Any] = {"updates": 3, "best": -math.inf, "returns": [0.1, 1e300], "name": "ü", "none": None}


def test_they_come_back_bit_for_bit(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "1") as folder:
        save_weights(folder, TENSORS, STATE)
    check_folder(tmp_path / "1")
    tensors, state = load_weights(tmp_path / "1")
    assert state == STATE
    assert set(tensors) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert (tensors[name].dtype, tensors[name].shape) == (tensor.dtype, tensor.shape)
        assert tensors[name].tobytes() == tensor.tobytes()
    tensors["policy.weight"][0] = 7  # its own memory, writable


def test_equal_weights_are_equal_files(tmp_path: Path) -> None:
    contents = []
    for name, tensors in (("a", TENSORS), ("b", dict(reversed(TENSORS.items())))):
        (tmp_path / name).mkdir()
        save_weights(tmp_path / name, tensors, STATE)
        contents.append((tmp_path / name / WEIGHTS_FILE).read_bytes())
    assert contents[0] == contents[1]


@pytest.mark.parametrize("dtype", ["int32", "bool", "complex64", ">f4", "O", "U3"])
def test_a_foreign_dtype_is_refused_before_anything_is_written(tmp_path: Path, dtype: str) -> None:
    with pytest.raises(RecordError, match=r"`wrong` is .*; a checkpoint holds float32, float64"):
        save_weights(tmp_path, {"wrong": np.zeros(3, dtype)}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_dtype_in_a_file_is_refused(tmp_path: Path) -> None:
    save_weights(tmp_path, {}, {})
    (tmp_path / WEIGHTS_FILE).write_bytes(safetensors.numpy.save({"wrong": np.zeros(3, np.int32)}))
    with pytest.raises(RecordError, match=r"weights\.safetensors` cannot be read as weights: the dtype is I32"):
        load_weights(tmp_path)


def test_a_disk_that_refuses(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"cannot write `.*weights\.safetensors`: no such file"):
        save_weights(tmp_path / "none", TENSORS, STATE)
    with pytest.raises(RecordError, match=r"cannot read `.*weights\.safetensors`: no such file"):
        load_weights(tmp_path / "none")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    save_weights(folder, TENSORS, STATE)
    return folder


@given(data=st.data())
@settings(max_examples=150, derandomize=True)
def test_damaged_weights_are_refused_or_other_weights(good: Path, data: st.DataObject) -> None:
    """A file is refused by name or holds arrays of allowed dtypes; checksums are not judged here."""
    original = (good / WEIGHTS_FILE).read_bytes()
    start = data.draw(st.integers(0, 700))
    damage = data.draw(st.binary(max_size=12))
    cut = data.draw(st.sampled_from([len(original), len(original) - 1, 300, 8, 0]))
    folder = good.parent
    (folder / STATE_FILE).write_bytes((good / STATE_FILE).read_bytes())
    (folder / WEIGHTS_FILE).write_bytes((original[:start] + damage + original[start + len(damage) :])[:cut])
    cause = ""
    tensors: dict[str, Any] = {}
    try:
        tensors, _ = load_weights(folder)
    except RecordError as error:
        cause = str(error)
    assert not cause or WEIGHTS_FILE in cause
    assert {tensor.dtype for tensor in tensors.values()} <= {tensor.dtype for tensor in TENSORS.values()}


def safetensors_of(header: object, payload: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + payload


@pytest.mark.parametrize(
    "content",
    [
        (2**63).to_bytes(8, "little"),
        safetensors_of([]),
        safetensors_of({"a": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 0]}}),
        safetensors_of({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"1234"),
        safetensors_of({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"1234"),
        safetensors_of({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}, b"1234"),
        safetensors_of({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}, b"1234"),
        safetensors_of({"a": {"dtype": "O", "shape": [1], "data_offsets": [0, 8]}}, b"12345678"),
        safetensors_of({"a": {"dtype": "U8", "shape": [0, *[1] * 100], "data_offsets": [0, 0]}}),
        safetensors_of({"a": {"dtype": "U8", "shape": [0, 2**62, 2**62], "data_offsets": [0, 0]}}),
        safetensors_of({"a": {"dtype": "U8", "shape": [0, 2**64 - 1], "data_offsets": [0, 0]}}),
    ],
)
def test_crafted_weights_are_refused(tmp_path: Path, content: bytes) -> None:
    save_weights(tmp_path, {}, {})
    (tmp_path / WEIGHTS_FILE).write_bytes(content)
    with pytest.raises(RecordError, match=r"weights\.safetensors"):
        load_weights(tmp_path)


def test_damaged_state_is_refused(tmp_path: Path) -> None:
    save_weights(tmp_path, {}, STATE)
    (tmp_path / STATE_FILE).write_bytes((tmp_path / STATE_FILE).read_bytes()[:-1])
    with pytest.raises(RecordError, match=r"state\.json` is not a JSON object"):
        load_weights(tmp_path)


def test_sha256() -> None:
    block = np.arange(100, dtype=np.float32)
    expected = hashlib.sha256(block.tobytes()).hexdigest()
    assert weights_sha256(block) == weights_sha256(block.tobytes()) == weights_sha256(block.data) == expected
