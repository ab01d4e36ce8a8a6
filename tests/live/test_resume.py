"""2 N updates, and N updates, kill -9 of everything, resume, N updates: the same bytes."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import House

MODES = {
    "a2c pipelined": [],
    "a2c synchronous 2x2": [
        "collection.workers=2",
        "gradients.workers=2",
        "collection.communication=synchronous",
        "algorithm.normalize_advantages=true",
    ],
    "ppo pipelined": ["run.scheme=ppo", "gradients.communication=pipelined"],
    "impala in order": [
        "run.scheme=impala",
        "collection.communication=pipelined",
        "gradients.communication=synchronous",
    ],
}


@pytest.mark.parametrize("mode", MODES)
def test_a_killed_run_goes_on_as_if_it_had_not_been(house: House, mode: str) -> None:
    sets = [f"--set={key}" for key in ("checkpoint.every={updates=40}", *MODES[mode])]
    config = house.cartpole(steps=30_000)
    whole = house.hive("up", config, "--name", "whole", *sets)
    assert whole.returncode == 0, whole.stderr
    assert house.hive("up", config, "--name", "part", "-d", *sets).returncode == 0
    saved = house.home / "part-1" / "checkpoints"
    house.until(lambda: any(saved.glob("0*/DONE")))
    os.kill(json.loads((house.home / "part-1" / "run.json").read_text())["pid"], signal.SIGKILL)
    house.until(lambda: not house.processes())
    if not (house.home / "part-1" / "summary.json").exists():  # it may have been quicker than the kill
        resumed = house.hive("resume", "part-1", "--exact")
        assert resumed.returncode == 0, resumed.stderr
        assert "resuming part-1 from its last cut" in resumed.stderr
    first, second = house.ended("whole-1"), house.ended("part-1")
    assert first["exact"] is True
    assert second["exact"] is True
    for key in ("weights_sha256", "updates", "env_steps", "episodes", "mean_return_100"):
        assert first[key] == second[key], key
    metrics = [json.loads(line) for line in (house.home / "part-1" / "metrics.jsonl").read_text().splitlines()]
    assert [line["updates"] for line in metrics] == sorted(line["updates"] for line in metrics)


def test_a_stopped_run_goes_on_from_where_it_was_left(house: House) -> None:
    assert house.hive("up", house.cartpole(steps=40_000), "-d").returncode == 0
    house.until_steps("cart-1", 2_000)
    assert house.hive("down").returncode == 0
    before = house.summary("cart-1")
    resumed = house.hive("resume", "cart-1")
    assert resumed.returncode == 0, resumed.stderr
    after = house.ended("cart-1")
    assert after["state"] == "finished"
    assert after["exact"] is False
    assert after["updates"] > before["updates"]
    assert after["train_s"] > before["train_s"]
    again = house.hive("up", "--resume", "cart-1")
    assert again.returncode == 2
    assert "error: cart-1 has finished" in again.stderr
