"""No default excludes a value that a user gives: it follows a formula, or that of the scheme gives way to the key's.

Every scheme is loaded with every key in turn, at legal values other than the scheme's. A config that is refused is
refused for what the user has written: the key, and the scheme by one of the keys that define it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from hive.config import SCHEMES, Config, load_config
from hive.config.formulas import FORMULAS
from hive.config.keys import Key, keys_of
from hive.config.rules import RULES
from hive.config.schema import SECTIONS
from hive.config.schemes import DEFINING
from hive.config.values import toml_text
from hive.errors import ConfigError

NUMBERS = (0, 1, 2, 3, 0.25, 0.5, 10, 100)
STRINGS = ("mine:Own", "none", "info", "1/8", "head")
TABLES = ({"updates": 10}, {"seconds": 5.0})
RESTRICTED = {name for rule in RULES for name in (rule.name, *rule.others)} | {formula.name for formula in FORMULAS}
OF_SCHEME = re.compile(r"(\w+\.\w+)(?: = | is )\S+ \(scheme")


def load(scheme: str, *given: str) -> Config:
    text = f'[run]\nscheme = "{scheme}"\n[env]\nid = "CartPole-v1"\n'
    return load_config("run.toml", given, text=text)


def other_values(key: Key, usual: Any) -> Iterator[Any]:
    """Legal values of a key, as TOML has them, that are not `usual`."""
    candidates: dict[type, tuple[Any, ...]] = {bool: (True, False), str: (*key.limits.choices, *STRINGS)}
    for value in candidates.get(key.kind, (*NUMBERS, *TABLES)):
        converted = key.kind(value) if key.kind in (int, float) and not isinstance(value, dict) else value
        wrapped = [converted] if key.is_array else converted
        if key.fault(wrapped) is None and (tuple(wrapped) if key.is_array else wrapped) != usual:
            yield wrapped
    if key.is_array and usual and key.fault([]) is None:
        yield []


def shown(value: Any) -> str:
    return (
        f"{{{', '.join(f'{name}={one}' for name, one in value.items())}}}" if type(value) is dict else toml_text(value)
    )


def given_keys(scheme: str, names: set[str] | None, most: int) -> Iterator[str]:
    """KEY=VALUE for keys with these names, or all, each with at most so many values."""
    config = load(scheme)
    for section in SECTIONS:
        table = getattr(config, section)
        for name, key in keys_of(type(table)).items():
            full = f"{section}.{name}"
            if full != "run.scheme" and (names is None or full in names):
                values = other_values(key, getattr(table, name))
                yield from (f"{full}={shown(value)}" for _, value in zip(range(most), values, strict=False))


def refused_for_a_default(scheme: str, given: str) -> str:
    """The error of a config that is refused although only a default of the scheme is at fault."""
    try:
        load(scheme, given)
    except ConfigError as error:
        blamed = set(OF_SCHEME.findall(str(error)))
        return str(error) if blamed - set(DEFINING) else ""
    return ""


@pytest.mark.rotates
@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_default_of_a_scheme_excludes_a_value_of_a_restricted_key(scheme: str) -> None:
    assert [text for given in given_keys(scheme, RESTRICTED, 2) if (text := refused_for_a_default(scheme, given))] == []


@pytest.mark.full(reason="keys without a rule have no part in a refusal")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_default_of_a_scheme_excludes_a_value(scheme: str) -> None:
    assert [text for given in given_keys(scheme, None, 20) if (text := refused_for_a_default(scheme, given))] == []


@pytest.mark.parametrize(
    ("scheme", "given", "key", "value"),
    [
        ("sac", "network.hidden_gain=1.0", "network.initialization", "orthogonal"),
        ("sac", "network.value_gain=0.5", "network.initialization", "orthogonal"),
        ("a3c", "collection.communication=pipelined", "collection.slots", 3),
        ("dd-ppo", "collection.communication=asynchronous", "collection.fraction_workers", 1.0),
        ("rainbow", "algorithm.name=sac", "network.noisy_deviation", 0.0),
        ("rainbow", "network.module=mine:Own", "algorithm.exploration_start", 1.0),
        ("rainbow", "network.noisy_deviation=0.0", "algorithm.exploration_end", 0.01),
        ("rainbow", "network.noisy_deviation=0.2", "algorithm.exploration_end", 0.0),
        ("rapid", "collection.workers=3", "gradients.workers", 1),
        ("rapid", "collection.workers=6", "gradients.workers", 2),
        ("rapid", "gradients.workers=3", "collection.workers", 6),
        ("a3c", 'collection.hosts=["head"]', "collection.workers", 2),
        ("dqn", "collection.rollout=5", "algorithm.updates_per_step", "2/5"),
        ("dqn", "collection.rollout=1", "algorithm.updates_per_step", "1"),
        ("dqn", "collection.envs=3", "algorithm.updates_per_step", "1/2"),
        ("dqn", "gradients.workers=10", "algorithm.batch_size", 70),
        ("sac", "run.steps=80", "algorithm.learning_starts", 8),
        ("sac", "run.steps=3", "algorithm.learning_starts", 0),
    ],
)
def test_a_default_follows_what_is_given(scheme: str, given: str, key: str, value: Any) -> None:
    assert load(scheme, given).value(key) == value


def test_a_default_that_yields_is_no_longer_that_of_the_scheme() -> None:
    assert load("sac").origin("network.initialization") == "algorithm sac"
    assert load("sac", "network.value_gain=0.5").origin("network.initialization") == "default"


def test_a_scheme_is_not_blamed_for_what_it_set() -> None:
    with pytest.raises(ConfigError, match=r"^1 problem in ") as caught:
        load("sac", "network.module=mine:Own")
    assert 'algorithm.name = "sac" (scheme sac) has networks of an actor and of critics' in str(caught.value)
    assert "initialization" not in str(caught.value)


def test_a_key_that_is_given_does_not_yield() -> None:
    with pytest.raises(ConfigError, match=r"network\.initialization = .* has no gains"):
        load("sac", "network.value_gain=0.5", "network.initialization=uniform")
    assert (
        load("dqn", "collection.rollout=10", "algorithm.updates_per_step=1/4").value("algorithm.updates_per_step")
        == "1/4"
    )


def test_a_wrong_key_is_reported_once_where_a_default_yields() -> None:
    with pytest.raises(ConfigError, match=r"^1 problem in "):
        load("sac", "network.value_gain=0.5", "run.seed=-1")
