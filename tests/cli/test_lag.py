"""The lag that `hive check` reports: ages by the formulas of the resume barriers, and what removes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hive.schemes
from hive.cli.parts.lag import Lag, helper_line, lag_lines, lags_of
from hive.config import Config, load_config
from hive.runtime import Actor, Topology
from hive.training import Blueprint
from hive.training.run_start import schedule_of

if TYPE_CHECKING:
    from conftest import Place

# A round has 2 x 4 x 8 = 64 steps.
TEXT = """
[run]
scheme = "a2c"
steps = 6400
[env]
id = "CartPole-v1"
[collection]
workers = 2
envs = 4
rollout = 8
"""


def config_of(**values: Any) -> Config:
    return load_config("x.toml", [f"{name.replace('__', '.')}={value}" for name, value in values.items()], text=TEXT)


def found(config: Config) -> list[Lag]:
    lags = lags_of(hive.schemes.build(config, Path()))
    assert lags is not None
    return lags


def test_the_default_of_a2c() -> None:
    config = config_of()
    assert lag_lines(found(config), config) == [
        "lag 1: rollouts are made by a policy that is 1 round old (64 steps, 1 % of run.steps)",
        '     this can cost A2C sample efficiency, most with long rounds (guide, "What lag costs")',
        '     collection.communication = "synchronous" removes it, and collectors then wait for the learner',
    ]


@pytest.mark.parametrize("values", [{"collection__communication": "synchronous"}, {"run__scheme": "single"}])
def test_no_lag(values: dict[str, Any]) -> None:
    config = config_of(**({"collection__workers": 0} if "run__scheme" in values else {}), **values)
    assert lag_lines(found(config), config) == ["lag 0: rollouts and gradients use the newest weights"]


def test_helpers_are_named_where_there_may_be_any() -> None:
    several = config_of(env__vector="python", collection__helpers=2)
    text = "helpers: 2 processes step environments beside each collector (collection.helpers; same bytes)"
    assert helper_line(several) == [text]
    assert "3 processes" in helper_line(config_of(env__vector="python", collection__helpers=9))[0], "one keeps its own"
    for none in (config_of(env__vector="python", collection__helpers=0), config_of(collection__helpers=2)):
        assert helper_line(none) == []  # the second has compiled environments
    for text, processes in {"4 processes": "each", "2 processes": 2, "1 process": 1}.items():
        line = f"environments: {text} beside each collector (env.processes)"
        assert helper_line(config_of(env__processes=processes)) == [line]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"collection__max_lag": 3}, "3 rounds old (192 steps, 3 % of run.steps)"),
        ({"collection__broadcast_interval": 3}, "up to 5 rounds old (320 steps, 5 % of run.steps)"),
        ({"collection__communication": "asynchronous"}, "up to 4 rounds old (256 steps, 4 % of run.steps)"),
    ],
)
def test_the_age_of_the_policy(values: dict[str, Any], words: str) -> None:
    config = config_of(**values)
    lag = config.collection.max_lag
    assert lag_lines(found(config), config)[0] == f"lag {lag}: rollouts are made by a policy that is {words}"


def test_the_age_of_the_policy_is_that_of_the_versions_that_rounds_use() -> None:
    config = config_of(collection__max_lag=2, collection__broadcast_interval=3, checkpoint__every={})
    collection = schedule_of(Blueprint(config)).collection
    ages = {number - 3 * collection.behaviour_version(number) for number in range(50, 100)}
    assert (max(ages), min(ages)) == (found(config)[0].age, 6)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"gradients__communication": "pipelined", "gradients__workers": 2}, "1 update old (64 steps, "),
        ({"gradients__communication": "pipelined", "gradients__bootstrap_rounds": 3}, "1 update old (192 steps, "),
        ({"gradients__communication": "asynchronous", "gradients__workers": 2}, "up to 4 updates old (128 steps, "),
        (
            {
                "run__scheme": "ppo",
                "algorithm__epochs": 2,
                "algorithm__minibatches": 4,
                "gradients__communication": "pipelined",
            },
            "1 update old (8 steps, ",
        ),
        (
            {
                "collection__communication": "asynchronous",
                "gradients__communication": "pipelined",
                "gradients__max_lag": 2,
            },
            "2 updates old (64 steps, ",
        ),
    ],
)
def test_the_age_of_the_weights_of_gradients(values: dict[str, Any], words: str) -> None:
    config = config_of(**values)
    line, removal = lag_lines(found(config), config)[-2:]
    assert line.startswith(f"lag {config.gradients.max_lag}: gradients are computed with weights that are {words}")
    assert removal == '     gradients.communication = "synchronous" removes it, and they then wait for each update'


def test_what_it_costs_depends_on_the_algorithm() -> None:
    lines = {}
    for scheme in ("ppo", "impala", "nstep-q"):
        config = config_of(run__scheme=scheme, collection__broadcast_interval=2)
        lines[scheme] = lag_lines(found(config), config)[1:3]
    assert (
        lines["ppo"][0] == '     this can cost PPO sample efficiency, most with long rounds (guide, "What lag costs")'
    )
    assert lines["impala"][0] == "     V-trace corrects for it"
    assert lines["nstep-q"][0] == (
        '     collection.communication = "synchronous" and collection.broadcast_interval = 1 remove it, '
        "and collectors then wait for the learner"
    )


def test_following_the_advice_removes_the_lag() -> None:
    for scheme in ("a2c", "ppo", "impala", "nstep-q"):
        values = {"run__scheme": scheme, "collection__broadcast_interval": 2}
        settings = [setting for lag in found(config_of(**values)) for setting in lag.removed_by]
        text = TEXT.replace('"a2c"', f'"{scheme}"')
        assert found(load_config("x.toml", settings, text=text)) == []


class Idle(Actor):
    """A topology without a trainer."""


def test_other_topologies_have_no_such_lines() -> None:
    topology = Topology()
    topology.add(Idle, group="learner")
    assert lags_of(topology) is None


def test_it_is_part_of_the_output(place: Place) -> None:
    file = place.config(TEXT)
    assert "lag 1: rollouts are made by a policy that is 1 round old" in place.hive("check", file, "--draw").out
    assert json.loads(place.hive("check", file, "--draw", "--json").out)["lag"] == {
        "rollouts": {
            "of": "rollouts",
            "lag": 1,
            "age": 1,
            "unit": "round",
            "steps": 64,
            "share": 0.01,
            "varies": False,
            "removed_by": ['collection.communication = "synchronous"'],
        }
    }
