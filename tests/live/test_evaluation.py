"""The evaluator beside a training run: its lines, its death, and that it does not hold up an end."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from hive.records import read_jsonl

if TYPE_CHECKING:
    from conftest import House

EVERY = 20
OFTEN = f"[evaluation]\nevery = {{ updates = {EVERY} }}\nepisodes = 4\n"
# One evaluation that takes far longer than the test.
LONG = f"[evaluation]\nevery = {{ updates = {EVERY} }}\nepisodes = 1_000_000\nenvs = 1\n"
BEING_EVALUATED = ("policy", "env")


def started(house: House, more: str) -> None:
    done = house.hive("up", house.cartpole(more=more), "-d")
    assert done.returncode == 0, done.stderr


def lines_of(house: House) -> list[dict[str, Any]]:
    return list(read_jsonl(house.home / "cart-1" / "evaluations.jsonl"))


@pytest.mark.full(reason="other actors that come back are in test_death", rotates=True)
def test_a_killed_evaluator_comes_back_and_evaluates_what_falls_due_then(house: House) -> None:
    started(house, OFTEN)
    house.until(lambda: len(lines_of(house)) >= 2)
    before = house.ps("cart-1")
    os.kill(before["evaluator-0"]["pid"], signal.SIGKILL)
    house.until(lambda: house.ps("cart-1")["evaluator-0"]["restarts"] == 1)
    turn = house.ps("cart-1")["learner-0"]["version"]
    house.until(lambda: sum(line["turn"] > turn for line in lines_of(house)) >= 2)
    after = house.ps("cart-1")
    assert {name for name, row in after.items() if row["restarts"]} == {"evaluator-0"}
    assert after["evaluator-0"]["version"] > turn
    down = house.hive("down", "cart-1")
    assert down.returncode == 0, down.stderr
    summary, lines = house.ended("cart-1"), lines_of(house)
    turns = [line["turn"] for line in lines]
    assert turns == sorted(set(turns))
    assert all(turn % EVERY == 0 for turn in turns)
    assert all(line["episodes"] == 4 and 1 <= line["min"] <= line["mean_return"] <= line["max"] for line in lines)
    due, made = summary["channels"]["evaluations_due"], summary["channels"]["evaluations"]
    # At most the one that was killed and the one that the end came into were lost without a word; every other one has a
    # line, or an event where its weights were gone before a slow evaluator came to them.
    told = [event["text"] for event in house.events("cart-1") if event["kind"] == "lost"]
    assert due["consumed"] - len(told) - 2 <= made["produced"] <= due["consumed"] - len(told), told
    assert made["consumed"] <= len(lines) <= made["produced"]
    metrics = list(read_jsonl(house.home / "cart-1" / "metrics.jsonl"))
    assert [m["evaluation/mean_return"] for m in metrics if "evaluation/mean_return" in m] == [
        line["mean_return"] for line in lines
    ]


@pytest.mark.full(reason="a second kill of the evaluator", rotates=True)
def test_killed_in_the_middle_it_leaves_no_pin(house: House) -> None:
    """The next one that falls due is begun, though the first was never done."""
    started(house, LONG)
    house.until(lambda: house.ps("cart-1")["evaluator-0"]["activity"] in BEING_EVALUATED)
    before = house.ps("cart-1")["evaluator-0"]
    assert before["version"] == EVERY
    os.kill(before["pid"], signal.SIGKILL)

    def goes_on() -> bool:
        row = house.ps("cart-1")["evaluator-0"]
        return bool(row["restarts"] == 1 and row["version"] > EVERY and row["activity"] in BEING_EVALUATED)

    house.until(goes_on)
    assert house.hive("down", "cart-1").returncode == 0
    summary = house.ended("cart-1")
    assert summary["restarts"]["evaluator-0"] == 1
    assert lines_of(house) == []


def test_an_end_does_not_wait_for_an_evaluation(house: House) -> None:
    started(house, LONG)
    house.until(lambda: house.ps("cart-1")["learner-0"]["version"] > 3 * EVERY)
    assert house.hive("down", "cart-1").returncode == 0
    assert house.ended("cart-1")["channels"]["evaluations_due"]["consumed"] == 1
    assert lines_of(house) == []
    times = {event["kind"]: event["t"] for event in house.events("cart-1")}
    assert "killed" not in times
    assert times["ended"] - times["draining"] < 5.0  # of 30 that it would get, on a busy machine
    skipped = [event for event in house.events("cart-1") if event["kind"] == "skipped"]
    assert len(skipped) == 1, json.dumps(skipped)
