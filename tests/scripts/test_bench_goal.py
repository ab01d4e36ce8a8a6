"""scripts/bench goal: its arithmetic, its report, and one real run of hive."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.contender import Pythons
from benchmarks.goal import TARGET, Finish, Racer, checks_of, race, racers, reached_after, table
from benchmarks.harness import WIDTH
from benchmarks.hive_run import NAME

from hive.records import RunDirectory, Summary

LIMIT = 100.0
ENDED: dict[str, Any] = {
    "name": "bench-1",
    "scheme": "a2c",
    "state": "stopped",
    "stop_reason": "SIGTERM",
    "seed": 1,
    "exact": True,
    "env_steps": 0,
    "updates": 0,
    "episodes": 0,
    "mean_return_100": None,
    "started": 1.7e9,
    "wall_s": 0.5,
    "train_s": 0.0,
    "weights_sha256": "ab" * 32,
    "channels": {},
    "restarts": {},
}


def test_the_goal_is_the_first_line_of_metrics_with_the_target() -> None:
    means = [{}, {"return/mean_100": 474.9}, {"return/mean_100": 475.0}, {"return/mean_100": 480.0}]
    lines = [json.dumps({"t": 1000.0 + number, **mean}) for number, mean in enumerate(means)]
    assert reached_after(lines, 990.0) == 12.0
    assert reached_after(lines[:2], 990.0) is None


def test_a_run_that_does_not_reach_the_goal_counts_with_the_limit() -> None:
    assert Finish(1, None, 30.0, 5).seconds(LIMIT) == LIMIT
    assert Finish(1, 7.0, 30.0, 5).seconds(LIMIT) == 7.0
    assert Finish(1, LIMIT + 0.2, 130.0, 5).seconds(LIMIT) == LIMIT


def test_seeds_are_raced_in_alternating_directions() -> None:
    order: list[str] = []

    def running(name: str) -> Callable[[int, float], Finish]:
        def run(seed: int, limit: float) -> Finish:
            order.append(f"{name}{seed}")
            return Finish(seed, 2.0, 3.0, 10)

        return run

    found = race([Racer(name, name, running(name)) for name in "ab"], 3, LIMIT)
    assert order == ["a1", "b1", "b2", "a2", "a3", "b3"]
    assert [finish.seed for finish in found["b"]] == [1, 2, 3]


def test_medians_are_compared_and_the_faster_ppo_counts() -> None:
    seconds = {
        "hive-a2c": [4.0, 5.0, 60.0],
        "hive-ppo": [6.0, 9.0, 9.5],
        "hive-ppo-zoo": [8.0, 8.0, 8.0],
        "sb3-a2c-zoo": [30.0, 29.0, 10.0],
        "sb3-ppo-zoo": [31.0, None, 32.0],
    }
    results = {name: [Finish(1, value, LIMIT, 1000) for value in values] for name, values in seconds.items()}
    found = {check.promise: (check.measured, check.passed) for check in checks_of(results, LIMIT)}
    assert found == {
        "hive-a2c <= 1/6 of sb3-a2c-zoo": ("1/5.80", False),
        "hive-ppo-zoo <= 1/4 of sb3-ppo-zoo": ("1/4.00", True),
    }
    those = racers(Pythons(), with_peers=True)
    assert [racer.name for racer in those] == list(results)
    lines = table(those, results, LIMIT)
    assert max(map(len, lines)) <= WIDTH
    assert "2 of 3" in lines[-1]


def test_a_run_that_ended_before_its_first_metrics_has_not_reached_the_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended:
        def wait(self, limit: float) -> int:
            return 0

    @contextmanager
    def started(folder: Path, *_: object) -> Iterator[Ended]:
        directory = RunDirectory(folder / "runs" / f"{NAME}-1")
        directory.path.mkdir(parents=True)
        Summary(**ENDED).write(directory.summary_file)
        yield Ended()

    monkeypatch.setattr("benchmarks.goal.started", started)
    (quick,) = (racer for racer in racers(Pythons(), with_peers=False) if racer.name == "hive-a2c")
    finish = quick.run(1, LIMIT)
    assert (finish.reached_s, finish.steps) == (None, 0)


@pytest.mark.full(reason="trains for seconds")
def test_a_real_run_reaches_the_goal_or_its_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (quick,) = (racer for racer in racers(Pythons(), with_peers=False) if racer.name == "hive-a2c")
    ended = quick.run(1, 0.5)
    assert (ended.reached_s, ended.seconds(0.5)) == (None, 0.5)
    monkeypatch.setattr("benchmarks.goal.TARGET", 30.0)
    assert TARGET == 475.0
    finish = quick.run(1, LIMIT)
    assert finish.reached_s is not None
    assert 0.0 < finish.reached_s < finish.exit_s < LIMIT
    assert finish.steps > 0
