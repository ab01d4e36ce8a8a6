"""The best policy of a run whose processes are killed, which is scaled, killed as a whole and resumed."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

import hive
from hive.records import best_facts, read_jsonl
from hive.records.directory import RunDirectory

if TYPE_CHECKING:
    from conftest import House

EVALUATED = "[evaluation]\nevery = { updates = 20 }\nepisodes = 4\n"
ROUNDS = 2  # kills of each process


@pytest.mark.full(reason="the parts of this are in tests/training and tests/records", rotates=True)
@pytest.mark.parametrize(("by", "more"), [("training", ""), ("evaluation", EVALUATED)])
def test_the_best_policy_survives_kills_scaling_and_resuming(house: House, by: str, more: str) -> None:
    started = house.hive("up", house.cartpole(more=more), "-d")
    assert started.returncode == 0, started.stderr
    run = RunDirectory(house.home / "cart-1")

    def best() -> dict[str, Any]:
        facts = best_facts(run)
        assert facts is not None
        return facts

    house.until(lambda: best_facts(run) is not None)
    seen = [best()["mean_return"]]
    writers = ["evaluator-0"] if by == "evaluation" else []
    for victim in ["recorder", "learner-0", *writers] * ROUNDS:
        house.until(lambda v=victim: house.ps("cart-1")[v]["pid"] > 0)  # type: ignore[misc]
        row = house.ps("cart-1")[victim]
        os.kill(row["pid"], signal.SIGKILL)
        house.until(lambda v=victim, n=row["restarts"]: house.ps("cart-1")[v]["restarts"] == n + 1)  # type: ignore[misc]
        turn = house.ps("cart-1")["learner-0"]["version"]
        house.until(lambda t=turn: house.ps("cart-1")["learner-0"]["version"] > t + 60)  # type: ignore[misc]
        seen.append(best()["mean_return"])
    scaled = house.hive("scale", "cart-1", "gradients.workers=2")
    assert scaled.returncode == 0, scaled.stderr
    seen.append(best()["mean_return"])
    house.kill_all()  # the machine fails
    house.until(lambda: not house.processes())
    seen.append(best()["mean_return"])
    resumed = house.hive("resume", "cart-1", "-d")
    assert resumed.returncode == 0, resumed.stderr
    assert house.hive("down", "cart-1").returncode == 0
    summary = house.ended("cart-1")
    seen.append(summary["best"]["mean_return"])
    assert seen == sorted(seen), "a best policy was lost or replaced by a worse one"
    assert (summary["best"], summary["best"]["by"]) == (best(), by)
    assert hive.load(str(run.path), which="best").mean_return == seen[-1]
    assert [path.name for path in run.best.iterdir()] == [summary["best"]["checkpoint"].removeprefix("best/")]
    if by == "evaluation":  # it was kept before its line was written
        assert max(line["mean_return"] for line in read_jsonl(run.evaluations_file)) <= seen[-1]
    else:
        assert summary["mean_return_100"] <= seen[-1]
