"""Runs with a replay memory have the same bytes in one process and in many, whichever but collectors are killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hive.config import load_config, render
from hive.records import RunDirectory, write_bytes
from hive.runtime.run.execute import run_inline

if TYPE_CHECKING:
    from conftest import House

LONG = pytest.mark.full(reason="several runs with many kills")
STEPS = 4_000
KILLS = 5
CONFIG = f"""
[run]
scheme = "dqn"
steps = {STEPS}
[env]
id = "killing_others:environment"
[collection]
rollout = 16
envs = 2
helpers = 0  # which a busy machine may seem to need: the environments of this process count the steps
[algorithm]
batch_size = 64
replay_capacity = 2_000
learning_starts = 500
target_interval = 50
updates_per_step = "1/4"
exploration_steps = 3_000
priority_exponent = 0.6
n_step = 3
[checkpoint]
every = {{updates = 300}}
[supervision]
restarts = 50
"""
SAME = ("weights_sha256", "updates", "env_steps", "episodes", "mean_return_100")
NORMALISED = ("network.normalize_observations=true", "network.normalize_rewards=true")
LAGGING = ("collection.communication=pipelined", "gradients.communication=pipelined")


def inline(home: Path, sets: list[str]) -> dict[str, Any]:
    """The summary of a run in this process."""
    directory = RunDirectory.create(home, "inline")
    write_bytes(directory.resolved_file, render(load_config(home / "run.toml", sets, text=CONFIG)).encode())
    assert run_inline(directory) == 0
    summary: dict[str, Any] = json.loads(directory.summary_file.read_text())
    return summary


def killed(house: House, sets: list[str], victims: tuple[str, ...]) -> dict[str, Any]:
    """The summary of a run in processes, of which one is killed after each part of the steps."""
    house.home.mkdir()
    each = STEPS // (KILLS + 1) // (2 if "collection.workers=2" in sets else 1)  # steps of one collector between kills
    kills = [f"{number * each} {victims[number % len(victims)]}" for number in range(1, KILLS + 1)]
    (house.home / "kills").write_text("\n".join(kills))
    done = house.hive("up", house.config(CONFIG), "--name", "killed", *(f"--set={one}" for one in sets))
    assert done.returncode == 0, done.stderr
    assert len(list(house.home.glob("killed-[0-9]"))) == KILLS
    return house.ended("killed-1")


@LONG
@pytest.mark.parametrize(
    ("workers", "victims", "more"),
    [
        (2, ("gradient-worker", "learner"), (*LAGGING, *NORMALISED)),
        pytest.param(1, ("learner", "gradient-worker", "recorder"), ("run.carrier=zmq",), marks=pytest.mark.rotates),
        pytest.param(2, ("gradient-worker", "learner"), (*LAGGING, "run.scheme=rainbow"), marks=pytest.mark.rotates),
    ],
    ids=["2 x 2", "1 x 1", "2 x 2, rainbow"],
)
def test_kills_change_no_byte(
    house: House,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
    victims: tuple[str, ...],
    more: tuple[str, ...],
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    sets = [f"collection.workers={workers}", f"gradients.workers={workers}", *more]
    expected, found = inline(tmp_path, sets), killed(house, sets, victims)
    assert {key: found[key] for key in SAME} == {key: expected[key] for key in SAME}
    assert KILLS // 2 < sum(found["restarts"].values()) <= KILLS  # some may find a process that is dying already
    assert not any(found["restarts"][name] for name in found["restarts"] if name.startswith("collector"))
    assert expected["updates"] > 0


@LONG
def test_one_process_beside_the_supervisor_changes_no_byte(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    count = ["collection.workers=0", "gradients.workers=0"]
    expected = inline(tmp_path, count)
    done = house.hive("up", house.config(CONFIG), "--name", "apart", *(f"--set={one}" for one in count))
    assert done.returncode == 0, done.stderr
    found = house.ended("apart-1")
    assert {key: found[key] for key in SAME} == {key: expected[key] for key in SAME}
