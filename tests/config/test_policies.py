"""[policies]: rows, what is wrong with them, what each policy learns with, and files that hive writes."""

from __future__ import annotations

import re

import pytest

from hive.config import Config, DQNConfig, PPOConfig, load_config, render, resolved
from hive.errors import ConfigError

HEAD = """[env]
id = "games:Game"
[run]
scheme = "ppo"
[algorithm]
learning_rate = 0.5
[network]
middleware = [32]
"""
TEXT = (
    HEAD
    + """[policies]
hunter = "adversary_*"
[policies.prey]
agents = ["agent_*", "other"]
algorithm = { learning_rate = 0.25, epochs = 2 }
network = { middleware = [64, 8] }
[policies.judge]
agents = "judge"
scripted = "bots.py:Judge"
[policies.old]
agents = "old"
weights = "runs/old"
"""
)


def config_of(rows: str = TEXT, *overrides: str) -> Config:
    return load_config("run.toml", list(overrides), text=rows)


def test_rows_are_read_in_their_order() -> None:
    config = config_of()
    assert [*config.policies] == ["hunter", "prey", "judge", "old"]
    assert config.policies["hunter"].agents == ("adversary_*",)
    assert config.policies["prey"].agents == ("agent_*", "other")
    assert [row.learns for row in config.policies.values()] == [True, True, False, False]
    assert (config.policies["judge"].scripted, config.policies["old"].weights) == ("bots.py:Judge", "runs/old")


def test_a_policy_learns_with_its_own_values_and_otherwise_with_the_runs() -> None:
    config = config_of()
    hunter, prey = config.learner("hunter"), config.learner("prey")
    assert isinstance(prey.algorithm, PPOConfig)
    assert (config.algorithm.learning_rate, hunter.algorithm.learning_rate) == (0.5, 0.5)
    assert (prey.algorithm.learning_rate, prey.algorithm.epochs) == (0.25, 2)
    assert (hunter.network.middleware, prey.network.middleware) == ((32,), (64, 8))
    for learner in (hunter, prey):
        assert not learner.policies
        assert not learner.learners
        assert (learner.run, learner.env, learner.collection) == (config.run, config.env, config.collection)


@pytest.mark.parametrize("key", ["weights", "scripted"])
def test_a_policy_that_set_makes_fixed_has_no_tables_of_its_own(key: str) -> None:
    row = config_of(HEAD + '[policies]\na = "a"\nb = { agents = "b", network = { middleware = [8] } }\n')
    assert row.policies["b"].given
    fixed = load_config("run.toml", [f"policies.b.{key}=bots.py:Judge"], text=render(row)).policies["b"]
    assert (fixed.learns, fixed.agents, fixed.given) == (False, ("b",), {})


def test_another_algorithm_begins_with_its_own_defaults() -> None:
    rows = '[policies]\na = "a"\n[policies.b]\nagents = "b"\nalgorithm = { name = "dqn", batch_size = 16 }\n'
    learner = config_of(HEAD + rows).learner("b")
    usual = load_config("x", ["env.id=games:Game", "run.scheme=dqn"], text="").algorithm
    assert isinstance(learner.algorithm, DQNConfig)
    assert isinstance(usual, DQNConfig)
    assert learner.algorithm.batch_size == 16
    assert learner.algorithm.learning_rate == usual.learning_rate  # not the run's 0.5


@pytest.mark.parametrize("scheme", ["ppo", "dqn"])
def test_another_algorithm_learns_from_the_rollouts_of_the_run(scheme: str) -> None:
    """Its formulas use them, not those that a run of its own would have."""
    rows = '[policies]\na = "a"\n[policies.b]\nagents = "b"\nalgorithm = { name = "sac" }\n'
    config = load_config("run.toml", ["env.id=games:Game", f"run.scheme={scheme}"], text=rows)
    learner, alone = config.learners["b"], load_config("x", ["env.id=games:Game", "run.scheme=sac"], text="")
    assert (learner.collection, learner.run, learner.checkpoint) == (config.collection, config.run, config.checkpoint)
    assert alone.collection != config.collection
    round_steps = config.collection.envs * config.collection.rollout * config.collectors
    own = load_config("x", ["env.id=games:Game", "run.scheme=sac", f"collection.rollout={round_steps}"], text="")
    assert learner.algorithm == own.algorithm


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("policies.prey.algorithm.learning_rate=0.125", "learning_rate", 0.125),
        ("policies.prey.algorithm.discount=0.75", "discount", 0.75),
        ("policies.hunter.algorithm.learning_rate=0.125", "learning_rate", 0.125),
    ],
)
def test_an_override_of_one_policy(override: str, key: str, value: float) -> None:
    """The row's other keys stay, also where it is a pattern alone."""
    config, usual = config_of(TEXT, override), config_of()
    name = override.split(".")[1]
    assert getattr(config.learner(name).algorithm, key) == value
    assert config.policies[name].agents == usual.policies[name].agents
    assert config.algorithm == usual.algorithm
    if name == "prey":
        assert config.learner("prey").algorithm.epochs == 2
        assert config.learner("prey").network == usual.learner("prey").network


