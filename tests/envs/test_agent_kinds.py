"""Agents are grouped by their spaces, and keys of several agents are refused for one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from hive.config import load_config
from hive.envs import Recipe
from hive.envs.agents.interface import describe_agents
from hive.envs.spaces.actions import Discrete
from hive.envs.spaces.kinds import kinds_of, patterns_for
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.spaces.spec import AgentSpec
from hive.errors import ConfigError, EnvironmentFailed
from hive.training.policies import check_has_agents


def agents(**sizes: int) -> list[AgentSpec]:
    return [AgentSpec(name, ObservationSpec((size,), "float32"), Discrete(2)) for name, size in sizes.items()]


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        ({"red_0": 3, "red_1": 3}, {"agents": ["red_0", "red_1"]}),
        ({"red_0": 3, "blue_0": 4, "red_1": 3}, {"red": ["red_0", "red_1"], "blue": ["blue_0"]}),
        ({"a": 3, "b": 4, "c": 3}, {"policy0": ["a", "c"], "b": ["b"]}),
        ({"red_0": 3, "red_1": 4}, {"red": ["red_0"], "policy1": ["red_1"]}),
    ],
)
def test_kinds_are_named_after_their_agents(given: dict[str, int], kinds: dict[str, list[str]]) -> None:
    assert kinds_of(agents(**given)) == kinds


@pytest.mark.parametrize(
    ("names", "others", "patterns"),
    [
        (["red_0"], ["red_1"], "red_0"),
        (["red_0", "red_1"], ["blue_0"], "red_*"),
        (["red_0", "red_1"], ["red_2"], ["red_0", "red_1"]),
        (["a", "c"], ["b"], ["a", "c"]),
        (["odd*", "odd?"], ["odd1"], ["odd[*]", "odd[?]"]),
    ],
)
def test_a_pattern_fits_the_agents_of_a_kind_alone(names: list[str], others: list[str], patterns: Any) -> None:
    assert patterns_for(names, [*names, *others]) == patterns


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        (["run.scheme=mappo"], "the scheme `mappo` is for several agents, and `CartPole-v1` has one"),
        (["env.state=true"], "env.state is for several agents, and `CartPole-v1` has one"),
        (["env.agent_index=true"], "env.agent_index is for several agents, and `CartPole-v1` has one"),
    ],
)
def test_keys_of_several_agents_are_refused_for_one(sets: list[str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_has_agents(load_config("x.toml", sets, text='env.id = "CartPole-v1"'))
    assert str(caught.value) == text
    assert caught.value.hint


class Named:
    possible_agents = ("a",)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Dict({"agent": spaces.Box(-1.0, 1.0, (2,), np.float32), "x": spaces.Discrete(2)})

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)


def test_a_part_with_the_name_of_hives_is_refused() -> None:
    describe_agents("Named", Named(), Recipe("Named"))
    with pytest.raises(EnvironmentFailed, match="`Named` have a part `agent`, the name of what hive adds") as caught:
        describe_agents("Named", Named(), Recipe("Named", agent_index=True))
    assert caught.value.hint == "rename the part, or leave out env.agent_index"
