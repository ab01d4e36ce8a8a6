"""Two policies in the simulator: kills, lost starts and lags of any mode leave no rollout used twice or left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from simulation import Faults
from simulation.policies import run_two, schedule_of_two
from simulation.trainer import Schedule

SEEDS, FIRST = 60, 12  # seeds of the full tier, and of these those of the everyday one


@pytest.mark.parametrize(
    "seed",
    [
        seed if seed < FIRST else pytest.param(seed, marks=pytest.mark.full(reason="more schedules", rotates=True))
        for seed in range(SEEDS)
    ],
)
def test_every_promise_is_kept_for_both_policies(seed: int) -> None:
    simulation = run_two(schedule_of_two(seed))
    assert not simulation.wrong


def calm(*sets: str, faults: Faults | None = None) -> Schedule:
    size = ("collection.workers=2", "gradients.workers=2", "checkpoint.every={updates=2}", "run.steps=12")
    native = ("gradients.native_rounds=false",)
    return Schedule(0, (*size, *native, *sets), 2, False, faults or Faults())


@pytest.mark.parametrize("mode", ["synchronous", "pipelined"])
def test_kills_of_any_actor_end_both_policies_after_the_same_round(mode: str) -> None:
    for seed in range(3):
        planned = calm(f"collection.communication={mode}", faults=Faults(deaths=3, after=40 + 60 * seed))
        simulation = run_two(planned)
        assert not simulation.wrong
        outcome: Any = simulation.outcome
        assert outcome.state == "finished"


@pytest.mark.rotates
@pytest.mark.parametrize("interval", [1, 2, 4])
@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("reduced", [1, 2])
def test_a_goal_of_one_policy_ends_both_after_the_same_round(interval: int, lag: int, reduced: int) -> None:
    mode = (f"collection.communication={'pipelined' if lag else 'synchronous'}", f"collection.max_lag={lag}")
    shape = (f"collection.broadcast_interval={interval}", f"gradients.bootstrap_rounds={reduced}")
    sets = (*mode, *shape, "collection.slots=9", "run.steps=1000", "checkpoint.every={}")
    for seed in range(2):
        planned = replace(calm(*sets), seed=seed)
        assert not run_two(planned, "run.stop_at_return=0.0").wrong
