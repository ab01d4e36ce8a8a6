from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hive.config import (
    A2CConfig,
    AlgorithmConfig,
    PPOConfig,
    load_config,
)
from hive.config.algorithms import ALGORITHMS, NAMES
from hive.config.keys import keys_of
from hive.config.schemes import SCHEMES
from hive.errors import ConfigError

ENV = '[env]\nid = "CartPole-v1"\n'

every_algorithm = pytest.mark.parametrize(("name", "table"), ALGORITHMS.items())

ACTOR_CRITIC = {
    "gae_lambda": 1.0,
    "value_loss_weight": 0.5,
    "entropy_weight": 0.0,
    "entropy_weight_schedule": "constant",
}
REPLAYED_VALUES = {
    "target_interval": 200,
    "target_rate": 1.0,
    "replay_from": "",
    "given_weight": 1.0,
    "replay_capacity": 1_000_000,
    "batch_size": 64,
    "updates_per_step": "1/2",
    "learning_starts": 1_000,
    "n_step": 3,
    "priority_exponent": 0.0,
    "importance_exponent": 0.4,
    "exploration_start": 1.0,
    "exploration_end": 0.01,
    "exploration_steps": 50_000,
    "exploration_spread": 0.0,
    "initial_errors": False,
    "dueling": 0,
}
AGENT = {
    "target_interval": 1,
    "target_rate": 0.005,
    "replay_from": "",
    "given_weight": 1.0,
    "replay_capacity": 1_000_000,
    "batch_size": 256,
    "updates_per_step": "1",
    "learning_starts": 100,
    "n_step": 1,
    "priority_exponent": 0.0,
    "importance_exponent": 0.4,
    "actor_learning_rate": 0.0,
    "critic_first": False,
}
OF_AGENTS = ("target_interval", "target_rate", "actor_learning_rate", "critic_first")
OWN = {
    "sac": {
        **AGENT,
        "temperature": 1.0,
        "learn_temperature": True,
        "temperature_learning_rate": 0.0,
        "target_entropy": -1.0,
        "target_entropy_share": 0.98,
    },
    "td3": {**AGENT, "exploration_noise": 0.1, "policy_delay": 2, "target_noise": 0.2, "target_noise_clip": 0.5},
    "ddpg": {**AGENT, "exploration_noise": 0.1},
    "bc": {
        **{key: value for key, value in AGENT.items() if key not in OF_AGENTS},
        "learning_starts": 0,
        "entropy_weight": 1e-3,
        "network_of": "ppo",
    },
    "a2c": {**ACTOR_CRITIC, "gae_lambda": 0.95, "normalize_advantages": False, "importance_clip": 2.0, "vtrace": False},
    "ppo": {
        **ACTOR_CRITIC,
        "gae_lambda": 0.95,
        "normalize_advantages": True,
        "importance_clip": 2.0,
        "vtrace": False,
        "epochs": 10,
        "minibatches": 32,
        "normalize_over": "minibatch",
        "clip_range": 0.2,
        "clip_range_schedule": "constant",
        "value_clip_range": 0.0,
        "target_kl": 0.0,
    },
    "impala": {**ACTOR_CRITIC, "rho_clip": 1.0, "c_clip": 1.0},
    "nstep-q": {
        "target_interval": 1,
        "target_rate": 0.05,
        "n_step": 8,
        "huber_loss": True,
        "exploration_start": 1.0,
        "exploration_end": 0.02,
        "exploration_steps": 100_000,
    },
    "pqn": {
        "huber_loss": False,
        "exploration_start": 1.0,
        "exploration_end": 0.05,
        "exploration_steps": 100_000,
        "q_lambda": 0.85,
        "epochs": 4,
        "minibatches": 4,
    },
    "dqn": {**REPLAYED_VALUES, "huber_loss": True, "double": True},
    "c51": {**REPLAYED_VALUES, "exploration_end": 0.01, "double": False, "atoms": 51, "v_min": -100.0, "v_max": 100.0},
    "qr-dqn": {**REPLAYED_VALUES, "exploration_end": 0.01, "double": False, "quantiles": 50},
}


def load(name: str, *lines: str) -> Any:
    text = "\n".join((*ENV.splitlines(), "[algorithm]", f'name = "{name}"', *lines))
    return load_config("run.toml", text=text).algorithm


def problem(name: str, *lines: str) -> str:
    with pytest.raises(ConfigError, match=r"^1 problem in `run\.toml`") as caught:
        load(name, *lines)
    return str(caught.value)


# --- the tables


def test_names_are_those_of_the_key() -> None:
    assert tuple(ALGORITHMS) == keys_of(AlgorithmConfig)["name"].limits.choices
    assert {scheme.defaults.get("algorithm.name", "a2c") for scheme in SCHEMES.values()} == ALGORITHMS.keys()
    assert {table().name: table for table in ALGORITHMS.values()} == ALGORITHMS


