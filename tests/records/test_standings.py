"""How the policies of a run do, by the counters of its learners or by the files."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from hive.errors import RecordError, UsageError
from hive.records import RunDirectory, policies_of, policy_directory
from hive.records.runs import folder_of_run
from hive.records.standings import PolicyStanding, returns_text, standings

CROSS = {"name": "cross", "agents": ["player_1"], "algorithm": "ppo", "folder": ""}
CIRCLE = {"name": "circle", "agents": ["player_2"], "algorithm": "dqn", "folder": "policies/circle"}


def run_of(home: Path, *policies: dict[str, Any]) -> RunDirectory:
    run = RunDirectory.create(home, "game")
    run.policies_file.write_text(json.dumps({"policies": policies}))
    return run


def line(updates: int, mean: float | None) -> str:
    return json.dumps({"steps": 64, "seconds": 1.0, "updates": updates, "return/mean_100": mean}) + "\n"


def test_by_files(tmp_path: Path) -> None:
    run = run_of(tmp_path, CROSS, CIRCLE)
    (run.path / "policies/circle").mkdir(parents=True)
    run.metrics_file.write_text(line(4, 0.1) + line(8, 0.5))
    (run.path / "policies/circle/metrics.jsonl").write_text(line(2, None))
    found = standings(run)
    assert found == (
        PolicyStanding("cross", ["player_1"], "ppo", 8, 0.5),
        PolicyStanding("circle", ["player_2"], "dqn", 2, None),
    )
    assert returns_text(found) == "cross 0.5, circle –"
    assert returns_text(found, 1) == "cross 0.5, …"
    assert found[0].data["agents"] == ["player_1"]


def test_by_counters(tmp_path: Path) -> None:
    run = run_of(tmp_path, CROSS, CIRCLE)
    counters = {
        "learner-0": {"updates": 3.0, "mean_return_100": 1.5, "episodes": 9.0},
        "learner-1": {"updates": 2.0, "mean_return_100": math.nan, "episodes": 0.0},
    }
    assert [(one.updates, one.mean_return) for one in standings(run, counters)] == [(3, 1.5), (2, None)]
    assert [(one.updates, one.mean_return) for one in standings(run, {})] == [(0, None), (0, None)]


def test_other_runs_have_none(tmp_path: Path) -> None:
    assert standings(RunDirectory.create(tmp_path, "alone")) == ()
    assert standings(run_of(tmp_path, CROSS)) == ()
    damaged = run_of(tmp_path, CROSS, {"name": "circle", "folder": "policies/circle"})
    assert standings(damaged) == ()
    damaged.policies_file.write_text("[")
    assert standings(damaged) == ()


OUTSIDE = [{**CIRCLE, "folder": folder} for folder in ("/tmp", "../other-1", "", ".", "policies/../x", "policies/b")]
DAMAGED = [5, {}, {"name": "circle"}, ["name", "folder"], {**CIRCLE, "agents": "x"}, {**CIRCLE, "name": "../x"}, CROSS]


@pytest.mark.parametrize("row", [*OUTSIDE, *DAMAGED], ids=str)
def test_damaged_rows_and_folders_outside_of_the_run_are_refused(row: Any, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"policies\.json` is damaged"):
        policies_of(run_of(tmp_path, CROSS, row))
    for whole in ("{}", '{"policies": {}}', '{"policies": null}'):
        run = run_of(tmp_path)
        run.policies_file.write_text(whole)
        with pytest.raises(RecordError, match="is damaged"):
            policies_of(run)


@pytest.mark.parametrize("link", ["policies", "policies/circle", "policies/circle/checkpoints"])
def test_links_in_the_place_of_a_policys_folders_are_refused(link: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "runs", CROSS, CIRCLE)
    for folder in (run.path, tmp_path / "outside"):
        (folder / "policies/circle/checkpoints").mkdir(parents=True)
    shutil.rmtree(run.path / link)
    (run.path / link).symlink_to(tmp_path / "outside" / link)
    with pytest.raises(RecordError, match=rf"{link}` is a link"):
        policies_of(run)


def test_the_folder_of_a_policy(tmp_path: Path) -> None:
    run = run_of(tmp_path / "policies", CROSS, CIRCLE)  # a home of that name
    circle = policy_directory(run, "circle")
    assert circle.path == run.path / "policies/circle"
    assert [folder_of_run(folder) for folder in (circle.path, run.path)] == [run.path, run.path]
    with pytest.raises(UsageError) as caught:
        policy_directory(run, "triangle")
    assert (str(caught.value), caught.value.hint) == (
        "game-1 has no policy `triangle`",
        "its policies are `cross`, `circle`",
    )
