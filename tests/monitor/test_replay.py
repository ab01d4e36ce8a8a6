"""Snapshots from the files of a run: ended in order, failed, lost, or never begun."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from canned_runs import STEPPED, T, lively, snapshot
from canned_status import warned

from hive.monitor import Extras, Snapshot
from hive.monitor.drawing import plain
from hive.monitor.overview import overview
from hive.monitor.replay import snapshot_from_files, with_last_rows
from hive.monitor.rows import ChannelRow
from hive.records import RunDirectory, RunFacts, Summary, write_run_facts
from hive.records.environments import EnvironmentRow
from hive.records.run_warnings import RunWarning

DIED = {"kind": "died", "actor": "collector-0", "text": "collector-0 died in `env`: killed by SIGKILL", "t": 1.7e9}


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path, "cartpole")


def end(
    directory: RunDirectory, environments: Mapping[str, tuple[EnvironmentRow, ...]] | None = None, **changes: Any
) -> Snapshot:
    values: dict[str, Any] = {
        "name": directory.name,
        "scheme": "a2c",
        "state": "finished",
        "stop_reason": "500,000 steps",
        "seed": 1,
        "exact": True,
        "env_steps": 500_000,
        "updates": 976,
        "episodes": 2810,
        "mean_return_100": 471.5,
        "started": 1.7e9,
        "wall_s": 61.5,
        "train_s": 50.0,
        "weights_sha256": "",
        "restarts": {"collector-0": 1},
        "channels": {"rollouts": {"produced": 9, "consumed": 7, "dropped": {"run_ended": 2}, "in_flight": 0}},
    }
    Summary(**(values | changes)).write(directory.summary_file)
    returns = ((0.0, 20.0), (500_000.0, 471.5))
    extras = Extras(events=(DIED,), returns=returns, environments=environments or {})
    return snapshot_from_files(directory, extras, 500_000)


def test_the_snapshot_of_an_ended_run_has_the_values_of_its_summary(directory: RunDirectory) -> None:
    seen = end(directory)
    assert (seen.run, seen.state, seen.reason) == ("cartpole-1", "finished", "500,000 steps")
    assert (seen.env_steps, seen.updates, seen.mean_return, seen.restarts) == (500_000, 976, 471.5, 1)
    assert (seen.steps_per_s, seen.t - seen.started) == (10_000.0, 61.5)
    assert seen.bound_by == "nothing, the run is finished"
    assert (seen.dropped, seen.channels["rollouts"].consumed) == (2, 7)
    row = seen.actors[0]
    assert (row.name, row.state, row.restarts, row.busy, row.last_words) == (
        "collector-0",
        "finished",
        1,
        None,
        DIED["text"],
    )
    assert seen.supervisor == ""


def test_warnings_are_those_of_the_summary_or_of_the_event_log(directory: RunDirectory) -> None:
    """A summary of an earlier version has none; a lost run has no summary."""
    begin = {"t": 1.7e9, "kind": "warning", "text": "...", "warning": "entropy gone", "cause": "it is so"}
    event = begin | {"advice": "raise algorithm.entropy_weight", "steps": 10_000}
    directory.events_file.write_text(json.dumps(event) + "\n")
    expected = (RunWarning.of(warned()),)
    assert snapshot_from_files(directory, Extras()).warnings == expected
    assert end(directory, warnings=[warned()]).warnings == expected
    text = json.loads(directory.summary_file.read_text())
    del text["warnings"]
    directory.summary_file.write_text(json.dumps(text))
    assert snapshot_from_files(directory, Extras()).warnings == ()


def test_environments_of_an_ended_run_have_no_processes(directory: RunDirectory) -> None:
    ended = end(directory, environments=STEPPED)
    assert {(one.state, one.pid, one.steps) for one in ended.actors[0].environments} == {("finished", 0, 9000)}
    last = snapshot(Extras(t=T, environments=STEPPED))
    shown = {row.name: row.environments for row in with_last_rows(ended, last).actors}
    assert shown["collector-0"] == ended.actors[0].environments
    assert {(one.state, one.pid) for one in shown["collector-1"]} == {("finished", 0)}


def test_it_can_be_drawn(directory: RunDirectory) -> None:
    text = plain(overview(end(directory, state="failed", stop_reason="collector-0 failed"), 100))
    for words in ("failed", "collector-0 failed", "500k / 500k steps   100%", "2 (run_ended 2)", "471.5"):
        assert words in text


def test_a_lost_run_quotes_the_last_log_line(directory: RunDirectory) -> None:
    line = {"t": 1.7e9, "steps": 700, "updates": 9, "seconds": 4.5, "return/mean_100": 33.0, "episodes": 12}
    directory.metrics_file.write_text(json.dumps(line) + "\n" + json.dumps({"evaluation/mean_return": 1.0}) + "\n")
    log = ("37.221 supervisor INFO running: 5 actors", "59.000 supervisor WARN out of memory")
    text = "".join(f"2026-11-21 01:12:{line}\n" for line in log)
    directory.log_file("supervisor").write_text(text + "  a traceback\n")
    directory.log_file("learner-0").write_text("")
    facts = RunFacts("cartpole-1", 1 << 30, 1, "/nowhere", 1.7e9, [], "0.1", "3.11")
    write_run_facts(directory, facts)
    for path in (directory.metrics_file, *directory.logs.iterdir()):
        os.utime(path, (1.7e9 + 60, 1.7e9 + 60))
    seen = snapshot_from_files(directory, Extras(events=(DIED, {"kind": "restarted"})), 1_000)
    assert (seen.state, seen.env_steps, seen.updates, seen.mean_return) == ("lost", 700, 9, 33.0)
    assert (seen.restarts, seen.t - seen.started) == (1, 60.0)
    assert [row.name for row in seen.actors] == ["learner-0"]
    assert seen.supervisor.startswith("gone since ")
    assert seen.supervisor.endswith(", its last log line: out of memory")
    assert seen.helpers[0].state == "gone"
    assert seen.bound_by == "nothing, the run is lost"


def test_a_run_with_the_error_of_its_start_is_failed_and_not_lost(directory: RunDirectory) -> None:
    directory.failure_file.write_text('{"error": "the fork server died"}')
    seen = snapshot_from_files(directory, Extras())
    assert (seen.state, seen.reason) == ("failed", "it could not start")


def test_a_run_that_never_began_is_lost_without_a_log_line(directory: RunDirectory) -> None:
    seen = snapshot_from_files(directory, Extras())
    assert (seen.state, seen.env_steps, seen.mean_return, seen.actors) == ("lost", 0, None, ())
    assert seen.supervisor.startswith("gone since ")
    assert "log line" not in seen.supervisor
    plain(overview(seen, 80))


def test_a_view_that_was_open_at_the_end_keeps_the_rows() -> None:
    live = lively()
    row = dataclasses.replace(live.actors[0], state="finished", restarts=3, last_words="died", busy=None, pid=0)
    bare = ChannelRow(50, 48, {"run_ended": 2}, 0)
    ended = dataclasses.replace(live, state="finished", pid=0, actors=(row,), channels={"rollouts": bare}, boards={})
    kept = with_last_rows(ended, live)
    assert [actor.name for actor in kept.actors] == [actor.name for actor in live.actors]
    assert {(actor.state, actor.pid, actor.activity, actor.cpu) for actor in kept.actors} == {("finished", 0, "", None)}
    first = kept.actors[0]
    assert (first.busy, first.restarts, first.last_words) == (live.actors[0].busy, 3, "died")
    rollouts = kept.channels["rollouts"]
    assert (rollouts.produced, rollouts.source, rollouts.carrier, rollouts.rate) == (50, "collectors", "slots", None)
    assert kept.boards.keys() == live.boards.keys()
