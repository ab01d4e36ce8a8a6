"""Settings of an environment that has no tuned ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hive.config import SCHEMES, load_config, resolved, template
from hive.envs.spaces.actions import ActionSpec, Box, Composite, Discrete, MultiBinary, MultiDiscrete
from hive.envs.spaces.by_spaces import settings_by_spaces, spaces_text
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.spaces.spec import EnvironmentSpec

VECTOR = ObservationSpec((8,), "float32")
IMAGE = ObservationSpec((84, 84, 4), "uint8")
GRID = ObservationSpec((7, 7, 3), "uint8")
STATES = ObservationSpec((16,), "float32", (16,), (0,))
MANY_STATES = ObservationSpec((500,), "float32", (500,), (0,))
FORCES = Box((2,), (-1.0, -1.0), (1.0, 1.0))


def chosen(observation: ObservationSpec, action: ActionSpec, scheme: str = "ppo") -> dict[str, Any]:
    settings = settings_by_spaces(EnvironmentSpec("Own", observation, action), scheme)
    config = load_config("run.toml", text=template("Own", scheme, settings, ""))
    assert {setting.name: setting.value for setting in settings} == {s.name: config.value(s.name) for s in settings}
    assert all(setting.reason for setting in settings)
    return {setting.name: setting.value for setting in settings}


@pytest.mark.parametrize("action", [Discrete(4), FORCES])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_numbers_of_unknown_scale_get_what_the_bare_scheme_has(scheme: str, action: ActionSpec) -> None:
    settings = settings_by_spaces(EnvironmentSpec("Own", VECTOR, action), scheme)
    config = load_config("run.toml", text=template("Own", scheme, settings, ""))
    bare = load_config("bare.toml", [f"run.scheme={scheme}"], text=f'env.id = "Own"\nrun.steps = {config.run.steps}\n')
    assert resolved(dataclasses.replace(config, origins=bare.origins)) == resolved(bare)


def test_many_states_get_wide_layers() -> None:
    assert chosen(ObservationSpec((64,), "float32", (64,), (0,)), FORCES) == {}
    assert chosen(MANY_STATES, FORCES)["network.middleware"] == (256, 256)
    assert chosen(ObservationSpec((180,), "float32"), FORCES) == {}


@pytest.mark.parametrize("observation", [GRID, STATES, ObservationSpec((99,), "uint8")])
def test_small_grids_and_few_states_get_nothing(observation: ObservationSpec) -> None:
    """Atari's settings, and observations without normalization, learn less there (examples/results/init.csv)."""
    assert chosen(observation, Discrete(4)) == {}


@pytest.mark.parametrize("observation", [IMAGE, MANY_STATES])
def test_observations_that_are_scaled_already_are_not_normalised(observation: ObservationSpec) -> None:
    assert chosen(observation, Discrete(4))["network.normalize_observations"] is False
    assert "network.normalize_observations" not in chosen(observation, Discrete(4), "dqn")


def test_images_get_the_settings_of_images() -> None:
    keys = chosen(IMAGE, Discrete(4))
    assert (keys["collection.envs"], keys["algorithm.clip_range"]) == (8, 0.1)
    assert [keys[f"algorithm.{name}"] for name in ("epochs", "minibatches", "entropy_weight")] == [4, 4, 0.01]
    assert "network.middleware" not in keys


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("observation", [IMAGE, STATES])
@pytest.mark.parametrize("action", [Discrete(4), FORCES])
def test_every_scheme_takes_its_settings(scheme: str, observation: ObservationSpec, action: ActionSpec) -> None:
    assert "network.normalize_rewards" not in chosen(observation, action, scheme)


def test_the_signs_of_rewards_of_atari_need_no_normalisation_and_a_small_range() -> None:
    spec = EnvironmentSpec("Own", IMAGE, Discrete(4))
    ppo, c51 = ({s.name: s.value for s in settings_by_spaces(spec, scheme, "atari")} for scheme in ("ppo", "c51"))
    assert ppo["network.normalize_rewards"] is False
    assert (c51["algorithm.v_min"], c51["algorithm.v_max"]) == (-10.0, 10.0)
    assert "network.normalize_rewards" not in c51


def test_a_custom_scheme_keeps_all_defaults() -> None:
    assert settings_by_spaces(EnvironmentSpec("Own", VECTOR, FORCES), "mine:topology") == []


@pytest.mark.parametrize(
    ("observation", "action", "words"),
    [
        (VECTOR, Discrete(4), "8 numbers observed, one of 4 actions"),
        (IMAGE, FORCES, "images of 84 x 84 x 4 bytes observed, 2 continuous actions"),
        (STATES, MultiDiscrete((2, 3, 4)), "one of 16 states observed, 3 discrete actions"),
        (
            VECTOR,
            Composite((MultiBinary((3,)), FORCES)),
            "8 numbers observed, 3 bits + 2 continuous actions",
        ),
    ],
)
def test_spaces_in_words(observation: ObservationSpec, action: ActionSpec, words: str) -> None:
    assert spaces_text(EnvironmentSpec("Own", observation, action)) == words
