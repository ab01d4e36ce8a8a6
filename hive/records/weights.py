"""What a checkpoint holds: named arrays as safetensors, everything else as JSON.

    <folder>/weights.safetensors     float32, float64, float16, int64, uint8
    <folder>/state.json              counters and whatever else is not an array

Nothing in either can execute. Reading trusts no byte: what is damaged or foreign is a RecordError that
names the file. Whether a folder is complete is not judged here but by hive.records.atomic, inside whose
`atomic_folder` the two files are written.
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

__all__ = ["STATE_FILE", "WEIGHTS_FILE", "load_weights", "save_weights", "weights_sha256"]

# What hive itself stores; anything else in a file is not ours. Keys: the format's names.
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
    """Writes both files; the same arrays give the same bytes. Raises RecordError, for a foreign dtype too."""
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPES.values():
            raise RecordError(f"`{name}` is {tensor.dtype}, a checkpoint holds {ALLOWED}")
    # Unlike other JSON of hive, NaN and infinity stay: what is loaded must equal what was saved.
    state_bytes = json.dumps(dict(state)).encode()
    # The library writes the memory of an array whatever its strides are, and would scramble a transposed one.
    rows = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
    for name, data in ((WEIGHTS_FILE, safetensors.numpy.save(rows)), (STATE_FILE, state_bytes)):
        try:
            files.write(folder / name, data)
        except OSError as error:
            raise failure("write", folder / name, error) from error


def load_weights(folder: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """The arrays (writable copies) and the state. Raises RecordError naming the file and the cause."""
    file = folder / WEIGHTS_FILE
    try:
        entries = safetensors.deserialize(file.read_bytes())  # type: ignore[no-untyped-call]
        tensors = {name: _array(**entry) for name, entry in entries}
    except OSError as error:
        raise failure("read", file, error) from error
    except (safetensors.SafetensorError, ValueError) as error:
        raise RecordError(f"`{file}` cannot be read as weights: {error}") from error
    return tensors, read_object(folder / STATE_FILE)


def _array(dtype: str, shape: list[int], data: bytearray) -> npt.NDArray[Any]:
    """Raises ValueError for what NumPy, or a checkpoint, does not hold."""
    if dtype not in DTYPES:
        raise ValueError(f"the dtype is {dtype}, a checkpoint holds {ALLOWED}")
    return np.ndarray(shape, DTYPES[dtype], buffer=data)


def weights_sha256(block: bytes | bytearray | memoryview | npt.NDArray[Any]) -> str:
    """Of contiguous bytes: equal weights have equal words for it. 64 hexadecimal digits."""
    return hashlib.sha256(block).hexdigest()  # type: ignore[arg-type]  # arrays are buffers for mypy from 3.12 on
