"""Agents are grouped by their spaces, and keys of several agents are refused for one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from hive.config import load_config
from hive.envs import Recipe
from hive.envs.agents.interface import describe_agents, has_agents
from hive.envs.spaces.actions import Discrete
from hive.envs.spaces.kinds import kinds_of, patterns_for, spec_of_kind
from hive.envs.spaces.observation import ObservationSpec, observation_spec
from hive.envs.spaces.spec import AgentSpec, EnvironmentSpec
from hive.errors import ConfigError, EnvironmentFailed
from hive.training.policies import check_has_agents


def with_values(kind: type, **values: Any) -> Any:
    """An object of the class with these attributes."""
    made = kind()
    made.__dict__.update(values)
    return made


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
    ("bounds", "scale"),
    [
        (((0, 10), (0, 1000)), ((0.0,), (1000.0,))),
        (((0, 10), (0, 10)), ((0.0,), (10.0,))),
        (((5, 10), (-(2**31), 2**31 - 1)), ((0.0,), (10.0,))),  # the second declares nothing
        (((0, 10), (0, [20, 5])), ((0.0, 0.0), (20.0, 10.0))),
    ],
)
@pytest.mark.parametrize("is_part", [False, True])
def test_agents_of_a_kind_have_the_scale_of_all_their_bounds(bounds: Any, scale: Any, is_part: bool) -> None:
    specs = []
    for low, high in bounds:
        box = spaces.Box(np.full(2, low), np.broadcast_to(high, 2), dtype=np.int32)
        specs.append(observation_spec("Env", spaces.Dict(x=box) if is_part else box))
    agents = tuple(AgentSpec(name, spec, Discrete(2)) for name, spec in zip("ab", specs, strict=True))
    assert kinds_of(agents) == {"agents": ["a", "b"]}
    kind = spec_of_kind(EnvironmentSpec("Env", specs[0], Discrete(2), agents=agents), ["a", "b"])
    (array,) = kind.observation.inputs
    assert (array.low, array.high) == scale


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


class Box:
    """A space for each agent by a method."""

    def observation_space(self, agent: Any) -> spaces.Space[Any]:
        return spaces.Box(0, 1, (1,), np.float32)

    def action_space(self, agent: Any) -> spaces.Space[Any]:
        return spaces.Discrete(2)


class MultiAgentEnv(gymnasium.Env[Any, Any]):
    """As RLlib's class of this name: a gymnasium.Env whose spaces are of one agent, or of all."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


ONE, TWO = spaces.Discrete(2), spaces.Discrete(3)


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        (with_values(Box, possible_agents=["b", "a"]), ["b", "a"]),
        (with_values(Box, possible_agents=("b", "a")), ["b", "a"]),
        (with_values(Box, possible_agents={"b": 0, "a": 0}), ["b", "a"]),
        (with_values(Box, possible_agents={"b": 0, "a": 0}.keys()), ["b", "a"]),
        (with_values(Box, possible_agents={"b", "a"}), ["a", "b"]),
        (with_values(Box, possible_agents=frozenset({10, 9})), ["9", "10"]),
        (with_values(Box, possible_agents=np.array(["b", "a"])), ["b", "a"]),
        (with_values(Box, possible_agents=np.arange(2)), ["0", "1"]),
        (with_values(Box, _agent_ids={"b", "a"}, agents=[]), ["a", "b"]),
        (with_values(Box, agents=["b", "a"]), ["b", "a"]),
        (MultiAgentEnv(_agent_ids={1, 0}, observation_space=ONE, action_space=TWO), ["0", "1"]),
        (MultiAgentEnv(agents=["a"], observation_spaces={"a": ONE}, action_spaces={"a": TWO}), ["a"]),
        (MultiAgentEnv(agents=["a"], observation_space=spaces.Dict({"a": ONE}), action_space=TWO), ["a"]),
    ],
)
def test_agents_may_be_listed_in_any_collection(environment: Any, names: list[str]) -> None:
    assert has_agents(environment)
    spec = describe_agents("Env", environment, Recipe("Env"))
    assert [one.name for one in spec.agents] == names


@pytest.mark.parametrize("listed", [2, "ab", lambda: ["a"]])
def test_what_lists_no_names_is_refused(listed: Any) -> None:
    with pytest.raises(EnvironmentFailed, match="`possible_agents` of `Env` is of type"):
        describe_agents("Env", with_values(Box, possible_agents=listed), Recipe("Env"))


def test_a_single_agent_may_have_an_attribute_of_this_name() -> None:
    class Single(gymnasium.Env[Any, Any]):
        observation_space, action_space = ONE, TWO
        possible_agents = agents = ("a", "b")

    assert not has_agents(Single())
    assert not has_agents(with_values(Box, agents=[object()]))
