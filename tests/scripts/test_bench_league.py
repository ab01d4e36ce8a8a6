"""`bench league`: every row is work that hive can be given, ratios and goals are computed as documented."""

from __future__ import annotations

import csv
import importlib
import itertools
import json
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from benchmarks.command import parser
from benchmarks.harness import WIDTH, Spread, append_rows
from benchmarks.hive_run import measure_budget
from benchmarks.league import (
    COLUMNS,
    ONE,
    PROGRAMS,
    checks_of,
    csv_rows,
    fastest,
    lines_of,
    listed,
    one_core,
    other_weights,
    table,
    times_as_fast,
    weights_of_hive,
)
from benchmarks.league_rows import EARLIER_HIVE, ROWS, UNITS, Row
from benchmarks.peer_environments import REQUIREMENTS
from benchmarks.programs import here

from hive.config import load_config

EACH = pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)
MACHINE = {
    "date": "2026-11-27 09:00:00 +0000",
    "commit": "abc1234",
    "cpu": "A CPU",
    "cores": 2,
    "load_before": [0.1],
    "hive": "0.1.0",
    "torch": "2.13.0",
    "numpy": "2.4",
    "gymnasium": "1.4",
}
DQN = ROWS["dqn-cartpole"]
RATES = {
    "hive": [3000.0, 1500.0, 3300.0],  # twice as slow in the second repetition, as all are
    "sbx-1-thread": [1900.0, 900.0, 1800.0],
    "sbx": [2000.0, 1000.0, 2000.0],
    "sb3-1-thread": [1000.0, 500.0, 1000.0],
    "sb3": [600.0, 300.0, 700.0],
}


def results_of(row: Row, values: dict[str, list[float]], **figures: Any) -> dict[str, list[dict[str, Any]]]:
    """Return measurements with these values. figures: contender -> its further figures."""
    return {
        shape: [{row.figure: value, **figures.get(shape, {})} for value in those] for shape, those in values.items()
    }


# --- rows


