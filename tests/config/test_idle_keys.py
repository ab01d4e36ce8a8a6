"""Keys that have no effect beside others are refused where a user gives them, and only there."""

from __future__ import annotations

from pathlib import Path

import pytest

from hive import Blueprint
from hive.config import load_config, render
from hive.config.rules import IDLE
from hive.errors import ConfigError, TopologyError

SPREAD = "algorithm.exploration_spread=7"
ENV = '[env]\nid = "CartPole-v1"\n'
PIPELINED = "collection.communication=pipelined"
# Scheme, the key with another value than its default, its default, and settings with which it has an effect.
CASES = {
    "vtrace": ("ppo", "algorithm.vtrace=true", "false", [PIPELINED]),
    "vtrace by interval": ("ppo", "algorithm.vtrace=true", "false", ["collection.broadcast_interval=2"]),
    "importance": ("dqn", "algorithm.importance_exponent=0.6", "0.4", ["algorithm.priority_exponent=0.5"]),
    "first errors": ("dqn", "algorithm.initial_errors=true", "false", ["algorithm.priority_exponent=0.5"]),
    "rmsprop": ("a2c", "algorithm.rmsprop_decay=0.9", "0.99", ["algorithm.optimizer=rmsprop"]),
    "statistics": ("ppo", "run.init_statistics=false", "true", ["run.init_from=cartpole-1"]),
    "replicas": ("a2c", "gradients.decentralized=true", "false", ["gradients.workers=2"]),
}
WITHOUT = {
    "clip of rewards": ("ppo", "network.reward_clip=5.0", ["network.normalize_rewards=false"]),
    "weights turned off": ("ppo", "algorithm.vtrace=true", [PIPELINED, "algorithm.importance_clip=0"]),
    "entropy": ("sac", "algorithm.target_entropy=-2", ["algorithm.learn_temperature=false"]),
    "share": ("sac", "algorithm.target_entropy_share=0.5", ["algorithm.learn_temperature=false"]),
    "clip": ("td3", "algorithm.target_noise_clip=0.2", ["algorithm.target_noise=0"]),
    "owners": ("dqn", "collection.ownership=gradient_worker", []),
}


def load(scheme: str, *sets: str) -> None:
    load_config("x.toml", [f"run.scheme={scheme}", *sets], text=ENV)


@pytest.mark.parametrize("case", CASES)
def test_a_key_without_an_effect_is_refused_with_it_taken(case: str) -> None:
    scheme, given, default, effective = CASES[case]
    with pytest.raises(ConfigError, match="no effect") as caught:
        load(scheme, given)
    assert given.partition("=")[0] in str(caught.value)
    load(scheme, given, *effective)
    load(scheme, f"{given.partition('=')[0]}={default}")


@pytest.mark.parametrize("case", WITHOUT)
def test_a_key_that_others_leave_without_an_effect_is_refused(case: str) -> None:
    scheme, given, others = WITHOUT[case]
    load(scheme, *others)
    with pytest.raises(ConfigError, match="no effect"):
        load(scheme, given, *others)


def test_first_errors_that_are_no_priorities_are_refused() -> None:
    load("rainbow", "algorithm.initial_errors=false")
    with pytest.raises(ConfigError, match="divergences"):
        load("rainbow", "algorithm.initial_errors=true", "algorithm.priority_exponent=0.5")


def test_all_of_these_keys_are_tried() -> None:
    tried = {given.partition("=")[0] for _, given, *_ in (*CASES.values(), *WITHOUT.values())}
    assert tried == {idle.name for idle in IDLE}


def test_a_run_of_an_earlier_hive_is_loaded_and_a_new_value_refused(tmp_path: Path) -> None:
    """Its resolved.toml has all keys, and says nothing of what the user wrote."""
    config = load_config("x.toml", ["run.scheme=dqn"], text=ENV)
    text = render(config).replace("importance_exponent = 0.4", "importance_exponent = 0.7")
    (tmp_path / "resolved.toml").write_text(text)
    assert load_config(tmp_path / "resolved.toml").value("algorithm.importance_exponent") == 0.7
    with pytest.raises(ConfigError, match="no effect"):
        load_config(tmp_path / "resolved.toml", ["algorithm.importance_exponent=0.8"])


def test_the_keys_of_a_policy_are_judged_with_its_own_others() -> None:
    scheme = ["run.scheme=dqn", "algorithm.priority_exponent=0.6"]
    own = 'policies.a={agents="a", algorithm={priority_exponent=0.0, importance_exponent=0.7}}'
    with pytest.raises(ConfigError, match="no effect"):
        load_config("x.toml", [*scheme, own], text=ENV)
    load_config("x.toml", [*scheme, 'policies.a={agents="a", algorithm={importance_exponent=0.7}}'], text=ENV)
    load_config("x.toml", ["algorithm.importance_exponent=0.7", *scheme, f"{own[:-27]}}}}}"], text=ENV)


@pytest.mark.parametrize(
    ("scheme", "env", "sets", "effective"),
    [
        ("sac", "CartPole-v1", ["algorithm.target_entropy=-2"], ["algorithm.target_entropy_share=0.5"]),
        ("sac", "Pendulum-v1", ["algorithm.target_entropy_share=0.5"], ["algorithm.target_entropy=-2"]),
        *(
            (
                "dqn",
                "CartPole-v1",
                [SPREAD, "collection.envs=1"],
                [SPREAD, f"collection={{envs={envs}, workers={workers}}}"],
            )
            for envs, workers in ((1, 2), (2, 1), (2, 2))
        ),
    ],
)
def test_what_the_environment_leaves_without_an_effect_is_refused(
    scheme: str, env: str, sets: list[str], effective: list[str]
) -> None:
    text = f'[run]\nscheme = "{scheme}"\n[env]\nid = "{env}"\n'
    with pytest.raises(TopologyError, match="no effect"):
        Blueprint(load_config("x.toml", sets, text=text))
    Blueprint(load_config("x.toml", effective, text=text))
    Blueprint(load_config("x.toml", text=text))


def test_a_default_of_a_scheme_is_no_choice() -> None:
    """Ape-X spreads its exploration; with one environment that has no effect, and nobody asked for it."""
    alone = ["collection.workers=1", "collection.envs=1"]
    Blueprint(load_config("x.toml", alone, text=f'[run]\nscheme = "apex"\n{ENV}'))
