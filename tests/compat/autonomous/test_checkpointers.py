"""Checkpointers: when and what they save, killed writers, and restored states."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hive.compat.autonomous import Approximation, Checkpointer, DummyCheckpointer, PeriodicCheckpointer, load_checkpoint
from hive.errors import NetworkError, RecordError
from hive.records import Files, list_checkpoints, newest_checkpoint, write_checkpoint


def filled(value: float) -> nn.Linear:
    model = nn.Linear(2, 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    return model


def checkpointer(folder: Path, model: nn.Module, frequency: int = 1, **settings: Any) -> PeriodicCheckpointer:
    made = PeriodicCheckpointer(frequency, **{"background": False, **settings})
    made.init(model, str(folder / "q.pt"))
    return made


def updates_in(folder: Path) -> list[int]:
    return [found.update for found in list_checkpoints(folder / "q", verify=True)]


def test_the_dummy_saves_nothing(tmp_path: Path) -> None:
    dummy = DummyCheckpointer()
    dummy.init(filled(1.0), str(tmp_path / "q.pt"))
    dummy.init()
    dummy()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("background", [False, True])
def test_it_saves_after_every_frequency_updates(tmp_path: Path, background: bool) -> None:
    model = filled(0.0)
    saving = checkpointer(tmp_path / "runs", model, frequency=3, background=background)
    assert not (tmp_path / "runs").exists(), "init writes nothing"
    for update in range(1, 8):
        with torch.no_grad():
            model.bias.fill_(float(update))
        saving()
    saving.wait()
    assert saving.folder == tmp_path / "runs" / "q"
    assert updates_in(tmp_path / "runs") == [3, 6]
    for update in (3, 6):
        state = load_checkpoint(saving.folder / f"{update:06d}")
        assert state["model"]["bias"].tolist() == [float(update)]
        assert state["model"]["weight"].tolist() == [[0.0, 0.0]]


def test_the_background_writes_the_weights_of_the_update(tmp_path: Path) -> None:
    model = filled(1.0)
    saving = checkpointer(tmp_path, model, background=True)
    saving()
    with torch.no_grad():
        model.bias.fill_(9.0)  # whatever the thread has done by now
    saving.wait()
    assert load_checkpoint(tmp_path / "q" / "000001")["model"]["bias"].tolist() == [1.0]


def test_the_newest_and_the_best_stay(tmp_path: Path) -> None:
    saving = checkpointer(tmp_path, filled(1.0), keep=2, keep_best=1)
    for mean_return in (None, 5.0, 90.0, 7.0, 8.0, 9.0):
        saving.mean_return = mean_return
        saving()
    assert updates_in(tmp_path) == [3, 5, 6]


def test_restoring_continues_from_the_newest_intact_checkpoint(tmp_path: Path) -> None:
    model = filled(1.0)
    saving = checkpointer(tmp_path, model)
    for value in (1.0, 2.0, 3.0):
        with torch.no_grad():
            model.bias.fill_(value)
        saving.mean_return = value
        saving()
    weights = tmp_path / "q" / "000003" / "weights.safetensors"
    damaged = bytearray(weights.read_bytes())
    damaged[-1] ^= 1
    weights.write_bytes(damaged)
    other = filled(0.0)
    going_on = checkpointer(tmp_path, other)
    with pytest.warns(RuntimeWarning, match="damaged"):
        assert going_on.restore() == 2
    assert other.bias.tolist() == [2.0]
    assert (going_on.count, going_on.mean_return) == (2, 2.0)
    going_on()
    assert updates_in(tmp_path) == [1, 2, 3]
    assert load_checkpoint(tmp_path / "q" / "000003")["model"]["bias"].tolist() == [2.0]


def test_there_may_be_nothing_to_restore(tmp_path: Path) -> None:
    assert checkpointer(tmp_path, filled(1.0)).restore() is None
    (tmp_path / "q").mkdir()
    assert checkpointer(tmp_path, filled(1.0)).restore() is None


def test_checkpoints_of_an_earlier_training_are_not_mixed_with_new_ones(tmp_path: Path) -> None:
    checkpointer(tmp_path, filled(1.0))()
    before = load_checkpoint(tmp_path / "q" / "000001")
    second = checkpointer(tmp_path, filled(2.0), frequency=5)
    with pytest.raises(RecordError, match="checkpoints of an earlier training") as refused:
        second()
    assert "restore()" in refused.value.hint
    assert torch.equal(load_checkpoint(tmp_path / "q" / "000001")["model"]["bias"], before["model"]["bias"])


def test_two_of_one_name_do_not_overwrite_each_other(tmp_path: Path) -> None:
    first = checkpointer(tmp_path, filled(1.0))
    second = checkpointer(tmp_path, filled(2.0))
    with pytest.raises(RecordError, match="another approximation writes"):
        first()
    second()
    assert load_checkpoint(tmp_path / "q" / "000001")["model"]["bias"].tolist() == [2.0]


def test_a_name_can_be_reused_when_its_owner_is_collected(tmp_path: Path) -> None:
    first = checkpointer(tmp_path, filled(1.0))
    second = checkpointer(tmp_path, filled(2.0))
    del second
    gc.collect()
    first()
    assert updates_in(tmp_path) == [1]


class KilledFiles(Files):
    """Fails at the n-th operation and all later ones, as the files of a killed process do."""

    def __init__(self, operations: int) -> None:
        self.left = operations

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def make_folder(self, path: Path) -> None:
        self._count()
        super().make_folder(path)

    def write(self, path: Path, data: bytes | memoryview) -> None:
        self._count()
        super().write(path, data)

    def sync(self, path: Path) -> None:
        self._count()
        super().sync(path)

    def rename(self, source: Path, target: Path) -> None:
        self._count()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._count()
        super().remove(path)


def test_a_process_killed_at_any_operation_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    deaths = 0
    for operations in range(100):
        folder = tmp_path / str(operations)
        checkpointer(folder, filled(1.0), keep=1)()
        dying = checkpointer(folder, filled(2.0), keep=1, files=KilledFiles(operations))
        dying.restore()
        dying._whole = checkpointer(folder / "elsewhere", filled(2.0))._whole
        try:
            dying()
        except KeyboardInterrupt:
            deaths += 1
        newest = newest_checkpoint(folder / "q")
        assert newest is not None
        bias = load_checkpoint(newest.path)["model"]["bias"].tolist()
        assert bias == [float(newest.update)]
        if dying._files.left >= 0:  # type: ignore[attr-defined]
            break
    assert deaths > 10


class FullDisk(Files):
    def write(self, path: Path, data: bytes | memoryview) -> None:
        raise OSError(28, "No space left on device")


def test_an_error_of_the_thread_is_raised_by_the_next_save(tmp_path: Path) -> None:
    saving = checkpointer(tmp_path, filled(1.0), background=True, files=FullDisk())
    saving()
    with pytest.raises(RecordError, match="no space left on device"):
        saving()
    saving.save()
    with pytest.raises(RecordError, match="no space left on device"):
        saving.wait()
    saving.wait()


@pytest.mark.parametrize("setting", [{"frequency": 0}, {"keep": 0}, {"keep_best": -1}])
def test_impossible_numbers_are_refused(setting: dict[str, int]) -> None:
    with pytest.raises(NetworkError, match=next(iter(setting))):
        PeriodicCheckpointer(**{"frequency": 1, **setting})  # type: ignore[arg-type]


def test_it_must_know_a_model() -> None:
    with pytest.raises(NetworkError, match="has no model yet"):
        PeriodicCheckpointer(1)()


def test_a_pickle_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "q.pt"
    torch.save(filled(1.0), file)
    with pytest.raises(RecordError, match="is a file") as refused:
        load_checkpoint(file)
    assert "pickle" in refused.value.hint


def test_foreign_folders_and_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError):
        load_checkpoint(tmp_path / "nothing")
    for number, state in enumerate(({}, {"format": 1}, {"format": 1, "tree": {"dict": [["model", 3]]}})):
        path = write_checkpoint(tmp_path, number, tensors={}, parts={}, state=state)
        with pytest.raises(RecordError):
            load_checkpoint(path)


def test_one_of_your_own_gets_model_and_filename(tmp_path: Path) -> None:
    class Own(Checkpointer):
        calls = 0

        def init(self, model: nn.Module, filename: str) -> None:
            self.given = model, filename

        def __call__(self) -> None:
            self.calls += 1

    model, own = filled(1.0), Own()
    approximation = Approximation(model, torch.optim.SGD(model.parameters(), lr=0.1), own, name="own")
    approximation.reinforce(model(torch.ones(1, 2)).sum())
    assert own.given == (model, "runs/own.pt")
    assert own.calls == 1
