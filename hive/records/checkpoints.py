"""Writes, finds and removes checkpoints, from which runs are resumed.

    checkpoints/
      002000/                    the number of updates, six digits or more
        weights.safetensors      tensors by name, for evaluation and for other programs
        state.json               `update`, `checkpoint_format`, `scheduled`, `env_steps`, `mean_return`, and keys of the
                                 writer
        <part>.bin               raw bytes: a block of the learner's state in its memory layout
        DONE                     size and SHA-256 of each of these files, written last

A checkpoint appears and disappears completely (`atomic_folder`, `remove_folder`). There are two levels of checks.
Listing compares sizes, which detects truncated files. `newest_checkpoint` and `retain` compare every byte, so that a
damaged checkpoint is neither loaded nor kept in place of an intact one. Other files in the folder are ignored. A folder
with the name of a checkpoint that is not a valid one is refused, with the cause.

`scheduled` is true for a checkpoint at a resume barrier and false for any other save. Only from a scheduled checkpoint
a run continues exactly.

This module does not interpret the parts, and does not decide when a checkpoint is due. A folder of checkpoints has one
writer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.errors import RecordError
from hive.records.atomic import DONE, FILES, Files, atomic_folder, check_folder, remove_folder
from hive.records.directory import STATE_FILE, home_folder
from hive.records.documents import JSON, failure, read_object
from hive.records.runs import resolve_run

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "Checkpoint",
    "best_first",
    "checkpoint_at",
    "list_checkpoints",
    "newest_checkpoint",
    "retain",
    "write_checkpoint",
]

# Increased when the meaning of a part changes. Format 1 has no number in state.json and no target network. A state
# without a target network has the same bytes in both formats, so format 1 can still be read.
FORMAT = 2

# Exactly the names that f"{update:06d}" produces, so that two names never refer to the same update.
NAME = re.compile(r"[0-9]{6}|[1-9][0-9]{6,}")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk: its folder, the number of updates before it, and the content of state.json."""

    path: Path
    update: int
    state: dict[str, Any]

    @property
    def format(self) -> int:
        return int(self.state.get("checkpoint_format", 1))

    @property
    def scheduled(self) -> bool:
        return self.state.get("scheduled") is True

    @property
    def mean_return(self) -> float | None:
        """Mean training return; None before the end of the first episode, and if the stored value is not finite."""
        value: Any = self.state.get("mean_return")
        return value if type(value) in (int, float) and -math.inf < value < math.inf else None

    def part(self, name: str) -> bytes:
        """Return the bytes of the part `name`. Raises RecordError."""
        file = _part_file(self.path, name)
        try:
            return file.read_bytes()
        except OSError as error:
            raise failure("read", file, error) from error

    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        """Return the tensors of weights.safetensors by name, as writable copies. Raises RecordError."""
        from hive.records.weights import load_weights

        return load_weights(self.path)[0]


def write_checkpoint(
    root: Path,
    update: int,
    *,
    tensors: Mapping[str, npt.NDArray[Any]],
    parts: Mapping[str, bytes | bytearray | memoryview | npt.NDArray[Any]],
    state: Mapping[str, JSON],
    files: Files = FILES,
) -> Path:
    """Write the checkpoint `root/<update>/` and return its path.

    tensors: arrays by name, of the dtypes that `hive.records.weights` allows.
    parts: contiguous buffers by name.
    state: counters; `update` and `checkpoint_format` are added.

    A damaged checkpoint of the same update is replaced, because a run that was resumed from an earlier checkpoint
    reaches this update again. Raises RecordError if an intact one exists, or if it cannot be written. Earlier
    checkpoints are not affected.
    """
    from hive.records.weights import save_weights

    folder = root / f"{update:06d}"
    if folder.exists():
        try:
            _open(folder, verify=True)
        except RecordError:
            remove_folder(folder, files)
    with atomic_folder(folder, files) as temporary:
        save_weights(temporary, tensors, {**state, "update": update, "checkpoint_format": FORMAT}, files)
        for name, data in parts.items():
            block = memoryview(data)  # type: ignore[arg-type]  # arrays are buffers for mypy from 3.12 on
            files.write(_part_file(temporary, name), block)
    return folder


