"""Collector, gradient worker and learner in a plain loop: they learn, and know cut from ended."""

from __future__ import annotations

import pytest
import torch
from small_trainer import Trainer, config_of

from hive.workers.learner import Count

DISCOUNT = 0.9
FOREVER = 1 / (1 - DISCOUNT)
TEN_STEPS = sum((1 - DISCOUNT**left) / (1 - DISCOUNT) for left in range(1, 11)) / 10
"""The mean value of the ten steps of an episode, which look all the same."""


def learned_value(rollout: int, **ends: int) -> float:
    """What the one state is worth after training; ends=10 is `truncates` or `terminates`."""
    options = ", ".join(f"{name}={step}" for name, step in ends.items())
    trainer = Trainer(
        config_of(
            "small_environments:OneState",
            env__options=f"{{{options}}}",
            collection__rollout=rollout,
            network__middleware=[],
            algorithm__discount=DISCOUNT,
            algorithm__optimizer='"sgd"',
            algorithm__learning_rate=0.25,
            algorithm__clip_gradients=0,
        )
    )
    trainer.train(80)
    network = trainer.blueprint.network()
    trainer.worker.flat.bind(trainer.weights[trainer.turns % 2])
    network.load_state_dict(trainer.worker.network.state_dict())
    with torch.no_grad():
        return float(network(torch.ones(1, 1))[1])


@pytest.mark.parametrize("rollout", [7, 10, 20])
def test_a_time_limit_does_not_end_what_a_state_is_worth(rollout: int) -> None:
    """It is 1 / (1 - discount), wherever in a rollout the limit strikes."""
    assert learned_value(rollout, truncates=10) == pytest.approx(FOREVER, rel=0.02)


def test_an_end_does() -> None:
    """The same environment, told to be over: the finite sum, less than half of the other."""
    assert TEN_STEPS < 0.5 * FOREVER
    assert learned_value(20, terminates=10) == pytest.approx(TEN_STEPS, rel=0.02)


def test_whichever_comes_first_counts() -> None:
    assert learned_value(20, terminates=10, truncates=10) == pytest.approx(TEN_STEPS, rel=0.02)


def test_contexts_are_told_apart() -> None:
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
    values = _values(trainer)
    assert values[1] < values[2] < values[3]
    assert values[3] == pytest.approx(1.0, abs=0.1)


def _values(trainer: Trainer) -> list[float]:
    trainer.worker.bind(trainer.weights[trainer.turns % 2])
    with torch.no_grad():
        values: list[float] = trainer.worker.network(torch.eye(5))[1].tolist()
    return values


def test_several_collectors_train_together() -> None:
    trainer = Trainer(config_of("small_environments:Bandit", algorithm__learning_rate=0.01), collectors=4)
    turn = trainer.round()
    assert turn.samples == 4 * 2 * 8
    trainer.train(99)
    assert trainer.mean_return() >= 0.95
    counters = trainer.ledger["counters"]
    assert counters[Count.env_steps] == counters[Count.episodes] == 100 * 64


def test_the_same_seed_ends_with_the_same_bytes() -> None:
    def trained(seed: int) -> bytes:
        trainer = Trainer(config_of("small_environments:Drift", run__seed=seed, env__options="{truncates=6}"))
        trainer.train(20)
        return trainer.weights[0].tobytes()

    assert trained(1) == trained(1)
    assert trained(1) != trained(2)
