from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from hive.errors import RecordError, UsageError
from hive.records.directory import RunDirectory
from hive.records.runs import (
    RunFacts,
    age_s,
    boot_s,
    find_runs,
    is_alive,
    process_start_time,
    read_run_facts,
    resolve_run,
    run_state,
    write_run_facts,
)
from hive.records.summary import Summary


def facts(run: RunDirectory, started: float = 1.0, *, alive: bool = True) -> RunFacts:
    start_time = process_start_time(os.getpid())
    assert start_time is not None
    return RunFacts(
        name=run.name,
        pid=os.getpid(),
        start_time=start_time if alive else start_time - 1,
        socket_folder="/tmp/hive-0/x",
        started=started,
        argv=["hive", "up", "a.toml"],
        hive="0.1.0",
        python="3.11.7",
    )


def run(home: Path, name: str, started: float = 1.0, *, alive: bool = False) -> RunDirectory:
    directory = RunDirectory.create(home, name)
    write_run_facts(directory, facts(directory, started, alive=alive))
    return directory


def summary(directory: RunDirectory, state: str = "stopped") -> None:
    Summary(
        name=directory.name,
        scheme="a2c",
        state=state,
        stop_reason="asked to",
        seed=1,
        exact=True,
        env_steps=1,
        updates=1,
        episodes=0,
        mean_return_100=None,
        started=1.0,
        wall_s=1.0,
        train_s=1.0,
        weights_sha256="",
        channels={},
        restarts={},
    ).write(directory.summary_file)


def test_the_age_of_a_run_is_that_of_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 0.0)
    run, before = RunDirectory.create(tmp_path, "pong"), boot_s()
    began = (process_start_time(os.getpid()) or 0) / os.sysconf("SC_CLK_TCK")
    assert before - began <= age_s(facts(run)) < before - began + 60


def test_facts_come_back(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "pong")
    with pytest.raises(RecordError, match=r"run\.json"):
        read_run_facts(directory)
    written = dataclasses.replace(facts(directory), torch="2.13")
    write_run_facts(directory, written)
    assert read_run_facts(directory) == written
    directory.run_file.write_text('{"name": "pong-1", "pid": "1"}')
    with pytest.raises(RecordError, match="`pid` is not of type int"):
        read_run_facts(directory)


def test_start_times() -> None:
    mine = process_start_time(os.getpid())
    assert mine is not None
    seconds = psutil.boot_time() + mine / os.sysconf("SC_CLK_TCK")
    assert seconds == pytest.approx(psutil.Process().create_time(), abs=2)
    assert process_start_time(1 << 30) is None
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # dead, and not reaped
    assert Path(f"/proc/{child}/stat").exists()
    assert process_start_time(child) is None
    os.waitpid(child, 0)
    assert process_start_time(child) is None


def test_a_start_time_under_a_confusing_name() -> None:
    comm = Path("/proc/self/comm")
    before, name = process_start_time(os.getpid()), comm.read_text()
    comm.write_text("a) Z (b 1 2")
    try:
        assert process_start_time(os.getpid()) == before
    finally:
        comm.write_text(name)


def test_alive_is_the_same_process_not_the_same_pid(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "pong")
    assert is_alive(facts(directory))
    assert not is_alive(facts(directory, alive=False))
    assert not is_alive(dataclasses.replace(facts(directory), pid=1 << 30))


def test_state(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "pong")
    assert run_state(directory) == "lost"
    write_run_facts(directory, facts(directory))
    assert run_state(directory) == "running"
    summary(directory, "finished")
    assert run_state(directory) == "finished"
    write_run_facts(directory, facts(directory))  # resumed
    assert run_state(directory) == "running"
    assert not directory.summary_file.exists()
    write_run_facts(directory, facts(directory, alive=False))
    assert run_state(directory) == "lost"
    directory.summary_file.write_text("garbage")
    directory.run_file.write_text("garbage")
    assert run_state(directory) == "lost"
    directory.failure_file.write_text("{}")
    assert run_state(directory) == "failed"


def test_find_runs_sorts_by_start(tmp_path: Path) -> None:
    assert find_runs(tmp_path / "none") == []
    for name, started in (("b", 5.0), ("a", 7.0), ("a", 3.0), ("b", 5.0)):
        run(tmp_path, name, started)
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / ".latest.b-1").symlink_to("b-1")
    assert [found.name for found in find_runs(tmp_path)] == ["a-2", "b-1", "b-2", "a-1"]
    RunDirectory.create(tmp_path, "c")  # not started yet: sorted by the time of its folder
    assert find_runs(tmp_path)[-1].name == "c-1"
    shutil.rmtree(tmp_path / "a-1")
    assert [found.name for found in find_runs(tmp_path)] == ["a-2", "b-1", "b-2", "c-1"]


def test_ties_go_by_number(tmp_path: Path) -> None:
    made = [run(tmp_path, "pong") for _ in range(11)]
    assert find_runs(tmp_path) == made


def test_a_home_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    with pytest.raises(RecordError, match=r"cannot read `.*runs`: not a directory"):
        find_runs(tmp_path / "runs")


def test_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "runs"
    made = [run(home, name, i) for i, name in enumerate(["breakout", "bowling", "breakout", "pong"])]
    for _ in range(8):
        run(home, "pong", 0.5)
    assert resolve_run(home, "latest") == made[3]
    assert resolve_run(home, "breakout-1") == made[0]
    assert resolve_run(home, "bo") == made[1]
    assert resolve_run(home, "pong-1") == made[3]
    assert resolve_run(home, str(made[2].path)) == made[2]
    assert resolve_run(tmp_path / "none", str(made[2].path)) == made[2]
    monkeypatch.chdir(home)
    assert resolve_run(tmp_path / "none", "breakout-2/") == made[2]


def test_ambiguous(tmp_path: Path) -> None:
    for i, name in enumerate(["bowling", "breakout"]):
        run(tmp_path, name, i)
    with pytest.raises(UsageError) as caught:
        resolve_run(tmp_path, "b")
    assert caught.value.render() == "error: `b` matches breakout-1 and bowling-1\n\nhint: write a whole name"
    for i in range(2, 9):
        run(tmp_path, "breakout", i)
    with pytest.raises(UsageError) as caught:
        resolve_run(tmp_path, "b")
    assert str(caught.value) == ("`b` matches breakout-8, breakout-7, breakout-6, breakout-5, breakout-4 and 4 more")


def test_no_match(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"(?m)no run matches `brek`$"):
        resolve_run(tmp_path, "brek")
    with pytest.raises(UsageError) as caught:
        resolve_run(tmp_path, "latest")
    assert "hive up" in caught.value.hint
    run(tmp_path, "pong", 1)
    run(tmp_path, "breakout", 2)
    with pytest.raises(UsageError, match=r"(?m)no run matches `brek`; ended: breakout-1, pong-1$"):
        resolve_run(tmp_path, "brek")
    run(tmp_path, "pong", 3, alive=True)
    run(tmp_path, "breakout", 4, alive=True)
    for text in ("brek", "a/b", "a\0", "x" * 300):
        with pytest.raises(UsageError) as caught:
            resolve_run(tmp_path, text)
        assert str(caught.value) == f"no run matches `{text}`; live: breakout-2, pong-2; ended: breakout-1, pong-1"
