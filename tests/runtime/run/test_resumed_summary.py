"""The summary of a resumed run: its wall time, why it is not exact, and what an early failure leaves of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from hive.config import load_config, render
from hive.records import (
    RunDirectory,
    RunFacts,
    Summary,
    earlier_wall_s,
    process_start_time,
    run_state,
    wall_s_so_far,
    write_checkpoint,
    write_resume_point,
    write_run_facts,
)
from hive.records.jsonl import JsonlWriter
from hive.records.replaced import keep_replaced
from hive.runtime.run.conclusion import conclude, why_inexact
from hive.runtime.run.live_run import LiveRun
from hive.runtime.run.requests import RunRequests
from hive.runtime.supervise.outcome import Outcome

ANY = '[env]\nid = "CartPole-v1"\n'
FAILED = Outcome("failed", "learner-0 failed", "spaces differ", "", True, {}, {}, {}, "")
BEFORE = Summary(
    name="a-1", scheme="a2c", state="finished", stop_reason="1,000 steps", seed=1, exact=True, env_steps=1000,
    updates=50, episodes=9, mean_return_100=7.5, started=100.0, wall_s=30.0, train_s=20.0, weights_sha256="ab",
    channels={}, restarts={}, earlier_s=10.0,
)  # fmt: skip


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """A run that has finished at update 50, with its checkpoint."""
    run = RunDirectory.create(tmp_path, "a")
    run.resolved_file.write_text(render(load_config("a.toml", text=ANY)))
    state = {"env_steps": 1000, "updates": 50, "mean_return": 7.5, "scheduled": True}
    write_checkpoint(run.checkpoints, 50, tensors={}, parts={}, state=state)
    BEFORE.write(run.summary_file)
    return run


@pytest.fixture
def resumed(directory: RunDirectory) -> Iterator[LiveRun]:
    write_resume_point(directory, 50, wall_s=wall_s_so_far(directory))
    run = LiveRun(directory)
    run.write_facts()
    yield run
    run.close()


def test_a_resumed_run_that_fails_before_its_first_update_keeps_its_summary(resumed: LiveRun) -> None:
    before = resumed.previous_summary
    assert run_state(resumed.directory) == "running"
    conclude(resumed, FAILED)
    assert resumed.directory.summary_file.read_bytes() == before
    assert json.loads(resumed.directory.failure_file.read_text())["error"] == "spaces differ"


def test_a_failure_after_an_update_is_the_result(resumed: LiveRun) -> None:
    conclude(resumed, replace(FAILED, results={"updates": 51.0, "env_steps": 1016.0}))
    summary = Summary.read(resumed.directory.summary_file)
    assert (summary.state, summary.env_steps, summary.updates) == ("failed", 1016, 51)


@pytest.mark.parametrize(
    ("state", "updates", "is_kept"),
    [
        ("failed", 50, False),
        ("failed", 51, True),
        ("stopped", 50, False),
        ("stopped", 60, True),
        ("finished", 50, True),
    ],
)
def test_a_changed_config_counts_from_the_first_update_on(
    directory: RunDirectory, state: str, updates: int, is_kept: bool
) -> None:
    """Until then the run is that of before, which can be resumed again, and is as exact as it was."""
    write_resume_point(directory, 40)
    before = [path.read_bytes() for path in (directory.resolved_file, directory.resume_file)]
    keep_replaced(directory)
    write_resume_point(directory, 50, changed=["collection.rollout"])
    directory.resolved_file.write_text(render(load_config("a.toml", ["collection.rollout=7"], text=ANY)))
    run = LiveRun(directory)
    run.supervisor = SimpleNamespace(state=SimpleNamespace(plan=SimpleNamespace(results=["updates"])))  # type: ignore[assignment]
    conclude(run, replace(FAILED, state=state, results={"updates": float(updates)}))
    run.close()
    now = [path.read_bytes() for path in (directory.resolved_file, directory.resume_file)]
    assert (now == before) is not is_kept
    assert not directory.replaced.exists()


def test_without_a_summary_a_failure_has_the_numbers_of_its_checkpoint(directory: RunDirectory) -> None:
    directory.summary_file.unlink()  # as of a run that was killed
    write_resume_point(directory, 50)
    run = LiveRun(directory)
    run.write_facts()
    conclude(run, FAILED)
    run.close()
    summary = Summary.read(directory.summary_file)
    assert (summary.state, summary.env_steps, summary.updates, summary.mean_return_100) == ("failed", 1000, 50, 7.5)


def test_numbers_of_the_checkpoint_do_not_mix_with_those_of_actors_that_reported_none(directory: RunDirectory) -> None:
    directory.summary_file.unlink()
    write_resume_point(directory, 50)
    run = LiveRun(directory)
    run.write_facts()
    conclude(run, replace(FAILED, results={"updates": 0.0, "env_steps": 0.0, "frames": 0.0}))
    run.close()
    summary = Summary.read(directory.summary_file)
    assert (summary.env_steps, summary.frames) == (1000, None)


def test_the_wall_time_is_that_of_all_parts_whatever_is_done_to_the_clock(
    resumed: LiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert resumed.earlier_s == 30.0
    resumed.started_s -= 5.0
    back = time.time() - 3600
    monkeypatch.setattr(time, "time", lambda: back)
    seen = RunRequests(resumed).status()["started"]
    assert 35.0 <= back - seen < 40.0  # type: ignore[operator]
    conclude(resumed, replace(FAILED, state="finished", results={"updates": 60.0, "env_steps": 1200.0}))
    summary = Summary.read(resumed.directory.summary_file)
    assert 35.0 <= summary.wall_s < 40.0
    assert summary.earlier_s == 30.0
    assert summary.ended - summary.started == pytest.approx(summary.wall_s - 30.0)


def test_a_part_that_was_killed_lasted_until_its_last_line_and_counts_once(directory: RunDirectory) -> None:
    directory.summary_file.unlink()
    write_resume_point(directory, 40, wall_s=30.0)
    started = directory.resume_file.stat().st_mtime + 1.0
    write_run_facts(
        directory, RunFacts("a-1", 1 << 30, process_start_time(os.getpid()) or 1, "", started, [], "0", "3")
    )
    lines = JsonlWriter(directory.metrics_file)
    lines.write({"updates": 50})
    lines.close()
    os.utime(directory.metrics_file, (started, started + 12.0))
    assert wall_s_so_far(directory) == pytest.approx(42.0)
    write_resume_point(directory, 50, wall_s=wall_s_so_far(directory))
    os.utime(directory.resume_file, (started + 20.0, started + 20.0))
    assert wall_s_so_far(directory) == earlier_wall_s(directory) == pytest.approx(42.0)


def test_a_part_that_was_killed_trained_as_long_as_its_metrics_say_where_the_clock_was_set_back(
    directory: RunDirectory,
) -> None:
    directory.summary_file.unlink()
    started = time.time()
    write_run_facts(directory, RunFacts("a-1", 1 << 30, 1, "", started, [], "0", "3"))
    directory.metrics_file.write_text('{"updates": 50, "seconds": 40.5, "return/mean_100": 1.0}\n')
    os.utime(directory.metrics_file, (started - 3600, started - 3600))
    assert wall_s_so_far(directory) == 40.5


@pytest.mark.parametrize(
    ("outcome", "why", "causes"),
    [
        (replace(FAILED, state="finished"), "", []),
        (FAILED, "", ["it has not reached its goal: failed"]),
        (replace(FAILED, state="finished", exact=False), "", ["its goal was judged at a time, not at an update"]),
        (
            replace(FAILED, state="finished", exact=False, restarts={"collector-1": 2, "learner-0": 0}),
            "`hive resume` changed run.seed",
            ["`hive resume` changed run.seed", "restarted: collector-1"],
        ),
    ],
)
def test_the_summary_names_what_made_the_run_inexact(
    directory: RunDirectory, outcome: Outcome, why: str, causes: list[str]
) -> None:
    write_resume_point(directory, 50, why=why)
    run = LiveRun(directory)
    conclude(run, replace(outcome, results={"updates": 60.0}))
    run.close()
    summary = Summary.read(directory.summary_file)
    assert (summary.inexact, summary.exact) == (causes, not causes)


def test_a_damaged_resume_file_is_a_cause(directory: RunDirectory) -> None:
    directory.resume_file.write_text("{")
    run = LiveRun(directory)
    (cause,) = why_inexact(run, replace(FAILED, state="finished"))
    assert "resume.json" in cause
    run.inexact_plan = ("`x.y` reaches `collectors` at a time, not at an update",)
    assert why_inexact(run, replace(FAILED, state="finished"))[0] == run.inexact_plan[0]
    run.close()
