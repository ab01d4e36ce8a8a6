"""The table of what algorithms refuse: its errors, and the guide, which shows the rows about replay memories."""

from __future__ import annotations

from pathlib import Path

import pytest

from hive.config import Config, load_config
from hive.config.refusals import KEYS, Refusal, guide_table
from hive.errors import ConfigError

GUIDE = Path(__file__).parents[2] / "examples" / "guide" / "replay.md"
REFUSED = {
    "network.memory": "gru",
    "network.module": "mine:Own",
    "network.noisy_deviation": "0.5",
    "network.novelty_weight": "0.5",
    "network.reward_clip": "5.0",
    "gradients.communication": "asynchronous",
    "gradients.decentralized": "true",
    "gradients.bootstrap_rounds": "2",
    "collection.fraction_workers": "0.5",
}
"""Key -> a value that is refused."""

EVERY = [(row, name) for row in KEYS for name in row.algorithms]


def load(algorithm: str, *given: str) -> Config:
    return load_config("run.toml", given, text=f'[run]\nscheme = "{algorithm}"\n[env]\nid = "CartPole-v1"\n')


@pytest.mark.parametrize(("row", "name"), EVERY, ids=[f"{row.what}-{name}" for row, name in EVERY])
def test_a_refused_key_is_an_error_with_its_reason_and_a_way_out(row: Refusal, name: str) -> None:
    with pytest.raises(ConfigError, match=r"^1 problem in ") as caught:
        load(name, f"{row.what}={REFUSED[row.what]}")
    blamed = "default" if name == "a2c" else f"scheme {name}"
    assert f'algorithm.name = "{name}" ({blamed}) {row.reason}: {row.instead}' in str(caught.value)


@pytest.mark.parametrize("what", REFUSED)
def test_other_algorithms_take_these_values(what: str) -> None:
    """A row that named all algorithms would be a limit of its key."""
    takers = {"a2c", "nstep-q"} - {name for row in KEYS if row.what == what for name in row.algorithms}
    assert takers
    for name in takers:
        assert load(name, f"{what}={REFUSED[what]}", "gradients.workers=2")


def test_no_default_is_refused() -> None:
    for row, name in EVERY:
        assert not row.is_refused(load(name).value(row.what)), (row.what, name)


def test_the_guide_has_the_table() -> None:
    assert guide_table() in GUIDE.read_text()
