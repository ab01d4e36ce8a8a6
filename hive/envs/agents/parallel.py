"""Steps environments whose agents all act at once, and writes a row of each agent.

A seat is a policy at the table: some of the agents, each of which has a column of the seat's rows in every environment:
column e * n + i is agent i of n in environment e. An agent that is not there, because it is dead or not yet born, has a
row that is not valid, with its blank observation. When no agent is left, the environment is reset in the same step, and
the row has the first observations of the next episode, as in `hive.envs.vectors.python_vector`.

An agent that ends and is in `agents` all the same has begun its next life, or the environment keeps the dead there. So
it acts (`_again`). If it ends again at once, it is dead and its row is not valid; but once an agent has been seen to
live on (`_revives`), that was the end of a short life.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from hive.envs.agents.bots import Bot
from hive.envs.agents.interface import AgentView
from hive.envs.agents.playable import Seated
from hive.envs.agents.seats import MISSING, EndedEpisode, EndInfos, SeatRows, end_episode
from hive.envs.vectors.checks import short
from hive.envs.vectors.resetting import Resets
from hive.envs.vectors.rows import StepRow
from hive.envs.vectors.shared_buffers import SharedBuffers, copied
from hive.errors import EnvironmentFailed

RESULTS = "(observations, rewards, terminations, truncations, infos)"
"""What `step` of a parallel environment returns, each a dictionary by agent."""

ALL = "__all__"  # the key of flags that hold for all agents, of RLlib


WAITS = (
    "repeat the last observation of an agent that waits, or let one wait in the first steps: hive then plays in turn"
)


class AgentWaits(EnvironmentFailed):
    """An agent that has not ended is not to act in the next step."""


class ParallelVector(Seated):
    """`count` environments of several agents, with the agents of each of `seats`, and bots that act for others.

    A seat alone makes a `VectorEnvironment` of it: `hive.envs.agents.alone.Alone`.
    """

    def __init__(self, id: str, seats: Sequence[SeatRows], bots: Sequence[Mapping[str, Bot]], resets: Resets) -> None:
        """bots: of each environment, agent -> the bot that acts for it. resets: has the environments."""
        super().__init__(id, resets, seats)
        self.tables: list[_Table] = [_Table(number, self, bots[number]) for number in range(self.count)]
        self.each = self.tables
        self.env_steps = 0
        self.buffers = SharedBuffers(self.count)

    def reset(self, seeds: Sequence[int], observations: Sequence[NDArray[Any]]) -> None:
        """Start an episode in every environment; write the first observations of each seat, [B, ...]."""
        for seat in self.seats:
            seat.begin()
        self.buffers.begin()
        for table, seed in zip(self.tables, seeds, strict=True):
            table.left = -1
            table.begin(int(seed))
        for seat, out in zip(self.seats, observations, strict=True):
            seat.store(out)
            self.notices.compare(seat.agents, out, seat.present)

    def step(self, actions: Sequence[NDArray[Any]], rows: Sequence[StepRow]) -> None:
        """Step every environment once with the stored actions of each seat, [B, ...]; write a row of each."""
        for seat, chosen in zip(self.seats, actions, strict=True):
            seat.take(chosen)
        for table in self.tables:
            if table.left:
                table.step()
        self.env_steps += self.count
        self.buffers.stepped()
        for seat, row in zip(self.seats, rows, strict=True):
            seat.write(row)
            self.notices.compare(seat.agents, row.observations, seat.present)

    def turns(self, seat: int) -> None:
        """Return None: every column has a row in each step."""


class _Table:
    """One environment, and who of its agents is there. left: episodes that it still plays; -1: without a limit."""

    def __init__(self, number: int, vector: ParallelVector, bots: Mapping[str, Bot]) -> None:
        self.number = number
        self._vector = vector
        self._resets = vector.resets
        self._environment = vector.environments[number]
        self._bots = bots
        self._players: dict[Any, tuple[SeatRows, int, AgentView]] = {}  # agent -> its seat and column
        for seat in vector.seats:
            for column, view in seat.columns_of(number):
                self._players[view.agent] = seat, column, view
        self._checks = vector.seats[0].checks
        self._needs_state = any(seat.needs_state for seat in vector.seats)
        self._seats, self._ended = vector.seats, vector.ended
        self._pending, self._notices = vector.pending, vector.notices
        self._returns: dict[Any, float] = {}  # of the agents, in the running episode
        self.steps = 0  # of the running episode
        self.left = -1
        self._live: list[Any] = []
        self._dead: set[Any] = set()  # those that have ended in the running episode
        self._again: set[Any] = set()  # those of `_live` that have ended in the step before
        self._revives = False  # whether an agent has lived on in the step after its end
        self._seen: dict[Any, Any] = {}  # raw observations of agents with a bot

    def begin(self, seed: int) -> None:
        """Start an episode after which nothing depends on earlier ones."""
        self._revives = False
        self.reset(seed)

    def reset(self, seed: int | None) -> None:
        """Start an episode."""
        environments = self._resets.environments
        try:
            result = self._resets.begin(self.number, seed, lambda one: self._pending.apply(one, environments[one]))
        except BaseException as error:
            raise self._checks.raised_by(error, "reset", self.number) from error
        self._environment = environments[self.number]
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], Mapping):
            raise self._checks.wrong("reset", result, "(observations, infos), dictionaries by agent", self.number)
        observations, infos = result
        self._returns, self.steps, self._infos = {}, 0, EndInfos()
        self._dead, self._again = set(), set()
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

    def _waits(self, what: str) -> AgentWaits:
        return AgentWaits(str(self._checks.wrong_agents(what, self.number)), hint=WAITS, permanent=True)

    def _state(self) -> Any:
        try:
            return self._environment.state()
        except BaseException as error:
            raise self._checks.raised_by(error, "state", self.number) from error

    def _show(self, agents: Sequence[Any], observations: Mapping[Any, Any], infos: Any) -> None:
        """Give observations to agents that act next. A dead one that the environment keeps may see anything."""
        state = self._state() if self._needs_state else None
        for agent in agents:
            ended = agent in self._again and not self._revives
            observation = observations.get(agent, MISSING)
            if observation is MISSING:
                raise self._waits(f"no observation of the live agent `{agent}`")
            player = self._players.get(agent)
            info = infos.get(agent, {}) if isinstance(infos, Mapping) else {}
            if player is None:
                bot = self._bots.get(str(agent))
                if bot is None:
                    raise self._checks.wrong_agents(
                        f"the agent `{agent}`, which is not in its `possible_agents`", self.number
                    )
                self._seen[agent] = bot.seen(observation, info, self._state, ended=ended)
                continue
            seat, column, view = player
            see = view.seen_dead if ended else view.seen
            seat.observations[column] = self._vector.buffers.own(self.number, see(observation, info, state))
            seat.present[column] = True

    def step(self) -> None:
        """Let all live agents act, and reset the environment when none is left."""
        live = self._live
        self.steps += 1
        self._infos.go_on()
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
        found = StepResult(*result)
        try:
            self._take(found)
        except Exception:
            self._check_flags(found)
            raise

    def _take(self, found: StepResult) -> None:
        """Write what a step returned, and reset the environment when no agent is left."""
        acted = self._alive(found)
        found = self._with_truncated(acted, found)
        ended = self._credit(acted, found)
        self._dead |= ended
        self._credit_others(acted, found)
        self._live = self._following(acted, ended, found)
        if self._live:
            self._show(self._live, found.observations, found.infos)
            return
        self.finish(cut=False)

    def _check_flags(self, found: StepResult) -> None:
        """Raise EnvironmentFailed for a flag that is neither true nor false, as an array of two is."""
        for name in ("terminations", "truncations"):
            for agent, flag in getattr(found, name).items():
                try:
                    bool(flag)
                except Exception as error:
                    what = f"`{name}` {short(flag)} of the agent `{agent}`, expected True or False"
                    raise self._checks.wrong_agents(what, self.number) from error

    def _with_truncated(self, acted: Sequence[Any], found: StepResult) -> StepResult:
        """Return the result with flags for agents that go on by their own and see something, where none is listed."""
        listed = getattr(self._environment, "agents", None)
        left = [agent for agent in acted if not found.is_over(agent)] if listed is not None and not len(listed) else []
        if found.is_rllib or not left or not found.observations.keys() >= {*left}:
            return found
        return found._replace(truncations={**found.truncations, **dict.fromkeys(left, True)})

    def _alive(self, found: StepResult) -> list[Any]:
        """Return who has acted, without the dead that were asked once more; their rows are not valid."""
        dead = {agent for agent in self._again if agent not in found.rewards or found.is_over(agent)}
        self._revives |= self._again > dead
        if self._revives or not dead:
            return self._live
        for seat, column, _ in (self._players[agent] for agent in dead if agent in self._players):
            seat.acted[column] = False
        return [agent for agent in self._live if agent not in dead]

    def _following(self, acted: Sequence[Any], ended: set[Any], found: StepResult) -> list[Any]:
        """Return who acts next. ended: those that have acted whose lives ended."""
        there = self._agents(found.observations)
        following = {agent for agent in acted if agent not in ended}
        if lost := next((agent for agent in acted if agent in following and agent not in there), None):
            raise self._waits(f"`agents` without `{lost}`, which was neither terminated nor truncated")
        for agent in there:
            may_be_born = agent not in self._live and not found.is_over(agent)
            if may_be_born and (agent in found.observations or agent not in self._dead):
                following.add(agent)
        is_over = not following and (
            not self._revives or {*self._live} <= self._again or any(found.flags(agent)[1] for agent in ended)
        )
        dead = ended | {agent for agent in self._again if agent not in acted}
        if is_over or found.is_rllib or getattr(self._environment, "agents", None) is None:
            dead = set()
        self._again = {agent for agent in there if agent in dead and agent in found.observations}
        return [agent for agent in there if agent in following or agent in self._again]

    def finish(self, *, cut: bool) -> None:
        """Tell of the running episode, which ends, and begin the next one, if there is one. cut: from outside."""
        returns = {str(agent): returned for agent, returned in self._returns.items()}
        infos = {} if cut else end_episode(self._seats, self.number, self._returns, self._infos)
        self._ended.append(EndedEpisode(self.number, returns, self.steps, cut, infos))
        self.left -= self.left > 0
        if self.left:
            self.reset(None)

    def _credit(self, acted: Sequence[Any], found: StepResult) -> set[Any]:
        """Write the results of the agents that acted; return those whose life ended."""
        ended, state = set(), None
        for agent in acted:
            reward, (terminated, truncated) = found.reward(agent), found.flags(agent)
            if reward is MISSING or terminated is MISSING or truncated is MISSING:
                what = "reward" if reward is MISSING else "entry in `terminations` or `truncations`"
                raise self._checks.wrong_agents(f"no {what} of the agent `{agent}`, which acted", self.number)
            if terminated or truncated:
                ended.add(agent)
                self._infos.last[agent] = found.infos.get(agent, {})
            player = self._players.get(agent)
            if player is None:
                self._add(agent, self._checks.reward_of(agent, reward, self.number))
                continue
            seat, column, view = player
            self._add(agent, seat.credit(column, reward, bool(terminated), bool(truncated)))
            if truncated and not terminated:
                if (last := found.observations.get(agent, MISSING)) is MISSING:
                    raise self._checks.wrong_agents(
                        f"no last observation of the truncated agent `{agent}`", self.number
                    )
                if self._needs_state and state is None:
                    state = self._state()
                # A copy: the row is written after the reset, which may write into the same memory.
                seat.finals[column] = copied(view.seen(last, found.infos.get(agent, {}), state, ended=True))
        return ended

    def _credit_others(self, acted: Sequence[Any], found: StepResult) -> None:
        """Count the rewards of agents that have not acted, in their returns; those of the dead are told."""
        if not (len(found.rewards) > len(acted) or found.is_rllib):
            return
        have_acted = {*acted}
        for agent, reward in found.rewards.items():
            is_other = agent not in have_acted and (agent in self._players or str(agent) in self._bots)
            if is_other and (number := self._checks.reward_of(agent, reward, self.number)):
                self._add(agent, number)
                if agent in self._dead:
                    self._notices.late_reward(agent, number)

    def _add(self, agent: Any, reward: float) -> None:
        self._returns[agent] = self._returns.get(agent, 0.0) + reward


class StepResult(NamedTuple):
    """What `step` returned, by agent. RLlib's classes leave out agents, and give the flags of all by the key ALL."""

    observations: Mapping[Any, Any]
    rewards: Mapping[Any, Any]
    terminations: Mapping[Any, Any]
    truncations: Mapping[Any, Any]
    infos: Mapping[Any, Any]

    @property
    def is_rllib(self) -> bool:
        """Whether it is of RLlib's form."""
        return ALL in self.terminations

    @property
    def ends_all(self) -> bool:
        """Whether the flag of all is set."""
        return bool(self.terminations.get(ALL) or self.truncations.get(ALL))

    def reward(self, agent: Any) -> Any:
        """Return the reward of an agent, MISSING if there is none and there must be."""
        return self.rewards.get(agent, 0.0 if self.is_rllib else MISSING)

    def flags(self, agent: Any) -> tuple[Any, Any]:
        """Return whether an agent is terminated, and whether it is truncated; MISSING for what is not told."""
        tables = self.terminations, self.truncations
        terminated, truncated = (one.get(ALL) or one.get(agent, one.get(ALL, MISSING)) for one in tables)
        return terminated, truncated

    def known_flags(self, agent: Any) -> tuple[bool, bool]:
        """Return the same, False for what is not told."""
        terminated, truncated = (flag is not MISSING and bool(flag) for flag in self.flags(agent))
        return terminated, truncated

    def is_over(self, agent: Any) -> bool:
        """Whether the life of an agent has ended: some environments keep the dead in `agents`."""
        return any(self.known_flags(agent))
