"""Which run goes on, from which checkpoint, and what is taken back."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest

from hive.cli.resume import prepare
from hive.errors import UsageError
from hive.records import (
    JsonlWriter,
    RunDirectory,
    RunFacts,
    Summary,
    list_checkpoints,
    process_start_time,
    write_checkpoint,
    write_run_facts,
)

ENDED = Summary(
    name="cart-1", scheme="a2c", state="stopped", stop_reason="hive down", seed=1, exact=False, env_steps=1, updates=1,
    episodes=0, mean_return_100=None, started=0.0, wall_s=1.0, train_s=1.0, weights_sha256="", channels={}, restarts={},
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A stopped run with a scheduled checkpoint at 100 and an unscheduled one at 150."""
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    directory = RunDirectory.create(tmp_path, "cart")
    for update, scheduled in ((100, True), (150, False)):
        part = {"weights": np.full(64, update, np.uint8)}
        write_checkpoint(directory.checkpoints, update, tensors={}, parts=part, state={"scheduled": scheduled})
    metrics = JsonlWriter(directory.metrics_file)
    for updates in (50, 100, 120, 150, 170):
        metrics.write({"updates": updates})
    metrics.close()
    ENDED.write(directory.summary_file)
    return directory


def chosen(run: RunDirectory) -> dict[str, object]:
    loaded: dict[str, object] = json.loads(run.resume_file.read_text())
    return loaded


def updates(run: RunDirectory) -> list[int]:
    return [json.loads(line)["updates"] for line in run.metrics_file.read_text().splitlines()]


def test_the_newest_checkpoint(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare("cart-1", exact=False).path == run.path
    assert chosen(run) == {"update": 150, "exact": False}
    assert updates(run) == [50, 100, 120, 150]
    assert "resuming cart-1 from the state it was left in, update 150" in capsys.readouterr().err


def test_the_last_cut(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    prepare("cart", exact=True)
    assert chosen(run) == {"update": 100, "exact": True}
    assert updates(run) == [50, 100]
    assert [checkpoint.update for checkpoint in list_checkpoints(run.checkpoints)] == [100]
    assert "from its last cut, update 100" in capsys.readouterr().err


def test_a_run_that_lost_an_actor_is_not_exact(run: RunDirectory) -> None:
    run.events_file.write_text('{"kind": "died", "actor": "learner-0"}\n')
    prepare("cart-1", exact=True)
    assert chosen(run)["exact"] is False


def test_a_damaged_checkpoint_is_named_and_the_one_before_taken(
    run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    (run.checkpoints / "000150" / "weights.bin").write_bytes(b"x" * 64)
    prepare("cart-1", exact=False)
    assert chosen(run)["update"] == 100
    assert "000150" in capsys.readouterr().err


def test_a_finished_run_is_refused(run: RunDirectory) -> None:
    dataclasses.replace(ENDED, state="finished").write(run.summary_file)
    with pytest.raises(UsageError, match="cart-1 has finished"):
        prepare("cart-1", exact=False)


def test_a_living_run_is_refused(run: RunDirectory) -> None:
    run.summary_file.unlink()
    start = process_start_time(os.getpid())
    assert start is not None
    write_run_facts(run, RunFacts("cart-1", os.getpid(), start, "/nowhere", 0.0, [], "0", "3"))
    with pytest.raises(UsageError, match="cart-1 is running"):
        prepare("cart-1", exact=False)


def test_a_run_without_checkpoints_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    ENDED.write(RunDirectory.create(tmp_path, "bare").summary_file)
    with pytest.raises(UsageError, match="bare-1 has no checkpoint to go on from"):
        prepare("bare-1", exact=False)
