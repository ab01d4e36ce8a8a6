"""Checkpointers: what an Approximation calls after every update, to be saved.

    <log_dir>/<name>/
      000200/                  after so many updates
        weights.safetensors    "model/<parameter>", "optimizer/state/0/exp_avg" ...
        state.json             all that is not an array: counters, hyperparameters, the scheduler
        DONE                   sizes and checksums, written last

A checkpoint is the state of everything: model, optimizer, scheduler, target network and counters. It is a folder of
hive.records.checkpoints, whole or not there at all; its content is data (see stored.py), so nothing that is loaded
can execute anything and no class has to exist under its old name. `load_checkpoint` reads one;
`PeriodicCheckpointer.restore` goes on from the newest.

The state is copied where the training is; a thread writes the copy. There is one write at a time: the next save
waits for the one before. What a write raised, the next save, `wait` or `restore` raises.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from hive.approximation.stored import from_record, to_record
from hive.errors import NetworkError, RecordError
from hive.networks.field_rules import Rule
from hive.records.atomic import FILES, Files, check_folder
from hive.records.checkpoints import list_checkpoints, newest_checkpoint, retain, write_checkpoint
from hive.records.documents import failure
from hive.records.weights import load_weights

__all__ = ["Checkpointer", "DummyCheckpointer", "PeriodicCheckpointer", "Stateful", "load_checkpoint"]

FORMAT = 1  # of what lies under "tree" in state.json

# Who writes to a folder of checkpoints in this process: two of one name would take turns in overwriting each other.
_owners: weakref.WeakValueDictionary[Path, PeriodicCheckpointer] = weakref.WeakValueDictionary()


class Stateful(Protocol):
    """A module, an optimizer, an Approximation."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Any, /) -> Any: ...


class Checkpointer(ABC):
    """A checkpointer of your own has `init` and `__call__`."""

    @abstractmethod
    def __call__(self) -> None:
        """Called after every update."""

    @abstractmethod
    def init(self, model: nn.Module, filename: str) -> None:
        """Called once, by the Approximation: what is to be saved, and where (`<log_dir>/<name>.pt`)."""

    def include(self, whole: Stateful) -> None:  # noqa: B027 - there is nothing that every checkpointer must do
        """Called after `init` with the Approximation: all there is to save. By default the model is enough."""


class DummyCheckpointer(Checkpointer):
    """Saves nothing."""

    def init(self, *inputs: Any) -> None:
        pass

    def __call__(self) -> None:
        pass


class PeriodicCheckpointer(Checkpointer):
    """Saves after every `frequency` updates.

    keep: how many of the newest stay. keep_best: and how many with the highest `mean_return`, which the program sets
        as it goes; None: not known. background: whether a thread does the writing.
    `count` is the number of updates, `folder` where checkpoints lie. Raises NetworkError for numbers below 1 (or 0,
    for `keep_best`).
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
            Rule.whole(least).checked(type(self).__name__, name, value)
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
            raise NetworkError("this checkpointer was given no model", hint="init(model, filename) does it")
        return self._folder

    def init(self, model: nn.Module, filename: str) -> None:
        """`filename` without its `.pt` becomes the folder; nothing is written yet."""
        path = Path(filename)
        self._folder = (path.with_suffix("") if path.suffix == ".pt" else path).absolute()
        self._whole = _ModelAlone(model)
        _owners[self._folder] = self

    def include(self, whole: Stateful) -> None:
        self._whole = whole

    def __call__(self) -> None:
        """Counts an update, and saves when `frequency` of them have passed since the last one.

        Raises RecordError where checkpoints of an earlier training lie in the folder: they would be mixed with these.
        """
        if not self._continues:
            self._refuse_foreign()
        self.count += 1
        if self.count % self.frequency == 0:
            self.save()

    def save(self) -> None:
        """Saves now. Raises RecordError when this, or the save before, cannot be written."""
        self.wait()
        owner = _owners.get(self.folder)
        if owner is not None and owner is not self:
            raise RecordError(
                f"another approximation writes its checkpoints to `{self.folder}`", hint="give each its own name"
            )
        assert self._whole is not None
        tree, arrays = to_record(self._whole.state_dict())
        state = {"scheduled": True, "mean_return": self.mean_return, "format": FORMAT, "tree": tree}
        arguments = (self.count, arrays, state)
        if not self.background:
            self._write(*arguments)
            return
        self._thread = threading.Thread(target=self._write_and_tell, args=arguments, name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Returns when nothing is being written; raises what the last write raised."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def restore(self) -> int | None:
        """Puts the newest intact checkpoint of the folder into what is saved here; None if there is none.

        Returns how many updates it was made after; counting goes on from there. Raises RecordError for one that
        cannot be read and NetworkError for one that does not fit.
        """
        self.wait()
        self._continues = True
        _owners[self.folder] = self
        if not self.folder.is_dir() or (found := newest_checkpoint(self.folder)) is None:
            return None
        assert self._whole is not None
        self._whole.load_state_dict(load_checkpoint(found.path))
        self.count, self.mean_return = found.update, found.mean_return
        return found.update

    def _refuse_foreign(self) -> None:
        if self.folder.is_dir() and list_checkpoints(self.folder):
            raise RecordError(
                f"`{self.folder}` holds checkpoints of an earlier training",
                hint="call restore() before the first update to go on from them, or write to another log_dir or name",
            )
        self._continues = True

    def _write(self, update: int, arrays: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise failure("write", self.folder, error) from error
        write_checkpoint(self.folder, update, tensors=arrays, parts={}, state=state, files=self._files)
        retain(self.folder, self.keep, self.keep_best, self._files)

    def _write_and_tell(self, *arguments: Any) -> None:
        try:
            self._write(*arguments)
        except BaseException as error:
            self._failed = error


class _ModelAlone:
    """A model as it lies in a checkpoint: under "model"."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        return {"model": self._model.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._model.load_state_dict(state["model"])


def load_checkpoint(folder: Path | str) -> dict[str, Any]:
    """The state in one checkpoint, for `Approximation.load_state_dict`; its "model" is a module's state_dict.

    Raises RecordError if any byte is not as it was written, or is none of ours. A pickle is never read.
    """
    path = Path(folder)
    if path.is_file():
        raise RecordError(
            f"`{path}` is a file, a checkpoint is a folder",
            hint="of another library's pickle, take the state_dict in that library and save it as safetensors",
        )
    check_folder(path)
    arrays, state = load_weights(path)
    if state.get("format") != FORMAT:
        raise RecordError(f"`{path}` holds no checkpoint of an approximation of format {FORMAT}")
    tree = from_record(state.get("tree"), arrays)
    if not isinstance(tree, dict) or not isinstance(tree.get("model"), dict):
        raise RecordError(f"`{path}` holds no model")
    return tree
