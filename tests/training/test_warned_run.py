"""A whole run that goes wrong, inline, with the files that it leaves."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from small_trainer import config_of

from hive.config import render
from hive.monitor.poller import poll_once
from hive.records import RunDirectory, Summary, read_jsonl, write_bytes
from hive.runtime.run.execute import run_inline
from hive.runtime.run.live_run import LiveRun
from hive.runtime.run.requests import RunRequests


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
    assert [warning.kind for warning in poll_once(directory).active_warnings] == kinds[:1], "it explains the other one"


def test_a_resumed_run_has_its_earlier_warnings(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "huge")
    write_bytes(directory.resolved_file, render(config_of("small_environments:OneState")).encode())
    for steps in (100, 200):
        run = LiveRun(directory)
        with closing(run):
            run.event("warning", "...", {"warning": f"at {steps}", "cause": "x", "advice": "", "steps": steps})
            run.event("recovered", "...", {"warning": "at 100", "steps": steps})
            shown = RunRequests(run).status()["warnings"]
    assert [(w["kind"], w["first_steps"], w["last_steps"]) for w in shown] == [
        ("at 100", 100, 200),
        ("at 200", 200, None),
    ]


def run_of(folder: Path, name: str, **values: Any) -> tuple[RunDirectory, dict[str, Any]]:
    directory = RunDirectory.create(folder, name)
    write_bytes(directory.resolved_file, render(config_of(**values)).encode())
    assert run_inline(directory) == 0
    return directory, {warning["kind"]: warning for warning in Summary.read(directory.summary_file).warnings}


def test_a_goal_that_was_never_judged_is_a_warning_at_the_end(tmp_path: Path) -> None:
    values = {"id": "small_environments:OneState", "env__options": "{terminates=10}", "run__steps": 600}
    _, warnings = run_of(tmp_path, "goal", **values, run__stop_at_return=1e6)
    assert "stop_at_return = 1e+06 was never judged" in warnings["goal not judged"]["text"]
    assert warnings["goal not judged"]["last_steps"] is None
    assert "goal not judged" not in run_of(tmp_path, "none", **values)[1]


def test_a_wrapper_with_running_statistics_is_a_warning(tmp_path: Path) -> None:
    values = {"id": "small_environments:OneState", "env__options": "{terminates=3}", "run__steps": 300}
    wrappers = '["NormalizeObservation", "NormalizeReward"]'
    directory, warnings = run_of(tmp_path, "wrapped", **values, env__wrappers=wrappers)
    warning = warnings["statistics in environments"]
    assert "`NormalizeReward` keeps a running mean of rewards" in warning["text"]
    assert "set network.normalize_observations = true" in warning["advice"]
    assert len([event for event in read_jsonl(directory.events_file) if event.get("warning") == warning["kind"]]) == 1
    assert "statistics in environments" not in run_of(tmp_path, "plain", **values)[1]


def test_the_first_mean_return_is_a_line_of_its_own(tmp_path: Path) -> None:
    """So that a run which learns before its first line is due is not called constant."""
    values = {"id": "small_environments:OneState", "env__options": "{terminates=3}", "record__every_s": 1e6}
    directory, _ = run_of(tmp_path, "first", **values, run__steps=3_000)
    first, last = read_jsonl(directory.metrics_file)
    assert 100 <= first["episodes"] < last["episodes"]
