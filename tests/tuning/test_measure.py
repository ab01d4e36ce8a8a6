"""Measurements of real objects, cut to milliseconds: every kind of config gives costs of the right size."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from hive.config import load_config
from hive.tuning import Costs, measure


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WARM_S", "COLLECT_S", "GRADIENTS_S", "UPDATES_S"):
        monkeypatch.setattr(measure, name, 0.01)


def measured(id: str, *sets: str) -> Costs:
    return measure.measure(
        load_config("run.toml", [f"env.id={id}", "run.scheme=a2c", "network.middleware=[8]", *sets], text="")
    )


@pytest.mark.parametrize(
    ("sets", "gradients"),
    [
        ((), 1),
        (("run.scheme=ppo", "algorithm.epochs=3", "algorithm.minibatches=2"), 6),
        (("run.scheme=dqn", "collection.envs=2", "collection.rollout=4", "algorithm.updates_per_step=1/2"), 4),
        (("network.memory=lstm", "network.memory_size=8"), 1),
    ],
)
def test_every_kind_of_config_is_measured(sets: tuple[str, ...], gradients: int) -> None:
    found = measured("CartPole-v1", *sets)
    assert found.gradients == gradients
    assert found.gradient.at(1.0) > 0
    assert found.update.at(1) > 0
    assert found.environment.at(2) > 0
    assert 0 < found.at_hand <= 1
    assert 0 < found.busy <= 1
    assert (found.torch_gradient > 0) == ("network.memory=lstm" not in sets)
    assert Costs.of(asdict(found)) == found