@every_algorithm
def test_each_has_what_all_share_first_and_in_order(name: str, table: type) -> None:
    shared = list(keys_of(AlgorithmConfig))
    assert list(keys_of(table))[: len(shared)] == shared
    assert {key: keys_of(table)[key].default for key in list(keys_of(table))[len(shared) :]} == OWN[name]


@every_algorithm
def test_a_shared_key_means_the_same_everywhere(name: str, table: type) -> None:
    for key, declared in keys_of(AlgorithmConfig).items():
        other = keys_of(table)[key]
        assert (other.limits, other.kind) == (declared.limits, declared.kind)
    if name == "ppo":
        advantages = keys_of(A2CConfig)["normalize_advantages"]
        assert keys_of(table)["normalize_advantages"].limits == advantages.limits


@every_algorithm
def test_each_default_is_a_valid_value(name: str, table: type) -> None:
    for declared in keys_of(table).values():
        assert declared.fault(declared.default) is None
        assert declared.limits.doc
        assert not declared.limits.doc.endswith(".")


@every_algorithm
def test_defaults_of_ones_own(name: str, table: type) -> None:
    differences = {
        key: declared.default
        for key, declared in keys_of(table).items()
        if key in keys_of(AlgorithmConfig) and declared.default != keys_of(AlgorithmConfig)[key].default
    }
    assert (
        differences
        == {
            "a2c": {"learning_rate": 1e-3, "learning_rate_schedule": "linear"},
            "ppo": {"name": "ppo", "learning_rate": 3e-4},
            "impala": {"name": "impala"},
            "sac": {"name": "sac", "learning_rate": 3e-4, "optimizer_epsilon": 1e-8, "clip_gradients": 0.0},
            "td3": {"name": "td3", "learning_rate": 1e-3, "optimizer_epsilon": 1e-8, "clip_gradients": 0.0},
            "ddpg": {"name": "ddpg", "learning_rate": 1e-3, "optimizer_epsilon": 1e-8, "clip_gradients": 0.0},
            "bc": {"name": "bc", "learning_rate": 1e-3, "optimizer_epsilon": 1e-8},
            "nstep-q": {
                "name": "nstep-q",
                "learning_rate": 2e-3,
                "learning_rate_schedule": "linear",
                "clip_gradients": 10.0,
            },
            "pqn": {
                "name": "pqn",
                "optimizer": "radam",
                "learning_rate": 1e-3,
                "learning_rate_schedule": "linear",
                "clip_gradients": 10.0,
            },
            "dqn": {
                "name": "dqn",
                "learning_rate": 5e-4,
                "learning_rate_schedule": "linear",
                "clip_gradients": 10.0,
                "optimizer_epsilon": 1e-8,
            },
            "c51": {
                "name": "c51",
                "learning_rate": 5e-4,
                "learning_rate_schedule": "linear",
                "clip_gradients": 10.0,
                "optimizer_epsilon": 3.125e-4,
            },
            "qr-dqn": {
                "name": "qr-dqn",
                "learning_rate": 5e-4,
                "learning_rate_schedule": "linear",
                "clip_gradients": 0.0,
                "optimizer_epsilon": 3.125e-4,
            },
        }[name]
    )


@every_algorithm
def test_a_table_does_not_change(name: str, table: type) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        table().discount = 0.5
    assert table() == table(name=name)


# --- loading


@every_algorithm
def test_the_name_chooses_the_table(name: str, table: type) -> None:
    assert load(name) == table()
    assert load(name, "discount = 0.5", "optimizer = 'sgd'") == table(discount=0.5, optimizer="sgd")


def test_no_name_is_ppo() -> None:
    config = load_config("run.toml", text=ENV)
    assert config.algorithm == PPOConfig()
    assert config.origin("algorithm.name") == "scheme ppo"


def test_a_custom_scheme_without_a_name_is_a2c() -> None:
    config = load_config("run.toml", ["run.scheme=own.module:scheme"], text=ENV)
    assert config.algorithm == A2CConfig()
    assert config.origin("algorithm.name") == "default"


@pytest.mark.parametrize(
    ("name", "line", "owners"),
    [
        ("a2c", "epochs = 2", "ppo and pqn"),
        ("a2c", "rho_clip = 2.0", "impala"),
        ("impala", "clip_range = 0.1", "ppo"),
        ("impala", "normalize_advantages = true", "a2c and ppo"),
        ("ppo", "c_clip = 2.0", "impala"),
        ("ppo", "target_interval = 20", "nstep-q, dqn, c51, qr-dqn, sac, td3 and ddpg"),
        ("nstep-q", "gae_lambda = 0.5", "a2c, ppo and impala"),
        ("nstep-q", "q_lambda = 0.5", "pqn"),
        ("pqn", "target_interval = 20", "nstep-q, dqn, c51, qr-dqn, sac, td3 and ddpg"),
    ],
)
def test_a_key_of_another_algorithm_is_unknown(name: str, line: str, owners: str) -> None:
    key = line.split()[0]
    text = problem(name, line)
    assert f"run.toml:5: algorithm.{key}: unknown key\n" in text
    assert f"`{key}` belongs to {owners}" in text


