"""Faults at every operation of setting newer state aside: nothing is lost, and a repetition completes it."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from hive.errors import RecordError
from hive.records import Files, JsonlWriter, RunDirectory, jsonl, list_checkpoints, replace_best, write_checkpoint
from hive.records.checkpoints.set_aside import Origin, finish_set_aside, is_cut, set_aside, sets_aside
from hive.records.jsonl import split_lines

ORIGIN = Origin(100, 100, 1000)
NOW = 1.75e9


class KilledError(BaseException):
    """The process is gone: no handler of ordinary errors sees it."""


class Memory(Files):
    """Without syncs, which take most of the time and change nothing that a test could see."""

    def sync(self, path: Path) -> None:
        pass


class Faulty(Memory):
    """Operation `fault`, counted from 0, and all after it raise `error`; a write leaves half of its bytes."""

    def __init__(self, fault: int, error: BaseException) -> None:
        self.left = fault
        self.error = error

    def _operate(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise self.error

    def make_folder(self, path: Path) -> None:
        self._operate()
        super().make_folder(path)

    def write(self, path: Path, data: bytes | memoryview) -> None:
        super().write(path, data[: len(data) // 2])
        self._operate()
        super().write(path, data)

    def sync(self, path: Path) -> None:
        self._operate()
        super().sync(path)

    def link(self, source: Path, target: Path) -> None:
        self._operate()
        super().link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        self._operate()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._operate()
        super().remove(path)


class Links(Memory):
    """A file system without hard links."""

    def link(self, source: Path, target: Path) -> NoReturn:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints at 50 and 100, a newer one at 150, a newer best policy, and lines."""
    run = RunDirectory.create(tmp_path_factory.mktemp("home"), "a")
    for update in (100, 150):
        state = {"env_steps": 10 * update, "scheduled": update <= 100}
        write_checkpoint(run.checkpoints, update, tensors={"w": np.full(9, update, np.float32)}, parts={}, state=state)
    replace_best(run.best, 180, tensors={"w": np.zeros(9, np.float32)}, state={"mean_return": 3.0})
    for path in (run.metrics_file, run.evaluations_file, run.episodes_file):
        lines = JsonlWriter(path)
        for updates in (100, 150, 220):
            lines.write({"updates": updates, "steps": 10 * updates})
        lines.close()
    run.resolved_file.write_text("x = 1\n")
    return run.path


def copy_of(original: Path, place: Path) -> RunDirectory:
    return RunDirectory(Path(shutil.copytree(original, place / original.name)))


def updates(path: Path) -> list[int]:
    return [json.loads(line)["updates"] for line in path.read_text().splitlines()] if path.exists() else []


def everything(run: RunDirectory) -> tuple[set[int], set[int], set[int]]:
    """Updates of checkpoints, best policies and lines, wherever they are; intact ones only."""
    roots = [run.path, *sets_aside(run)]
    saved = {c.update for root in roots for c in list_checkpoints(root / "checkpoints", verify=True)}
    best = {c.update for root in roots if (root / "best").is_dir() for c in list_checkpoints(root / "best")}
    return saved, best, {n for root in roots for n in updates(root / "metrics.jsonl")}


def assert_gone_back(run: RunDirectory) -> None:
    assert [c.update for c in list_checkpoints(run.checkpoints)] == [100]
    assert [*run.best.glob("[0-9]*")] == []  # the next writer removes leftovers
    assert updates(run.metrics_file) == updates(run.evaluations_file) == updates(run.episodes_file) == [100]
    (ahead,) = sets_aside(run)
    assert is_cut(ahead)
    assert [c.update for c in list_checkpoints(ahead / "checkpoints", verify=True)] == [150]
    assert [c.update for c in list_checkpoints(ahead / "best", verify=True)] == [180]
    for name in ("metrics.jsonl", "evaluations.jsonl", "episodes.jsonl"):
        assert updates(ahead / name) == [150, 220]
    assert [path.name for path in run.path.iterdir() if path.name.endswith(".hive-tmp")] == []


def again(run: RunDirectory) -> None:
    """What the next `hive resume --exact` does."""
    finish_set_aside(run, Memory())
    set_aside(run, ORIGIN, best=True, wall=lambda: NOW + 9, files=Memory())


FAULTS = [KilledError(), OSError(errno.ENOSPC, "no space left on device")]


