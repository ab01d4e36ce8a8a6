from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from hive.errors import RecordError
from hive.records import RunDirectory, RunFacts, process_start_time, write_checkpoint, write_run_facts
from hive.records.checkpoints.folders import replace_best
from hive.records.checkpoints.replay_chunks import RowsToSave
from hive.records.pruning import Item, delete, freed_bytes, prunable

WEIGHTS = {"w": np.zeros(4, np.float32)}


def run_in(home: Path, *, live: bool = False, metrics: bool = True) -> RunDirectory:
    run = RunDirectory.create(home, "a")
    pid = os.getpid() if live else 1 << 30
    start_time = process_start_time(pid) or 1
    write_run_facts(run, RunFacts(run.name, pid, start_time, "", 1.7e9, [], "0", "3"))
    if metrics:
        run.metrics_file.write_text("{}\n")
    return run


def checkpoint(run: RunDirectory, update: int, mean: float = 0.0, scheduled: bool = False) -> Path:
    state = {"mean_return": mean, "scheduled": scheduled}
    return write_checkpoint(run.checkpoints, update, tensors=WEIGHTS, parts={}, state=state)


def names(items: list[Item]) -> list[str]:
    return [item.path.name for item in items]


def listed(run: RunDirectory, keep: int | None = None, older_s: float = 0.0) -> list[str]:
    return names(list(prunable([run], keep, older_s)))


def test_the_newest_scheduled_and_best_checkpoints_stay(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    for update, mean, scheduled in [(1, 0.0, True), (2, 9.0, False), (3, 1.0, True), (4, 2.0, False), (5, 3.0, False)]:
        checkpoint(run, update, mean, scheduled)
    assert listed(run) == []
    assert listed(run, keep=1) == ["000001", "000004"]
    assert listed(run, keep=3) == ["000001"]
    replace_best(run.best, 9, tensors=WEIGHTS, state={"mean_return": 9.0})
    assert listed(run, keep=1) == ["000001", "000002", "000004"]  # the best policy is kept elsewhere


def test_leftovers(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    (run.path / ".summary.json.hive-tmp").write_text("half")
    (run.checkpoints / ".000009.hive-tmp").mkdir()
    items = list(prunable([run], None))
    assert names(items) == [".summary.json.hive-tmp", ".000009.hive-tmp"]
    for item in items:
        delete(item)
    assert listed(run) == []


def test_videos_of_evaluations_and_marks_of_their_recording(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    run.videos.mkdir()
    for name in ("000100-0.mp4", "play-000100-seed0.mp4", ".drawing-0", ".off", ".passed"):
        (run.videos / name).touch()
    assert listed(run) == [".drawing-0", ".off"]
    assert names(list(prunable([run], None, keep_videos=1))) == [".drawing-0", ".off"]
    assert names(list(prunable([run], None, keep_videos=0))) == [".drawing-0", ".off", "000100-0.mp4"]


def test_live_runs_are_never_touched(tmp_path: Path) -> None:
    run = run_in(tmp_path, live=True, metrics=False)
    (run.checkpoints / ".000009.hive-tmp").mkdir()
    checkpoint(run, 1)
    path = checkpoint(run, 2, 1.0)
    assert listed(run, keep=1) == []
    with pytest.raises(RecordError, match="is running"):
        delete(Item(run, "a checkpoint", path))
    assert path.exists()


def test_runs_that_never_began(tmp_path: Path) -> None:
    failed, lost = run_in(tmp_path, metrics=False), run_in(tmp_path, metrics=False)
    failed.failure_file.write_text("{}")
    assert listed(failed) == [failed.name]
    assert listed(lost) == []  # it may just be starting
    old = 1.0e9
    for path in (lost.run_file, lost.path):
        os.utime(path, (old, old))
    assert listed(lost) == [lost.name]
    delete(next(prunable([lost], None)))
    assert not lost.path.exists()


def test_a_failed_run_with_anything_in_it_stays(tmp_path: Path) -> None:
    for make in (
        lambda run: run.metrics_file.write_text("{}\n"),
        lambda run: checkpoint(run, 1),
        lambda run: (run.checkpoints / "000007").mkdir(),  # damaged
        lambda run: replace_best(run.best, 9, tensors=WEIGHTS, state={"mean_return": 9.0}),
        lambda run: (run.videos.mkdir(), (run.videos / "a.gif").touch()),
    ):
        run = run_in(tmp_path, metrics=False)
        run.failure_file.write_text("{}")
        make(run)
        assert listed(run) == []


def test_only_runs_that_ended_long_ago(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    checkpoint(run, 1)
    checkpoint(run, 2, 1.0)
    assert listed(run, keep=1, older_s=3600) == []
    for path in (run.run_file, run.metrics_file):
        os.utime(path, (1.0e9, 1.0e9))
    assert listed(run, keep=1, older_s=3600) == ["000001"]


def test_a_hard_linked_file_counts_with_its_last_name(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    folders = [run.path / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir()
    shared = folders[0] / "rows"
    shared.write_bytes(bytes(1 << 20))
    os.link(shared, folders[1] / "rows")
    items = [Item(run, "", folder) for folder in folders]
    blocks = shared.stat().st_blocks * 512
    sizes = freed_bytes(items)
    assert sizes[0] < blocks <= sizes[1]
    assert sizes[2] < blocks
    os.link(shared, tmp_path / "kept elsewhere")
    assert max(freed_bytes(items)) < blocks


def test_replay_rows_of_kept_checkpoints_are_not_counted(tmp_path: Path) -> None:
    """The freed bytes are those that the file system then reports, with rows that checkpoints share."""
    run = run_in(tmp_path)
    arrays = {
        "rewards": np.arange(40_000, dtype=np.float32).reshape(1, 40_000, 1),
        "truncated": np.zeros((1, 40_000, 1), np.uint8),
        "observations": np.zeros((1, 40_000, 1, 128), np.uint8),
        "finals": np.zeros((1, 40_000, 1, 128), np.uint8),
        "leaves": np.zeros((1, 40_000, 1), np.uint32),
    }
    for update, written in ((1, 20_000), (2, 35_000), (3, 35_001)):
        rows = RowsToSave(arrays, [written], 39_000)
        write_checkpoint(run.checkpoints, update, tensors=WEIGHTS, parts={}, state={}, replay=rows)
    items = list(prunable([run], 1))
    assert names(items) == ["000001", "000002"]
    before = disk_bytes(run.path)
    freed = sum(freed_bytes(items))
    for item in items:
        delete(item)
    assert 0 < freed == before - disk_bytes(run.path)


def disk_bytes(folder: Path) -> int:
    facts = {(s.st_ino, s.st_blocks) for path in folder.rglob("*") if (s := path.lstat())}
    return 512 * sum(blocks for _, blocks in facts)
