"""One command begins a run, and continues it ever after: the run that it finds, and what it refuses."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

from hive.config import load_config
from hive.errors import UsageError
from hive.launch.continuing import begin_or_continue
from hive.launch.resuming import prepare
from hive.launch.run_report import exit_code_of
from hive.records import RunDirectory, Summary, write_checkpoint
from hive.records.owner import descriptor_of, give_up, own
from hive.runtime.process.stop_signals import TERMINATED

TEXT = '[run]\nscheme = "ppo"\nname = "pole"\nsteps = 500_000\n[env]\nid = "CartPole-v1"\n'
ENDED = Summary(
    name="pole-1", scheme="ppo", state="stopped", stop_reason="SIGTERM", seed=1, exact=False, env_steps=10_000,
    updates=100, episodes=0, mean_return_100=None, started=0.0, wall_s=1.0, train_s=1.0, weights_sha256="", channels={},
    restarts={},
)  # fmt: skip


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HIVE_HOME", str(tmp_path / "runs"))
    path = tmp_path / "run.toml"
    path.write_text(TEXT)
    return path


def made(file: Path, *sets: str, state: str = "", said: list[str] | None = None) -> RunDirectory:
    """Begin or continue a run, which then ends as `state` says: "": it is killed."""
    directory = begin_or_continue(file, [*sets], report=(said if said is not None else []).append)
    give_up(directory)
    if state:
        directory.summary_file.unlink(missing_ok=True)
        write_checkpoint(
            directory.checkpoints, 100, tensors={}, parts={"weights": np.zeros(64, np.uint8)},
            state={"scheduled": False, "env_steps": 10_000},
        )  # fmt: skip
        dataclasses.replace(ENDED, state=state).write(directory.summary_file)
    return directory


def test_a_run_begins_and_continues_until_it_has_finished(file: Path) -> None:
    said: list[str] = []
    first = made(file, state="stopped")
    assert made(file, said=said) == first
    assert said[0].startswith("continues pole-1 at 10,000 of 500,000 steps")
    dataclasses.replace(ENDED, state="finished", stop_reason="500,000 steps").write(first.summary_file)
    over = begin_or_continue(file, [], report=said.append)
    assert over == first
    assert descriptor_of(over) is None  # nothing is left to do
    assert "has finished" in said[-1]


def test_a_run_that_was_killed_before_its_first_metrics_begins_again(file: Path) -> None:
    first, said = made(file), list[str]()
    assert made(file, said=said) == first
    assert "from its beginning" in said[0]


def test_each_seed_has_a_run_of_its_own(file: Path) -> None:
    one, two = made(file, "run.seed=1", state="stopped"), made(file, "run.seed=2", state="stopped")
    assert (one.name, two.name) == ("pole-1", "pole-2")
    assert made(file, "run.seed=1") == one
    assert made(file, "run.seed=3").name == "pole-3"
    assert made(file, 'run.name="other"').name == "other-1"


def test_the_config_must_be_that_of_the_run(file: Path) -> None:
    run = made(file, state="stopped")
    with pytest.raises(UsageError, match=r"run\.steps: 500_?000 -> 900_?000") as refused:
        made(file, "run.steps=900_000")
    assert "hive resume pole-1 -s run.steps=900" in refused.value.hint
    dataclasses.replace(ENDED, state="finished").write(run.summary_file)
    with pytest.raises(UsageError, match=r"run\.steps"):  # also of a run that has finished
        made(file, "run.steps=900_000")


def test_a_living_run_is_named(file: Path) -> None:
    run = made(file, state="stopped")
    run.summary_file.unlink()
    own(run)
    with pytest.raises(UsageError, match="pole-1 is running"):
        begin_or_continue(file, [])
    give_up(run)
    made_now = RunDirectory.create(run.path.parent, "pole")  # by another command, which has not written its config yet
    own(made_now)
    with pytest.raises(UsageError, match="pole-2 is running"):
        begin_or_continue(file, [])
    give_up(made_now)


def test_a_run_that_sigterm_stopped_is_no_success() -> None:
    assert exit_code_of(ENDED, 0) == TERMINATED == 75
    assert exit_code_of(ENDED, 130) == 130
    assert exit_code_of(dataclasses.replace(ENDED, stop_reason="hive down"), 0) == 0
    assert exit_code_of(dataclasses.replace(ENDED, state="finished"), 0) == 0


def test_what_a_run_refers_to_is_that_of_its_beginning(file: Path) -> None:
    """Also where the other run goes on, or is gone."""
    file.write_text(f'{TEXT}[policies]\nme = "a"\n[policies.old]\nagents = "b"\nweights = "first"\n')
    other = RunDirectory.create(file.parent / "runs", "first")
    write_checkpoint(other.checkpoints, 5, tensors={}, parts={}, state={})
    (run, kept), sets = _weights(made(file, "run.init_from=latest", state="stopped")), ["run.init_from=first-1"]
    assert kept == run.given / "first-1" / "checkpoints" / "000005"
    assert load_config(run.resolved_file).run.init_from == str(kept)
    write_checkpoint(other.checkpoints, 9, tensors={}, parts={}, state={})
    assert _weights(made(file, *sets)) == (run, kept)
    shutil.rmtree(other.path)
    assert _weights(made(file, *sets, "policies.old.weights=first-1")) == (run, kept)
    newer = RunDirectory.create(file.parent / "runs", "second")
    write_checkpoint(newer.checkpoints, 7, tensors={}, parts={}, state={})
    with pytest.raises(UsageError, match=r"policies\.old\.weights"):
        made(file, "policies.old.weights=second-1")
    prepare(run.name, exact=False, sets=["policies.old.weights=second-1"], report=[].append)
    give_up(run)
    assert _weights(run)[1] == run.given / "second-1" / "checkpoints" / "000007"
    moved = RunDirectory(run.path.rename(file.parent / "moved"))
    assert _weights(moved)[1] == moved.given / "second-1" / "checkpoints" / "000007"


def _weights(run: RunDirectory) -> tuple[RunDirectory, Path]:
    return run, Path(str(load_config(run.resolved_file).policies["old"].weights))
