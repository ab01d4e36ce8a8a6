"""A run in which nothing can move any more says so and ends; one whose inserted actor crashes goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import House

TAP = Path(__file__).with_name("silent_tap.py")


@pytest.mark.full(reason="nothing moves for ten seconds before it is reported")
def test_a_circle_of_waits_is_named_and_ends_the_run(house: House) -> None:
    config = house.cartpole(more="[supervision]\nphase_limit_s = 13\n")
    done = house.hive("up", config, "--topology", f"{TAP}:topology")
    assert done.returncode == 1
    summary = house.ended("cart-1")
    assert (summary["state"], summary["stop_reason"]) == ("failed", "nothing moves")
    (warning,) = [event for event in house.events("cart-1") if event["kind"] == "warning"]
    assert "gradient-worker-0 waits for passed <- tap-0 waits for rollouts" in warning["cause"]
    assert "nothing has moved for" in done.stderr
    assert [one["kind"] for one in summary["warnings"]] == ["nothing moves"]


@pytest.mark.full(
    reason="live/test_death.py kills actors of the trainer every day; here it is an inserted one", rotates=True
)
def test_an_inserted_actor_that_crashes_with_a_rollout_loses_none(house: House) -> None:
    done = house.hive("up", house.cartpole(steps=3_000), "--topology", f"{TAP}:honest")
    assert done.returncode == 0, done.stderr
    summary = house.ended("cart-1")
    assert summary["restarts"]["tap-0"] == 1
    first = summary["channels"]["rollouts"]
    assert "consumer_died" not in first["dropped"]
    assert first["consumed"] == summary["channels"]["passed"]["produced"]
