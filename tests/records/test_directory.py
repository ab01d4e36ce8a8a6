from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from hive.errors import RecordError, UsageError
from hive.records.directory import FOLDERS, RESERVE_BYTES, RESERVE_FILE, NoRunError, RunDirectory, home_folder


def test_create_counts_up_and_takes_the_smallest_free_number(tmp_path: Path) -> None:
    home = tmp_path / "deep" / "runs"
    names = [RunDirectory.create(home, "pong").name for _ in range(3)]
    assert names == ["pong-1", "pong-2", "pong-3"]
    assert RunDirectory.create(home, "other").name == "other-1"
    for folder in ("log", "crash", "checkpoints", ""):
        os.rmdir(home / "pong-2" / folder)
    assert RunDirectory.create(home, "pong").name == "pong-2"


def test_a_file_in_the_way_is_a_number_taken(tmp_path: Path) -> None:
    (tmp_path / "pong-1").write_text("mine")
    assert RunDirectory.create(tmp_path, "pong").name == "pong-2"


def test_concurrent_creations_get_numbers_of_their_own(tmp_path: Path) -> None:
    made: list[RunDirectory] = []
    start = threading.Barrier(8)

    def create() -> None:
        start.wait()
        made.extend(RunDirectory.create(tmp_path, "pong") for _ in range(5))

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(run.name for run in made) == sorted(f"pong-{n}" for n in range(1, 41))
    assert all(run.checkpoints.is_dir() and run.logs.is_dir() and run.crashes.is_dir() for run in made)
    assert sorted(os.listdir(tmp_path)) == sorted([*(run.name for run in made), "latest"])
    assert RunDirectory.open(tmp_path / "latest") in made


def test_latest_points_at_the_newest_and_moves_with_its_home(tmp_path: Path) -> None:
    home = tmp_path / "runs"
    first = RunDirectory.create(home, "pong")
    second = RunDirectory.create(home, "pong")
    assert os.readlink(home / "latest") == "pong-2"
    first.point_latest()
    assert RunDirectory.open(home / "latest") == first
    home.rename(tmp_path / "moved")
    second = RunDirectory.open(tmp_path / "moved" / "pong-2")
    assert RunDirectory.open(tmp_path / "moved" / "latest").path.parent == second.path.parent


def test_latest_is_not_worth_a_failure(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    (tmp_path / "latest" / "file").touch()
    assert RunDirectory.create(tmp_path, "pong").name == "pong-1"


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "-option", "a b", "a\n", "a\0"])
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a run"):
        RunDirectory.create(tmp_path, name)
    assert os.listdir(tmp_path) == []


def test_a_home_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    with pytest.raises(RecordError, match=r"cannot make a run directory in `.*runs`: file exists") as caught:
        RunDirectory.create(tmp_path / "runs", "pong")
    assert caught.value.hint.startswith("set HIVE_HOME")


def test_a_disk_without_room_for_all_folders_keeps_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Path.mkdir

    def mkdir(path: Path, *arguments: Any, **options: Any) -> None:
        if path.name == "checkpoints":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        make(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(RecordError, match="no space left on device"):
        RunDirectory.create(tmp_path, "pong")
    assert os.listdir(tmp_path) == []


def test_a_name_too_long_for_the_file_system(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="file name too long"):
        RunDirectory.create(tmp_path, "a" * 300)


def test_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory.create(tmp_path, "pong")
    assert RunDirectory.open(run.path) == run
    monkeypatch.chdir(run.path)
    assert RunDirectory.open(Path(".")) == run
    assert run.path.is_absolute()
    (tmp_path / "circle").symlink_to("circle")
    for wrong in (tmp_path, run.logs, tmp_path / "none", tmp_path / "circle", Path("a\0b"), Path("a" * 300)):
        with pytest.raises(RecordError, match="is not a run directory"):
            RunDirectory.open(wrong)


def test_places(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "pong")
    files = (
        run.config_file,
        run.resolved_file,
        run.run_file,
        run.summary_file,
        run.metrics_file,
        run.events_file,
        run.evaluations_file,
        run.episodes_file,
    )
    assert [file.name for file in files] == [
        "config.toml",
        "resolved.toml",
        "run.json",
        "summary.json",
        "metrics.jsonl",
        "events.jsonl",
        "evaluations.jsonl",
        "episodes.jsonl",
    ]
    assert {file.parent for file in files} == {run.path}
    assert run.log_file("collector-3") == run.path / "log" / "collector-3.log"
    assert run.crash_file("learner-0", 2) == run.path / "crash" / "learner-0-2.txt"
    assert run.videos.name == "videos"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_run_with_a_link_in_the_place_of_a_folder_is_not_opened(folder: str, tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "runs", "pong")
    run.resolved_file.touch()
    if (run.path / folder).exists():
        (run.path / folder).rename(tmp_path / folder)
    (tmp_path / folder).mkdir(exist_ok=True)
    (run.path / folder).symlink_to(tmp_path / folder)
    with pytest.raises(RecordError, match=rf"{folder}` is a link, not a folder of hive"):
        RunDirectory.open(run.path)


@pytest.mark.parametrize("name", ["checkpoints", "log"])
def test_a_run_without_its_checkpoints_or_logs_is_a_run(name: str, tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "pong")
    run.resolved_file.touch()
    (run.path / name).rmdir()
    assert RunDirectory.open(run.path) == run
    run.resolved_file.unlink()
    with pytest.raises(NoRunError):
        RunDirectory.open(run.path)


def test_what_is_no_file_of_hive_is_refused_before_a_run_continues(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "pong")
    run.refuse_others()
    for path, make in (
        (run.metrics_file, lambda path: path.symlink_to("/dev/null")),
        (run.events_file, os.mkfifo),
        (run.log_file("learner-0"), Path.mkdir),
        (run.best, Path.touch),
    ):
        make(path)
        with pytest.raises(RecordError, match=rf"{path.name}` is a (link|pipe|directory|file), not a"):
            run.refuse_others()
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def test_the_reserve_is_written_through_no_link(tmp_path: Path) -> None:
    run, mine = RunDirectory.create(tmp_path, "pong"), tmp_path / "mine"
    mine.write_text("mine")
    (run.path / RESERVE_FILE).symlink_to(mine)
    run.reserve()
    assert mine.read_text() == "mine"
    assert (run.path / RESERVE_FILE).stat().st_size == RESERVE_BYTES


def test_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIVE_HOME", raising=False)
    assert home_folder() == Path("runs")
    monkeypatch.setenv("HIVE_HOME", "/data/runs")
    assert home_folder() == Path("/data/runs")
    monkeypatch.setenv("HIVE_HOME", "")
    assert home_folder() == Path("runs")
