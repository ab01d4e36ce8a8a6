"""The main job, as a user runs it, in each placement; the same seed gives the same bytes in all of them."""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING

import gymnasium
import pytest

import hive
from hive.config import load_config
from hive.records import RunDirectory
from hive.records.checkpoints.weights import load_weights
from hive.training import Blueprint

if TYPE_CHECKING:
    from conftest import House

    from hive.policy.loaded import Policy

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_trains_cartpole_and_stops_by_itself(house: House) -> None:
    done = house.hive("up", "examples/cartpole.toml", cwd=ROOT)  # README's command, in the folder of the sources
    assert done.returncode == 0, done.stderr
    summary = house.ended("cartpole-a2c-1")
    assert summary["state"] == "finished"
    assert summary["mean_return_100"] >= 475
    assert summary["episodes"] >= 100
    assert summary["exact"] is True
    assert summary["env_steps"] >= 100 * 100
    assert summary["updates"] > 0
    assert summary["steps_per_s"] == pytest.approx((summary["env_steps"] - 128) / summary["train_s"]), (
        "without the first round"
    )
    assert summary["wall_s"] > summary["train_s"]
    assert summary["restarts"] == {"collector-0": 0, "gradient-worker-0": 0, "learner-0": 0, "recorder": 0}
    assert set(summary["channels"]) == {"rollouts", "gradients", "metrics", "checkpoints", "improved"}
    best = summary["best"]
    assert (best["mean_return"], best["by"]) == (summary["mean_return_100"], "training")
    assert 0 < summary["env_steps"] - best["steps"] <= 4 * 128  # the version that played these episodes, not the next
    metrics = [json.loads(line) for line in (house.home / "cartpole-a2c-1" / "metrics.jsonl").read_text().splitlines()]
    assert metrics[-1]["steps"] == summary["env_steps"]
    assert metrics[-1]["return/mean_100"] == pytest.approx(summary["mean_return_100"])
    tensors, state = load_weights(house.home / "cartpole-a2c-1" / "checkpoints" / f"{summary['updates']:06d}")
    assert state["update"] == summary["updates"]
    assert any(tensor.size for tensor in tensors.values())
    assert returns(hive.load(str(house.home / "cartpole-a2c-1"))) >= 450  # the guide's three lines
    assert hive.load(str(house.home / "cartpole-a2c-1"), which="best").mean_return == best["mean_return"]
    assert "best policy: mean return" in done.stderr


def returns(policy: Policy, episodes: int = 5) -> float:
    """The mean return of the policy without its noise."""
    environment, total = gymnasium.make("CartPole-v1"), 0.0
    for seed in range(episodes):
        observation, _ = environment.reset(seed=seed)
        over = False
        while not over:
            observation, reward, terminated, truncated, _ = environment.step(policy(observation))
            total += float(reward)
            over = terminated or truncated
    environment.close()
    return total / episodes


PLACEMENTS = {
    "one process": ("collection.workers=0", "gradients.workers=0"),
    "two processes": ("collection.workers=0",),
    "a process each": (),
}


@pytest.mark.full(reason="live/test_resume.py and the next test compare processes with one process, too", rotates=True)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_same_seed_gives_the_same_bytes_wherever_actors_live(house: House, placement: str) -> None:
    """As in one process without the actors' own."""
    config = house.cartpole(steps=4_000)
    sets = [f"--set={key}" for key in PLACEMENTS[placement]]
    digests = {}
    for name, words in {"placed": sets, "inline": ["--inline"]}.items():
        done = house.hive("up", config, "--name", name, *words)
        assert done.returncode == 0, done.stderr
        digests[name] = house.ended(f"{name}-1")["weights_sha256"]
    assert digests["placed"] == digests["inline"] != ""


@pytest.mark.full(reason="envs/test_helped_vector.py compares all bytes of rows", rotates=True)
def test_the_same_seed_gives_the_same_bytes_with_and_without_helpers(house: House) -> None:
    digests = set()
    for helpers in (0, 1, 2):
        words = [f"--set=collection.helpers={helpers}", "--set=env.vector=python", "--set=run.scheme=ppo"]
        done = house.hive("up", house.cartpole(steps=6_000), "--name", f"with-{helpers}", *words)
        assert done.returncode == 0, done.stderr
        summary = house.ended(f"with-{helpers}-1")
        digests.add(summary["weights_sha256"])
        assert summary["exact"], summary["inexact"]
    assert len(digests) == 1


def test_rollouts_and_gradients_travel_over_zeromq_and_change_no_weight(house: House) -> None:
    sets = ["run.scheme=nstep-q", "collection.workers=2", "gradients.workers=2"]
    summaries = []
    for name, more in {"slots": ["--inline"], "zmq": ["--set=run.carrier=zmq"]}.items():
        words = [*(f"--set={one}" for one in sets), *more]
        done = house.hive("up", house.cartpole(steps=4_000), "--name", name, *words)
        assert done.returncode == 0, done.stderr
        summaries.append(house.ended(f"{name}-1"))
    slots, zmq = summaries
    assert slots["weights_sha256"] == zmq["weights_sha256"]
    config = load_config(RunDirectory.open(house.home / "zmq-1").resolved_file)
    layouts = {"rollouts": Blueprint(config).rollout_layout, "gradients": Blueprint(config).gradient_layout(1)}
    for name, layout in layouts.items():
        account = zmq["channels"][name]
        whole = list(layout.fields.values())[: -1 if layout.packed else None]  # of the last the used rows are sent
        size = sum(dtype.itemsize * prod(shape) for dtype, shape in whole)
        assert account["produced"] > 0
        assert account["sent_bytes"] >= account["produced"] * size
        assert "sent_bytes" not in slots["channels"][name]


@pytest.mark.full(reason="other placements of what is tried every day", rotates=True)
def test_two_collectors_feed_one_gradient_worker(house: House) -> None:
    done = house.hive("up", house.cartpole(steps=20_000, more="workers = 2"))
    assert done.returncode == 0, done.stderr
    summary = house.ended("cart-1")
    assert set(summary["restarts"]) == {"collector-0", "collector-1", "gradient-worker-0", "learner-0", "recorder"}
    rollouts = summary["channels"]["rollouts"]
    assert rollouts["consumed"] >= 2 * summary["updates"]
