"""A round is over when enough collectors are through with it: one whose environment sleeps holds up nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import House

CONFIG = """
[run]
scheme = "a2c"
name = "sleepy"
steps = 600
[env]
id = "sleeping_environment:Sleeping"
[collection]
workers = 2
envs = 2
rollout = 8
communication = "{communication}"
{fraction}
"""
WHOLE = 2 * 2 * 8  # steps of a round of two collectors


def train(house: House, communication: str, fraction: str) -> tuple[dict[str, Any], float]:
    """The summary, and how many steps a round had on average."""
    text = CONFIG.format(communication=communication, fraction=fraction)
    done = house.hive("up", house.config(text, "sleepy.toml"))
    assert done.returncode == 0, done.stderr
    summary = house.ended("sleepy-1")
    return summary, summary["env_steps"] / summary["updates"]


@pytest.mark.full(reason="workers/test_schedule.py has the rounds; here they are real", rotates=True)
def test_the_round_is_that_of_the_fast_half(house: House) -> None:
    summary, steps = train(house, "pipelined", "fraction_workers = 0.5")
    # All of the fast one and of the slow one the step that it was in, or few more: two environments sleep 40 ms a step.
    assert WHOLE / 2 < steps < 0.75 * WHOLE
    assert summary["exact"] is False


@pytest.mark.full(reason="a second setting of the cut round", rotates=True)
def test_a_quota_is_left_to_the_slow(house: House) -> None:
    _, steps = train(house, "synchronous", "fraction_workers = 0.5\nfraction_samples = 0.5")
    assert 0.75 * WHOLE <= steps < 0.95 * WHOLE
