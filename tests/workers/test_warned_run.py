"""A whole run that goes wrong, inline, with the files that it leaves."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from small_trainer import config_of

from hive.config import render
from hive.monitor.poller import poll_once
from hive.records import RunDirectory, Summary, read_jsonl, write_bytes
from hive.runtime.run.execute import run_inline
from hive.runtime.run.live_run import LiveRun


def test_a_run_without_any_update_fails_and_says_why(tmp_path: Path) -> None:
    """Its rewards overflow: the mean return is infinite, which is no goal reached, and the loss too."""
    config = config_of(
        "small_environments:Explodes",
        env__options="{when=1, times=9, terminates=2}",
        run__steps=1_000,
        run__stop_at_return=475,
    )
    directory = RunDirectory.create(tmp_path, "huge")
    write_bytes(directory.resolved_file, render(config).encode())
    assert run_inline(directory) == 1
    summary = Summary.read(directory.summary_file)
    assert (summary.state, summary.updates, summary.mean_return_100) == ("failed", 0, None)
    assert summary.error is not None
    assert "no update was made in 63 turns: the last was skipped because its loss was not finite" in summary.error
    kinds = ["return not finite", "updates skipped"]
    assert [warning["kind"] for warning in summary.warnings] == kinds
    assert all("network.normalize_rewards" in warning["advice"] for warning in summary.warnings)
    assert [event["warning"] for event in read_jsonl(directory.events_file) if event["kind"] == "warning"] == kinds
    assert [warning.kind for warning in poll_once(directory).active_warnings] == kinds


def test_a_resumed_run_has_its_earlier_warnings(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "huge")
    write_bytes(directory.resolved_file, render(config_of("small_environments:OneState")).encode())
    for steps in (100, 200):
        run = LiveRun(directory)
        with closing(run):
            run.event("warning", "...", {"warning": f"at {steps}", "cause": "x", "advice": "", "steps": steps})
            run.event("recovered", "...", {"warning": "at 100", "steps": steps})
            shown = run.status()["warnings"]
    assert [(w["kind"], w["first_steps"], w["last_steps"]) for w in shown] == [
        ("at 100", 100, 200),
        ("at 200", 200, None),
    ]
