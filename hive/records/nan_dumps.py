"""NanDumps: what a gradient that was not finite was made of, kept for whoever looks into it.

    not-finite/
      gradient-worker-0-000017/     who made it and which one it was
        arrays.safetensors          arrays by name
        facts.json                  cause, in words, versions, counters
        DONE

Like a checkpoint, a nan_dump appears whole or not at all; nothing in it can execute. There are few: the first tells
most, and what makes NaN once often makes it for hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.errors import RecordError
from hive.records.atomic import atomic_folder, check_folder
from hive.records.documents import JSON, failure, json_text, read_object

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["read_specimen", "write_specimen"]

KEPT = 10  # of one run
LARGEST_BYTES = 1 << 30  # of one: with the weights of a huge network it would fill the disk that checkpoints need

ARRAYS_FILE, FACTS_FILE = "arrays.safetensors", "facts.json"


def write_specimen(
    root: Path, name: str, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, JSON]
) -> Path | None:
    """Writes `root/<name>/` and returns it; None when there are enough of them, or one of this name.

    The largest arrays are left out of what would be too large, and named in the facts. Raises RecordError.
    """
    import numpy as np
    import safetensors.numpy

    try:
        root.mkdir(exist_ok=True)
        known = [path.name for path in root.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        raise failure("make", root, error) from error
    if len(known) >= KEPT or name in known:
        return None
    fitting, left_out = _fitting(arrays)
    rows = {key: np.asarray(array, order="C") for key, array in fitting.items()}  # the library knows no strides
    text = json_text({**facts, "left_out": left_out}, indent=1).encode()
    with atomic_folder(root / name) as folder:
        (folder / ARRAYS_FILE).write_bytes(safetensors.numpy.save(rows))
        (folder / FACTS_FILE).write_bytes(text)
    return root / name


def read_specimen(path: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """The arrays and the facts. Raises RecordError for one that is damaged."""
    import safetensors
    import safetensors.numpy

    check_folder(path)
    file = path / ARRAYS_FILE
    try:
        return safetensors.numpy.load(file.read_bytes()), read_object(path / FACTS_FILE)
    except OSError as error:
        raise failure("read", file, error) from error
    except (safetensors.SafetensorError, ValueError) as error:
        raise RecordError(f"`{file}` cannot be read as arrays: {error}") from error


def _fitting(arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[dict[str, npt.NDArray[Any]], list[str]]:
    """The smallest of the arrays that fit together, in the order given, and the names of the others."""
    room, fitting = LARGEST_BYTES, set()
    for name in sorted(arrays, key=lambda name: arrays[name].nbytes):
        room -= arrays[name].nbytes
        if room >= 0:
            fitting.add(name)
    return {n: a for n, a in arrays.items() if n in fitting}, [n for n in arrays if n not in fitting]
