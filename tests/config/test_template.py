"""The config that `hive init` writes: few keys, each with a reason."""

from __future__ import annotations

import tomllib

import pytest

from hive.config import SCHEMES, Setting, load_config, reasoned, template, tuned_tasks
from hive.config.templates import WATCHED
from hive.config.values import toml_text
from hive.errors import ConfigError

ORIGIN = "Chosen for a test."
TASKS = [(env_id, scheme) for env_id, schemes in tuned_tasks().items() if env_id != "ALE/..." for scheme in schemes]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "my.package:Environment", 'odd "name" #\\'])
def test_it_works_and_changes_no_other_default(env_id: str) -> None:
    config = load_config("run.toml", text=template(env_id, "ppo", [], ORIGIN))
    assert config.env.id == env_id
    assert config == load_config("run.toml", text=f"[env]\nid = {toml_text(env_id)}\n")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_has_the_defaults_of_its_scheme(scheme: str) -> None:
    text = template("CartPole-v1", scheme, [], ORIGIN)
    assert load_config("run.toml", text=text) == load_config("run.toml", [f"run.scheme={scheme}"], text=text)
    assert list(tomllib.loads(text)) == ["run", "env"]


@pytest.mark.parametrize(("env_id", "scheme"), [("", "a2c"), ("CartPole-v1", "nothing")])
def test_one_that_cannot_work_is_not_written(env_id: str, scheme: str) -> None:
    with pytest.raises(ConfigError, match="1 problem in `template`"):
        template(env_id, scheme, [], ORIGIN)


def test_keys_that_differ_have_their_reason_and_their_default() -> None:
    settings = [
        Setting("collection.envs", 16, "is the default"),
        Setting("collection.rollout", 64, "for fun"),
        Setting("run.stop_at_return", 475.0, "solved"),
    ]
    lines = template("CartPole-v1", "ppo", settings, ORIGIN).splitlines()
    assert lines[0] == f"# {ORIGIN}"
    assert "`hive up FILE`" in lines[1]
    assert "`hive config FILE`" in lines[1]
    assert lines[3:] == [
        "[run]",
        *(line for line in lines if line.startswith(("scheme =", "steps ="))),
        "stop_at_return = 475.0              # solved; default none",
        "",
        "[env]",
        *(line for line in lines if line.startswith("id =")),
        "",
        "[collection]",
        "rollout = 64                        # for fun; default 128",
        *WATCHED.format(count=20, steps=25_000).splitlines(),
    ]


def test_a_reason_has_the_numbers_of_the_config() -> None:
    keys = {
        "collection.envs": 4,
        "collection.rollout": 100,
        "algorithm.discount": 0.98,
        "algorithm.minibatches": 8,
        "algorithm.value_loss_weight": 1.0,
    }
    reasons = {setting.name: setting.reason for setting in reasoned(keys, "CartPole-v1", "ppo")}
    assert reasons["collection.rollout"].endswith("400 together")
    assert reasons["algorithm.minibatches"].endswith("each from 50 steps")
    assert "next 50 steps" in reasons["algorithm.discount"]
    assert reasons["algorithm.value_loss_weight"] == "weight of the value loss in the total loss"


@pytest.mark.parametrize(("env_id", "scheme"), TASKS)
def test_tuned_ones_are_short(env_id: str, scheme: str) -> None:
    entry = tuned_tasks()[env_id][scheme]
    text = template(env_id, scheme, reasoned(entry.keys, env_id, scheme), entry.source)
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 120
    assert all(" # " in line for line in lines if " = " in line and not line.startswith("#"))


def test_the_lines_that_record_evaluations_load_without_their_marks() -> None:
    text = template("CartPole-v1", "ppo", [], ORIGIN)
    head, _, watched = text.partition("# [evaluation]")
    config = load_config("x", text=head + ("# [evaluation]" + watched).replace("# ", "", 3))
    assert (config.evaluation.every, config.evaluation.videos) == ({"steps": 25_000}, 1)
