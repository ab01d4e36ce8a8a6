"""Games of several agents that follow a script, so that every row of theirs is known; and what their rows must be.

`TurnGame` and `Meeting` have the methods of PettingZoo's two interfaces and none of its code. `turn_rows` and
`meeting_rows` compute the rows from the script and the actions alone, agent by agent, in plain Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

ACTIONS = 3


class Move(NamedTuple):
    """A turn of `agent`. rewards: of any agents, times 1 + its action. Who ends and who is born follows from it."""

    agent: str
    rewards: Mapping[str, float] = {}
    terminates: Sequence[str] = ()
    truncates: Sequence[str] = ()
    born: Sequence[str] = ()


class Row(NamedTuple):
    """What an agent learns from one turn or step. following: what it saw next; None after a termination.

    returned, length: of its episode if that ended, else 0.
    """

    observation: tuple[float, ...]
    action: int
    reward: float
    terminated: bool
    truncated: bool
    following: tuple[float, ...] | None
    returned: float
    length: int


@dataclass
class Episode:
    """agents: who is there at first. moves: of a TurnGame, or the steps of a Meeting."""

    agents: Sequence[str]
    moves: Sequence[Move]


class Scripted:
    """What both kinds of games have in common: an observation is [episode, moves so far, position of the agent]."""

    def __init__(self, names: Sequence[str], episodes: Sequence[Episode]) -> None:
        self.possible_agents = list(names)
        self.agents: list[str] = []
        self.episodes = list(episodes)
        self.number = -1
        self.at = 0
        self.seeds: list[int | None] = []
        self.log: list[Any] = []  # actions
        self.closed = False

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(ACTIONS)

    def observe(self, agent: str) -> Any:
        return np.array(seen(self.number, self.at, self.possible_agents.index(agent)), np.float32)

    def begin(self, seed: int | None) -> Episode:
        self.seeds.append(seed)
        self.number += 1
        self.at = 0
        episode = self.episode = self.episodes[self.number % len(self.episodes)]
        self.agents = list(episode.agents)
        return episode

    def close(self) -> None:
        self.closed = True


class TurnGame(Scripted):
    """Agents act in turn, as in PettingZoo's AECEnv.

    deads: when an agent that has ended has its last turn: "first", at once; "last", after all moves; "never": it has
    none, and is no longer among the agents.
    """

    def __init__(self, names: Sequence[str], episodes: Sequence[Episode], deads: str = "first") -> None:
        super().__init__(names, episodes)
        self.deads = deads

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.begin(seed)
        self.dead: list[str] = []
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self._select()

    def agent_iter(self, max_iter: int = 2**63) -> Any:
        raise NotImplementedError

    def last(self, observe: bool = True) -> Any:
        agent = self.agent_selection
        flags = self.terminations[agent], self.truncations[agent]
        return self.observe(agent), self._cumulative_rewards[agent], *flags, self.infos[agent]

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            assert action is None
            self.agents.remove(agent)
            self.dead.remove(agent)
        else:
            self._move(agent, int(action))
        self._select()

    def _move(self, agent: str, action: int) -> None:
        move = self.episode.moves[self.at]
        assert move.agent == agent
        self.log.append(action)
        self.at += 1
        self._cumulative_rewards[agent] = 0.0
        for other in move.born:
            self.agents.append(other)
            self._cumulative_rewards[other], self.infos[other] = 0.0, {}
            self.terminations[other] = self.truncations[other] = False
        for other, reward in move.rewards.items():
            self._cumulative_rewards[other] += reward * (1 + action)
        for ended, flags in ((move.terminates, self.terminations), (move.truncates, self.truncations)):
            for other in ended:
                flags[other] = True
                self.infos[other] = {"moves": float(self.at)}
                (self.agents.remove if self.deads == "never" else self.dead.append)(other)

    def _select(self) -> None:
        over = self.at == len(self.episode.moves)
        if self.dead and (over or self.deads == "first"):
            self.agent_selection = self.dead[0]
        elif not over:
            self.agent_selection = self.episode.moves[self.at].agent


class Meeting(Scripted):
    """Agents act at once, as in PettingZoo's ParallelEnv: move t has the rewards of step t, times 1 + own action."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.begin(seed)
        return {agent: self.observe(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, Any]) -> Any:
        assert set(actions) == set(self.agents)
        acted, move = self.agents, self.episode.moves[self.at]
        self.log.append({agent: int(action) for agent, action in actions.items()})
        self.at += 1
        ended = {*move.terminates, *move.truncates}
        self.agents = [agent for agent in acted if agent not in ended] + list(move.born)
        told = [*acted, *move.born]
        return (
            {agent: self.observe(agent) for agent in told},
            {agent: move.rewards.get(agent, 0.0) * (1 + int(actions[agent])) for agent in acted},
            {agent: agent in move.terminates for agent in told},
            {agent: agent in move.truncates for agent in told},
            {agent: {"moves": float(self.at)} if agent in ended else {} for agent in told},
        )


