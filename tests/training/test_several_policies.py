"""Which policy acts for which agents, what each learns with, and under which name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from agent_games import Episode, Meeting, Move, TurnGame
from gymnasium import spaces

from hive.config import Config, load_config
from hive.envs import EnvironmentSpec
from hive.envs.agents.interface import describe_agents
from hive.envs.recipe import Recipe
from hive.errors import ConfigError
from hive.training.policies import Policies, check_has_agents, folder_of

WIDE = ("wide_0", "wide_1")


class Kinds(Meeting):
    """Agents whose name begins with "wide" see four numbers instead of three; "many" has other actions."""

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-1, 1, (4,), np.float32) if agent.startswith("wide") else super().observation_space(agent)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(7) if agent.startswith("many") else super().action_space(agent)


def spec_of(*names: str, turns: bool = False) -> EnvironmentSpec:
    episode = Episode(names, [Move(names[0], terminates=names)])
    made = TurnGame(names, [episode]) if turns else Kinds(names, [episode])
    return describe_agents("games:Game", made, Recipe("games:Game"))


def config_of(rows: str = "", *overrides: str) -> Config:
    return load_config("run.toml", ["run.seed=5", *overrides], text=f'[env]\nid = "games:Game"\n{rows}')


def divided(names: Sequence[str], rows: str = "", *overrides: str) -> dict[str, tuple[str, ...]]:
    policies = Policies.of(config_of(rows, *overrides), spec_of(*names))
    return {one.name: one.seat.agents for one in policies.learning}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("a", "b"), {"agents": ("a", "b")}),
        (("wide_0", "slim_0", "wide_1", "slim_1"), {"wide": WIDE, "slim": ("slim_0", "slim_1")}),
        (("wide_0", "slim", "thin"), {"wide": ("wide_0",), "policy1": ("slim", "thin")}),
        (("wide", "many_1", "Slim-2"), {"wide": ("wide",), "many": ("many_1",), "slim": ("Slim-2",)}),
        (("wide_0", "many_0", "wide-1", "0"), {"wide": ("wide_0", "wide-1"), "many": ("many_0",), "policy2": ("0",)}),
        (("policy1_0", "wide_0", "wide_x"), {"policy1": ("policy1_0",), "policy2": ("wide_0", "wide_x")}),
        (("wide" + "x" * 20, "b"), {"wide" + "x" * 12: ("wide" + "x" * 20,), "b": ("b",)}),
    ],
)
def test_without_policies_agents_with_equal_spaces_share_one(
    names: tuple[str, ...], expected: dict[str, tuple[str, ...]]
) -> None:
    assert divided(names) == expected


def test_patterns() -> None:
    rows = '[policies]\nsecond = ["b*", "c"]\nfirst = "a_[0-9]"\n'
    assert divided(("a_1", "b", "a_2", "bb", "c"), rows) == {"second": ("b", "bb", "c"), "first": ("a_1", "a_2")}


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ('first = "a*"', r"the agent `b_0` of `games:Game` has no policy"),
        ('first = "*"\nsecond = "b*"', r"the agent `b_0` .* has the policies `first` and `second`"),
        ('first = "*"\nsecond = "z*"', r"the policy `second` has no agents: none of `games:Game` fits \"z\*\""),
        (
            'first = "*_0"\nsecond = "wide_1"',
            r"observations of the agents `a_0` and `wide_0`, .* policy `first`, differ",
        ),
    ],
)
def test_what_does_not_fit_the_environment(rows: str, text: str) -> None:
    names = ("a_0", "b_0", "wide_0", "wide_1") if "wide" in rows else ("a_0", "b_0")
    with pytest.raises(ConfigError, match=text):
        divided(names, f"[policies]\n{rows}\n")


def test_actions_that_differ() -> None:
    with pytest.raises(ConfigError, match=r"the actions of the agents `a` and `many`, which share .* `all`, differ"):
        divided(("a", "many"), '[policies]\nall = "*"\n')


def test_a_run_has_something_to_train() -> None:
    with pytest.raises(ConfigError, match="every policy is scripted or has weights"):
        divided(("a",), '[policies.bot]\nagents = "a"\nscripted = "bots.py:Bot"\n')


def test_one_agent_needs_no_policies() -> None:
    check_has_agents(config_of())
    with pytest.raises(ConfigError, match="`games:Game` has one agent, which needs no table of policies"):
        check_has_agents(config_of('[policies]\nall = "*"\n'))


def test_each_policy_learns_with_a_seed_and_values_of_its_own() -> None:
    rows = '[policies]\none = "a"\ntwo = "b"\n[policies.three]\nagents = "c"\nalgorithm = { discount = 0.5 }\n'
    policies = Policies.of(config_of(rows, "run.stop_at_return=7"), spec_of("a", "b", "c"))
    configs = [one.config for one in policies.learning]
    seeds = [config.run.seed for config in configs]
    assert seeds[0] == 5
    assert len({*seeds}) == 3
    assert [config.algorithm.discount for config in configs] == [0.99, 0.99, 0.5]
    assert [config.run.stop_at_return for config in configs] == [7.0, None, None]
    assert all(not config.policies and not config.learners for config in configs)
    assert [folder_of(one) for one in policies.learning] == ["", "policies/two", "policies/three"]
    again = Policies.of(config_of(rows), spec_of("a", "b", "c"))
    assert [one.config.run.seed for one in again.learning] == seeds
    other = Policies.of(config_of(rows, "run.seed=6"), spec_of("a", "b", "c"))
    assert not {*seeds} & {one.config.run.seed for one in other.learning}


def test_a_policy_keeps_its_seed_whatever_bots_come_before_it() -> None:
    rows = '[policies]\none = "a"\ntwo = "b"\n[policies.bot]\nagents = "c"\nscripted = "bots.py:Bot"\n'
    first = '[policies.bot]\nagents = "c"\nscripted = "bots.py:Bot"\n[policies]\none = "a"\ntwo = "b"\n'
    made = [Policies.of(config_of(text), spec_of("a", "b", "c")) for text in (rows, first)]
    seeds = [[one.config.run.seed for one in each.learning] for each in made]
    assert seeds[0] == seeds[1]
    assert [*made[0].bots] == [*made[1].bots] == ["c"]


def test_the_returns_of_all_agents_are_among_the_values_of_info() -> None:
    rows = '[policies]\none = "a"\ntwo = "b"\n'
    policies = Policies.of(config_of(rows, 'env.info=["won"]'), spec_of("a", "b"))
    for one in policies.learning:
        assert one.config.env.info == ("won", "return/a", "return/b", "return/team")
    many = [f"a_{number}" for number in range(20)]
    (alone,) = Policies.of(config_of(), spec_of(*many)).learning
    assert alone.config.env.info == ("return/team",)


@pytest.mark.parametrize(
    ("rows", "turns", "needed"),
    [("", False, False), ("", True, True), ('[policies]\none = "a"\ntwo = "b"\n', False, True)],
)
def test_when_a_table_is_needed(rows: str, turns: bool, needed: bool) -> None:
    assert Policies.of(config_of(rows), spec_of("a", "b", turns=turns)).needs_table == needed