def test_an_algorithm_that_is_not_there() -> None:
    text = problem("pppo", "epochs = 2")
    names = ", ".join(f'"{name}"' for name in NAMES)
    assert f'expected {names} or "package.module:Class", got "pppo"' in text
    assert "did you mean `ppo`?" in text


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a2c", "discount = 1.01"),
        ("a2c", "discount = -0.01"),
        ("a2c", "gae_lambda = 2"),
        ("a2c", "learning_rate = 0"),
        ("a2c", 'learning_rate_schedule = "exponential"'),
        ("a2c", 'entropy_weight_schedule = "step"'),
        ("a2c", 'optimizer = "lbfgs"'),
        ("a2c", "adam_beta1 = 1.0"),
        ("a2c", "adam_beta2 = 1"),
        ("a2c", "rmsprop_decay = 1.0"),
        ("a2c", "optimizer_epsilon = 0.0"),
        ("a2c", "momentum = 1.0"),
        ("a2c", "weight_decay = -1.0"),
        ("a2c", "value_loss_weight = -0.5"),
        ("a2c", "entropy_weight = -0.01"),
        ("a2c", "clip_gradients = -1"),
        ("a2c", "normalize_advantages = 1"),
        ("a2c", "learning_rate = nan"),
        ("ppo", "epochs = 0"),
        ("ppo", "minibatches = 0"),
        ("ppo", "minibatches = 2.0"),
        ("ppo", "clip_range = 0"),
        ("ppo", 'clip_range_schedule = "none"'),
        ("ppo", "value_clip_range = -0.1"),
        ("ppo", "target_kl = -0.01"),
        ("ppo", 'normalize_over = "run"'),
        ("impala", "rho_clip = 0.0"),
        ("impala", "c_clip = -1"),
        ("nstep-q", "target_interval = 0"),
        ("nstep-q", "target_rate = 0.0"),
        ("nstep-q", "target_rate = 1.1"),
        ("nstep-q", "n_step = 0"),
        ("nstep-q", "huber_loss = 1"),
        ("nstep-q", "exploration_start = 1.1"),
        ("nstep-q", "exploration_end = -0.1"),
        ("nstep-q", "exploration_steps = 0"),
        ("pqn", "q_lambda = -0.1"),
        ("pqn", "q_lambda = 1.1"),
        ("pqn", "minibatches = 0"),
        ("dqn", "replay_capacity = 0"),
        ("dqn", "batch_size = 0"),
        ("dqn", 'updates_per_step = "0"'),
        ("dqn", 'updates_per_step = "1/0"'),
        ("dqn", 'updates_per_step = "1/2/3"'),
        ("dqn", 'updates_per_step = "a/4"'),
        ("dqn", "updates_per_step = 0"),
        ("dqn", "updates_per_step = true"),
        ("dqn", "learning_starts = -1"),
        ("dqn", "priority_exponent = 1.1"),
        ("dqn", "importance_exponent = -0.1"),
        ("dqn", "dueling = -1"),
        ("c51", "atoms = 1"),
        ("qr-dqn", "quantiles = 0"),
    ],
)
def test_limits(name: str, line: str) -> None:
    assert f"run.toml:5: algorithm.{line.split()[0]}: expected " in problem(name, line)


@pytest.mark.parametrize(
    ("name", "line", "value"),
    [
        ("a2c", "discount = 1", 1.0),
        ("a2c", "discount = 0.0", 0.0),
        ("a2c", "gae_lambda = 0", 0.0),
        ("a2c", "clip_gradients = 0", 0.0),
        ("a2c", "momentum = 0.0", 0.0),
        ("a2c", "adam_beta1 = 0", 0.0),
        ("ppo", "epochs = 1", 1),
        ("ppo", "minibatches = 1", 1),
        ("ppo", "value_clip_range = 0", 0.0),
        ("ppo", "target_kl = 0", 0.0),
        ("impala", "rho_clip = 1e9", 1e9),
        ("nstep-q", "target_rate = 1", 1.0),
        ("nstep-q", "n_step = 1", 1),
        ("nstep-q", "exploration_end = 0", 0.0),
        ("pqn", "q_lambda = 0", 0.0),
        ("pqn", "q_lambda = 1", 1.0),
    ],
)
def test_values_at_the_limits(name: str, line: str, value: float) -> None:
    loaded = getattr(load(name, line), line.split()[0])
    assert (loaded, type(loaded)) == (value, type(value))