def test_an_override_of_the_run_is_that_of_policies_without_own_values() -> None:
    config = config_of(TEXT, "algorithm.learning_rate=0.0625", "algorithm.discount=0.5")
    assert [config.learner(name).algorithm.learning_rate for name in ("hunter", "prey")] == [0.0625, 0.25]
    assert [config.learner(name).algorithm.discount for name in ("hunter", "prey")] == [0.5, 0.5]


def test_a_policy_by_override_alone() -> None:
    config = config_of(HEAD, 'policies.one="a*"', 'policies.two={agents=["b"], algorithm={learning_rate=0.125}}')
    assert [row.agents for row in config.policies.values()] == [("a*",), ("b",)]
    assert config.learner("two").algorithm.learning_rate == 0.125


OVERRIDES = [
    [],
    ["policies.hunter.network.middleware=[4]"],
    ["algorithm.discount=0.5"],
    ["policies.other={agents=['z'], algorithm={name='dqn', batch_size=16}}"],
    ["policies.other={agents=['z'], algorithm={name='sac'}, network={memory_size=4}}"],
    ["collection.envs=3", "algorithm.epochs=7"],
]


@pytest.mark.parametrize("overrides", OVERRIDES)
def test_what_is_rendered_loads_as_the_same_config(overrides: list[str]) -> None:
    config = config_of(TEXT, *overrides)
    for text in (render(config), resolved(config).decode()):
        again = load_config("resolved.toml", text=text)
        assert again == config
        assert {**again.policies} != {}
        for name in config.policies:
            assert again.learner(name) == config.learner(name)
        assert render(again).count("[policies") == render(config).count("[policies")


def test_a_resolved_config_keeps_the_values_of_a_policy_though_defaults_change_with_the_run() -> None:
    """Its file has all values of the policy's tables."""
    again = load_config("resolved.toml", ["algorithm.discount=0.5"], text=render(config_of()))
    assert again.learner("hunter").algorithm.discount == 0.5
    assert again.learner("prey").algorithm.discount == config_of().algorithm.discount


def test_differences_name_the_policy() -> None:
    assert config_of().differences(config_of(TEXT, "policies.prey.algorithm.learning_rate=0.125")) == [
        "policies.prey.algorithm"
    ]


def row(text: str) -> str:
    return f'[policies]\nother = "x"\n[policies.p]\n{text}\n'


WRONG: dict[str, tuple[str, str]] = {
    "no agents": (row("algorithm = { learning_rate = 0.1 }"), r"policies\.p.*missing key `agents`"),
    "no pattern": (row("agents = []"), "expected at least one pattern"),
    "an empty pattern": (row('agents = ["a", ""]'), "expected at least one pattern"),
    "patterns of another type": (row("agents = [1]"), "expected a pattern such as"),
    "a row of another type": ("[policies]\np = 3\n", "expected a pattern of agents, or a table"),
    "a key that is close": (row('agent = "a"'), "unknown key; did you mean `agents`?"),
    "a key of the run": (row('agents = "a"\nlearning_rate = 0.1'), "unknown key; its own keys are in the tables"),
    "another table": (row('agents = "a"\ncollection = { envs = 2 }'), "unknown key"),
    "no table": (row('agents = "a"\nalgorithm = 3'), "expected a table, got 3"),
    "an unknown key of the algorithm": (row('agents = "a"\nalgorithm = { learn = 0.1 }'), "learn.*unknown key"),
    "a value out of range": (row('agents = "a"\nalgorithm = { learning_rate = -1 }'), "learning_rate"),
    "an unknown algorithm": (row('agents = "a"\nalgorithm = { name = "none" }'), "name"),
    "an unknown key of the network": (row('agents = "a"\nnetwork = { middle = [1] }'), "middle.*unknown key"),
    "scripted and weights": (row('agents = "a"\nscripted = "b.py:B"\nweights = "r"'), "scripted or has weights"),
    "scripted that learns": (
        row('agents = "a"\nscripted = "b.py:B"\nalgorithm = { learning_rate = 0.1 }'),
        "a policy with `scripted` does not learn: leave algorithm out",
    ),
    "weights that learn": (
        row('agents = "a"\nweights = "r"\nnetwork = { middleware = [1] }'),
        "a policy with `weights` does not learn: leave network out",
    ),
    "scripted that is no reference": (row('agents = "a"\nscripted = "Bot"'), 'expected "package.module:name"'),
    "weights of another type": (row('agents = "a"\nweights = 3'), "expected a text, got 3"),
    "a long name": (f'[policies]\n{"n" * 17} = "a"\n', "at most 16 lower-case letters"),
    "a name in capitals": ('[policies]\nHunter = "a"\n', "lower-case letters"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_row(name: str) -> None:
    rows, text = WRONG[name]
    with pytest.raises(ConfigError) as caught:
        config_of(HEAD + rows)
    shown = str(caught.value)
    assert re.search(text, shown, re.DOTALL), shown
    assert "run.toml:" in shown


def test_all_problems_are_told_at_once_with_their_lines() -> None:
    rows = HEAD + row('agents = "a"\nalgorithm = { learning_rate = -1 }\nnetwork = { middle = [1] }')
    with pytest.raises(ConfigError) as caught:
        config_of(rows)
    shown = str(caught.value)
    line = rows[: rows.index("algorithm = {")].count("\n") + 1
    assert f"run.toml:{line}" in shown
    assert f"run.toml:{line + 1}" in shown
