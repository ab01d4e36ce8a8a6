"""The probes with the settings of whole runs: layers, Adam, several workers, lags and asynchronous collection."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learning import ALGORITHMS, POLICIES, Learned, configure, settings_of, train

pytestmark = pytest.mark.full(reason="the everyday probes with other settings", rotates=True)

G = 0.5

NETWORK = {
    "collection.envs": 8,
    "collection.rollout": 6,
    "network.middleware": [16, 16],
    "network.normalize_observations": False,  # values are compared in the scale of the rewards
    "network.normalize_rewards": False,
    "algorithm.discount": G,
    "algorithm.learning_rate": 0.02,
    "algorithm.learning_rate_schedule": "linear",
    "checkpoint.every": {},
}
"""All else is the default of the scheme: the activation, Adam, clipped gradients, its own lag."""


def modes(communication: str, lag: int, workers: int = 2) -> dict[str, Any]:
    return {
        "collection.communication": communication,
        "collection.max_lag": lag,
        "collection.workers": workers,
        "gradients.workers": workers,
    }


PLACEMENTS: dict[str, dict[str, Any]] = {
    "as the scheme": {},
    "lag 1, two by two": modes("pipelined", 1),
    "lag 4": modes("pipelined", 4, 1),
    "asynchronous, two by two": modes("asynchronous", 4) | {"gradients.communication": "asynchronous"},
}


def every_pair(first: int, algorithms: Sequence[str] = ALGORITHMS) -> pytest.MarkDecorator:
    """Give each algorithm one placement, beginning with number `first`.

    The tests begin with different ones, so together they try all pairs.
    """
    names = list(PLACEMENTS)
    pairs = [(name, names[(first + number) % len(names)]) for number, name in enumerate(algorithms)]
    return pytest.mark.parametrize(("algorithm", "placement"), pairs)


def learn(folder: Path, algorithm: str, environment: str, placement: str, rounds: int = 250, **changes: Any) -> Learned:
    settings = {**NETWORK, **PLACEMENTS[placement], **settings_of(changes)}
    if algorithm == "nstep-q":
        settings |= {"algorithm.n_step": 3, "algorithm.target_interval": 5, "algorithm.target_rate": 1.0}
    if algorithm in ("ppo", "pqn"):
        settings |= {"algorithm.epochs": 2, "algorithm.minibatches": 2}
        rounds //= 2
    return train(folder, configure(algorithm, environment, rounds, settings))


def chooses(learned: Learned, state: int, action: int) -> None:
    outputs = learned.outputs[0].numpy()[state]
    assert outputs.argmax() == action
    if len(learned.outputs) > 1:
        assert learned.probabilities[state, action] >= 0.9


@every_pair(0)
def test_credit_over_two_steps(tmp_path: Path, algorithm: str, placement: str) -> None:
    learned = learn(tmp_path, algorithm, "Fork", placement)
    np.testing.assert_allclose(learned.values[:3], [G, 2.0, 0.0], atol=0.1)


@every_pair(1)
def test_truncation_against_termination(tmp_path: Path, algorithm: str, placement: str) -> None:
    learned = learn(tmp_path, algorithm, "Ends", placement)
    np.testing.assert_allclose(learned.values[:4], [1.0 / (1.0 - G), 1.0 / (1.0 - G), 1.0 + G, 1.0], atol=0.1)


@every_pair(2)
def test_choice_by_observation(tmp_path: Path, algorithm: str, placement: str) -> None:
    learned = learn(tmp_path, algorithm, "Choice", placement)
    for state, action in enumerate((0, 1, 0)):
        chooses(learned, state, action)
    np.testing.assert_allclose(learned.values, 1.0, atol=0.1)


@every_pair(3)
def test_choice_under_delay(tmp_path: Path, algorithm: str, placement: str) -> None:
    learned = learn(tmp_path, algorithm, "Delay", placement)
    chooses(learned, 0, 1)
    np.testing.assert_allclose(learned.values[[0, 2, 4, 6]], [G**3, G**2, G, 1.0], atol=0.08)


@every_pair(0, POLICIES)
def test_continuous_actions_reach_their_targets(tmp_path: Path, algorithm: str, placement: str) -> None:
    learned = learn(tmp_path, algorithm, "Targets", placement, 500, algorithm__learning_rate=0.005)
    means, deviations = learned.gaussians
    reach = 4.0  # of the bounds, in whose scale the policy acts
    np.testing.assert_allclose(reach * means, [-1.0, 1.0], atol=0.2)
    assert (deviations < 0.5).all()
