"""`hive scale`: a running run goes on with other numbers of workers, up and down, and nothing is lost uncounted."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import House


def workers(house: House) -> Counter[str]:
    """How many actors there are of each role."""
    return Counter(name.rpartition("-")[0] for name in house.ps("cart-1") if name[-1].isdigit())


@pytest.mark.parametrize(
    "mode",
    [
        "pipelined",
        pytest.param("asynchronous", marks=pytest.mark.full(reason="the stages of the pipelined mode", rotates=True)),
        pytest.param("ppo", marks=pytest.mark.full(reason="the stages of the pipelined mode", rotates=True)),
    ],
)
def test_up_and_down_on_a_running_trainer(house: House, mode: str) -> None:
    """PPO makes many turns of a round, and nearly always ends within one."""
    sets = [f"--set={table}.communication={mode}" for table in ("collection", "gradients")]
    sets = ["--set=run.scheme=ppo"] if mode == "ppo" else sets
    assert house.hive("up", house.cartpole(), "-d", *sets).returncode == 0
    house.until_steps("cart-1", 1_000)
    reached = 0.0
    for collectors, gradient_workers in ((3, 2), (1, 1), (2, 0)):
        words = (f"collection.workers={collectors}", f"gradients.workers={gradient_workers}")
        done = house.hive("scale", "cart-1", *words)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"cart-1 running with {words[0]} {words[1]} after ")
        counts = workers(house)
        assert (counts["collector"], counts["gradient-worker"]) == (collectors, max(gradient_workers, 1))
        steps = house.ps("cart-1")["learner-0"]["counters"]["env_steps"]
        assert steps >= reached  # the same run on the same axis
        reached = steps + 2_000
        house.until_steps("cart-1", int(reached))
    os.kill(house.ps("cart-1")["learner-0"]["pid"], signal.SIGKILL)  # as in any other stage
    house.until_steps("cart-1", int(reached) + 2_000)
    assert house.hive("down", "cart-1").returncode == 0
    summary = house.ended("cart-1")
    assert (summary["state"], summary["exact"]) == ("stopped", False)
    assert summary["restarts"]["learner-0"] == 1
    assert summary["restarts"]["collector-2"] == 0
    metrics = [json.loads(line) for line in (house.home / "cart-1" / "metrics.jsonl").read_text().splitlines()]
    assert [line["updates"] for line in metrics] == sorted({line["updates"] for line in metrics})
    texts = [event["text"] for event in house.events("cart-1") if event["kind"] == "scaled"]
    assert texts == [
        "collection.workers 1 -> 3, gradients.workers 0 -> 2",
        "collection.workers 3 -> 1, gradients.workers 2 -> 1",
        "collection.workers 1 -> 2, gradients.workers 1 -> 0",
    ]


@pytest.mark.full(reason="tests/runtime/run/test_scaling.py tests the refusals without processes", rotates=True)
def test_what_cannot_be_leaves_the_run_as_it_is(house: House) -> None:
    config = house.cartpole(more='workers = 2\nownership = "gradient_worker"\n[gradients]\nworkers = 2\n')
    assert house.hive("up", config, "-d").returncode == 0
    house.until_steps("cart-1", 1_000)
    before = house.ps("cart-1")
    for words, text in (
        (("collection.workers=3",), "error: 1 problem in "),
        (("collection.envs=3",), "error: `collection.envs` cannot be changed during a run"),
        (("collection.workers=2",), "error: cart-1 already has these values"),
    ):
        done = house.hive("scale", "cart-1", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert text in done.stderr
    after = house.ps("cart-1")
    assert {name: row["pid"] for name, row in before.items()} == {name: row["pid"] for name, row in after.items()}
    house.until_steps("cart-1", int(after["learner-0"]["counters"]["env_steps"]) + 1_000)
    assert house.hive("down", "cart-1").returncode == 0
    house.ended("cart-1")


@pytest.mark.full(reason="tests/runtime/run/test_scaling.py tests the same without processes", rotates=True)
def test_a_topology_that_cannot_be_built_is_taken_back(house: House) -> None:
    """The config may be: only building finds that the workers would wait for each other for ever."""
    config = house.cartpole(more='communication = "asynchronous"\nslots = 2\n[gradients]\nworkers = 2\n')
    assert house.hive("up", config, "-d").returncode == 0
    house.until_steps("cart-1", 1_000)
    done = house.hive("scale", "cart-1", "gradients.workers=3")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: cart-1 continues unchanged: 3 gradient workers hold a rollout each" in done.stderr
    assert workers(house)["gradient-worker"] == 2
    steps = house.ps("cart-1")["learner-0"]["counters"]["env_steps"]
    house.until_steps("cart-1", int(steps) + 1_000)
    assert house.hive("down", "cart-1").returncode == 0
    assert house.ended("cart-1")["state"] == "stopped"
