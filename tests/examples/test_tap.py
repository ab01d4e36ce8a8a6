"""The tap passes each report once with two values added, and ends a run that does not improve."""

from __future__ import annotations

import math

import pytest
import tap
from short_runs import CARTPOLE, short_run

import hive
from hive.records import read_jsonl
from hive.testing import run_inline
from hive.training import Metrics


class Learner(hive.Actor):
    metrics = hive.Outlet(Metrics, pattern="broadcast")

    def __init__(self, returns: list[float]) -> None:
        self.returns = returns

    async def run(self) -> None:
        for number, value in enumerate(self.returns):
            await self.metrics.send(Metrics(number, 100 * number, float(number), {"return/mean_100": value}))


class Recorder(hive.Actor):
    metrics = hive.Inlet(Metrics)

    def __init__(self, seen: list[Metrics], total: int) -> None:
        self.seen, self.total = seen, total

    async def run(self) -> None:
        while len(self.seen) < self.total:
            self.seen.append(await self.metrics.receive())
        self.end_run("all seen")


def test_it_adds_the_best_to_every_report() -> None:
    seen: list[Metrics] = []
    t = hive.Topology()
    learner = t.add(Learner, returns=[math.nan, 20.0, 15.0, 30.0, 30.0])
    t.connect(learner.metrics, t.add(Recorder, seen=seen, total=5).metrics)
    t.insert(learner.metrics, t.add(tap.Tap), "reports", "passed")
    outcome = run_inline(t)
    assert outcome.reason == "all seen"
    assert [(m.values["tap/best"], m.values["tap/best_at"]) for m in seen] == [
        (-math.inf, 0),
        (20.0, 100),
        (20.0, 100),
        (30.0, 300),
        (30.0, 300),
    ]
    assert [m.values["return/mean_100"] for m in seen[1:]] == [20.0, 15.0, 30.0, 30.0]
    assert outcome.channels["metrics"]["consumed"] == outcome.channels["passed"]["consumed"] == 5


@pytest.mark.parametrize("patience", [1_000, 4_000])
def test_it_ends_a_run_that_does_not_learn(patience: int) -> None:
    """At this learning rate the best mean return is one of the first, and the run would have 10 million steps."""
    slow = "algorithm.learning_rate=1e-9", "run.steps=10_000_000", "record.every_s=0.02"
    summary, directory = short_run(tap.topology, CARTPOLE, *slow, f"custom.tap.patience={patience}")
    assert summary.stop_reason.endswith(f"for {patience:,} steps")
    assert patience <= summary.env_steps < 200_000
    lines = list(read_jsonl(directory.metrics_file))
    assert all("tap/best" in line and "learner/value_loss" in line for line in lines)
    assert summary.channels["metrics"]["produced"] == summary.channels["passed"]["produced"] == len(lines)
