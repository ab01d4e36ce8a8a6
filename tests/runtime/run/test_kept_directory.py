"""A run directory that is removed during the run is made again, and the run says so."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hive.config import load_config, render
from hive.records import RunDirectory, Summary, read_jsonl, run_state
from hive.runtime.run.folders import live_owners
from hive.runtime.run.live_run import LiveRun
from hive.runtime.supervise.outcome import Outcome


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    made = RunDirectory.create(tmp_path / "home", "cart")
    made.config_file.write_text('[env]\nid = "CartPole-v1"\n')
    made.resolved_file.write_text(render(load_config(made.config_file)))
    return made


def remove(directory: RunDirectory) -> None:
    shutil.rmtree(directory.path)


def rename(directory: RunDirectory) -> None:
    directory.path.rename(directory.path.parent.parent / "elsewhere")


@pytest.mark.parametrize("take", [remove, rename])
def test_a_removed_directory_is_made_again(directory: RunDirectory, take: Callable[[RunDirectory], None]) -> None:
    run = LiveRun(directory)
    run.write_facts()
    resolved = directory.resolved_file.read_text()
    take(directory)
    run.event("died", "learner-0")  # the restart needs the folders
    assert run_state(RunDirectory.open(directory.path)) == "running"
    assert directory.resolved_file.read_text() == resolved
    assert directory.config_file.exists()
    assert directory.crashes.is_dir()
    assert [event["kind"] for event in read_jsonl(directory.events_file)] == ["warning", "died"]
    assert list(run.warnings) == ["run directory removed"]
    outcome = Outcome("stopped", "hive down", "", "", False, {}, {}, {}, "")
    remove(directory)
    run.conclude(outcome)
    assert [warning["kind"] for warning in Summary.read(directory.summary_file).warnings] == ["run directory removed"]
    run.close()


def test_a_directory_that_cannot_be_made_again_does_not_end_the_run(directory: RunDirectory) -> None:
    run = LiveRun(directory)
    run.write_facts()
    remove(directory)
    directory.path.write_text("a file in its place")
    run.event("died", "learner-0")
    assert not run.warnings
    directory.path.unlink()
    run.keep_folders()
    assert directory.run_file.exists()
    run.close()


def test_the_warning_ends_once_the_directory_holds_a_checkpoint_again(directory: RunDirectory) -> None:
    run = LiveRun(directory)
    run.write_facts()
    done = directory.checkpoints / "00000010" / "DONE"
    done.parent.mkdir()
    done.touch()
    run.end_warnings()
    remove(directory)
    run.keep_folders()
    run.end_warnings()
    assert [warning.last_steps for warning in run.warnings.values()] == [None]
    done.parent.mkdir()
    done.touch()
    run.end_warnings()
    run.end_warnings()
    assert [warning.last_steps for warning in run.warnings.values()] == [0]
    assert [event["kind"] for event in read_jsonl(directory.events_file)] == ["warning", "recovered"]
    run.close()


def test_the_warning_ends_at_the_next_look_where_no_checkpoint_was_lost(directory: RunDirectory) -> None:
    run = LiveRun(directory)
    run.write_facts()
    remove(directory)
    run.keep_folders()
    run.end_warnings()
    assert [warning.last_steps for warning in run.warnings.values()] == [0]
    run.close()


def test_a_removed_socket_folder_is_made_again_and_the_run_says_so(directory: RunDirectory) -> None:
    run = LiveRun(directory)
    run.stage = 1
    shutil.rmtree(run.socket_folder)
    run.event("died", "collector-0")  # its restart needs the folder
    assert stat.S_IMODE(run.socket_folder.stat().st_mode) == 0o700
    assert (run.socket_folder / "1").is_dir()
    assert (directory.path, os.getpid()) in live_owners()
    assert list(run.warnings) == ["socket folder removed"]
    run.end_warnings()
    assert [event["kind"] for event in read_jsonl(directory.events_file)] == ["warning", "died", "recovered"]
    run.close()
    assert not run.socket_folder.exists()


def test_a_socket_folder_that_cannot_be_made_again_does_not_end_the_run(directory: RunDirectory) -> None:
    run = LiveRun(directory)
    shutil.rmtree(run.socket_folder)
    run.socket_folder.write_text("a file in its place")
    run.keep_folders()
    assert not run.warnings
    run.socket_folder.unlink()
    run.close()


def test_a_run_that_has_not_started_yet_makes_nothing(directory: RunDirectory) -> None:
    run = LiveRun(directory)
    remove(directory)
    run.keep_folders()
    assert not os.path.lexists(directory.path)
    run.close()


def test_a_directory_of_which_only_a_part_is_removed_is_completed(directory: RunDirectory) -> None:
    run = LiveRun(directory)
    run.write_facts()
    shutil.rmtree(directory.checkpoints)
    run.keep_folders()
    assert directory.checkpoints.is_dir()
    assert run.warnings
    run.close()


def test_a_socket_folder_that_a_failed_build_has_removed_is_no_warning(directory: RunDirectory) -> None:
    run = LiveRun(directory)
    run.write_facts()
    shutil.rmtree(run.socket_folder)  # as the fork server does when it exits
    run.conclude(Outcome("failed", "the build failed", "", "", False, {}, {}, {}, ""))
    assert not run.warnings
    assert not run.socket_folder.exists()
    run.close()
