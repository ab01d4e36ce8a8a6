"""Writes, finds and removes checkpoints, from which runs are resumed.

    checkpoints/
      002000/                    the number of updates, six digits or more
        weights.safetensors      tensors by name, for evaluation and for other programs
        state.json               `update`, `checkpoint_format`, `scheduled`, `env_steps`, `mean_return`, and keys of the
                                 writer
        <part>.bin               raw bytes: a block of the learner's state in its memory layout
        replay/                  the rows of a replay memory, if it has one (hive.records.checkpoints.replay_chunks)
        DONE                     size and SHA-256 of each of these files, written last
        KEEP                     exists if a user has saved it (`hive save`): only `hive prune` removes it

A checkpoint appears and disappears completely (`atomic_folder`, `remove_folder`), and its folder has one writer. Only
from a scheduled one, which was written at a resume barrier, a run continues exactly.

There are three levels of checks. Listing compares sizes, which detects truncated files. `newest_checkpoint` and
`retain` compare every byte, so that a damaged checkpoint is neither loaded nor kept in place of an intact one. The rows
of a replay memory can have gigabytes, and checkpoints share their files: these are compared on request, and when they
are read.

The best policy of a run has the same format, without parts, as the only checkpoint of `best/`; `by` in its state.json
is "evaluation" or "training", the origin of `mean_return`. A better one is complete before its predecessor is removed.
Between the two, both exist, and readers take the better.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.errors import RecordError, UsageError
from hive.paths import user_path
from hive.records.atomic import DONE, FILES, FileFacts, Files, atomic_folder, check_folder, remove_folder, write_mark
from hive.records.checkpoints.policy_files import PolicyFile, is_policy_file, read_policy_file
from hive.records.directory import REPLAY_FOLDER, ROWS_SUFFIX, STATE_FILE, RunDirectory, home_folder
from hive.records.documents import JSON, failure, is_json_number, read_object
from hive.records.regular import read_regular
from hive.records.runs import policy_directory, resolve_run

if TYPE_CHECKING:
    import numpy.typing as npt

    from hive.records.checkpoints.replay_chunks import RowsToSave

FORMAT = 2  # increased when the meaning of a part changes

# Exactly the names that f"{update:06d}" produces, so that two names never refer to the same update.
NAME = re.compile(r"[0-9]{6}|[1-9][0-9]{6,}")

# Keys of state.json that readers rely on, if they exist: whole numbers of at least this value.
COUNTERS = {"env_steps": 0, "updates": 0, "gradient_workers": 1, "per_version": 1}

KEEP = "KEEP"

MOST_FINDS = 5  # a checkpoint takes longer to write than to read: a second attempt is rare

WHICH = ("latest", "best")  # the checkpoints of a run that `checkpoint_at` can select


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk: its folder, the number of updates before it, and the content of state.json.

    exported: the file that it is instead, `path`, of a policy that `hive export` has written.
    """

    path: Path
    update: int
    state: dict[str, Any]
    weights: Mapping[str, npt.NDArray[Any]] | None = None  # tensors in memory, of a checkpoint that is `held`
    exported: PolicyFile | None = None

    @classmethod
    def of_file(cls, path: Path) -> Checkpoint:
        """Return the policy that `hive export` has written. Raises the errors of `read_policy_file`."""
        file = read_policy_file(path)
        return cls(file.path, int(file.facts["update"]), file.state, exported=file)

    @property
    def described_in(self) -> str:
        """What has the description of its policy, for messages."""
        return f"the metadata of {self.path}" if self.exported else f"state.json of {self.path}"

    @property
    def scheduled(self) -> bool:
        return self.state.get("scheduled") is True

    @property
    def mean_return(self) -> float | None:
        """Mean return of its episodes; None before the first has ended, and if the stored value is not finite.

        The episodes are the last 100 of the training; for a best policy they are those that it was chosen by.
        """
        value: Any = self.state.get("mean_return")
        return value if type(value) in (int, float) and -math.inf < value < math.inf else None

    def part(self, name: str) -> bytes:
        """Return the bytes of the part `name`. Raises RecordError."""
        file = _part_file(self.path, name)
        try:
            return read_regular(file)
        except OSError as error:
            raise failure("read", file, error) from error

    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        """Return the tensors of weights.safetensors by name, as writable copies. Raises RecordError."""
        if self.weights is not None:
            return {name: tensor.copy() for name, tensor in self.weights.items()}
        if self.exported is not None:
            return self.exported.tensors()
        from hive.records.checkpoints.weights import load_weights

        return load_weights(self.path)[0]

    def kinds(self) -> Mapping[str, npt.NDArray[Any]]:
        """Return arrays of the shapes and dtypes of its tensors, by name; those of a file have no memory."""
        if self.exported is not None:
            return self.exported.kinds
        return self.tensors() if self.weights is None else self.weights

    @property
    def has_replay(self) -> bool:
        """Whether it was written with the rows of a replay memory."""
        return (self.path / REPLAY_FOLDER).is_dir()

    def read_replay(self, arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[range, ...]:
        """Read the rows of a replay memory into `arrays` [S, R, B, ...]; return the rows of each source now in them.

        See `hive.records.checkpoints.replay_chunks.read_replay`. Raises RecordError.
        """
        from hive.records.checkpoints.replay_chunks import read_replay

        return read_replay(self.path, arrays)


def write_checkpoint(
    root: Path,
    update: int,
    *,
    tensors: Mapping[str, npt.NDArray[Any]],
    parts: Mapping[str, bytes | bytearray | memoryview | npt.NDArray[Any]],
    state: Mapping[str, JSON],
    replay: RowsToSave | None = None,
    files: Files = FILES,
) -> Path:
    """Write the checkpoint `root/<update>/` and return its path.

    tensors: arrays by name, of the dtypes that `hive.records.checkpoints.weights` allows.
    parts: contiguous buffers by name.
    state: counters; `update` and `checkpoint_format` are added.
    replay: rows of a replay memory; files that earlier checkpoints in `root` have are linked.

    A damaged checkpoint of the same update is replaced, because a run that was resumed from an earlier checkpoint
    reaches this update again. Raises RecordError if an intact one exists, or if it cannot be written. Earlier
    checkpoints are not affected.
    """
    writing = writing_checkpoint(root, update, tensors=tensors, parts=parts, state=state, replay=replay, files=files)
    for _ in writing:
        pass
    return _folder(root, update)


def writing_checkpoint(
    root: Path,
    update: int,
    *,
    tensors: Mapping[str, npt.NDArray[Any]],
    parts: Mapping[str, bytes | bytearray | memoryview | npt.NDArray[Any]],
    state: Mapping[str, JSON],
    replay: RowsToSave | None = None,
    files: Files = FILES,
) -> Generator[tuple[int, ...], None, None]:
    """Write a checkpoint as `write_checkpoint` does, in steps. It exists when the generator has ended.

    The first step writes all but the rows of `replay`: `tensors`, `parts` and `leaves` are not read after it. Each step
    yields the first row of each source that is still to be read; the rows before may be overwritten. A generator that
    is closed leaves nothing. Raises what `write_checkpoint` raises.
    """
    from hive.records.checkpoints.weights import save_weights

    folder = _folder(root, update)
    try:
        root.mkdir(exist_ok=True)
    except OSError as error:
        raise failure("make", root, error) from error
    if folder.exists():
        try:
            _open(folder, verify=True)
        except RecordError:
            remove_folder(folder, files)
    known: dict[str, FileFacts] = {}
    with atomic_folder(folder, files, known) as temporary:
        save_weights(temporary, tensors, {**state, "update": update, "checkpoint_format": FORMAT}, files)
        for name, data in parts.items():
            block = memoryview(data)  # type: ignore[arg-type]  # arrays are buffers for mypy from 3.12 on
            files.write(_part_file(temporary, name), block)
        if replay is not None:
            from hive.records.checkpoints.replay_chunks import write_replay

            saved = _valid(reversed(checkpoint_folders(root)), verify=False)
            earlier = [checkpoint.path for checkpoint in saved if checkpoint.update < update]
            known.update((yield from write_replay(temporary, replay, earlier, files)))


def warn(text: str) -> None:
    """Warn a Python program at the line that called hive."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("hive", "contextlib"):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, RuntimeWarning, stacklevel=level)


def checkpoint_at(
    place: str, which: str = "latest", policy: str | None = None, warn: Callable[[str], object] = warn
) -> Checkpoint:
    """Return the checkpoint in the folder `place`, or one of the run `place` (folder, or name in $HIVE_HOME).

    `place` may also be the file of a policy that `hive export` has written, FILE.safetensors.

    which: of a run, "latest" for its newest checkpoint, "best" for its best policy. policy: the name of one of a run's
    policies; None: the only one, or the first. warn: is called if a newer checkpoint is damaged.

    Checksums are compared. Raises RecordError if there is no intact one, which names the damage, and UsageError for an
    unknown run, another `which`, "best" with the folder of a checkpoint or with a file, and a policy that a file does
    not hold.
    """
    if not isinstance(which, str) or which not in WHICH:
        calls = (
            "" if isinstance(which, str) else "action = result.policy()(observation), or hive.load(RUN)(observation)"
        )
        raise UsageError(f'invalid `which` {which!r}: expected "{WHICH[0]}" or "{WHICH[1]}"', hint=calls)
    folder = user_path(place)
    if is_policy_file(place) and not folder.is_dir():
        return _exported(folder, which, policy)
    of_run = (folder / "checkpoints").is_dir()  # also for what `hive resume --exact` has set aside
    if not of_run and ((folder / DONE).exists() or (NAME.fullmatch(folder.name) and folder.is_dir())):
        if which == "best" or policy is not None:
            raise UsageError(
                f"`{place}` is a checkpoint", hint='which="best" and policy="..." need the folder or the name of a run'
            )
        return _open(folder, verify=True)
    run = RunDirectory(folder) if of_run else resolve_run(home_folder(), place)
    run.refuse_links()
    if policy is not None:
        run = policy_directory(run, policy)
    if which == "best":
        return best_of(run)
    if not checkpoint_folders(run.checkpoints):
        hint = "[checkpoint] every determines how often one is written"
        raise RecordError(f"`{run.checkpoints}` holds no complete checkpoint", hint=hint)
    return newest_intact(run.checkpoints, warn)


def _exported(path: Path, which: str, policy: str | None) -> Checkpoint:
    """Return the policy of a file. Raises UsageError for another policy than it holds, RecordError."""
    checkpoint = Checkpoint.of_file(path)
    if which != "latest":
        raise UsageError(f"`{path}` holds one policy, so `{which}` selects nothing")
    name = checkpoint.exported.name if checkpoint.exported else ""
    if policy not in (None, name):
        found = f"the policy `{name}`" if name else "one policy without a name"
        raise UsageError(f"`{path}` holds {found}, not `{policy}`")
    return checkpoint


def held(find: Callable[[], list[Checkpoint]]) -> list[Checkpoint]:
    """Return the checkpoints that `find` returns, with their weights in memory, so that they may be removed meanwhile.

    Files of exported policies are not read: their descriptions are to be checked before.

    A live run writes checkpoints and removes old ones. If it removes one between its discovery and the end of reading,
    `find` is called again, up to MOST_FINDS times. Raises RecordError, and what `find` raises.
    """
    for left in reversed(range(MOST_FINDS)):
        found = find()
        try:
            return [one if one.exported else replace(one, weights=one.tensors()) for one in found]
        except RecordError:
            if left == 0 or all((one.path / DONE).exists() for one in found):
                raise  # damaged, not removed
    raise AssertionError("unreachable")


def newest_intact(root: Path, warn: Callable[[str], object]) -> Checkpoint:
    """Return the newest intact checkpoint in `root`, which has some; `warn` is called if a newer one is damaged.

    Checksums are compared. Raises RecordError, which names the damage, if none is intact.
    """
    damaged: list[str] = []
    newest = newest_checkpoint(root, refused=damaged.append)
    more = f", and {len(damaged) - 1} more" if len(damaged) > 1 else ""
    if newest is None:
        raise RecordError(
            f"every checkpoint in `{root}` is damaged: {next(iter(damaged), 'it was removed')}{more}",
            hint='its best policy may be intact: `--which best`, or which="best" in Python',
        )
    if damaged:
        warn(f"an older checkpoint, of update {newest.update:,}, is taken: a newer one is damaged: {damaged[0]}{more}")
    return newest


def best_of(run: RunDirectory) -> Checkpoint:
    """Return the best policy of a run. Checksums are compared. Raises RecordError if it has none, or a damaged one."""
    damaged: list[str] = []
    best = best_policy(run.best, refused=damaged.append)
    if best is None and damaged:
        raise RecordError(f"the best policy of {run.name} is damaged: {damaged[-1]}")
    if best is None:
        raise RecordError(
            f"{run.name} has no best policy",
            hint="one is kept from the first evaluation on; without [evaluation] every, from the 100th training "
            "episode on, unless checkpoint.every is {}",
        )
    return best


def list_checkpoints(
    root: Path, *, verify: bool = False, refused: Callable[[str], object] = lambda cause: None
) -> list[Checkpoint]:
    """Return the complete checkpoints in `root`, sorted by update.

    verify: compare checksums too, except for those of the rows of replay memories. refused: called with the cause for
    each that is damaged.

    Raises RecordError if `root` cannot be read.
    """
    return [*_valid(checkpoint_folders(root), verify, refused=refused)]


def newest_checkpoint(
    root: Path,
    *,
    scheduled_only: bool = False,
    replay: bool = False,
    refused: Callable[[str], object] = lambda cause: None,
) -> Checkpoint | None:
    """Return the newest intact checkpoint in `root`, or None. Checksums are compared.

    scheduled_only: ignore checkpoints that are not scheduled.
    replay: compare the checksums of the rows of replay memories too, which takes about a second per GB.
    refused: called for each newer checkpoint that is damaged, with its name and the cause.

    Raises RecordError if `root` cannot be read.
    """
    newest_first = _valid(reversed(checkpoint_folders(root)), True, replay, refused)
    return next((checkpoint for checkpoint in newest_first if checkpoint.scheduled or not scheduled_only), None)


def best_first(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Return the checkpoints with a mean return, highest first; of equal returns, the earlier comes first."""
    rated = [checkpoint for checkpoint in checkpoints if checkpoint.mean_return is not None]
    return sorted(rated, key=lambda checkpoint: (-(checkpoint.mean_return or 0.0), checkpoint.update))


def retain(root: Path, keep_last: int, keep_best: int = 1, files: Files = FILES) -> list[Path]:
    """Remove all but the `keep_last` newest, the `keep_best` by mean return and the newest scheduled checkpoint.

    Those with `KEEP` are neither counted nor removed. Of equal returns, the earlier checkpoint counts as better. The
    newest is always kept. Damaged checkpoints are not counted and not removed. Returns the paths of removed
    checkpoints, oldest first. Raises RecordError if `root` cannot be read or a checkpoint cannot be removed; later ones
    are then not removed either.
    """
    removed = [checkpoint.path for checkpoint in surplus(root, keep_last, keep_best, by_hand=False)]
    for path in removed:
        remove_folder(path, files)
    return removed


def surplus(root: Path, keep_last: int, keep_best: int, *, by_hand: bool = True) -> list[Checkpoint]:
    """Return all checkpoints but those that `retain` keeps, oldest first. Raises RecordError if `root` cannot be read.

    by_hand: whether those that a user has saved are among them, as any other.
    """
    folders = [folder for folder in checkpoint_folders(root) if by_hand or not (folder / KEEP).exists()]
    found = [*_valid(folders, verify=True)]
    scheduled = [checkpoint for checkpoint in found if checkpoint.scheduled]
    kept = [*found[-max(keep_last, 1) :], *best_first(found)[:keep_best], *scheduled[-1:]]
    return [checkpoint for checkpoint in found if checkpoint not in kept]


def keep_until_pruned(folder: Path, files: Files = FILES) -> None:
    """Mark a checkpoint so that only `hive prune` removes it. Raises RecordError."""
    write_mark(folder, KEEP, files)


def checkpoint_folders(root: Path) -> list[Path]:
    """Return the folders in `root` with the name of a checkpoint, valid or not, sorted by update; [] without `root`.

    Raises RecordError if `root` cannot be read.
    """
    if not os.path.lexists(root):  # deleted to free space
        return []
    try:
        named = [path for path in root.iterdir() if NAME.fullmatch(path.name)]
        folders = [path for path in named if path.is_dir() and not path.is_symlink()]
    except OSError as error:
        raise failure("read", root, error) from error
    return sorted(folders, key=lambda folder: int(folder.name))


def best_policy(
    root: Path, *, verify: bool = True, refused: Callable[[str], object] = lambda cause: None
) -> Checkpoint | None:
    """Return the best policy in `root`, or None if there is none or `root` does not exist.

    A live run replaces its best policy. If that happens between listing and reading, both are repeated, up to
    MOST_FINDS times. verify: whether to compare checksums. refused: as for `list_checkpoints`. Raises RecordError if
    `root` cannot be read.
    """
    for _ in range(MOST_FINDS):
        if not root.is_dir():
            return None
        folders = checkpoint_folders(root)
        best = best_first(_valid(folders, verify, refused=refused))
        if best or checkpoint_folders(root) == folders:
            return best[0] if best else None
    return None


def best_facts(run: RunDirectory) -> dict[str, Any] | None:
    """Return what a summary says about the best policy of a run, live or ended; None if none can be read."""
    try:
        best = best_policy(run.best, verify=False)
    except RecordError:
        return None
    if best is None:
        return None
    return {
        "checkpoint": f"{run.best.name}/{best.path.name}",
        "mean_return": best.mean_return,
        "by": by if isinstance(by := best.state.get("by"), str) else None,
        "steps": best.state.get("env_steps"),
        "updates": best.state.get("updates"),
    }


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Keep others out that write below `folder` with this lock; the kernel releases that of a process that exits.

    Raises RecordError if the folder cannot be opened.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise failure("open", folder, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace_best(
    root: Path,
    update: int,
    *,
    tensors: Mapping[str, npt.NDArray[Any]],
    state: Mapping[str, JSON],
    files: Files = FILES,
) -> Path:
    """Write the best policy `root/<update>/`, then remove all others from `root`; return its path.

    tensors, state: as for `write_checkpoint`; `mean_return` in `state` must be finite. A policy of the same update,
    which a resumed run can reach again, is removed before. Raises RecordError if something cannot be written or
    removed; then at least one of the two policies is complete, except for two of the same update.
    """
    folder = _folder(root, update)
    if folder.exists():
        remove_folder(folder, files)
    write_checkpoint(root, update, tensors=tensors, parts={}, state=state, files=files)
    for other in checkpoint_folders(root):
        if other != folder:
            remove_folder(other, files)
    return folder


def _valid(
    folders: Iterable[Path],
    verify: bool,
    replay: bool = False,
    refused: Callable[[str], object] = lambda cause: None,
) -> Iterator[Checkpoint]:
    for folder in folders:
        try:
            yield _open(folder, verify, replay)
        except RecordError as error:
            if folder.exists():  # else a live run has removed it
                refused(str(error))


def _open(folder: Path, verify: bool, replay: bool = False) -> Checkpoint:
    """Return the checkpoint in `folder`. Raises RecordError with the cause if it is not valid.

    verify: compare checksums; `replay`: also those of the rows of a replay memory.
    """
    check_folder(folder, checksums=verify, unread="" if replay else ROWS_SUFFIX)
    state = read_object(folder / STATE_FILE)
    own_name = NAME.fullmatch(folder.name) is None  # of a copy that its user has named
    update = state.get("update") if own_name else int(folder.name)
    if state.get("update") != update or type(update) is not int:
        raise RecordError(f"`{folder}` holds a checkpoint of update {state.get('update')!r}")
    if (written := state.get("checkpoint_format")) != FORMAT:
        hint = "another version of hive wrote it: read it with that version"
        raise RecordError(f"`{folder}` has checkpoint format {written!r}; this hive reads {FORMAT}", hint=hint)
    for name, least in COUNTERS.items():
        value = state.get(name, least)
        if type(value) is not int or not is_json_number(value) or value < least:
            raise RecordError(f"`{folder / STATE_FILE}`: `{name}` is not a whole number from {least} on")
    if not is_json_number(state.get("schedule_start", 0.0)):
        raise RecordError(f"`{folder / STATE_FILE}`: `schedule_start` is not a number")
    first, shape = state.get("first_gradient_round", 0), state.get("round_shape", [1])
    numbers = [first, *shape] if isinstance(shape, list) and shape else [None]
    if not all(type(number) is int and is_json_number(number) for number in numbers):
        raise RecordError(
            f"`{folder / STATE_FILE}`: `first_gradient_round` or `round_shape` has other than whole numbers"
        )
    return Checkpoint(folder, update, state)


def _folder(root: Path, update: int) -> Path:
    return root / f"{update:06d}"


def _part_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.bin"
