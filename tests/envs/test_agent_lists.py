"""Environments with a reward for each part of a Tuple of actions have several agents, others with such spaces one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from hive.envs.agents.interface import describe_agents, has_agents
from hive.envs.agents.lists import ListedAgents, lists_agents
from hive.envs.agents.parallel import ParallelVector
from hive.envs.agents.table import seat_of_all, table_of
from hive.envs.recipe import Recipe
from hive.envs.vectors.rows import StepRow


class Pair(gymnasium.Env[Any, Any]):
    """Two agents, of which the first ends after two steps and the second after three. form: of rewards and flags."""

    observation_space: Any = spaces.Tuple([spaces.Box(0, 9, (2,), np.float32)] * 2)
    action_space: Any = spaces.Tuple([spaces.Discrete(3)] * 2)

    def __init__(self, form: Any = list) -> None:
        self.form = form
        self.taken: list[Any] = []

    def look(self) -> Any:
        return tuple(np.array([self.at, agent], np.float32) for agent in range(2))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at = 0
        return self.look(), {"at": 0}

    def step(self, action: Any) -> Any:
        self.at += 1
        self.taken.append(tuple(map(int, action)))
        rewards = [1.0 + action[0], 10.0 + action[1]]
        return self.look(), self.form(rewards), self.form([self.at > 1, self.at > 2]), False, {"at": self.at}


def test_each_part_of_the_tuple_is_an_agent() -> None:
    environment = Pair()
    assert lists_agents(environment)
    assert not hasattr(environment, "at")  # a copy was played
    made = ListedAgents(environment)
    assert has_agents(made)
    recipe = Recipe("games:Pair", info=("at",))
    spec = describe_agents(recipe.id, made, recipe)
    assert [agent.name for agent in spec.agents] == ["agent_0", "agent_1"]
    table = table_of([recipe], [made], [seat_of_all("", spec)])
    assert isinstance(table, ParallelVector)
    row = StepRow.allocate(spec.observation, 2, 1)
    table.reset([0], [row.observations])
    assert row.observations.tolist() == [[0, 0], [0, 1]]
    for actions, valid, rewards in (([1, 2], [1, 1], [2, 12]), ([0, 1], [1, 1], [1, 11]), ([2, 0], [0, 1], [0, 10])):
        row.finals.count = 0
        table.step([np.array(actions)], [row])
        assert (row.valid.tolist(), row.rewards.tolist()) == (valid, rewards)
    assert environment.taken == [(1, 2), (0, 1), (0, 0)]  # the first agent has ended
    (ended,) = table.ended
    assert (ended.steps, ended.returns) == (3, {"agent_0": 2.0 + 1.0 + 1.0, "agent_1": 12.0 + 11.0 + 10.0})


class Named(Pair):
    """The same by name; the first agent acts no more once it has ended."""

    observation_space = spaces.Dict({0: Pair.observation_space[0], 1: Pair.observation_space[1]})
    action_space = spaces.Dict({0: spaces.Discrete(3), 1: spaces.Discrete(3)})

    def reset(self, **arguments: Any) -> Any:
        return dict(enumerate(super().reset()[0])), {}

    def step(self, action: Any) -> Any:
        assert [*action] == ([0, 1] if self.at < 2 else [1])
        observations, rewards, ends, *_ = super().step((action.get(0, 0), action[1]))
        cut = {"__all__": False}
        return dict(enumerate(observations)), dict(enumerate(rewards)), dict(enumerate(ends)), cut, {"step": self.at}


def test_each_part_of_a_dictionary_is_an_agent() -> None:
    assert lists_agents(Named())
    made = ListedAgents(Named())
    recipe = Recipe("games:Named")
    spec = describe_agents(recipe.id, made, recipe)
    table = table_of([recipe], [made], [seat_of_all("", spec)])
    assert isinstance(table, ParallelVector)
    row = StepRow.allocate(spec.observation, 2)
    table.reset([0], [row.observations])
    for _ in range(3):
        table.step([np.array([1, 2])], [row])
    (ended,) = table.ended
    assert (ended.steps, ended.returns) == (3, {"0": 2.0 + 2.0 + 1.0, "1": 36.0})


class Joint(Named):
    """One agent with the same spaces."""

    def step(self, action: Any) -> Any:
        return super().step(action)[0], 1.0, False, False, {}


@pytest.mark.parametrize("form", [tuple, np.array])
def test_rewards_may_be_any_sequence(form: Any) -> None:
    assert lists_agents(Pair(form))


class Stuck(Pair):
    n_agents = 2

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("cannot be copied")


class Uncopied(Stuck):
    n_agents = 1


class Rest(Pair):
    observation_space = spaces.Box(0, 9, (2,), np.float32)


class Listed(Pair):
    observation_space, action_space = [spaces.Discrete(2)] * 2, [spaces.Discrete(3)] * 2


@pytest.mark.parametrize(
    ("environment", "several"),
    [(Stuck(), True), (Uncopied(), False), (Rest(), False), (Pair(max), False), (Listed(), True), (Joint(), False)],
)
def test_which_environments_have_a_reward_for_each(environment: Any, several: bool) -> None:
    assert lists_agents(environment) == several
