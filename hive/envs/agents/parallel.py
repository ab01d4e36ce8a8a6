"""Steps environments whose agents all act at once, and writes a row of each agent.

A seat is a policy at the table: some of the agents, each of which has a column of the seat's rows in every environment:
column e * n + i is agent i of n in environment e. An agent that is not there, because it is dead or not yet born, has a
row that is not valid, with its blank observation. When no agent is left, the environment is reset in the same step, and
the row has the first observations of the next episode, as in `hive.envs.vectors.python_vector`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from numpy.typing import NDArray

from hive.envs.agents.bots import Bot
from hive.envs.agents.interface import AgentView
from hive.envs.agents.playable import Seated
from hive.envs.agents.seats import MISSING, EndedEpisode, SeatRows
from hive.envs.vectors import resetting
from hive.envs.vectors.attributes import Pending
from hive.envs.vectors.rows import StepRow

RESULTS = "(observations, rewards, terminations, truncations, infos)"
"""What `step` of a parallel environment returns, each a dictionary by agent."""


class ParallelVector(Seated):
    """`count` environments of several agents, with the agents of each of `seats`, and bots that act for others.

    A seat alone makes a `VectorEnvironment` of it: `hive.envs.agents.alone.Alone`.
    """

    def __init__(
        self,
        id: str,
        environments: Sequence[Any],
        seats: Sequence[SeatRows],
        bots: Sequence[Mapping[str, Bot]],
        reset_options: Sequence[Mapping[str, Any]],
    ) -> None:
        """bots: of each environment, agent -> the bot that acts for it. reset_options: of each, for all its resets."""
        super().__init__(id, environments, seats)
        self.pending = Pending()
        self.tables: list[_Table] = [
            _Table(number, one, self, bots[number], reset_options[number]) for number, one in enumerate(environments)
        ]
        self.each = self.tables
        self.env_steps = 0

    def reset(self, seeds: Sequence[int], observations: Sequence[NDArray[Any]]) -> None:
        """Start an episode in every environment; write the first observations of each seat, [B, ...]."""
        for seat in self.seats:
            seat.begin()
        for table, seed in zip(self.tables, seeds, strict=True):
            table.left = -1
            table.reset(int(seed))
        for seat, out in zip(self.seats, observations, strict=True):
            seat.store(out)

    def step(self, actions: Sequence[NDArray[Any]], rows: Sequence[StepRow]) -> None:
        """Step every environment once with the stored actions of each seat, [B, ...]; write a row of each."""
        for seat, chosen in zip(self.seats, actions, strict=True):
            seat.take(chosen)
        for table in self.tables:
            if table.left:
                table.step()
        self.env_steps += self.count
        for seat, row in zip(self.seats, rows, strict=True):
            seat.write(row)

    def turns(self, seat: int) -> None:
        """Return None: every column has a row in each step."""

    def set_attributes(self, values: Mapping[str, Any]) -> None:
        """Give every environment these values before its next reset."""
        self.pending.set(values)


class _Table:
    """One environment, and who of its agents is there. left: episodes that it still plays; -1: without a limit."""

    def __init__(
        self,
        number: int,
        environment: Any,
        vector: ParallelVector,
        bots: Mapping[str, Bot],
        reset_options: Mapping[str, Any],
    ) -> None:
        self.number = number
        self._reset_options = reset_options
        self._environment = environment
        self._bots = bots
        self._players: dict[Any, tuple[SeatRows, int, AgentView]] = {}  # agent -> its seat and column
        for seat in vector.seats:
            for column, view in seat.columns_of(number):
                self._players[view.agent] = seat, column, view
        self._checks = vector.seats[0].checks
        self._needs_state = any(seat.needs_state for seat in vector.seats)
        self._seats, self._ended = vector.seats, vector.ended
        self._pending = vector.pending
        self._returns: dict[Any, float] = {}  # of the agents, in the running episode
        self.steps = 0  # of the running episode
        self.left = -1
        self._live: list[Any] = []
        self._seen: dict[Any, Any] = {}  # raw observations of agents with a bot

    def reset(self, seed: int | None) -> None:
        """Start an episode."""
        self._pending.apply(self.number, self._environment)
        try:
            result = resetting.begin(self._environment, seed, self._reset_options)
        except BaseException as error:
            raise self._checks.raised_by(error, "reset", self.number) from error
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], Mapping):
            raise self._checks.wrong("reset", result, "(observations, infos), dictionaries by agent", self.number)
        observations, infos = result
        self._returns, self.steps = {}, 0
        for seat, column, view in self._players.values():
            seat.observations[column], seat.present[column] = view.blank, False
        self._live = self._agents(observations)
        if not self._live:
            raise self._checks.wrong_agents("no agent after reset", self.number)
        for bot in self._bots.values():
            bot.begin(seed)
        self._show(self._live, observations, infos)

    def _agents(self, observations: Mapping[Any, Any]) -> list[Any]:
        """Return who acts next: `agents` of the environment, or without it those that have an observation."""
        agents = getattr(self._environment, "agents", None)
        return list(observations if agents is None else agents)

    def _state(self) -> Any:
        try:
            return self._environment.state()
        except BaseException as error:
            raise self._checks.raised_by(error, "state", self.number) from error

    def _show(self, agents: Sequence[Any], observations: Mapping[Any, Any], infos: Any) -> None:
        """Give observations to agents that act next."""
        state = self._state() if self._needs_state else None
        for agent in agents:
            observation = observations.get(agent, MISSING)
            if observation is MISSING:
                raise self._checks.wrong_agents(f"no observation of the live agent `{agent}`", self.number)
            player = self._players.get(agent)
            info = infos.get(agent, {}) if isinstance(infos, Mapping) else {}
            if player is None:
                bot = self._bots.get(str(agent))
                if bot is None:
                    raise self._checks.wrong_agents(
                        f"the agent `{agent}`, which is not in its `possible_agents`", self.number
                    )
                self._seen[agent] = bot.seen(observation, info, self._state)
                continue
            seat, column, view = player
            seat.observations[column] = view.seen(observation, info, state)
            seat.present[column] = True

    def step(self) -> None:
        """Let all live agents act, and reset the environment when none is left."""
        live = self._live
        self.steps += 1
        actions = {
            agent: player[0].actions[player[1]]
            if (player := self._players.get(agent)) is not None
            else self._bots[str(agent)].act(self._seen[agent])
            for agent in live
        }
        try:
            result = self._environment.step(actions)
        except BaseException as error:
            raise self._checks.raised_by(error, "step", self.number) from error
        if not isinstance(result, tuple) or len(result) != 5 or not all(isinstance(one, Mapping) for one in result):
            raise self._checks.wrong("step", result, RESULTS + ", dictionaries by agent", self.number)
        observations, rewards, terminations, truncations, infos = result
        ended = self._credit(live, rewards, terminations, truncations, observations, infos)
        there = self._agents(observations)
        following = [agent for agent in there if agent not in ended]
        if lost := next((agent for agent in live if agent not in ended and agent not in following), None):
            raise self._checks.wrong_agents(
                f"`agents` without `{lost}`, which was neither terminated nor truncated", self.number
            )
        following = [agent for agent in following if agent in live or not _is_over(agent, terminations, truncations)]
        self._live = following
        if following:
            self._show(following, observations, infos)
            return
        for seat in self._seats:
            seat.end_episode(self.number, self._returns)
        self.finish(cut=False)

    def finish(self, *, cut: bool) -> None:
        """Tell of the running episode, which ends, and begin the next one, if there is one. cut: from outside."""
        returns = {str(agent): returned for agent, returned in self._returns.items()}
        infos = dict(chain.from_iterable(seat.take_infos(self.number).items() for seat in self._seats))
        self._ended.append(EndedEpisode(self.number, returns, self.steps, cut, infos))
        self.left -= self.left > 0
        if self.left:
            self.reset(None)

    def _credit(
        self,
        live: Sequence[Any],
        rewards: Mapping[Any, Any],
        terminations: Mapping[Any, Any],
        truncations: Mapping[Any, Any],
        observations: Mapping[Any, Any],
        infos: Mapping[Any, Any],
    ) -> set[Any]:
        """Write the results of the agents that acted; return those whose episode ended."""
        ended, state = set(), None
        for agent in live:
            reward = rewards.get(agent, MISSING)
            terminated, truncated = terminations.get(agent, MISSING), truncations.get(agent, MISSING)
            if reward is MISSING or terminated is MISSING or truncated is MISSING:
                what = "reward" if reward is MISSING else "entry in `terminations` or `truncations`"
                raise self._checks.wrong_agents(f"no {what} of the agent `{agent}`, which acted", self.number)
            if terminated or truncated:
                ended.add(agent)
            player = self._players.get(agent)
            if player is None:
                number = self._checks.reward_of(agent, reward, self.number)
                self._returns[agent] = self._returns.get(agent, 0.0) + number
                continue
            seat, column, view = player
            number = seat.credit(column, reward, bool(terminated), bool(truncated))
            self._returns[agent] = self._returns.get(agent, 0.0) + number
            if terminated or truncated:
                seat.end_infos(column, infos.get(agent, {}))
                if not terminated:
                    if (last := observations.get(agent, MISSING)) is MISSING:
                        raise self._checks.wrong_agents(
                            f"no last observation of the truncated agent `{agent}`", self.number
                        )
                    if self._needs_state and state is None:
                        state = self._state()
                    seat.finals[column] = view.seen(last, infos.get(agent, {}), state, ended=True)
        return ended


def _is_over(agent: Any, terminations: Mapping[Any, Any], truncations: Mapping[Any, Any]) -> bool:
    """Whether an agent that has not acted is dead: some environments keep the dead in `agents`."""
    return bool(terminations.get(agent, False) or truncations.get(agent, False))
