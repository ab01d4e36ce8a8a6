"""Agents that act only in some steps have turns: who acts when, and the sums of rewards in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from hive.envs.agents.interface import acts_in_turn
from hive.envs.agents.parallel import AgentWaits, ParallelVector
from hive.envs.agents.table import seat_of_all, table_of
from hive.envs.agents.turns import TurnsVector
from hive.envs.agents.waiting import InTurn, described_agents
from hive.envs.recipe import Recipe
from hive.envs.vectors.rows import StepRow
from hive.errors import EnvironmentFailed
from hive.records.run_warnings import OLD_OBSERVATIONS

RECIPE = Recipe("games:Lights")


class Lights:
    """Agent i acts in every (i + 1)th step, and gets its action + 10 i in every step. form: who is in `agents`."""

    def __init__(self, agents: int = 3, steps: int = 7, form: str = "acting") -> None:
        self.possible_agents = [f"light_{number}" for number in range(agents)]
        self.steps, self.form = steps, form
        self.taken: list[Any] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 99, (2,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def look(self) -> dict[str, Any]:
        """The acting agents see how many steps were made, and their number."""
        everyone = enumerate(self.possible_agents)
        return {
            name: np.array([self.at, i], np.float32)
            for i, name in everyone
            if self.at % (i + 1) == 0 or self.at >= self.steps
        }

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.at = 0
        self.agents = list(self.possible_agents)
        self.doing = dict.fromkeys(self.agents, 0)
        return self.look(), {}

    def step(self, actions: Mapping[str, Any]) -> Any:
        self.taken.append({name: int(action) for name, action in actions.items()})
        self.doing |= self.taken[-1]
        self.at += 1
        over, seen = self.at >= self.steps, self.look()
        self.agents = [] if over else list(seen) if self.form == "acting" else list(self.possible_agents)
        rewards = {name: self.doing[name] + 10.0 * i for i, name in enumerate(self.possible_agents)}
        flags = {"__all__": over} if self.form == "rllib" else dict.fromkeys(self.possible_agents, over)
        none = {"__all__": False} if self.form == "rllib" else dict.fromkeys(self.possible_agents, False)
        return seen, rewards, flags, none, {name: {"at": self.at} for name in seen}


def seated(environment: Any) -> TurnsVector:
    spec = described_agents(RECIPE, environment)
    assert spec.takes_turns
    environment.taken.clear()
    table = table_of([RECIPE], [environment], [seat_of_all("", spec)])
    assert isinstance(table, TurnsVector)
    table.reset([0])
    return table


@pytest.mark.parametrize("form", ["acting", "all", "rllib"])
def test_rewards_are_summed_until_an_agent_acts_again(form: str) -> None:
    environment = Lights(steps=4, form=form)
    table = seated(environment)
    (game,) = table.games
    turns, rows = [], []
    while not table.ended:
        turns.append((int(game.turn.observation[0]), game.turn.column))
        game.act(1 + game.turn.column % 2)
        rows += [(done.column, done.reward, done.terminated) for done in game.completed]
    assert turns == [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1), (3, 0), (3, 2)]
    assert environment.taken == [
        {"light_0": 1, "light_1": 2, "light_2": 1},
        {"light_0": 1},
        {"light_0": 1, "light_1": 2},
        {"light_0": 1, "light_2": 1},
    ]
    assert [row[1:] for row in rows if row[0] == 0] == [(1.0, False)] * 3 + [(1.0, True)]
    assert [row[1:] for row in rows if row[0] == 1] == [(24.0, False), (24.0, True)]
    assert [row[1:] for row in rows if row[0] == 2] == [(63.0, False), (21.0, True)]
    (ended,) = table.ended
    assert (ended.steps, ended.returns) == (4, {"light_0": 4.0, "light_1": 48.0, "light_2": 84.0})
    assert table.env_steps == 4


def test_agents_that_always_act_are_played_at_once() -> None:
    environment = Lights(agents=1)
    assert not described_agents(RECIPE, environment).takes_turns


def test_an_agent_that_waits_later_only_is_named_with_a_way_out() -> None:
    class Late(Lights):
        def look(self) -> dict[str, Any]:
            seen = {name: np.array([self.at, 0], np.float32) for name in self.possible_agents}
            return dict(list(seen.items())[:1]) if self.at == 30 else seen

    environment = Late(steps=40)
    spec = described_agents(RECIPE, environment)
    assert not spec.takes_turns
    table = table_of([RECIPE], [environment], [seat_of_all("", spec)])
    assert isinstance(table, ParallelVector)
    row = StepRow.allocate(spec.observation, 3)
    table.reset([0], [row.observations])
    for _ in range(29):
        table.step([np.zeros(3, int)], [row])
    with pytest.raises(AgentWaits, match=r"games:Lights returned .*light_1") as caught:
        table.step([np.zeros(3, int)], [row])
    assert "repeat the last observation" in caught.value.hint


class Chess(Lights):
    """Two agents act in turn: the other one is rewarded. RLlib's form, in which nothing is told of who waits."""

    def look(self) -> dict[str, Any]:
        name = self.possible_agents[self.at % 2]
        return {name: np.array([self.at, self.at % 2], np.float32)}

    def step(self, actions: Mapping[str, Any]) -> Any:
        (actor,) = actions
        self.taken.append({actor: int(actions[actor])})
        self.at += 1
        (other,) = {*self.possible_agents} - {actor}
        rewards = {other: float(actions[actor])}
        return self.look(), rewards, {"__all__": self.at >= self.steps}, {"__all__": False}, {}