def checkpoint_at(place: str) -> Checkpoint:
    """Return the checkpoint in the folder `place`, or the newest of the run `place` (folder, or name in $HIVE_HOME).

    Checksums are compared. Raises RecordError if there is no intact checkpoint, and UsageError for an unknown run.
    """
    folder = Path(place)
    if (folder / DONE).exists():
        return _open(folder, verify=True)
    root = folder / "checkpoints"
    if not root.is_dir():
        root = resolve_run(home_folder(), place).checkpoints
    newest = newest_checkpoint(root)
    if newest is None:
        hint = "[checkpoint] every determines how often one is written"
        raise RecordError(f"`{root}` holds no complete checkpoint", hint=hint)
    return newest


def list_checkpoints(root: Path, *, verify: bool = False) -> list[Checkpoint]:
    """Return the complete checkpoints in `root`, sorted by update; with `verify`, checksums are compared too.

    Raises RecordError if `root` cannot be read.
    """
    return list(_newest_first(root, verify))[::-1]


def newest_checkpoint(
    root: Path, *, scheduled_only: bool = False, refused: Callable[[str], object] = lambda cause: None
) -> Checkpoint | None:
    """Return the newest intact checkpoint in `root`, or None. Checksums are compared.

    scheduled_only: ignore checkpoints that are not scheduled.
    refused: called for each newer checkpoint that is damaged, with its name and the cause.

    Raises RecordError if `root` cannot be read.
    """
    found = _newest_first(root, verify=True, refused=refused)
    return next((checkpoint for checkpoint in found if checkpoint.scheduled or not scheduled_only), None)


def best_first(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Return the checkpoints with a mean return, highest first; of equal returns, the newer comes first."""
    rated = [checkpoint for checkpoint in checkpoints if checkpoint.mean_return is not None]
    return sorted(rated, key=lambda checkpoint: (checkpoint.mean_return, checkpoint.update), reverse=True)


def retain(root: Path, keep_last: int, keep_best: int = 1, files: Files = FILES) -> list[Path]:
    """Remove all but the `keep_last` newest, the `keep_best` by mean return and the newest scheduled checkpoint.

    Of equal returns, the newer checkpoint counts as better. The newest is always kept. Damaged checkpoints are neither
    counted nor removed. Returns the paths of removed checkpoints, oldest first. Raises RecordError if `root` cannot be
    read or a checkpoint cannot be removed; later ones are then not removed either.
    """
    found = list_checkpoints(root, verify=True)
    scheduled = [checkpoint for checkpoint in found if checkpoint.scheduled]
    kept = [*found[-max(keep_last, 1) :], *best_first(found)[:keep_best], *scheduled[-1:]]
    removed = [checkpoint.path for checkpoint in found if checkpoint not in kept]
    for path in removed:
        remove_folder(path, files)
    return removed


def _newest_first(
    root: Path, verify: bool, refused: Callable[[str], object] = lambda cause: None
) -> Iterator[Checkpoint]:
    try:
        named = [path for path in root.iterdir() if NAME.fullmatch(path.name)]
        folders = [path for path in named if path.is_dir() and not path.is_symlink()]
    except OSError as error:
        raise failure("read", root, error) from error
    for folder in sorted(folders, key=lambda folder: int(folder.name), reverse=True):
        try:
            yield _open(folder, verify)
        except RecordError as error:
            refused(str(error))


def _open(folder: Path, verify: bool) -> Checkpoint:
    """Return the checkpoint in `folder`. Raises RecordError with the cause if it is not valid."""
    check_folder(folder, checksums=verify)
    update, state = int(folder.name), read_object(folder / STATE_FILE)
    if state.get("update") != update:
        raise RecordError(f"`{folder}` holds a checkpoint of update {state.get('update')!r}")
    written = state.get("checkpoint_format", 1)
    if type(written) is not int or not 1 <= written <= FORMAT:
        hint = "a newer version of hive wrote it: read it with that version"
        raise RecordError(f"`{folder}` has checkpoint format {written!r}; this hive reads 1 to {FORMAT}", hint=hint)
    return Checkpoint(folder, update, state)


def _part_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.bin"
