"""The values that change by a schedule, as metrics: what the latest rollouts were made with and learned with.

    learner/entropy_weight, learner/clip_range   with a schedule of theirs
    exploration/epsilon                          with epsilon-greedy actions: the mean over all environments
    exploration/epsilon_max, epsilon_min         with algorithm.exploration_spread: of the first and last environment

`learner/learning_rate` is that of each update, and the learned temperature of SAC is the statistic
`learner/temperature`. Nothing else changes by a schedule: not exploration_noise, importance_exponent or target_rate.
"""

from __future__ import annotations

import numpy as np

from hive.algorithms.parameters import Progress, scheduled
from hive.config import AlgorithmConfig
from hive.networks.act.exploration import EpsilonGreedy
from hive.training.blueprint import Blueprint
from hive.training.run_start import schedule_start

SCHEDULED = ("entropy_weight", "clip_range")


def schedule_values(blueprint: Blueprint, config: AlgorithmConfig, rollouts: int, env_steps: int) -> dict[str, float]:
    """Return the metrics. config: the current one. rollouts, env_steps: those that the learner has counted."""
    start = schedule_start(blueprint)
    # In a resumed run of another shape only its steps tell which share is done.
    rounds = start + env_steps / blueprint.round_steps if start else rollouts / blueprint.collectors
    done = max(0.0, rounds - start)
    progress = Progress(min(1.0, done / blueprint.rounds), done * blueprint.round_steps)
    values = {
        f"learner/{name}": scheduled(getattr(config, name), schedule, progress)
        for name in SCHEDULED
        if (schedule := getattr(config, f"{name}_schedule", "constant")) != "constant"
    }
    if isinstance(blueprint.distribution, EpsilonGreedy):
        values |= _epsilons(blueprint, blueprint.distribution, max(0, int(rounds) - 1))
    return values


def _epsilons(blueprint: Blueprint, distribution: EpsilonGreedy, number: int) -> dict[str, float]:
    """Return the metrics of the epsilons in rollout `number` of each collector."""
    columns = blueprint.collectors * blueprint.columns
    found = np.asarray(distribution.for_collector(0, columns, columns).for_rollout(number).epsilons, np.float64)
    values = {"exploration/epsilon": float(found.mean())}
    if distribution.spread:
        values |= {"exploration/epsilon_max": float(found.max()), "exploration/epsilon_min": float(found.min())}
    return values