def test_a_game_in_turn_in_the_form_of_rllib() -> None:
    table = seated(Chess(agents=2, steps=3))
    (game,) = table.games
    rows = []
    for action in (1, 2, 1):
        game.act(action)
        rows += [(done.column, done.reward, done.terminated) for done in game.completed]
    assert rows == [(0, 2.0, False), (0, 0.0, True), (1, 1.0, True)]
    assert table.ended[0].returns == {"light_0": 2.0, "light_1": 2.0}


class Truncated(Chess):
    """Ends by a limit, at which both agents see something, or only the one that would act."""

    def __init__(self, *, shows: bool) -> None:
        super().__init__(agents=2, steps=3)
        self.shows = shows

    def step(self, actions: Mapping[str, Any]) -> Any:
        seen, rewards, over, _, infos = super().step(actions)
        if self.shows:
            seen = {name: np.array([self.at, i], np.float32) for i, name in enumerate(self.possible_agents)}
        return seen if over["__all__"] or not self.shows else self.look(), rewards, {"__all__": False}, over, infos


@pytest.mark.parametrize("shows", [True, False])
def test_the_last_observation_of_the_truncated_is_the_newest_and_an_older_one_is_told(shows: bool) -> None:
    table = seated(Truncated(shows=shows))
    (game,) = table.games
    for _ in range(3):
        game.act(0)
    finals = {done.column: done.final.tolist() for done in game.completed if done.truncated}
    assert finals == {0: [3, 0] if shows else [2, 0], 1: [3, 1]}
    assert [one.kind for one in table.notices.warnings()] == [OLD_OBSERVATIONS] * (not shows)


def test_steps_in_which_no_agent_acts_are_made_with_no_actions() -> None:
    class Rare(Lights):
        def look(self) -> dict[str, Any]:
            return super().look() if self.at % 3 == 0 else {}

    environment = Rare(agents=2, steps=6, form="all")
    table = seated(environment)
    (game,) = table.games
    game.act(1)
    game.act(1)
    assert environment.taken == [{"light_0": 1, "light_1": 1}, {}, {}]
    assert table.env_steps == 3
    assert [done.reward for done in game.completed] == [3.0]


def test_an_environment_in_which_nobody_acts_any_more() -> None:
    class Silent(Lights):
        def look(self) -> dict[str, Any]:
            return super().look() if self.at == 0 else {}

    table = seated(Silent(agents=2, steps=10**9, form="all"))
    table.games[0].act(0)
    with pytest.raises(EnvironmentFailed, match="no agent had an observation in 10,000 steps"):
        table.games[0].act(0)


def test_the_form_of_pettingzoo() -> None:
    environment = InTurn(Lights(agents=2, steps=2))
    assert acts_in_turn(environment)
    environment.reset(seed=1)
    acted: list[Any] = []
    for agent in environment.agent_iter():
        _, reward, terminated, truncated, _ = environment.last()
        acted.append((agent, reward, terminated))
        environment.step(None if terminated or truncated else 1)
    assert acted == [
        ("light_0", 0.0, False),
        ("light_1", 0.0, False),
        ("light_0", 1.0, False),
        ("light_0", 1.0, True),
        ("light_1", 22.0, True),
    ]
