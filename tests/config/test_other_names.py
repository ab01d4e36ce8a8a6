"""Keys of other trainers get a hint with hive's name."""

from __future__ import annotations

import pytest

from hive.config import load_config
from hive.config.algorithms import ALGORITHMS
from hive.config.keys import keys_of
from hive.config.other_names import OTHER_NAMES
from hive.config.schema import SECTIONS
from hive.errors import ConfigError

TABLES = [*SECTIONS.items(), *(("algorithm", table) for table in ALGORITHMS.values())]
KEYS = {f"{section}.{name}" for section, table in TABLES for name in keys_of(table)}


def test_they_lead_to_keys_that_there_are() -> None:
    assert set(OTHER_NAMES.values()) <= KEYS


def test_none_is_a_key_or_a_table_itself() -> None:
    """It would be told of, where it should be taken."""
    assert not OTHER_NAMES.keys() & {key.partition(".")[2] for key in KEYS}
    assert not OTHER_NAMES.keys() & SECTIONS.keys()


def test_they_are_in_order_and_there_once() -> None:
    assert list(OTHER_NAMES) == sorted(OTHER_NAMES)


@pytest.mark.parametrize("place", ["[algorithm]\ngamma = 0.9", "[run]\ngamma = 0.9", "gamma = 0.9", "[gamma]\nx = 1"])
def test_the_error_says_the_name_wherever_it_stands(place: str) -> None:
    with pytest.raises(ConfigError, match=r"hive calls it `algorithm\.discount`"):
        load_config("a.toml", text=f'{place}\n[env]\nid = "CartPole-v1"\n')


def test_an_override_says_it_too() -> None:
    with pytest.raises(ConfigError, match=r"hive calls it `collection\.rollout`"):
        load_config("a.toml", ["collection.n_steps=5"], text='[env]\nid = "CartPole-v1"\n')
