"""`hive check --tune` measures and runs placements for real, and a run with "auto" records what was measured."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

from hive.config import load_config
from hive.records import RunDirectory
from hive.tuning import measure

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


SLEEP_S = 2e-3


class Sleeper(gymnasium.Env[Any, Any]):
    """Sleeps in every step; its episodes are short."""

    all_steps = 0
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        time.sleep(SLEEP_S)
        Sleeper.all_steps += 1
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, self.steps == 3, False, {}


def test_sleep_is_no_work_and_a_long_rollout_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WARM_S", "COLLECT_S", "GRADIENTS_S", "UPDATES_S"):
        monkeypatch.setattr(measure, name, 0.01)
    Sleeper.all_steps = 0
    sets = (
        "run.scheme=a2c",
        f"env.id={__name__}:Sleeper",
        "collection.envs=4",
        "collection.rollout=500",
        "network.middleware=[8]",
    )
    found = measure.measure(load_config("run.toml", sets, text=""))
    assert found.environment.at(4) >= 2 * SLEEP_S  # 4 without rounding and other work on the machine
    assert found.busy < 0.5
    assert 0 < Sleeper.all_steps < 4 * 500  # of one whole rollout


@pytest.mark.full("measures and runs for 20 s")
def test_check_tune_prints_costs_rates_and_keys(house: House) -> None:
    config = house.cartpole()
    done = house.hive("check", "--tune", "--json", config)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["costs"]["gradient"]["fixed"] + found["costs"]["gradient"]["each"] > 0
    assert all(rate["steps_per_s"] > 0 for rate in found["predicted"])
    assert all(
        one["envs"] * (one["collection_workers"] or one["gradient_workers"] or 1) == 8 for one in found["predicted"]
    )
    assert all(one["steps_per_s"] > 0 for one in found["tried"])
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
    assert "measuring" not in done.stderr
    second = load_config(directory.resolved_file)
    assert second.differences(first) == ["run.steps"]
    assert house.ended("auto-1")["env_steps"] >= 640
