from __future__ import annotations

from typing import Any

import pytest

from hive.config import (
    A2CConfig,
    C51Config,
    DQNConfig,
    IMPALAConfig,
    NStepQConfig,
    PPOConfig,
    PQNConfig,
    QRDQNConfig,
    load_config,
)
from hive.config.algorithms import ALGORITHMS
from hive.config.keys import keys_of
from hive.config.schemes import ALGORITHM_DEFAULTS, SCHEMES

ENV = '[env]\nid = "CartPole-v1"\n'


@pytest.mark.parametrize(
    ("scheme", "name", "value"),
    [(name, key, value) for name, scheme in SCHEMES.items() for key, value in scheme.defaults.items()],
)
def test_each_default_of_a_scheme_is_a_valid_value_of_a_key(scheme: str, name: str, value: Any) -> None:
    section, key = name.split(".")
    config = load_config("x.toml", [f"run.scheme={scheme}"], text=ENV)
    declared = keys_of(type(getattr(config, section)))[key]
    assert declared.fault(list(value) if declared.is_array else value) is None
    assert config.value(name) == value
    assert config.origin(name) == f"scheme {scheme}"


@pytest.mark.parametrize(
    ("scheme", "algorithm", "learning_rate"),
    [
        ("a2c", A2CConfig, 1e-3),
        ("a3c", A2CConfig, 1e-3),
        ("single", A2CConfig, 1e-3),
        ("ppo", PPOConfig, 3e-4),
        ("dd-ppo", PPOConfig, 3e-4),
        ("rapid", PPOConfig, 3e-4),
        ("impala", IMPALAConfig, 7e-4),
        ("nstep-q", NStepQConfig, 2e-3),
        ("pqn", PQNConfig, 1e-3),
        ("dqn", DQNConfig, 5e-4),
        ("c51", C51Config, 5e-4),
        ("qr-dqn", QRDQNConfig, 5e-4),
    ],
)
def test_a_scheme_has_its_algorithm(scheme: str, algorithm: type, learning_rate: float) -> None:
    config = load_config("x.toml", [f"run.scheme={scheme}"], text=ENV)
    assert type(config.algorithm) is algorithm
    assert config.algorithm.learning_rate == learning_rate


def test_ppo_has_no_lag_and_a2c_collects_ahead() -> None:
    for scheme, expected in {"ppo": ("synchronous", 0, 2), "a2c": ("pipelined", 1, 3)}.items():
        config = load_config("x.toml", [f"run.scheme={scheme}"], text=ENV)
        collection = config.collection
        assert (collection.communication, collection.max_lag, collection.slots) == expected
        assert (config.gradients.communication, config.gradients.max_lag) == ("synchronous", 0)


def test_a3c_is_workers_that_collect_for_themselves() -> None:
    config = load_config("x.toml", ["run.scheme=a3c"], text=ENV)
    assert (config.collection.workers, config.gradients.workers) == (0, 2)
    assert {config.collection.communication, config.gradients.communication} == {"asynchronous"}
    assert (config.collection.ownership, config.collection.slots) == ("gradient_worker", 2)


def test_dd_ppo_is_in_step_without_a_master_and_cuts_rounds_short() -> None:
    config = load_config("x.toml", ["run.scheme=dd-ppo"], text=ENV)
    assert (config.collection.workers, config.gradients.workers, config.gradients.decentralized) == (0, 3, True)
    assert (config.collection.max_lag, config.gradients.max_lag, config.exact) == (0, 0, False)
    assert (config.collection.fraction_workers, config.collection.fraction_samples) == (0.6, 0.25)


def test_rapid_is_two_levels() -> None:
    config = load_config("x.toml", ["run.scheme=rapid"], text=ENV)
    assert (config.collection.workers, config.gradients.workers) == (4, 2)
    assert (config.collection.communication, config.gradients.communication) == ("asynchronous", "synchronous")
    assert config.collection.ownership == "gradient_worker"


def test_impala_waits_for_nobody() -> None:
    config = load_config("x.toml", ["run.scheme=impala"], text=ENV)
    assert (config.collection.max_lag, config.gradients.max_lag, config.collection.slots) == (4, 4, 5)
    assert config.origin("collection.max_lag") == "default"


