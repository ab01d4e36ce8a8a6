"""Checkpoints: what a run is resumed from.

    checkpoints/
      002000/                    the number of updates, six digits or more
        weights.safetensors      tensors by name, for evaluation and for other programs
        state.json               `update`, `checkpoint_format`, `scheduled`, `env_steps`, `mean_return`, and what the
                                 writer adds
        <part>.bin               raw bytes: a block of the learner's state as it lies in memory
        DONE                     size and SHA-256 of each of them, written last

A checkpoint appears whole (`atomic_folder`) and disappears whole (`remove_folder`). Two depths of looking:
listing compares sizes, which finds what was cut short; `newest_checkpoint` and `retain` read every byte, so
that nothing is loaded, and nothing is removed in favour of a checkpoint, that a disk has damaged. Whatever
else lies in the folder is passed over; what is named like a checkpoint and is none is refused with its cause.

`scheduled` tells a cut that fell due from a save that somebody asked for: only the first continues exactly.

Nothing here knows what the parts mean, or when a checkpoint is due. A folder of checkpoints has one writer.
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

# Raised when a part changes its meaning. Format 1 has no number in state.json and no target network; a state without a
# target still has the same bytes, so format 1 is read.
FORMAT = 2

# What f"{update:06d}" makes, and nothing else: two names never mean the same update.
NAME = re.compile(r"[0-9]{6}|[1-9][0-9]{6,}")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk: its folder, the updates it was made after, and the content of state.json."""

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
        """None before the first episode ended, and where the state holds no finite number."""
        value: Any = self.state.get("mean_return")
        return value if type(value) in (int, float) and -math.inf < value < math.inf else None

    def part(self, name: str) -> bytes:
        """The bytes that were written as `name`. Raises RecordError."""
        file = _part_file(self.path, name)
        try:
            return file.read_bytes()
        except OSError as error:
            raise failure("read", file, error) from error

    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        """Writable copies, by name. Raises RecordError."""
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
    """Writes `root/<update>/` and returns it. Parts are contiguous; `update` and the format are added to the state.

    One of the same update that is damaged is replaced: a run that fell back to an earlier checkpoint comes
    by again. Raises RecordError when there is a good one, or when it cannot be written; those before it then
    stay as they were.
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
    """The checkpoint that `place` names: its folder, or a run (a folder or a name below $HIVE_HOME), then its newest.

    Every byte is compared with its checksum. Raises RecordError, and UsageError for a run that is not there.
    """
    folder = Path(place)
    if (folder / DONE).exists():
        return _open(folder, verify=True)
    root = folder / "checkpoints"
    if not root.is_dir():
        root = resolve_run(home_folder(), place).checkpoints
    newest = newest_checkpoint(root)
    if newest is None:
        hint = "[checkpoint] every says how often one is written"
        raise RecordError(f"`{root}` holds no complete checkpoint", hint=hint)
    return newest


def list_checkpoints(root: Path, *, verify: bool = False) -> list[Checkpoint]:
    """Those that are complete, by update; with `verify` every byte is compared with its checksum.

    Raises RecordError when `root` cannot be read.
    """
    return list(_newest_first(root, verify))[::-1]


def newest_checkpoint(
    root: Path, *, scheduled_only: bool = False, refused: Callable[[str], object] = lambda cause: None
) -> Checkpoint | None:
    """The newest whose every byte is as it was written, or None.

    `refused` hears of each newer one that is damaged: its name and the cause. Raises RecordError when
    `root` cannot be read.
    """
    found = _newest_first(root, verify=True, refused=refused)
    return next((checkpoint for checkpoint in found if checkpoint.scheduled or not scheduled_only), None)


def best_first(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Those that have a mean return, the highest first; of equal ones the newer."""
    rated = [checkpoint for checkpoint in checkpoints if checkpoint.mean_return is not None]
    return sorted(rated, key=lambda checkpoint: (checkpoint.mean_return, checkpoint.update), reverse=True)


def retain(root: Path, keep_last: int, keep_best: int = 1, files: Files = FILES) -> list[Path]:
    """Removes all but the `keep_last` newest, the `keep_best` by mean return and the newest scheduled one.

    Of equal returns the newer is the better one. The newest stays whatever the numbers are. Only intact
    checkpoints count, and only they are removed. Returns what was removed, oldest first. Raises RecordError
    when `root` cannot be read or one cannot be removed; those after it then stay too.
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
    """Raises RecordError saying why it cannot be taken."""
    check_folder(folder, checksums=verify)
    update, state = int(folder.name), read_object(folder / STATE_FILE)
    if state.get("update") != update:
        raise RecordError(f"`{folder}` holds a checkpoint of update {state.get('update')!r}")
    written = state.get("checkpoint_format", 1)
    if type(written) is not int or not 1 <= written <= FORMAT:
        hint = "it was written by a newer hive: read it with that one"
        raise RecordError(f"`{folder}` is of checkpoint format {written!r}; this hive reads 1 to {FORMAT}", hint=hint)
    return Checkpoint(folder, update, state)


def _part_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.bin"