def seen(number: int, at: int, position: int) -> tuple[float, float, float]:
    """What the agent at a position sees after `at` moves of episode `number`."""
    return float(number), float(at), float(position)


@dataclass
class _Agent:
    """An agent of the reference, in one episode. open: what it saw and did at its last turn."""

    open: tuple[tuple[float, ...], int] | None = None
    reward: float = 0.0  # since then
    returned: float = 0.0
    length: int = 0
    ended: str = ""
    told: bool = False
    rows: list[Row] = field(default_factory=list)

    def complete(self, following: tuple[float, ...]) -> None:
        if self.open is not None:
            self.length += 1
            end = (self.returned, self.length) if self.ended else (0.0, 0)
            then = None if self.ended == "terminated" else following
            flags = self.ended == "terminated", self.ended == "truncated"
            self.rows.append(Row(*self.open, self.reward, *flags, then, *end))
        self.told, self.reward, self.open = bool(self.ended), 0.0, None


def turn_rows(game: TurnGame, learning: Sequence[str]) -> dict[str, list[Row]]:
    """The rows that the actions of a game's log make, of each of these agents; other agents are bots.

    The last row of all is that which ends where one of them is to act next.
    """
    found: dict[str, list[Row]] = {agent: [] for agent in game.possible_agents}
    log, number = iter(game.log), 0
    while True:
        episode = game.episodes[number % len(game.episodes)]
        agents = {name: _Agent(rows=rows) for name, rows in found.items()}
        for at in range(len(episode.moves) + 1):
            over = at == len(episode.moves)
            for position, name in enumerate(game.possible_agents):
                agent = agents[name]
                if agent.ended and not agent.told and (over or game.deads == "first"):
                    agent.complete(seen(number, at, position))
            if over:
                break
            move = episode.moves[at]
            mover, sees = agents[move.agent], seen(number, at, game.possible_agents.index(move.agent))
            mover.complete(sees)
            action = next(log, None)
            if action is None:
                assert move.agent in learning
                return {name: found[name] for name in learning}
            mover.open = sees, action
            for name, reward in move.rewards.items():
                agents[name].reward += reward * (1 + action)
                agents[name].returned += reward * (1 + action)
            for kind, names in (("terminated", move.terminates), ("truncated", move.truncates)):
                for name in names:
                    agents[name].ended = kind
        number += 1


def meeting_rows(game: Meeting, agent: str) -> list[Row | None]:
    """The rows of an agent, one of each step of the log; None where it was not there."""
    rows: list[Row | None] = []
    log, number, position = iter(game.log), 0, game.possible_agents.index(agent)
    while True:
        episode = game.episodes[number % len(game.episodes)]
        live, returned, length = agent in episode.agents, 0.0, 0
        for at, move in enumerate(episode.moves):
            actions = next(log, None)
            if actions is None:
                return rows
            if live:
                reward = move.rewards.get(agent, 0.0) * (1 + actions[agent])
                returned, length = returned + reward, length + 1
                terminated, truncated = agent in move.terminates, agent in move.truncates
                end = (returned, length) if terminated or truncated else (0.0, 0)
                following = None if terminated else seen(number, at + 1, position)
                flags = terminated, truncated
                rows.append(Row(seen(number, at, position), actions[agent], reward, *flags, following, *end))
                live = not (terminated or truncated)
            else:
                rows.append(None)
            live = live or agent in move.born
        number += 1
