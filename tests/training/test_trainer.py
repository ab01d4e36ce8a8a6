"""A trainer in one process: the numbers of a run, and states that another trainer continues from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch

import hive
from hive.config import Config, load_config
from hive.errors import ConfigError
from hive.training import Trainer

EXAMPLES = Path(__file__).parents[2] / "examples"
ONE_OF_EACH = [
    f"{table}.{key}" for table in ("collection", "gradients") for key in ("workers=0", "communication='synchronous'")
]


def config(example: str, *sets: str) -> Config:
    return load_config(str(EXAMPLES / f"{example}.toml"), list(sets))


@pytest.mark.parametrize(
    ("example", "sets"),
    [
        ("cartpole", ["run.steps=1600"]),
        ("cartpole-ppo", ["run.steps=4096", "network.normalize_observations=true"]),
        ("cartpole-nstep-q", ["run.steps=1600", "gradients.bootstrap_rounds=2"]),
    ],
)
def test_a_trainer_makes_the_weights_of_a_run(example: str, sets: list[str]) -> None:
    endless = [*sets, "run.stop_at_return=1000.0"]
    result = hive.train(EXAMPLES / f"{example}.toml", sets=[*endless, *ONE_OF_EACH], inline=True, quiet=True)
    trainer = Trainer(config(example, *endless))
    made = 0
    while made < result.env_steps:
        made += trainer.train()
    weights = trainer.state[: trainer.blueprint.flat.block_bytes]
    assert hashlib.sha256(weights).hexdigest() == result.weights_sha256
    assert (trainer.env_steps, trainer.updates) == (result.env_steps, result.updates)
    assert trainer.mean_return_100 == pytest.approx(result.mean_return_100)
    trainer.close()


@pytest.mark.parametrize(
    "context", [lambda: torch.device("meta"), torch.inference_mode], ids=["with torch.device", "inference_mode"]
)
def test_settings_of_the_script_change_no_weights(context: Callable[[], AbstractContextManager[object]]) -> None:
    sets = ["network.backend='torch'"]
    usual = Trainer(config("cartpole", *sets))
    usual.train()
    with context():
        trainer = Trainer(config("cartpole", *sets))
        trainer.train()
    assert trainer.state == usual.state
    usual.close()
    trainer.close()


def test_another_trainer_continues_from_a_state() -> None:
    first, second = (Trainer(config("cartpole"), number) for number in range(2))
    first.train()
    second.state = first.state
    assert (second.state, second.updates, second.env_steps) == (first.state, 1, first.env_steps)
    first.train()
    second.train()
    assert second.updates == 2
    assert second.state != first.state  # it sees other episodes
    with pytest.raises(ConfigError, match="has 3 bytes"):
        second.state = b"abc"


def test_a_trainer_acts_with_the_newest_weights() -> None:
    """Also where a run would act with older ones, and correct for that."""
    usual, other = (Trainer(config("cartpole", f"collection.broadcast_interval={n}")) for n in (1, 4))
    for trainer in (usual, other):
        for _ in range(3):
            trainer.train()
    assert other.state == usual.state


def test_a_trainer_without_episodes_has_no_return() -> None:
    assert Trainer(config("cartpole")).mean_return_100 is None


def test_a_key_changes_from_the_next_round_on() -> None:
    one, other = (Trainer(config("cartpole")) for _ in range(2))
    one.train()
    other.train()
    assert one.state == other.state
    other.set("entropy_weight", 0.5)
    other.set("learning_rate", 0.01)
    assert other.replica.learner.config == other.worker.algo.config  # type: ignore[attr-defined]
    one.train()
    other.train()
    assert one.state != other.state
    with pytest.raises(ConfigError, match="rollout"):
        other.set("rollout", 7)