@EACH
def test_hive_has_a_valid_config_with_the_work_of_the_row(row: Row) -> None:
    for shape in (*row.hive, *(peer for peer in row.peers if peer == EARLIER_HIVE)):
        config = load_config("bench.toml", row.keys(shape), text="")
        algorithm: Any = config.algorithm
        collectors = max(config.collection.workers, 1)
        assert config.env.id == row.work["env"], shape
        assert config.collection.envs * collectors == row.work.get("envs", 1), shape
        assert config.collection.rollout == row.work["rollout"], shape
        assert list(config.network.middleware) == list(row.work["layers"]), shape
        assert (algorithm.learning_rate, algorithm.discount) == (row.work["learning_rate"], row.work["discount"]), shape
        assert algorithm.clip_gradients == row.work["clip_gradients"], shape
        if "capacity" in row.work:
            assert algorithm.batch_size == row.work["batch"], shape
            assert Fraction(algorithm.updates_per_step) == Fraction(row.work["updates"], row.work["rollout"]), shape
        elif row.work["algorithm"] == "ppo":
            samples = row.work["envs"] * row.work["rollout"]
            assert (algorithm.epochs, algorithm.minibatches) == (row.work["epochs"], samples // row.work["minibatch"])


@EACH
def test_a_row_names_contenders_that_can_be_measured(row: Row) -> None:
    assert ROWS[row.name] is row
    assert row.figure in UNITS
    assert len(f"{row.name}: {row.title}") <= WIDTH
    assert set(row.goals) <= {peer.removesuffix(ONE) for peer in row.peers}
    assert row.goals or row.limit is not None
    for peer in row.peers:
        python, program = PROGRAMS.get(peer.removesuffix(ONE), (EARLIER_HIVE, "environment_steps.py"))
        assert python == "plain" or python in REQUIREMENTS, peer
        assert here("peers", program).is_file(), peer
        json.dumps(row.given(peer))
    if row.figure == "seconds" and "envs" in row.work:
        assert row.work["steps"] % (row.work["envs"] * row.work["rollout"]) == 0, "whole rounds"


def test_rows_step_the_class_that_they_name() -> None:
    def vector(name: str, shape: str) -> str:
        return load_config("bench.toml", ROWS[name].keys(shape), text="").env.vector

    assert (
        vector("sac-pendulum", "hive") == vector("dqn-cartpole", "hive") == vector("ppo-cartpole", "hive") == "python"
    )
    assert vector("sac-pendulum-compiled", "hive-compiled") == "native"
    assert ROWS["sac-pendulum-compiled"].given("rltools-compiled")["compiled"]
    assert not ROWS["sac-pendulum-compiled"].given("rltools")["compiled"]
    assert ROWS["ppo-pendulum-compiled"].work["steps"] == 303_104
    assert ROWS["ppo-lunarlander"].work["steps"] == 212_992
    lag_0 = load_config("bench.toml", ROWS["ppo-halfcheetah-lag-0"].keys("hive"), text="")
    assert (lag_0.collection.envs, lag_0.collection.max_lag) == (1, 0)


def test_the_peers_of_the_league_have_pinned_versions() -> None:
    packages = {package for peer in ("sbx", "rltools") for package in REQUIREMENTS[peer] if package != "numpy"}
    assert all("==" in package for package in packages)
    assert {"sbx-rl==0.28.0", "rltools==2.2.1"} <= packages
    assert REQUIREMENTS["sb3"][0] in packages, "SBX and Stable-Baselines3 share their loop"


def test_the_number_of_weights_is_that_of_the_layers() -> None:
    def dense(*widths: int) -> int:
        return sum((before + 1) * after for before, after in itertools.pairwise(widths))

    assert weights_of_hive(ROWS["sac-pendulum"]) == dense(3, 64, 64, 2) + 2 * dense(4, 64, 64, 1) + 1
    assert weights_of_hive(ROWS["ppo-pendulum-compiled"]) == dense(3, 64, 64, 1) + dense(3, 64, 64, 1) + 1


# --- arithmetic


def test_a_ratio_says_how_many_times_as_fast_hive_is() -> None:
    assert times_as_fast(DQN, [300.0, 100.0], [100.0, 50.0]) == Spread(2.5, 2.0, 3.0)
    assert times_as_fast(ROWS["ppo-pendulum-compiled"], [4.0, 2.0], [1.0, 1.0]) == Spread(0.375, 0.25, 0.5)


def test_a_goal_is_about_the_faster_variant_of_a_peer() -> None:
    results = results_of(DQN, RATES)
    assert fastest(DQN, results, "sbx") == "sbx"
    assert fastest(DQN, results, "sb3") == "sb3-1-thread"
    assert fastest(DQN, results, "rltools") is None
    lines = {line.shape: line for line in lines_of(DQN, results)}
    assert list(lines) == ["hive", "sbx-1-thread", "sbx", "sb3-1-thread", "sb3"]
    assert (lines["sbx"].ratio, lines["sbx"].met) == (Spread(1.5, 1.5, 1.65), True)
    assert (lines["sb3-1-thread"].ratio, lines["sb3-1-thread"].met) == (Spread(3.0, 3.0, 3.3), False)
    assert lines["hive"].ratio is lines["hive"].met is lines["sb3"].met is None


def test_a_limit_is_about_hive_alone() -> None:
    row = ROWS["ppo-pendulum-compiled"]
    results = results_of(row, {"hive-compiled": [0.9, 0.7, 0.75], "rltools-compiled": [0.5, 0.5, 0.5]})
    ours, theirs = lines_of(row, results)
    assert (ours.goal, ours.met) == ("<= 0.80 s of training", True)
    assert theirs.ratio is not None
    assert theirs.ratio.median == pytest.approx(2 / 3)
    assert (theirs.goal, theirs.met) == ("", None)


def test_losses_are_shown_as_plainly_as_wins() -> None:
    row = ROWS["sac-pendulum"]
    values = {"hive": [250.0, 500.0], "rltools": [5000.0, 5000.0], "sbx": [100.0, 100.0]}
    results = results_of(row, values, rltools={"compile_s": 10.0}, sbx={"compile_s": 3.0, "weights": 13_637})
    lines = lines_of(row, results)
    text = table(row, lines, results)
    assert max(map(len, text)) <= WIDTH
    assert text[-2].split() == ["rltools", "5,000", "5,000..5,000", "0.08", "(0.05..0.10)", "10.0"]
    assert text[-1].split() == ["sbx", "100", "100..100", "3.75", "(2.50..5.00)", "3.0"]
    (check,) = checks_of(row, lines)
    assert (check.promise, check.passed) == ("sac-pendulum: hive >= 1 x rltools", False)


def test_without_hive_nothing_is_compared() -> None:
    lines = lines_of(DQN, results_of(DQN, {"sbx": [1000.0]}))
    assert [(line.shape, line.ratio, line.goal) for line in lines] == [("sbx", None, "")]
    assert checks_of(DQN, lines) == []


def test_another_network_is_an_error() -> None:
    lines = lines_of(DQN, results_of(DQN, RATES, sbx={"weights": 10}, sb3={"weights": 20}))
    assert other_weights(DQN, lines, 10) == ["dqn-cartpole: sb3 trains 20 weights, hive 10"]


# --- output


def test_each_contender_has_a_row_in_the_file(tmp_path: Path) -> None:
    path, figures = tmp_path / "league.csv", {"sbx": {"compile_s": 2.5, "weights": 7, "versions": {"jax": "0.10"}}}
    lines = lines_of(DQN, results_of(DQN, RATES, **figures))
    append_rows(path, COLUMNS, csv_rows(DQN, lines, 3, 7, MACHINE))
    with path.open(newline="") as file:
        rows = {row["contender"]: row for row in csv.DictReader(file)}
    assert list(rows) == list(RATES)
    ours, theirs = rows["hive"], rows["sbx"]
    assert (ours["commit"], ours["machine"], ours["weights"]) == ("abc1234", "A CPU, 2 cores", "7")
    assert ours["versions"] == "hive=0.1.0 torch=2.13.0 numpy=2.4 gymnasium=1.4"
    assert json.loads(ours["settings"])["keys"] == DQN.keys("hive")
    assert (ours["ratio"], ours["met"], rows["sb3"]["goal"]) == ("", "", "")
    assert (theirs["median"], theirs["ratio"], theirs["met"], theirs["compile_s"]) == ("2000", "1.5", "yes", "2.5")
    assert theirs["versions"] == "jax=0.10"
    assert json.loads(theirs["settings"])["work"]["batch"] == DQN.work["batch"]


def test_the_command_takes_rows_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    options = parser().parse_args(["league", "dqn-cartpole", "--repetitions", "2"])
    assert (options.rows, options.repetitions, options.peers) == (["dqn-cartpole"], 2, True)
    assert parser().parse_args(["league"]).rows == []
    with pytest.raises(SystemExit):
        parser().parse_args(["league", "dqn"])
    assert "rows: sac-pendulum, " in capsys.readouterr().err
    assert [line for line in listed() if not line.startswith(" ")] == list(ROWS)


# --- programs


def test_one_core_is_allowed_for_a_while() -> None:
    before = os.sched_getaffinity(0)
    with one_core():
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before


def test_environments_are_stepped_alone() -> None:
    program = importlib.import_module("benchmarks.peers.environment_steps")
    assert program.seconds_of({"env": "CartPole-v1", "steps": 50}) > 0


@pytest.mark.full(reason="trains for a second")
def test_the_seconds_of_a_budget_are_those_of_training() -> None:
    row = ROWS["ppo-pendulum-compiled"]
    found = measure_budget([*row.keys("hive-compiled"), f"run.steps={4 * 4096}"], 60.0)
    assert 0 < found["seconds"] < found["command_s"]
