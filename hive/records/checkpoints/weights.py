"""Writes and reads the content of a checkpoint: named arrays as safetensors, everything else as JSON.

    <folder>/weights.safetensors     float32, float64, float16, int64, uint8
    <folder>/state.json              counters and other values that are not arrays

Nothing in these files can be executed. No content is trusted: damaged or foreign files raise a RecordError that names
the file. The files are written inside of `hive.records.atomic.atomic_folder`, which checks that a folder is complete.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from hive.errors import RecordError
from hive.records.atomic import FILES, Files
from hive.records.directory import STATE_FILE, WEIGHTS_FILE
from hive.records.documents import JSON, failure, read_object
from hive.records.regular import read_regular

# The dtypes that hive stores, by their names in safetensors. A file with any other dtype was not written by hive.
DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "U8": np.dtype("u1"),
}
ALLOWED = ", ".join(dtype.name for dtype in DTYPES.values())


def save_weights(
    folder: Path,
    tensors: Mapping[str, npt.NDArray[Any]],
    state: Mapping[str, JSON],
    files: Files = FILES,
) -> None:
    """Write both files into `folder`. Equal arrays give identical bytes.

    Raises RecordError if a file cannot be written, or if a tensor has another dtype than those in DTYPES.
    """
    weights = weights_bytes(tensors)
    # Unlike in other JSON files of hive, NaN and infinity are kept, because a loaded state must equal the saved one.
    state_bytes = json.dumps(dict(state)).encode()
    for name, data in ((WEIGHTS_FILE, weights), (STATE_FILE, state_bytes)):
        try:
            files.write(folder / name, data)
        except OSError as error:
            raise failure("write", folder / name, error) from error


def weights_bytes(tensors: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the content of a safetensors file. Equal arrays give identical bytes, with at most one key of metadata.

    Raises RecordError for a tensor of another dtype than those in DTYPES.
    """
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPES.values():
            raise RecordError(f"`{name}` is {tensor.dtype}; a checkpoint holds {ALLOWED}")
    # The library writes the memory of an array and ignores its strides, which would scramble a transposed one.
    rows = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
    return safetensors.numpy.save(rows, None if metadata is None else dict(metadata))


def load_weights(folder: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Return the arrays (writable copies) and the state. Raises RecordError with the file and the cause."""
    return read_weights(folder / WEIGHTS_FILE), read_object(folder / STATE_FILE)


def read_weights(file: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a safetensors file. Raises RecordError with the file and the cause."""
    try:
        entries = safetensors.deserialize(read_regular(file))  # type: ignore[no-untyped-call]
        return {name: _array(**entry) for name, entry in entries}
    except OSError as error:
        raise failure("read", file, error) from error
    except (safetensors.SafetensorError, ValueError) as error:
        raise RecordError(f"`{file}` cannot be read as weights: {error}") from error


def _array(dtype: str, shape: list[int], data: bytearray) -> npt.NDArray[Any]:
    """Return an entry of a safetensors file as an array. Raises ValueError for another dtype or a wrong size."""
    if dtype not in DTYPES:
        raise ValueError(f"the dtype is {dtype}; a checkpoint holds {ALLOWED}")
    return np.ndarray(shape, DTYPES[dtype], buffer=data)


def weights_sha256(block: bytes | bytearray | memoryview | npt.NDArray[Any]) -> str:
    """Return the SHA-256 of contiguous bytes as 64 hexadecimal digits, to compare weights by."""
    return hashlib.sha256(block).hexdigest()  # type: ignore[arg-type]  # arrays are buffers for mypy from 3.12 on
