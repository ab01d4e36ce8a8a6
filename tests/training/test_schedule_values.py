"""Tests the metrics of what changes by a schedule: they are what collectors act with and losses use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_trainer import config_of

from hive.experience import Rollout
from hive.networks.act.exploration import EpsilonGreedy
from hive.training import Blueprint
from hive.training.update.schedule_values import schedule_values

DQN: dict[str, Any] = {
    "run__scheme": '"dqn"',
    "run__steps": 96,
    "algorithm__exploration_steps": 48,
    "algorithm__learning_starts": 16,
}


def values_after(rounds: int, **values: Any) -> dict[str, float]:
    blueprint = Blueprint(config_of("small_environments:Drift", **values))
    counted = rounds * blueprint.collectors, rounds * blueprint.round_steps
    return schedule_values(blueprint, blueprint.config.algorithm, *counted)


@pytest.mark.parametrize("number", [0, 1, 5, 1000])
def test_epsilon_is_that_of_the_latest_rollout(number: int) -> None:
    blueprint = Blueprint(config_of("small_environments:Drift", **DQN))
    acting = blueprint.distribution.for_rollout(number)
    assert isinstance(acting, EpsilonGreedy)
    assert values_after(number + 1, **DQN) == {"exploration/epsilon": acting.epsilon}
    assert 0.0 < acting.epsilon <= 1.0


def test_environments_that_explore_differently_have_mean_and_limits() -> None:
    apex = {**DQN, "run__scheme": '"apex"', "collection__workers": 3, "algorithm__exploration_end": 0.4}
    found = values_after(1000, **apex)
    blueprint = Blueprint(config_of("small_environments:Drift", **apex))
    per = blueprint.columns
    each = [blueprint.distribution.for_collector(source * per, per, 3 * per) for source in range(3)]
    epsilons = np.concatenate([np.atleast_1d(one.epsilons) for one in each if isinstance(one, EpsilonGreedy)])
    assert found["exploration/epsilon"] == pytest.approx(epsilons.mean())
    assert found["exploration/epsilon_max"] == pytest.approx(0.4) == epsilons[0]
    assert found["exploration/epsilon_min"] == pytest.approx(epsilons[-1])


def test_weights_with_a_schedule_have_the_progress_of_a_rollout() -> None:
    keys = {"run__scheme": '"ppo"', "algorithm__entropy_weight": 0.5, "algorithm__entropy_weight_schedule": '"linear"'}
    blueprint = Blueprint(config_of("small_environments:Drift", run__steps=4096, **keys))
    arrays = {name: np.zeros(shape, dtype) for name, (dtype, shape) in blueprint.rollout_layout.fields.items()}
    arrays["header"][4] = 1  # the second
    progress = Rollout(arrays, blueprint.rounds).progress
    assert 0.0 < progress < 1.0
    assert values_after(2, run__steps=4096, **keys) == {"learner/entropy_weight": 0.5 * (1 - progress)}


def test_points_are_of_the_steps_of_full_rounds() -> None:
    keys = {"run__scheme": '"ppo"', "algorithm__clip_range_schedule": "[[0, 0.0], [100, 100.0]]"}
    steps = Blueprint(config_of("small_environments:Drift", **keys)).round_steps
    assert values_after(2, **keys) == {"learner/clip_range": pytest.approx(2 * steps)}


def test_what_is_constant_is_no_metric() -> None:
    assert values_after(3, run__scheme='"ppo"') == {}
