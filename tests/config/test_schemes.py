from __future__ import annotations

from typing import Any

import pytest

from hive.config import load_config
from hive.config.keys import keys_of
from hive.config.schema import SECTIONS
from hive.config.schemes import SCHEMES

ENV = '[env]\nid = "CartPole-v1"\n'


@pytest.mark.parametrize(
    ("scheme", "name", "value"),
    [(scheme, name, value) for scheme, defaults in SCHEMES.items() for name, value in defaults.items()],
)
def test_each_default_of_a_scheme_is_a_valid_value_of_a_key(scheme: str, name: str, value: Any) -> None:
    section, key = name.split(".")
    assert keys_of(SECTIONS[section])[key].fault(value) is None
    config = load_config("x.toml", [f"run.scheme={scheme}"], text=ENV)
    assert config.value(name) == value
    assert config.origin(name) == f"scheme {scheme}"


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


def test_a_scheme_of_ones_own_changes_no_default() -> None:
    own = load_config("x.toml", ["run.scheme=my.schemes:build"], text=ENV)
    assert own.differences(load_config("x.toml", text=ENV)) == ["run.scheme"]
