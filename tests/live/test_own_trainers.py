"""User-defined topologies around the built-in trainer: each works, or is refused with a sentence on what to write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import House

FILE = Path(__file__).with_name("own_trainers.py")


@pytest.mark.full(reason="some fifteen restarts")
def test_a_curiosity_actor_behind_each_collector_crashes_every_tenth_rollout(house: House) -> None:
    config = house.cartpole(steps=20_000, more="workers = 2\n[supervision]\nrestarts = 1000\n")
    done = house.hive("up", config, "--topology", f"{FILE}:curiosity")
    assert done.returncode == 0, done.stderr
    summary = house.ended("cart-1")
    assert (summary["state"], summary["env_steps"] >= 20_000) == ("finished", True)
    assert min(summary["restarts"][f"curiosity-{i}"] for i in range(2)) >= 7
    first, second = summary["channels"]["rollouts"], summary["channels"]["passed"]
    assert "consumer_died" not in first["dropped"] | second["dropped"]
    assert second["produced"] - 2 <= first["consumed"] <= second["produced"]  # 2: passed on by the last incarnation
    assert summary["wall_s"] < 20  # with a delay for each restart in a row, it takes 25 s longer


@pytest.mark.full(reason="tests/runtime/topology refuses the same without processes", rotates=True)
def test_one_actor_behind_two_collectors_is_refused(house: House) -> None:
    done = house.hive("up", house.cartpole(more="workers = 2\n"), "--topology", f"{FILE}:one_for_all")
    assert done.returncode == 2
    assert "`collectors.rollouts` has 2 producers" in done.stderr
    assert "hint: add it with count=2: one actor behind each producer" in done.stderr


@pytest.mark.full(reason="three evaluators of a class of its own")
def test_three_evaluators_share_the_evaluations(house: House) -> None:
    more = "[evaluation]\nevery = { updates = 5 }\nepisodes = 2\nworkers = 3\n"
    done = house.hive("up", house.cartpole(steps=20_000, more=more), "--topology", f"{FILE}:evaluators")
    assert done.returncode == 0, done.stderr
    house.ended("cart-1")
    noted = {event["text"] for event in house.events("cart-1") if event["kind"] == "evaluates"}
    assert noted == {f"with index {i}" for i in range(3)}
    results = (house.home / "cart-1" / "evaluations.jsonl").read_text().splitlines()
    assert len(results) >= 3


@pytest.mark.full(reason="four restarts of processes that train")
def test_a_tuner_restarts_workers_without_spending_their_restarts(house: House) -> None:
    config = house.cartpole(more="[supervision]\nrestarts = 0\n")
    done = house.hive("up", config, "--topology", f"{FILE}:tuned")
    assert done.returncode == 0, done.stderr
    summary = house.ended("cart-1")
    assert (summary["state"], summary["stop_reason"]) == ("finished", "tuned")
    assert sum(summary["restarts"].values()) == 4
    died = [event["text"] for event in house.events("cart-1") if event["kind"] == "died"]
    assert len(died) == 4
    assert all(" was restarted by tuner: score " in text for text in died)


@pytest.mark.full(reason="a run that lasts until a line was appended")
def test_a_reward_actor_reads_its_labels_from_a_file(house: House) -> None:
    labels = house.config('{"bonus": 0.5}\n', "labels.jsonl")
    config = house.cartpole(more=f'[custom.rewards]\nfile = "{labels}"\n')
    up = house.start("up", config, "--topology", f"{FILE}:rewards")
    house.until(lambda: noted(house) == ["bonus 0.5"])
    with labels.open("a") as file:
        file.write('{"bonus": -1.0}\n')
    house.until(lambda: noted(house) == ["bonus 0.5", "bonus -1.0"])
    assert house.hive("down", "cart-1").returncode == 0
    assert up.wait() == 0
    assert house.ended("cart-1")["state"] == "stopped"


def noted(house: House) -> list[str]:
    """The labels that the actor has read."""
    if not (house.home / "cart-1" / "events.jsonl").exists():
        return []
    return [e["text"].partition(" from ")[0] for e in house.events("cart-1") if e["kind"] == "label"]
