"""Environments of several agents that write their observations into memory of their own, or into one for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from hive.envs import StepRow
from hive.envs.agents.interface import describe_agents
from hive.envs.agents.table import seat_of_all, table_of
from hive.envs.recipe import Recipe

SHARED = np.zeros(1, np.float32)


class Counts:
    """One agent counts the steps of an episode of three, from 10 times the number of the environment on."""

    possible_agents = ("a", "b")

    def __init__(self, number: int = 0, memory: Any = None) -> None:
        self.number, self.memory = number, np.zeros(1, np.float32) if memory is None else memory
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-100, 100, (1,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def _seen(self) -> Any:
        self.memory[0] = 10 * self.number + self.at
        return dict.fromkeys(self.possible_agents, self.memory)

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        self.at, self.agents = 0, list(self.possible_agents)
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        self.at += 1
        over, acted = self.at == 3, self.agents
        self.agents = [] if over else self.agents
        each = dict.fromkeys
        return self._seen(), each(acted, 1.0), each(acted, False), each(acted, over), {a: {} for a in acted}

    def close(self) -> None: ...


def table(memories: list[Any]) -> Any:
    recipe = Recipe("test:Counts")
    environments = [Counts(number, memory) for number, memory in enumerate(memories)]
    spec = describe_agents(recipe.id, environments[0], recipe)
    return table_of([recipe] * len(environments), environments, [seat_of_all("", spec)])


def played(made: Any, steps: int) -> list[StepRow]:
    (seat,) = made.seats
    rows = [StepRow.allocate(seat.observation, seat.count) for _ in range(steps + 1)]
    made.reset(range(made.count), [rows[0].observations])
    for row in rows[1:]:
        made.step([np.zeros(seat.count, np.int64)], [row])
    return rows


@pytest.mark.parametrize("steps", [2, 40])
def test_environments_in_one_memory_have_their_own_observations(steps: int) -> None:
    for number, row in enumerate(played(table([SHARED, SHARED]), steps)):
        assert row.observations[:, 0].tolist() == [number % 3, number % 3, 10 + number % 3, 10 + number % 3]


def test_the_last_observation_is_kept_from_the_reset_that_follows() -> None:
    last = played(table([None]), 3)[-1]
    assert last.observations[:, 0].tolist() == [0.0, 0.0]
    assert last.finals.observations[last.final_index, 0].tolist() == [3.0, 3.0]
