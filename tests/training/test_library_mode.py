"""Collector, gradient worker and learner in a plain loop: they learn, and distinguish truncated from terminated."""

from __future__ import annotations

import pytest
import torch
from small_trainer import Trainer, config_of

from hive.training.update.learner import Count

DISCOUNT = 0.9
FOREVER = 1 / (1 - DISCOUNT)
TEN_STEPS = sum((1 - DISCOUNT**left) / (1 - DISCOUNT) for left in range(1, 11)) / 10
"""The mean value of the ten steps of an episode, which look all the same."""


def learned_values(env: str, rollout: int, turns: int = 80, **ends: int) -> list[float]:
    """Return the values of the states after training; ends=10 is `truncates` or `terminates`."""
    options = ", ".join(f"{name}={step}" for name, step in ends.items())
    trainer = Trainer(
        config_of(
            f"small_environments:{env}",
            env__options=f"{{{options}}}",
            collection__rollout=rollout,
            network__middleware=[],
            algorithm__discount=DISCOUNT,
            algorithm__optimizer='"sgd"',
            algorithm__learning_rate=0.25,
            algorithm__clip_gradients=0,
        )
    )
    trainer.train(turns)
    return values(trainer)


def values(trainer: Trainer) -> list[float]:
    """Return the values of all states, whose observations are one-hot, with the current weights."""
    trainer.worker.bind(trainer.weights[trainer.turns % 2])
    (size,) = trainer.blueprint.environment.observation.shape
    with torch.no_grad():
        found: list[float] = trainer.worker.actor(torch.eye(size))[1].tolist()
    return found


@pytest.mark.parametrize("rollout", [7, 10, 20])
def test_a_time_limit_does_not_change_the_value_of_a_state(rollout: int) -> None:
    """It is 1 / (1 - discount), wherever in a rollout the limit strikes."""
    assert learned_values("OneState", rollout, truncates=10) == [pytest.approx(FOREVER, rel=0.02)]


def test_an_end_does() -> None:
    """The same environment, told to be over: the finite sum, less than half of the other."""
    assert TEN_STEPS < 0.5 * FOREVER
    assert learned_values("OneState", 20, terminates=10) == [pytest.approx(TEN_STEPS, rel=0.02)]


def test_whichever_comes_first_counts() -> None:
    both = learned_values("OneState", 20, terminates=10, truncates=10)
    assert both == [pytest.approx(TEN_STEPS, rel=0.02)]


@pytest.mark.parametrize("rollout", [7, 20])
def test_a_truncated_episode_has_the_value_of_its_last_state(rollout: int) -> None:
    """Not what the first state of the next one is, where the next row of the rollout stands."""
    expected = [-5 + DISCOUNT * FOREVER, FOREVER]
    assert learned_values("Launch", rollout, 400, truncates=10) == pytest.approx(expected, rel=0.02)


def test_contexts_are_distinguished() -> None:
    """Guessing earns 0.5, one action for both contexts too; a wrong sign 0."""
    trainer = Trainer(config_of("small_environments:Bandit", collection__envs=8, algorithm__learning_rate=0.01))
    trainer.train(100)
    assert trainer.mean_return() >= 0.95


def test_the_better_end_of_a_chain_is_found() -> None:
    """Its reward comes steps after the choice; walking at random earns 0.6, the nearest mistake 0.2."""
    config = config_of(
        "small_environments:Chain",
        collection__envs=8,
        algorithm__learning_rate=0.01,
        algorithm__discount=DISCOUNT,
        algorithm__gae_lambda=0.95,
    )
    trainer = Trainer(config)
    trainer.train(100)
    assert trainer.mean_return() >= 0.97
    worth = values(trainer)
    assert worth[1] < worth[2] < worth[3]
    assert worth[3] == pytest.approx(1.0, abs=0.1)


def test_several_collectors_train_together() -> None:
    trainer = Trainer(config_of("small_environments:Bandit", algorithm__learning_rate=0.01), collectors=4)
    turn = trainer.round()
    assert turn.samples == 4 * 2 * 8
    trainer.train(99)
    assert trainer.mean_return() >= 0.95
    counters = trainer.optimizer_state["counters"]
    assert counters[Count.env_steps] == counters[Count.episodes] == 100 * 64


def test_the_same_seed_ends_with_the_same_bytes() -> None:
    def trained(seed: int) -> bytes:
        trainer = Trainer(config_of("small_environments:Drift", run__seed=seed, env__options="{truncates=6}"))
        trainer.train(20)
        return trainer.weights[0].tobytes()

    assert trained(1) == trained(1)
    assert trained(1) != trained(2)
