"""Checkpointers, which an Approximation calls after every update to save its state.

    <log_dir>/<name>/
      000200/                  the number of updates
        weights.safetensors    "model/<parameter>", "optimizer/state/0/exp_avg" ...
        state.json             everything but arrays: counters, hyperparameters, the scheduler
        DONE                   sizes and checksums, written last

A checkpoint contains the complete state: model, optimizer, scheduler, target network and counters. It is a folder of
hive.records.checkpoints.folders, which is written atomically. Its content is data (see stored.py), so loading cannot
execute code, and classes may have been renamed since. `load_checkpoint` reads one; `PeriodicCheckpointer.restore`
continues from the newest.

The training thread copies the state, and a background thread writes the copy. There is one write at a time: the next
save waits for the previous one. An error of a write is raised by the next save, `wait` or `restore`.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from hive.compat.autonomous.stored import from_record, to_record
from hive.errors import NetworkError, RecordError
from hive.networks.build.field_rules import FieldRule
from hive.records.atomic import FILES, Files, check_folder
from hive.records.checkpoints.folders import (
    checkpoint_folders,
    list_checkpoints,
    newest_intact,
    retain,
    warn,
    write_checkpoint,
)
from hive.records.checkpoints.weights import load_weights
from hive.records.documents import failure

FORMAT = 1  # version of the format of "tree" in state.json

# The checkpointer of each folder in this process: two Approximations of one name would overwrite each other's files.
_owners: weakref.WeakValueDictionary[Path, PeriodicCheckpointer] = weakref.WeakValueDictionary()


class Stateful(Protocol):
    """An object with a state, such as a module, an optimizer or an Approximation."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Any, /) -> Any: ...


class Checkpointer(ABC):
    """The base class of checkpointers. A custom one implements `init` and `__call__`."""

    @abstractmethod
    def __call__(self) -> None:
        """The Approximation calls this after every update."""

    @abstractmethod
    def init(self, model: nn.Module, filename: str) -> None:
        """The Approximation calls this once, with the model to save and the path `<log_dir>/<name>.pt`."""

    def include(self, whole: Stateful) -> None:  # noqa: B027 - optional for custom checkpointers
        """The Approximation calls this after `init`, with itself as the state to save; by default the model is."""


class DummyCheckpointer(Checkpointer):
    """Saves nothing."""

    def init(self, *inputs: Any) -> None:
        pass

    def __call__(self) -> None:
        pass


class PeriodicCheckpointer(Checkpointer):
    """Saves after every `frequency` updates.

    keep: how many of the newest checkpoints to keep. keep_best: how many of those with the highest `mean_return` to
        keep in addition; the program sets that attribute during the training, None means unknown.
    background: write in a thread. files: the file operations, replaced in tests.
    `count` is the number of updates, `folder` the folder of the checkpoints. Raises NetworkError for numbers below 1
    (`keep_best`: below 0).
    """

    def __init__(
        self,
        frequency: int,
        *,
        keep: int = 3,
        keep_best: int = 1,
        background: bool = True,
        files: Files = FILES,
    ) -> None:
        for name, value, least in (("frequency", frequency, 1), ("keep", keep, 1), ("keep_best", keep_best, 0)):
            FieldRule.whole(least).checked(type(self).__name__, name, value)
        self.frequency = frequency
        self.keep = keep
        self.keep_best = keep_best
        self.background = background
        self.mean_return: float | None = None
        self.count = 0
        self._files = files
        self._folder: Path | None = None
        self._whole: Stateful | None = None
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None
        self._continues = False

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise NetworkError("this checkpointer has no model yet", hint="call init(model, filename) first")
        return self._folder

    def init(self, model: nn.Module, filename: str) -> None:
        """Set the folder, `filename` without its `.pt`, and the model to save. Write nothing."""
        path = Path(filename)
        self._folder = (path.with_suffix("") if path.suffix == ".pt" else path).absolute()
        self._whole = _ModelAlone(model)
        _owners[self._folder] = self

    def include(self, whole: Stateful) -> None:
        self._whole = whole

    def __call__(self) -> None:
        """Count an update, and save after every `frequency` updates.

        Raises RecordError if the folder has checkpoints of an earlier training, which would be mixed with the new ones.
        """
        if not self._continues:
            self._refuse_foreign()
        self.count += 1
        if self.count % self.frequency == 0:
            self.save()

    def save(self) -> None:
        """Save now. Raises RecordError if this or the previous checkpoint cannot be written."""
        self.wait()
        owner = _owners.get(self.folder)
        if owner is not None and owner is not self:
            raise RecordError(
                f"another approximation writes its checkpoints to `{self.folder}`", hint="give each a different name"
            )
        assert self._whole is not None
        tree, arrays = to_record(self._whole.state_dict())
        state = {"scheduled": True, "mean_return": self.mean_return, "format": FORMAT, "tree": tree}
        arguments = (self.count, arrays, state)
        if not self.background:
            self._write(*arguments)
            return
        self._thread = threading.Thread(target=self._write_in_thread, args=arguments, name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Wait for the current write. Raises its error, or that of the last one."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def restore(self) -> int | None:
        """Load the newest intact checkpoint of the folder into the Approximation, and continue its count of updates.

        Returns that count; None without a checkpoint. Warns if a newer one is damaged. Raises RecordError for a
        checkpoint that cannot be read and where all are damaged, and NetworkError for one that does not fit.
        """
        self.wait()
        self._continues = True
        _owners[self.folder] = self
        if not checkpoint_folders(self.folder):
            return None
        found = newest_intact(self.folder, warn)
        assert self._whole is not None
        self._whole.load_state_dict(load_checkpoint(found.path))
        self.count, self.mean_return = found.update, found.mean_return
        return found.update

    def _refuse_foreign(self) -> None:
        if self.folder.is_dir() and list_checkpoints(self.folder):
            raise RecordError(
                f"`{self.folder}` holds checkpoints of an earlier training",
                hint="call restore() before the first update to continue it, or set another log_dir or name",
            )
        self._continues = True

    def _write(self, update: int, arrays: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise failure("write", self.folder, error) from error
        write_checkpoint(self.folder, update, tensors=arrays, parts={}, state=state, files=self._files)
        retain(self.folder, self.keep, self.keep_best, self._files)

    def _write_in_thread(self, *arguments: Any) -> None:
        try:
            self._write(*arguments)
        except BaseException as error:
            self._failed = error


class _ModelAlone:
    """The state of a model without an Approximation, in the form of a checkpoint: under "model"."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        return {"model": self._model.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._model.load_state_dict(state["model"])


def load_checkpoint(folder: Path | str) -> dict[str, Any]:
    """Return the state in one checkpoint, for `Approximation.load_state_dict`; "model" is a module's state_dict.

    Raises RecordError if any byte has changed, and for a folder in another format. Pickles are never read.
    """
    path = Path(folder)
    if path.is_file():
        raise RecordError(
            f"`{path}` is a file, a checkpoint is a folder",
            hint="load another library's pickle in that library, and save its state_dict as safetensors",
        )
    check_folder(path)
    arrays, state = load_weights(path)
    if state.get("format") != FORMAT:
        raise RecordError(f"`{path}` is not a checkpoint of an approximation in format {FORMAT}")
    tree = from_record(state.get("tree"), arrays)
    if not isinstance(tree, dict) or not isinstance(tree.get("model"), dict):
        raise RecordError(f"`{path}` contains no model")
    return tree
