"""`hive check --tune` measures and runs placements for real, and a run with "auto" records what was measured."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hive.config import load_config
from hive.records import RunDirectory

if TYPE_CHECKING:
    from conftest import House

SLEEPS = """
[run]
scheme = "a2c"
steps = {steps}
[env]
id = "patient_environment:Patient"
options = {{ step_s = 0.005 }}
[collection]
workers = "auto"
envs = 4
rollout = 8
[gradients]
workers = "auto"
[checkpoint]
every = {{ updates = 1 }}
"""


@pytest.mark.full("measures and runs for 20 s")
def test_check_tune_prints_rates_and_keys(house: House) -> None:
    config = house.cartpole()
    done = house.hive("check", "--tune", "--json", config)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert all(one["steps_per_s"] > 0 for one in found["tried"])
    assert all(one["envs"] * (one["collection_workers"] or one["gradient_workers"] or 1) == 8 for one in found["tried"])
    assert "Chosen: " in found["reasons"]


@pytest.mark.full("measures and runs for 40 s")
def test_a_run_with_auto_records_numbers_that_resume_uses(house: House) -> None:
    config = house.config(SLEEPS.format(steps=320))
    done = house.hive("up", config, "-n", "auto")
    assert done.returncode == 0, done.stderr
    assert "Chosen: " in done.stderr
    directory = RunDirectory.open(house.home / "auto-1")
    first = load_config(directory.resolved_file)
    assert first.collection.workers == 4  # all of them sleep at once
    assert first.collection.envs == 1
    house.ended("auto-1")
    done = house.hive("up", house.config(SLEEPS.format(steps=640), "more.toml"), "--resume", "auto-1")
    assert done.returncode == 0, done.stderr
    assert "trying where" not in done.stderr
    second = load_config(directory.resolved_file)
    assert second.differences(first) == ["run.steps"]
    assert house.ended("auto-1")["env_steps"] >= 640
