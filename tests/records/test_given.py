"""Checkpoints of other runs that a run keeps in its own directory."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from hive.errors import RecordError
from hive.records import RunDirectory, list_checkpoints, write_checkpoint
from hive.records.checkpoints.folders import checkpoint_at
from hive.records.checkpoints.given import keep_given, origin_of
from hive.records.runs import folder_of_run


def save(root: Path, update: int) -> Path:
    tensors = {"w": np.full(3, update, np.float32)}
    return write_checkpoint(root, update, tensors=tensors, parts={"more": bytes(8)}, state={"policy": {"of": update}})


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "runs", "learner")


@pytest.fixture
def other(tmp_path: Path) -> RunDirectory:
    made = RunDirectory.create(tmp_path / "runs", "opponent")
    save(made.checkpoints, 5)
    return made


def test_the_newest_checkpoint_stays_whatever_its_run_does(run: RunDirectory, other: RunDirectory) -> None:
    kept = keep_given(run, str(other.path))
    assert kept == run.given / "opponent-1" / "checkpoints" / "000005"
    assert (kept / "weights.safetensors").samefile(other.checkpoints / "000005" / "weights.safetensors")
    assert not (kept / "DONE").samefile(other.checkpoints / "000005" / "DONE")
    save(other.checkpoints, 9)
    assert keep_given(run, str(kept)) == kept
    assert keep_given(run, str(other.path)).name == "000009"
    shutil.rmtree(other.path)
    assert checkpoint_at(str(kept)).tensors()["w"].tolist() == [5.0] * 3
    assert origin_of(folder_of_run(kept.parents[1])) == other.path


def test_an_older_checkpoint_than_a_damaged_one_is_named(run: RunDirectory, other: RunDirectory) -> None:
    (save(other.checkpoints, 9) / "more.bin").write_bytes(bytes(7))
    told: list[str] = []
    assert keep_given(run, str(other.path), warn=told.append).name == "000005"
    assert "000009/more.bin` is damaged" in told[0]


def test_rows_of_a_replay_memory_are_kept_where_they_are_needed(run: RunDirectory, other: RunDirectory) -> None:
    (rows := other.checkpoints / "000005" / "replay").mkdir()
    (rows / "a.rows").write_bytes(b"rows")
    (rows.parent / "KEEP").touch()  # saved by hand
    listing = json.loads((rows.parent / "DONE").read_text())
    listing["files"]["replay/a.rows"] = {"size": 4, "sha256": hashlib.sha256(b"rows").hexdigest()}
    (rows.parent / "DONE").write_text(json.dumps(listing))
    without, rest = keep_given(run, str(other.path)), {path.name for path in rows.parent.glob("*.*")}
    assert {path.name for path in without.iterdir()} == {"DONE", *rest}
    kept = keep_given(run, str(other.path), replay=True)
    assert kept.parents[1].name == "opponent-1-2"
    assert (kept / "replay" / "a.rows").samefile(rows / "a.rows")
    assert keep_given(run, str(other.path)) == without
    assert checkpoint_at(str(kept)).has_replay


def test_runs_of_two_homes_have_two_names(run: RunDirectory, other: RunDirectory, tmp_path: Path) -> None:
    namesake = RunDirectory.create(tmp_path / "elsewhere", "opponent")
    save(namesake.checkpoints, 5)
    (namesake.path / "session.py").write_text("class Net: ...\n")
    first, second = keep_given(run, str(other.path)), keep_given(run, str(namesake.path))
    assert [path.parents[1].name for path in (first, second)] == ["opponent-1", "opponent-1-2"]
    assert (second.parents[1] / "session.py").read_text() == "class Net: ...\n"
    assert keep_given(run, str(namesake.path)) == second


def test_the_policy_of_a_run_with_several(run: RunDirectory, other: RunDirectory) -> None:
    other.policies_file.write_text("{}")
    (other.path / "policies" / "prey").mkdir(parents=True)
    save(other.path / "policies" / "prey" / "checkpoints", 3)
    kept = keep_given(run, str(other.path / "policies" / "prey"))
    assert kept == run.given / "opponent-1" / "policies" / "prey" / "checkpoints" / "000003"
    assert folder_of_run(kept.parents[1]) == run.given / "opponent-1"


def test_of_a_seed_the_next_one_keeps_the_same(run: RunDirectory, other: RunDirectory) -> None:
    first, second = run, RunDirectory.create(run.path.parent, "learner")
    kept = keep_given(first, str(other.path))
    shutil.rmtree(other.path)
    again = keep_given(second, str(kept))
    assert again == second.given / "opponent-1" / "checkpoints" / "000005"
    assert origin_of(again.parents[1]) == other.path


def test_without_a_checkpoint_it_is_an_error(run: RunDirectory, other: RunDirectory) -> None:
    shutil.rmtree(other.checkpoints / "000005")
    with pytest.raises(RecordError, match="no complete checkpoint"):
        keep_given(run, str(other.path))
    assert list_checkpoints(run.checkpoints) == []
    assert not run.given.exists()
