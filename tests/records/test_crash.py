from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hive.errors import RecordError
from hive.records import crash
from hive.records.crash import write_crash
from hive.records.directory import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path, "pong")


def test_a_report(run: RunDirectory) -> None:
    path = write_crash(
        run,
        "collector-3",
        error="EnvironmentFailed: wrong shape\n  (210, 160)",
        traceback="Traceback\n  in step\n",
        doing="env.step",
        story=["starting -> running", "running -> failed"],
        stacks="thread 1",
    )
    assert path == run.crash_file("collector-3", 1)
    assert path.read_text() == (
        "collector-3 failed: EnvironmentFailed: wrong shape (210, 160)\n"
        "\ndoing\nenv.step\n"
        "\ntraceback\nTraceback\n  in step\n"
        "\ntransition history\nstarting -> running\nrunning -> failed\n"
        "\nstacks\nthread 1\n"
    )


def test_what_is_not_known_is_left_out(run: RunDirectory) -> None:
    path = write_crash(run, "learner-0", error="killed by SIGKILL")
    assert path.read_text() == "learner-0 failed: killed by SIGKILL\n"


def test_reports_are_numbered_by_actor(run: RunDirectory) -> None:
    names = [write_crash(run, actor, error="x").name for actor in ("a-0", "b-0", "a-0")]
    assert names == ["a-0-1.txt", "b-0-1.txt", "a-0-2.txt"]


def test_concurrent_reports_keep_apart(run: RunDirectory) -> None:
    threads = [threading.Thread(target=write_crash, args=(run, "a-0"), kwargs={"error": str(i)}) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    causes = {run.crash_file("a-0", n).read_text() for n in range(1, 9)}
    assert causes == {f"a-0 failed: {i}\n" for i in range(8)}


def test_reports_are_bounded(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash, "REPORTS", 3)
    monkeypatch.setattr(crash, "SECTION_CHARACTERS", 10)
    for i in range(5):
        path = write_crash(run, "a-0", error=str(i), stacks="0123456789abc")
    assert path == run.crash_file("a-0", 3)
    assert path.read_text() == "a-0 failed: 4\n\nstacks\n3456789abc\n"
    assert len(list(run.crashes.iterdir())) == 3


def test_any_text_can_be_written(run: RunDirectory) -> None:
    path = write_crash(run, "a-0", error="odd \ud800 text")
    assert path.read_text() == "a-0 failed: odd \\ud800 text\n"


def test_a_disk_that_refuses(run: RunDirectory) -> None:
    run.crashes.rmdir()
    with pytest.raises(RecordError, match=r"cannot write `.*a-0-1\.txt`: no such file"):
        write_crash(run, "a-0", error="x")