@pytest.mark.rotates
@pytest.mark.parametrize("error", FAULTS, ids=["killed", "full disk"])
def test_after_a_fault_at_any_operation_nothing_is_lost_and_a_repetition_completes_it(
    original: Path, tmp_path: Path, error: BaseException
) -> None:
    whole = everything(RunDirectory(original))
    for fault in itertools.count():
        run = copy_of(original, tmp_path / str(fault))
        try:
            set_aside(run, ORIGIN, best=True, wall=lambda: NOW, files=Faulty(fault, error))
        except (KilledError, RecordError, OSError):
            assert everything(run) == whole, fault
            again(run)
            assert_gone_back(run)
            assert everything(run) == whole
            continue
        assert_gone_back(run)
        break
    assert fault > 25


@pytest.mark.parametrize("error", FAULTS, ids=["killed", "full disk"])
def test_a_completion_can_itself_be_interrupted_anywhere(original: Path, tmp_path: Path, error: BaseException) -> None:
    for fault in itertools.count():
        run = copy_of(original, tmp_path / str(fault))
        with pytest.raises(KilledError):
            set_aside(run, ORIGIN, best=True, wall=lambda: NOW, files=CutKilled())
        try:
            finish_set_aside(run, Faulty(fault, error))
        except (KilledError, RecordError):
            again(run)
            assert_gone_back(run)
            continue
        assert_gone_back(run)
        break
    assert fault > 10


class CutKilled(Memory):
    """Killed as soon as the folder is complete."""

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        if target.name.startswith("ahead-"):
            raise KilledError


def test_without_hard_links_they_are_copied(original: Path, tmp_path: Path) -> None:
    run = copy_of(original, tmp_path)
    set_aside(run, ORIGIN, best=True, files=Links())
    assert_gone_back(run)


def test_a_checkpoint_that_was_written_again_is_not_taken_for_the_original(original: Path, tmp_path: Path) -> None:
    run = copy_of(original, tmp_path)
    ahead = set_aside(run, ORIGIN, best=True, wall=lambda: NOW)
    assert ahead is not None
    (ahead / "CUT").unlink()
    write_checkpoint(run.checkpoints, 150, tensors={"w": np.ones(2, np.float32)}, parts={}, state={})
    finish_set_aside(run)
    assert [c.update for c in list_checkpoints(run.checkpoints)] == [100, 150]


def test_a_damaged_newer_checkpoint_is_set_aside_too(original: Path, tmp_path: Path) -> None:
    run = copy_of(original, tmp_path)
    (run.checkpoints / "000150" / "DONE").unlink()
    shutil.copytree(run.best / "000180", run.checkpoints / "000180")
    (run.checkpoints / "000180" / "weights.safetensors").write_bytes(b"")
    ahead = set_aside(run, ORIGIN, best=False)
    assert ahead is not None
    assert sorted(path.name for path in (ahead / "checkpoints").iterdir()) == ["000150", "000180"]
    assert [path.name for path in run.best.iterdir()] == ["000180"]  # not asked for


def test_two_in_one_second_have_two_names_and_nothing_newer_makes_none(original: Path, tmp_path: Path) -> None:
    run = copy_of(original, tmp_path)
    first = set_aside(run, ORIGIN, best=True, wall=lambda: NOW)
    assert set_aside(run, ORIGIN, best=True, wall=lambda: NOW) is None
    second = set_aside(run, Origin(50, 50, 500), best=True, wall=lambda: NOW)
    assert first is not None
    assert second is not None
    assert second.name == f"{first.name}-2"
    assert sets_aside(run) == [first, second]


def test_lines_alone_are_cut_without_a_copy_unless_asked_for(original: Path, tmp_path: Path) -> None:
    run = copy_of(original, tmp_path)
    newest = Origin(150, 150, 1500)
    assert set_aside(run, newest, best=False) is None
    assert updates(run.metrics_file) == [100, 150]
    assert sets_aside(run) == []


def test_of_many_lines_those_at_the_end_are_cut(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "SPLIT_BYTES", 5000)
    monkeypatch.setattr(jsonl, "SETTLED_LINES", 20)
    run = copy_of(original, tmp_path)
    lines = JsonlWriter(run.metrics_file)
    lines.write_all({"updates": number // 1000} for number in range(100_000))
    lines.write_all({"updates": updates} for updates in (90, 130, 95, 140))
    lines.close()
    before = updates(run.metrics_file)
    assert split_lines(run.metrics_file, ORIGIN.keeps).start > 500_000
    set_aside(run, ORIGIN, best=False, wall=lambda: NOW)
    assert updates(run.metrics_file) == [*before[:-4], 90, 95]
