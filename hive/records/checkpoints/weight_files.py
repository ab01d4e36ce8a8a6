"""Reads weights that other programs have saved: safetensors files, with the names and dtypes of those programs.

Nothing in such a file is executed. Files of torch.save, which are pickles, are refused with the lines of Python that
convert them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray

from hive.errors import RecordError
from hive.records.regular import read_regular

# Dtypes of arrays by their names in safetensors. NumPy has no bfloat16: it is the upper half of a float32.
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "U8": "u1", "BOOL": "?"}
PICKLES = (b"PK\x03\x04", b"\x80")  # first bytes of files of torch.save: a zip of pickles, or a pickle alone
CONVERSION = (
    "convert it in Python: import torch, safetensors.torch; "
    'safetensors.torch.save_file(torch.load("{0}", weights_only=True), "{1}")'
)


@dataclass(frozen=True)
class WeightFile:
    """The arrays of a file by name; bfloat16 as float32. dtypes: their dtypes in the file. sha256: of its bytes."""

    path: Path
    arrays: dict[str, NDArray[Any]]
    dtypes: dict[str, str]
    sha256: str


def read_weight_file(path: Path) -> WeightFile:
    """Read a safetensors file; links are followed. Raises RecordError with the file and the cause."""
    try:
        data = read_regular(path.resolve())
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise RecordError(
            f"the weights `{path}` cannot be read: {getattr(error, 'strerror', None) or error}",
            hint="a relative path begins at the folder in which the run is started",
        ) from None
    try:
        entries = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        if data.startswith(PICKLES):
            raise RecordError(
                f"`{path}` is a file of torch.save, which may execute code: hive reads safetensors",
                hint=CONVERSION.format(path, path.with_suffix(".safetensors")),
            ) from None
        raise RecordError(
            f"`{path}` is not a safetensors file: {error}",
            hint="safetensors.torch.save_file(module.state_dict(), FILE) writes one",
        ) from None
    arrays = {name: _array(entry) for name, entry in entries}
    dtypes = {name: str(entry["dtype"]) for name, entry in entries}
    return WeightFile(path, arrays, dtypes, hashlib.sha256(data).hexdigest())


def _array(entry: dict[str, Any]) -> NDArray[Any]:
    """Return an entry as an array; one of another dtype than DTYPES as its bytes, for a message about its name."""
    shape, dtype = entry["shape"], DTYPES.get(entry["dtype"])
    if dtype is None:
        return np.frombuffer(entry["data"], np.uint8)
    array: NDArray[Any] = np.frombuffer(entry["data"], dtype).reshape(shape)
    if entry["dtype"] == "BF16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array
