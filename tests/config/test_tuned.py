"""Tuned settings load, and are what their sources say."""

from __future__ import annotations

import pytest

from hive.config import SCHEMES, load_config, reasoned, template, tuned, tuned_tasks

TUNED = tuned_tasks()
ATARI = TUNED["ALE/..."]
EVERY = [(env_id, scheme) for env_id, schemes in TUNED.items() if schemes is not ATARI for scheme in schemes]


@pytest.mark.parametrize(("env_id", "scheme"), EVERY)
def test_every_setting_is_valid_and_survives_being_written(env_id: str, scheme: str) -> None:
    entry = TUNED[env_id][scheme]
    text = template(env_id, scheme, reasoned(entry.keys, env_id, scheme), entry.source)
    config = load_config("run.toml", text=text)
    assert scheme in SCHEMES
    assert (config.env.id, config.run.scheme) == (env_id, scheme)
    assert {name: config.value(name) for name in entry.keys} == entry.keys
    assert entry.source in text


@pytest.mark.parametrize(("env_id", "scheme"), [(e, s) for e, s in EVERY if s != "nstep-q"])
def test_no_entry_depends_on_a_default_of_hive(env_id: str, scheme: str) -> None:
    """An entry gives all that determines learning, so that a new default does not change what was tuned."""
    first = "Pendulum-v1" if scheme in ("sac", "td3") else "CartPole-v1"
    assert TUNED[env_id][scheme].keys.keys() == TUNED[first][scheme].keys.keys()


@pytest.mark.parametrize("scheme", ATARI)
def test_every_game_has_the_settings_of_atari(scheme: str) -> None:
    settings = tuned("ALE/Breakout-v5")[scheme]
    text = template("ALE/Breakout-v5", scheme, reasoned(settings.keys, "ALE/Breakout-v5", scheme), settings.source)
    config = load_config("run.toml", text=text)
    assert (config.env.preset, config.env.frame_stack, config.network.separate_networks) == ("atari", 4, False)
    assert {name: config.value(name) for name in settings.keys} == settings.keys
    shape = config.collection
    batch = shape.envs * shape.rollout // getattr(config.algorithm, "minibatches", 1)
    assert batch == {"ppo": 256, "a2c": 16 * 5, "impala": 32 * 20}[scheme]


@pytest.mark.parametrize("env_id", ["Hopper-v5", "Hopper-v4"])
def test_the_versions_of_an_environment_share_their_settings(env_id: str) -> None:
    assert tuned(env_id) is TUNED["Hopper-v5"]


@pytest.mark.parametrize("env_id", ["Unknown-v0", "mine:Hopper-v5", "", "Hopper-v5x", "LunarLander-v3-v3"])
def test_an_environment_without_settings(env_id: str) -> None:
    assert tuned(env_id) == {}


def test_a_value_of_the_zoo_in_hives_terms() -> None:
    """LunarLander-v3 of ppo.yml: n_envs 16, n_steps 1024, batch_size 64, gae_lambda 0.98, gamma 0.999, n_epochs 4."""
    keys = TUNED["LunarLander-v3"]["ppo"].keys
    assert (keys["collection.envs"], keys["collection.rollout"]) == (16, 1024)
    assert keys["algorithm.minibatches"] * 64 == 16 * 1024
    assert (keys["algorithm.discount"], keys["algorithm.gae_lambda"], keys["algorithm.epochs"]) == (0.999, 0.98, 4)
    assert (keys["algorithm.entropy_weight"], keys["network.normalize_observations"]) == (0.01, False)
