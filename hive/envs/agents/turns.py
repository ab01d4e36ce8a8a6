"""Plays environments whose agents act one after the other, turn by turn.

    agent_selection has its turn, and `last()` is what came since its last one:
        reward, ends     complete its last row: the rewards of other agents' turns are summed into it
        observation      begins its next row

An agent that has ended has one more turn, in which it learns its last reward and does nothing; so the loser of a game
gets its -1 after the opponent's last move. A waiting agent has no row. When no agent is left, the environment is reset
and goes on to the next turn of an agent that learns; bots act in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hive.envs.agents.bots import Bot
from hive.envs.agents.interface import AgentView
from hive.envs.agents.notices import Clearing
from hive.envs.agents.playable import Seated
from hive.envs.agents.seats import MISSING, EndedEpisode, EndInfos, SeatRows, end_episode
from hive.envs.agents.waiting import InTurn
from hive.envs.vectors.resetting import Resets
from hive.envs.vectors.rows import StepRow
from hive.envs.vectors.shared_buffers import copied
from hive.errors import EnvironmentFailed

MOST_EPISODES = 1000
"""Episodes in a row in which no agent that learns has a turn; the environment then never gives it one."""


class Completed(NamedTuple):
    """The row of an agent's last turn, which its next turn or its end completes.

    column: of the agent in its seat. final: the last observation, of a truncated agent only.
    """

    seat: int
    column: int
    reward: float
    terminated: bool
    truncated: bool
    final: Any


class Turn(NamedTuple):
    """The turn of an agent: what it sees."""

    seat: int
    column: int
    observation: Any


class TurnsVector(Seated):
    """`count` environments of agents that act in turn. Arguments: as of `hive.envs.agents.parallel.ParallelVector`."""

    def __init__(self, id: str, seats: Sequence[SeatRows], bots: Sequence[Mapping[str, Bot]], resets: Resets) -> None:
        super().__init__(id, resets, seats)
        self.games: list[Game] = [Game(number, resets, seats, bots[number], self) for number in range(self.count)]
        self.each = self.games

    @property
    def env_steps(self) -> int:
        """Turns in which an agent has acted, or steps (`Game.steps`), in all environments since they were made."""
        return sum(game.turns for game in self.games)

    def reset(self, seeds: Sequence[int], observations: Sequence[NDArray[Any]] | None = None) -> None:
        """Start an episode in every environment.

        observations: of each seat, [B, ...]; they get what the agents see whose turn it is.
        """
        for seat in self.seats:
            seat.begin()
        for game, seed in zip(self.games, seeds, strict=True):
            game.left = -1
            game.begin(int(seed))
        if observations is not None:
            for seat, out in zip(self.seats, observations, strict=True):
                seat.store(out)  # blank ones
            for game in self.games:
                self._show(game, observations)

    def _show(self, game: Game, observations: Sequence[NDArray[Any]]) -> None:
        turn = game.turn
        self.seats[turn.seat].checks.one(turn.column, turn.observation, observations[turn.seat])

    def turns(self, seat: int) -> NDArray[np.int64]:
        """Return the columns of a seat whose turn it is."""
        return np.array([game.turn.column for game in self.games if game.left and game.turn.seat == seat], np.int64)

    def step(self, actions: Sequence[NDArray[Any]], rows: Sequence[StepRow]) -> None:
        """Play a turn of every environment, with the stored actions of each seat, [B, ...].

        A row gets the observations of the next turns, and which columns ended; all count as valid, since a column that
        does not act keeps its episode.
        """
        acting = {game.turn.seat for game in self.games if game.left}
        taken = {seat: self.seats[seat].environment_actions(actions[seat]) for seat in acting}
        for row in rows:
            row.terminated[:], row.truncated[:], row.valid[:] = 0, 0, 1
        for game in self.games:
            if not game.left:
                continue
            game.act(taken[game.turn.seat][game.turn.column])
            for done in game.completed:
                if done.terminated or done.truncated:
                    rows[done.seat].terminated[done.column] = 1
                    self.seats[done.seat].ended(done.column)
            if game.left:
                self._show(game, [row.observations for row in rows])


class Game:
    """One environment. turn: whose turn it is. completed: the rows that are complete since the last call of `act`.

    left: episodes that it still plays, -1 without a limit; with 0 nobody has a turn.
    """

    turn: Turn

    def __init__(
        self,
        number: int,
        resets: Resets,
        seats: Sequence[SeatRows],
        bots: Mapping[str, Bot],
        vector: TurnsVector,
    ) -> None:
        """resets: has the environments."""
        self.number = number
        self._resets = resets
        self._environment = resets.environments[number]
        self._bots = bots
        self._seats = seats
        self._players: dict[Any, tuple[int, int, AgentView]] = {}
        for position, seat in enumerate(seats):
            for column, view in seat.columns_of(number):
                self._players[view.agent] = position, column, view
        self._checks = seats[0].checks
        self._ended, self._notices, self._pending = vector.ended, vector.notices, vector.pending
        self._clearing = Clearing()
        self.turns = 0
        self.left = -1
        self.completed: list[Completed] = []

    def begin(self, seed: int | None) -> None:
        """Start an episode, and go to the first turn of an agent that learns."""
        self.completed = []
        self._reset(seed)
        self._advance()
        if self.left:  # a copy, which the reset of another environment does not change
            self.turn = self.turn._replace(observation=copied(self.turn.observation))

    def act(self, action: Any) -> None:
        """Take an action of the agent whose turn it is, as the environment takes it; go to the next turn."""
        self.completed = []
        self._acted.add(self._agent)
        self._step(action)
        self._advance()

    def _reset(self, seed: int | None) -> None:
        environments = self._resets.environments
        try:
            self._resets.begin(self.number, seed, lambda one: self._pending.apply(one, environments[one]))
        except BaseException as error:
            raise self._checks.raised_by(error, "reset", self.number) from error
        self._environment = environments[self.number]
        for bot in self._bots.values():
            bot.begin(seed)
        self._acted: set[Any] = set()  # agents that have acted in this episode
        self._over: set[Any] = set()  # agents that have ended
        self._returns: dict[Any, float] = {}
        self._earlier: dict[Any, float] = {}  # the returns of those that have begun another life, before that
        self._sums: dict[Any, float] = {}  # of those that have had their last turn: the sum of rewards after it
        self._infos, self._clearing = EndInfos(), self._clearing.anew()
        self._begun = self.turns
        self._notices.begin(self.number)

    def _begin_life(self, agent: Any) -> None:
        """Let an agent that has ended act again."""
        self._over.discard(agent)
        self._acted.discard(agent)
        self._sums.pop(agent, None)
        self._earlier[agent] = self._returns.get(agent, 0.0)

    def _step(self, action: Any) -> None:
        environment = self._environment
        before = environment.made if isinstance(environment, InTurn) else None
        if action is not None:
            self._infos.go_on()
        try:
            environment.step(action)
        except BaseException as error:
            raise self._checks.raised_by(error, "step", self.number) from error
        self.turns += action is not None if before is None else environment.made - before
        if action is not None and not self._clearing.is_known:
            self._clearing.stepped(self._agent, getattr(environment, "rewards", None))

    def _sum_of(self, agent: Any) -> float:
        """Return the sum of rewards of an agent that has no turn any more; 0 where there is none."""
        sums = getattr(self._environment, "_cumulative_rewards", None) or {}
        return self._checks.reward_of(agent, sums.get(agent, 0.0), self.number)

    def _advance(self) -> None:
        episodes = dead_turns = 0
        while True:
            agent = self._agent = self._selected()
            if agent is None:
                self._end_episode()
                if not self.left:
                    return
                episodes += 1
                if episodes > MOST_EPISODES:
                    raise self._checks.wrong_agents(
                        f"{MOST_EPISODES:,} episodes in which no agent that learns had a turn", self.number
                    )
                self._reset(None)
                dead_turns = 0
                continue
            observation, reward, terminated, truncated, info = self._last_of(agent)
            ends = bool(terminated or truncated)
            player = self._players.get(agent)
            if agent in self._over and not ends:
                self._begin_life(agent)
            if agent not in self._over:
                self._credit(agent, player, reward, bool(terminated), bool(truncated), observation, info)
            dead_turns = dead_turns + 1 if ends else 0
            if dead_turns > len(self._players) + len(self._bots):
                raise self._checks.wrong_agents(
                    f"turns of ended agents only, such as `{agent}`, without removing them from `agents`", self.number
                )
            if ends:
                self._step(None)
                self._sums[agent] = self._sum_of(agent)
            elif player is None:
                bot = self._bot(agent)
                self._step(bot.act(bot.seen(observation, info, self._environment_state)))
            else:
                seat, column, view = player
                self.turn = Turn(seat, column, view.seen(observation, info, self._state(view)))
                self._notices.compare_turn(self._seats[seat].agents, self.number, agent, self.turn.observation)
                return

    def _selected(self) -> Any:
        """Return the agent whose turn it is, None if none is left."""
        try:
            return self._environment.agent_selection if self._environment.agents else None
        except BaseException as error:
            raise self._checks.raised_by(error, "step", self.number) from error

    def _last_of(self, agent: Any) -> tuple[Any, Any, Any, Any, Any]:
        try:
            result = self._environment.last()
        except BaseException as error:
            raise self._checks.raised_by(error, "last", self.number) from error
        if not isinstance(result, tuple) or len(result) != 5:
            raise self._checks.wrong(
                "last", result, "(observation, reward, termination, truncation, info)", self.number
            )
        return result

    def _bot(self, agent: Any) -> Bot:
        bot = self._bots.get(str(agent))
        if bot is None:
            raise self._checks.wrong_agents(
                f"the turn of the agent `{agent}`, which is not in its `possible_agents`", self.number
            )
        return bot

    def _state(self, view: AgentView) -> Any:
        return self._environment_state() if view.has_state else None

    def _environment_state(self) -> Any:
        try:
            return self._environment.state()
        except BaseException as error:
            raise self._checks.raised_by(error, "state", self.number) from error

    def _credit(
        self,
        agent: Any,
        player: tuple[int, int, AgentView] | None,
        reward: Any,
        terminated: bool,
        truncated: bool,
        observation: Any,
        info: Any,
    ) -> None:
        """Complete the row of an agent's last turn. What came before its first turn belongs to its return alone."""
        ends = terminated or truncated
        if ends:
            self._over.add(agent)
            self._infos.last[agent] = info
        number = self._checks.reward_of(agent, reward, self.number)
        self._returns[agent] = self._returns.get(agent, 0.0) + number
        if not self._clearing.is_known and self._clearing.keeps_sum(agent, number):
            self._notices.kept_sum(agent)
        if player is None:
            return
        position, column, view = player
        if agent in self._acted:
            final = None
            if truncated and not terminated:
                if isinstance(self._environment, InTurn) and agent in self._environment.unseen:
                    self._notices.old_final(agent)
                final = copied(view.seen(observation, info, self._state(view), ended=True))
            self.completed.append(Completed(position, column, number, terminated, truncated and not terminated, final))
            if ends:
                self._seats[position].returns[column] = self._returns[agent] - self._earlier.get(agent, 0.0)

    @property
    def steps(self) -> int:
        """Turns of the running episode in which an agent has acted; steps, of agents that act in some."""
        return self.turns - self._begun

    def finish(self, *, cut: bool) -> None:
        """Tell of the running episode, which ends. cut: from outside."""
        for agent, before in self._sums.items():
            if late := self._sum_of(agent) - before:
                self._returns[agent] += late
                self._notices.late_reward(agent, late)
        for agent in self._environment.agents if cut else ():
            if agent not in self._over and agent != self._agent:  # the agent whose turn it is has been credited
                self._returns[agent] = self._returns.get(agent, 0.0) + self._sum_of(agent)
        returns = {str(agent): returned for agent, returned in self._returns.items()}
        infos = {} if cut else end_episode(self._seats, self.number, self._returns, self._infos)
        self._ended.append(EndedEpisode(self.number, returns, self.steps, cut, infos))
        self.left -= self.left > 0

    def _end_episode(self) -> None:
        """Complete what is open when no agent is left: an agent that ended may not have had its last turn."""
        environment = self._environment
        for agent, player in self._players.items():
            if agent in self._over or agent not in self._acted:
                continue
            flags = [getattr(environment, name, {}).get(agent, MISSING) for name in ("terminations", "truncations")]
            rewards = getattr(environment, "_cumulative_rewards", None) or getattr(environment, "rewards", {})
            if MISSING in flags or not any(flags) or agent not in rewards:
                raise EnvironmentFailed(
                    f"{self._checks.wrong_agents(f'no end of the agent `{agent}`, which has acted', self.number)}",
                    hint="let each agent that ends have one more turn, with its last reward, as PettingZoo's AECEnv",
                    permanent=True,
                )
            observation = environment.observe(agent) if flags[1] else None
            info = getattr(environment, "infos", {}).get(agent, {})
            self._credit(agent, player, rewards[agent], bool(flags[0]), bool(flags[1]), observation, info)
        self.finish(cut=False)
