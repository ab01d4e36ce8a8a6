"""Stores the inputs of gradients that were not finite (NaN dumps), for debugging.

    not-finite/
      gradient-worker-0-000017/     gradient worker and number of the gradient
        arrays.safetensors          arrays by name
        facts.json                  cause as text, versions, counters
        DONE

Like a checkpoint, a NaN dump appears completely or not at all, and nothing in it can be executed. Few are kept, because
the first one is the most useful, and a cause of NaN often persists for hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.errors import RecordError
from hive.records.atomic import atomic_folder, check_folder
from hive.records.documents import JSON, failure, json_text, read_object
from hive.records.regular import read_regular

if TYPE_CHECKING:
    import numpy.typing as npt

KEPT = 10  # maximum dumps per run
LARGEST_BYTES = 1 << 30  # maximum size of a dump: the weights of a huge network could fill the disk

ARRAYS_FILE, FACTS_FILE = "arrays.safetensors", "facts.json"


def write_nan_dump(
    root: Path, name: str, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, JSON]
) -> Path | None:
    """Write the dump `root/<name>/` and return its path; None if it already exists or if there are KEPT dumps.

    arrays: arrays by name, of any shape; the largest ones are omitted if all together exceed LARGEST_BYTES.
    facts: written to facts.json; "left_out" with the names of the omitted arrays is added.

    Raises RecordError if the dump cannot be written.
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
    rows = {key: np.asarray(array, order="C") for key, array in fitting.items()}  # safetensors ignores strides
    text = json_text({**facts, "left_out": left_out}, indent=1).encode()
    with atomic_folder(root / name) as folder:
        (folder / ARRAYS_FILE).write_bytes(safetensors.numpy.save(rows))
        (folder / FACTS_FILE).write_bytes(text)
    return root / name


def read_nan_dump(path: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Return the arrays by name and the facts of the dump at `path`. Raises RecordError if it is damaged."""
    import safetensors
    import safetensors.numpy

    check_folder(path)
    file = path / ARRAYS_FILE
    try:
        return safetensors.numpy.load(read_regular(file)), read_object(path / FACTS_FILE)
    except OSError as error:
        raise failure("read", file, error) from error
    except (safetensors.SafetensorError, ValueError) as error:
        raise RecordError(f"`{file}` cannot be read as arrays: {error}") from error


def _fitting(arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[dict[str, npt.NDArray[Any]], list[str]]:
    """Return the arrays that fit in LARGEST_BYTES, smallest first, in the given order, and the others' names."""
    room, fitting = LARGEST_BYTES, set()
    for name in sorted(arrays, key=lambda name: arrays[name].nbytes):
        room -= arrays[name].nbytes
        if room >= 0:
            fitting.add(name)
    return {n: a for n, a in arrays.items() if n in fitting}, [n for n in arrays if n not in fitting]
