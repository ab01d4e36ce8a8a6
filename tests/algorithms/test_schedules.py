"""Schedules of hyper-parameters: their values, and that every algorithm with an entropy bonus follows them."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_algorithms import SPECS, distance, gradients_of, network_for, random_arrays

from hive.algorithms import A2C, IMPALA, PPO
from hive.algorithms.batches.rows import progress_of
from hive.algorithms.parameters import Progress, is_steady, scheduled
from hive.config import SCHEDULES, A2CConfig, IMPALAConfig, PPOConfig, Schedule
from hive.experience import SEQUENCE, Rollout
from hive.networks import distribution_for

FALLING = [name for name in SCHEDULES if name != "constant"]
POINTS = ((100, 0.5), (200, 0.25), (300, 1.0))
shares = st.floats(0.0, 1.0)


def at_share(value: float, schedule: Schedule, share: float) -> float:
    return scheduled(value, schedule, Progress(share, 0.0))


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        ("constant", (3.0, 3.0, 3.0, 3.0, 3.0)),
        ("linear", (3.0, 2.25, 1.5, 0.75, 0.0)),
        ("cosine", (3.0, 1.5 * (1 + math.sqrt(0.5)), 1.5, 1.5 * (1 - math.sqrt(0.5)), 0.0)),
    ],
)
def test_values_at_the_quarters_of_a_run(schedule: str, values: tuple[float, ...]) -> None:
    found = [at_share(3.0, schedule, quarter / 4) for quarter in range(5)]
    assert found == pytest.approx(values, rel=1e-15, abs=1e-15)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("value", [0.0, 1e-6, 0.2, 7e-4, 1e6])
def test_the_ends_are_exact(schedule: str, value: float) -> None:
    """No rounding: a rate of 1e-20 at the end of a run would still be an update."""
    assert at_share(value, schedule, 0.0) == value
    assert at_share(value, schedule, 1.0) == (value if schedule == "constant" else 0.0)


@given(st.floats(0.0, 1e6), shares, shares, st.sampled_from(FALLING))
def test_it_never_rises_and_stays_between_its_ends(value: float, one: float, other: float, schedule: str) -> None:
    earlier, later = (at_share(value, schedule, share) for share in sorted((one, other)))
    assert 0.0 <= later <= earlier <= value


@given(shares)
def test_the_cosine_is_symmetric(share: float) -> None:
    assert at_share(1.0, "cosine", share) + at_share(1.0, "cosine", 1.0 - share) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("env_steps", "value"),
    [(0, 0.5), (100, 0.5), (150, 0.375), (200, 0.25), (200.5, 0.25375), (296, 0.97), (300, 1.0), (10**12, 1.0)],
)
def test_points_are_joined_by_lines_whatever_the_share_of_the_run_is(env_steps: float, value: float) -> None:
    for share in (0.0, 0.3, 1.0):
        assert scheduled(99.0, POINTS, Progress(share, env_steps)) == pytest.approx(value, rel=1e-15)


def test_points_one_step_apart_are_a_step_function() -> None:
    steps = ((0, 1e-3), (100_000, 1e-3), (100_001, 1e-4))
    assert [scheduled(1.0, steps, Progress(0, at)) for at in (0, 99_999, 100_000, 100_001)] == [1e-3, 1e-3, 1e-3, 1e-4]


@pytest.mark.parametrize(
    ("schedule", "env_steps", "steady"),
    [
        *((name, 10**9, name == "constant") for name in SCHEDULES),
        (POINTS, 299, False),
        (POINTS, 300, True),
        (POINTS[:1], 0, True),
    ],
)
def test_a_schedule_is_steady_from_its_last_point_on(schedule: Schedule, env_steps: int, steady: bool) -> None:
    assert is_steady(schedule, env_steps) is steady


# --- in the algorithms


def rollout_at(sequence: int, rounds: float = 4.0, round_steps: int = 100) -> Rollout:
    arrays = random_arrays("discrete", 6)
    arrays["header"][SEQUENCE] = sequence
    return Rollout(arrays, rounds, round_steps=round_steps)


def test_the_progress_of_a_round_is_the_mean_of_its_rollouts() -> None:
    assert progress_of([rollout_at(0)]) == (0.25, 100)
    assert progress_of([rollout_at(0), rollout_at(1), rollout_at(8)]) == pytest.approx(((0.25 + 0.5 + 1.0) / 3, 400))


PPO_ROUND = PPOConfig(epochs=1, minibatches=2, entropy_weight=0.7, clip_range=0.3)
ALGORITHMS: dict[str, tuple[Any, Any]] = {
    "a2c": (A2C, A2CConfig(entropy_weight=0.7)),
    "ppo": (PPO, PPO_ROUND),
    "impala": (IMPALA, IMPALAConfig(entropy_weight=0.7)),
}


@pytest.mark.parametrize("schedule", [*FALLING, ((100, 0.1), (400, 0.4), (500, 0.0))])
@pytest.mark.parametrize(
    ("name", "key"),
    [("a2c", "entropy_weight"), ("ppo", "entropy_weight"), ("ppo", "clip_range"), ("impala", "entropy_weight")],
)
def test_a_gradient_is_that_of_the_scheduled_value(name: str, key: str, schedule: Schedule) -> None:
    """At a quarter and a half of the run; the two differ, and at its end the value is 0."""
    make, config = ALGORITHMS[name]
    network, distribution, found = network_for("discrete"), distribution_for(SPECS["discrete"]), []
    for sequence, share in ((0, 0.25), (1, 0.5), (9, 1.0)):
        falling = make(replace(config, **{f"{key}_schedule": schedule}), distribution)
        value = scheduled(getattr(config, key), schedule, Progress(share, 100 * (sequence + 1)))
        constant = make(replace(config, **{key: value}), distribution)
        made = gradients_of(falling, network, [rollout_at(sequence)])
        expected = gradients_of(constant, network, [rollout_at(sequence)])
        assert [gradient.loss for gradient in made] == [gradient.loss for gradient in expected]
        for gradient, other in zip(made, expected, strict=True):
            assert (gradient.gradient == other.gradient).all()
            assert gradient.statistics == other.statistics
        found.append(made[0].gradient)
    for one, other in itertools.combinations(found, 2):
        assert distance(one, other) > 1e-3


def test_a_run_without_an_end_keeps_its_values() -> None:
    """In a plain script `Rollout(arrays)` is all that there is. Points stay at their first value."""
    first = ((0, PPO_ROUND.clip_range), (1, 0.0))
    config = replace(PPO_ROUND, entropy_weight_schedule="linear", clip_range_schedule=first)
    makes = [PPO(each, distribution_for(SPECS["discrete"])) for each in (config, PPO_ROUND)]
    falling, constant = (gradients_of(a, network_for("discrete"), [rollout_at(1000, math.inf, 0)]) for a in makes)
    assert [gradient.loss for gradient in falling] == [gradient.loss for gradient in constant]
