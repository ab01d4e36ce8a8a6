"""Two policies in the simulator: kills, lost starts and lags of any mode leave no rollout used twice or left out."""

from __future__ import annotations

from typing import Any

import pytest
from simulation import Faults
from simulation.policies import run_two, schedule_of_two
from simulation.trainer import Schedule

SEEDS, FIRST = 60, 12  # seeds of the full tier, and of these those of the everyday one


@pytest.mark.parametrize(
    "seed",
    [
        seed if seed < FIRST else pytest.param(seed, marks=pytest.mark.full(reason="more schedules"))
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
