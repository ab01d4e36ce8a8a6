"""Actors that report their progress: the results of the run, and its end at the goal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import hive
from hive.runtime.supervise.membership import Settings
from hive.runtime.supervise.outcome import Outcome
from hive.testing import run_inline


class Walker(hive.Actor):
    """Takes ten steps a second, each of which adds its pace to its score."""

    def __init__(self, paces: Sequence[float], most: int = 10**9) -> None:
        self.paces, self.most = paces, most

    async def run(self) -> None:
        self.progress(0)
        for steps in range(10, self.most + 1, 10):
            await asyncio.sleep(1.0)
            self.progress(10, self.paces[self.index] * steps)


def walked(*paces: float, most: int = 10**9, seconds: float | None = None, **goal: Any) -> Outcome:
    t = hive.Topology()
    t.add(Walker, count=len(paces), paces=paces, most=most)
    return run_inline(t, virtual=True, seconds=seconds, settings=Settings(**goal))


def test_the_steps_are_added_up_and_the_highest_score_counts() -> None:
    outcome = walked(1.0, 3.0, -1.0, most=50)
    assert outcome.results == {"env_steps": 150, "mean_return_100": 150.0}
    assert outcome.exact


def test_a_run_that_reports_nothing_has_no_results() -> None:
    t = hive.Topology()
    t.add(Silent)
    assert run_inline(t, virtual=True, settings=Settings(goal_steps=1, goal_score=-9.0)).results == {}


class Silent(hive.Actor):
    async def run(self) -> None:
        await asyncio.sleep(5.0)


@pytest.mark.parametrize(
    ("goal", "reason", "steps"),
    [
        ({"goal_steps": 60}, "60 steps", 60),
        ({"goal_score": 90.0}, "score 90 >= 90", 60),
        ({"goal_steps": 60, "goal_score": 91.0}, "60 steps", 60),
    ],
)
def test_the_run_ends_at_its_goal(goal: dict[str, Any], reason: str, steps: int) -> None:
    outcome = walked(1.0, 3.0, seconds=100.0, **goal)
    assert (outcome.state, outcome.reason, outcome.results["env_steps"]) == ("finished", reason, steps)
    assert not outcome.exact  # another run may look a step later


def test_a_score_that_is_not_a_number_reaches_no_goal() -> None:
    outcome = walked(float("nan"), seconds=5.5, goal_score=0.0)
    assert (outcome.state, outcome.results) == ("stopped", {"env_steps": 50})


def test_negative_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="-1 steps"):
        Walker([]).progress(-1)