@pytest.mark.parametrize("scheme", [*SCHEMES, "my.schemes:build"])
def test_the_algorithm_given_wins_over_that_of_the_scheme(scheme: str) -> None:
    text = f'[run]\nscheme = "{scheme}"\n{ENV}[algorithm]\nname = "ppo"\nepochs = 2\n'
    config = load_config("x.toml", text=text)
    assert isinstance(config.algorithm, PPOConfig)
    assert (config.algorithm.name, config.algorithm.epochs, config.algorithm.gae_lambda) == ("ppo", 2, 0.95)
    assert config.origin("algorithm.name") == "x.toml:6"


def test_single_is_one_process_in_step() -> None:
    config = load_config("x.toml", ["run.scheme=single"], text=ENV)
    assert (config.collection.workers, config.gradients.workers) == (0, 0)
    assert (config.collection.max_lag, config.gradients.max_lag, config.collection.slots) == (0, 0, 2)
    assert config.origin("collection.max_lag") == "default"


def test_the_file_and_overrides_win_over_the_scheme() -> None:
    text = f'[run]\nscheme = "single"\n{ENV}[collection]\nworkers = 3\n'
    config = load_config("x.toml", ["gradients.workers=1"], text=text)
    assert (config.collection.workers, config.origin("collection.workers")) == (3, "x.toml:6")
    assert (config.gradients.workers, config.origin("gradients.workers")) == (1, "--set")
    assert config.origin("collection.communication") == "scheme single"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_has_the_same_defaults_in_another_scheme(name: str) -> None:
    """A scheme places and connects processes; what an algorithm needs to learn belongs to the algorithm."""
    own = load_config("x.toml", [f"run.scheme={name}"], text=ENV)
    other = load_config("x.toml", ["run.scheme=single", f"algorithm.name={name}"], text=ENV)
    placed = {"run.name", "run.scheme", "checkpoint.every"}
    keys = set(own.differences(other)) - placed
    assert not [key for key in keys if not key.endswith((".workers", ".communication", ".max_lag", ".slots"))]
    assert own.algorithm == other.algorithm
    for key in ALGORITHM_DEFAULTS[name]:
        assert own.origin(key) == other.origin(key) == f"algorithm {name}"


@pytest.mark.parametrize(
    ("sets", "minibatches"),
    [
        ((), 32),
        (("collection.envs=1", "collection.rollout=2048"), 32),
        (("collection.workers=2",), 64),
        (("collection.envs=2", "collection.rollout=16"), 1),
        (("gradients.workers=2",), 32),
        (("collection.communication=asynchronous", "collection.workers=4"), 32),
        (("run.scheme=dd-ppo",), 24),
        (("network.memory=lstm",), 16),
        (("network.memory=lstm", "collection.workers=4", "gradients.workers=2"), 32),
        (("network.module=own.nets:Maybe",), 16),
        (("run.scheme=pqn",), 4),
        (("run.scheme=pqn", "collection.envs=16"), 8),
        (("algorithm.minibatches=3",), 3),
    ],
)
def test_a_minibatch_has_64_steps_whatever_the_round(sets: tuple[str, ...], minibatches: int) -> None:
    config = load_config("x.toml", sets, text=ENV)
    assert config.value("algorithm.minibatches") == minibatches


@pytest.mark.parametrize(
    ("scheme", "steps", "explores", "starts"),
    [
        ("pqn", 100_000, 20_000, None),
        ("nstep-q", 4, 1, None),
        ("dqn", 100_000, 10_000, 1_000),
        ("c51", 20_000, 2_000, 200),
        ("qr-dqn", 10_000_000, 1_000_000, 1_000),
        ("apex", 9, 1, 0),
    ],
)
def test_exploration_follows_the_length_of_the_run(scheme: str, steps: int, explores: int, starts: int | None) -> None:
    config = load_config("x.toml", [f"run.scheme={scheme}", f"run.steps={steps}"], text=ENV)
    assert config.value("algorithm.exploration_steps") == explores
    assert getattr(config.algorithm, "learning_starts", None) == starts


def test_every_scheme_has_one_line_for_users() -> None:
    """It begins with the algorithm and names the source, or that there is none: `single` is a placement."""
    for name, scheme in SCHEMES.items():
        assert len(scheme.text) <= 110, name
        assert name == "single" or scheme.text.endswith(")"), name


def test_a_scheme_of_ones_own_changes_no_default() -> None:
    own = load_config("x.toml", ["run.scheme=my.schemes:build"], text=ENV)
    assert own.differences(load_config("x.toml", ["run.scheme=a2c"], text=ENV)) == ["run.name", "run.scheme"]
