"""Every kind of action is learned where the reward needs all elements of it to be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environments import COMBINATIONS, Combination
from learning import POLICIES, in_a_table, learn

import hive
from hive.networks.act.gsde import StateDependentGaussian
from hive.records import RunDirectory
from hive.schemes import build
from hive.testing import run_inline

LIMIT_S = 30.0
SETTINGS: dict[str, Any] = {
    "collection__envs": 64,
    "collection__rollout": 4,
    "algorithm__optimizer": "adam",
    "algorithm__learning_rate": 0.1,
    "algorithm__entropy_weight": 0.02,  # without it, a state whose rare reward was not seen yet is given up
}


def rewards_of(folder: Path, algorithm: str, kind: str, updates: int, **changes: Any) -> tuple[list[float], float]:
    """Return the rewards of the learned policy's likeliest actions in both states, and the mean of sampled ones."""
    config = in_a_table(algorithm, "Combination", updates, env__options={"kind": kind}, **SETTINGS, **changes)
    directory = RunDirectory.create(folder, "probe")
    assert run_inline(build(config, directory.path), seconds=LIMIT_S).state == "finished"
    policy, environment = hive.load(str(directory.path)), Combination(kind)
    noise = np.random.default_rng(0)

    def played(state: int, **sampled: Any) -> float:
        environment.state = state
        return environment.step(policy(state, **sampled))[1]

    drawn = [played(state, noise=noise) for state in (0, 1) for _ in range(100)]
    return [played(0), played(1)], float(np.mean(drawn))


EVERY = [(algorithm, kind) for algorithm in POLICIES for kind in COMBINATIONS]
FULL = pytest.mark.full(reason="`dict` has parts of all kinds; the others are single ones", rotates=True)


@pytest.mark.parametrize(
    ("algorithm", "kind"), [pytest.param(*one, marks=[] if one == ("ppo", "dict") else [FULL]) for one in EVERY]
)
def test_all_elements_of_an_action_are_learned(tmp_path: Path, algorithm: str, kind: str) -> None:
    """By chance at most one in four actions is right, and one in sixteen in half of the kinds."""
    likeliest, mean = rewards_of(tmp_path, algorithm, kind, 100)
    assert min(likeliest) > 0.95
    assert mean > 0.9


def best_squashed(target: float, weight: float) -> tuple[float, float]:
    """Return mean and deviation of u that maximise -E (4 tanh(u) - target)^2 + weight * entropy, from a grid."""
    steps = np.linspace(-8.0, 8.0, 801)
    shares = np.exp(-0.5 * steps**2) / np.exp(-0.5 * steps**2).sum()
    means, deviations = np.meshgrid(np.linspace(-1.0, 1.0, 81), np.linspace(0.02, 1.0, 99), indexing="ij")
    u = means[..., None] + deviations[..., None] * steps
    entropy = np.log(deviations) + (shares * np.log(1.0 - np.tanh(u) ** 2)).sum(-1)
    worth = -(shares * (4.0 * np.tanh(u) - target) ** 2).sum(-1) + weight * entropy
    best = np.unravel_index(worth.argmax(), worth.shape)
    return means[best], deviations[best]


EVERY_FORM = [(algorithm, form) for algorithm in POLICIES for form in ("parameter", "output")]
OTHER_FORM = pytest.mark.full(reason="the other algorithms and deviations", rotates=True)


@pytest.mark.parametrize(
    ("algorithm", "form"),
    [pytest.param(*one, marks=[] if one == ("ppo", "parameter") else [OTHER_FORM]) for one in EVERY_FORM],
)
def test_the_squashed_action_that_reward_and_entropy_agree_on(tmp_path: Path, algorithm: str, form: str) -> None:
    settings: Any = {
        "collection__envs": 32,
        "collection__rollout": 4,
        "algorithm__learning_rate_schedule": "linear",
        "algorithm__learning_rate": 0.05,
        "algorithm__value_loss_weight": 1.0,
        "algorithm__entropy_weight": 2.0,
        "network__action_distribution": "squashed",
        "network__action_deviation": form,
        "network__initial_deviation": 0.5,
    }
    learned = learn(tmp_path, algorithm, "Targets", 80, **settings)
    means, deviations = learned.gaussians
    mean, deviation = best_squashed(1.0, 2.0)
    np.testing.assert_allclose(means, [-mean, mean], atol=0.04)
    np.testing.assert_allclose(deviations, deviation, atol=0.04)


@pytest.mark.parametrize(
    "algorithm", [pytest.param(one, marks=[] if one == "ppo" else [OTHER_FORM]) for one in POLICIES]
)
def test_the_state_dependent_action_that_reward_and_entropy_agree_on(tmp_path: Path, algorithm: str) -> None:
    """As of any Gaussian: the mean is the target, and the deviation s maximises -s^2 + w log s where s^2 = w / 2."""
    settings: Any = {
        "collection__envs": 32,
        "collection__rollout": 4,
        "algorithm__optimizer": "adam",
        "algorithm__learning_rate": 0.05,
        "algorithm__learning_rate_schedule": "linear",
        "algorithm__entropy_weight": 0.5,
        "network__middleware": [4],
        "network__action_distribution": "gsde",
        "network__noise_steps": 2,
    }
    learned = learn(tmp_path, algorithm, "Targets", 80, **settings)
    outputs = learned.outputs[0]
    deviations = StateDependentGaussian((1,), 4).entropy(outputs).sub(0.5 * np.log(2.0 * np.pi * np.e)).exp()
    np.testing.assert_allclose(outputs[:, 0], [-1.0, 1.0], atol=0.15)
    np.testing.assert_allclose(deviations, 0.5, atol=0.08)
