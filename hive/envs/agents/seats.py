"""A seat: a policy at the table of an environment, with the agents that it acts for, and the memory of their rows.

agents of n in each of E environments   ->   B = E * n columns, column e * n + i for agent i in environment e
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hive.envs.agents.interface import AgentView
from hive.envs.spaces.actions import action_converter, each_action
from hive.envs.spaces.differences import check_alike
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.spaces.spec import EnvironmentSpec
from hive.envs.vectors.checks import Checks, as_array, short, store
from hive.envs.vectors.infos import Infos
from hive.envs.vectors.rows import StepRow
from hive.errors import EnvironmentFailed

MISSING: Any = object()
"""Stands for an entry that a dictionary of the environment lacks."""

RETURN_OF = "return/"
"""Begins the names of values of `info` that hive adds: the return of each agent, and of the team."""

TEAM = "return/team"
"""The sum of the returns of all agents in an episode of the environment."""


class EndedEpisode(NamedTuple):
    """An episode of environment `number` that has ended after `steps` steps or turns. returns: of all agents.

    cut: whether the environment would have gone on; it then has no `info`. infos: the first agent of each seat -> the
    chosen values of `info`, which an episode has once.
    """

    number: int
    returns: dict[str, float]
    steps: int
    cut: bool
    infos: Mapping[str, Mapping[str, float]]


class EndInfos:
    """The infos of the agents that have ended in an episode. last: in its last step or turns; earlier: before."""

    def __init__(self) -> None:
        self.earlier: dict[Any, Any] = {}
        self.last: dict[Any, Any] = {}

    def go_on(self) -> None:
        """Begin another step, or the turn of an agent that acts."""
        if self.last:
            self.earlier |= self.last
            self.last = {}


@dataclass(frozen=True)
class Seat:
    """A policy and its agents, which have equal spaces. spec: the environment as it is for it, with these agents."""

    policy: str
    spec: EnvironmentSpec

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of its agents."""
        return tuple(agent.name for agent in self.spec.agents)


class AgentChecks(Checks):
    """Checks whose errors name the agent of a column.

    agents: those of the seat. What concerns a whole environment is told by the environment's number.
    """

    __slots__ = ("_agents",)

    def __init__(self, id: str, spec: ObservationSpec, agents: Sequence[str], first: int = 0) -> None:
        super().__init__(id, spec, first)
        self._agents = agents

    def _place(self, index: int | None) -> str:
        """Return the place of a column, or of the whole environment ~index if the index is negative."""
        if index is None or index < 0:
            return super()._place(index if index is None else ~index)
        number, agent = divmod(index, len(self._agents))
        return f"for agent `{self._agents[agent]}` {super()._place(number)}"

    def one(self, index: int, observation: Any, out: NDArray[Any]) -> None:
        """Write the observation of column `index` into its row of `out` [B, ...]. Raises EnvironmentFailed."""
        if not store(self._spec, [observation], out[index : index + 1]):
            self._observation(index, observation)
            out[index] = self._one[0]

    def wrong_agents(self, what: str, number: int) -> EnvironmentFailed:
        """Return the error for environment `number`, which returned `what`."""
        return EnvironmentFailed(f"{self._id} returned {what} {super()._place(number)}", permanent=True)

    def wrong(self, method: str, result: Any, expected: str, number: int) -> EnvironmentFailed:
        """Return the error for a `method` of environment `number` that did not return what was `expected`."""
        got = f"{len(result)} values" if isinstance(result, tuple) else f"an object of type {type(result).__name__}"
        return EnvironmentFailed(
            f"{self._id} returned {got} from {method}, expected {expected} {super()._place(number)}", permanent=True
        )

    def raised_by(self, error: BaseException, method: str, number: int) -> EnvironmentFailed:
        """Return the error for environment `number`, which raised `error`; the caller raises it from `error`."""
        return self.raised(error, method, ~number)

    def reward_of(self, agent: Any, reward: Any, number: int) -> float:
        """Return a reward of an agent of environment `number`. Raises EnvironmentFailed unless it is finite."""
        found = _number_of(reward)
        if found is None:
            array = as_array(reward)
            not_finite = array.size == 1 and array.dtype.kind == "f"  # any other type is wrong in every step
            raise EnvironmentFailed(
                f"{self._id} returned the reward {short(reward)}, expected a finite number for agent `{agent}` "
                f"{super()._place(number)}",
                hint="look for a division by zero" if not_finite else "",
                permanent=True,
                not_finite=not_finite,
            )
        return found


def _number_of(reward: Any) -> float | None:
    """Return a reward as a number, None for what is none, or not a finite one of float32."""
    try:
        number = float(reward)
    except (TypeError, ValueError):
        array = as_array(reward)
        if array.size != 1 or array.dtype.kind not in "biuf":
            return None
        number = float(array.reshape(())[()])
    return number if np.isfinite(number) and abs(number) <= np.finfo(np.float32).max else None


class SeatRows:
    """The rows of one seat in `count` environments, collected agent by agent and written column by column.

    views: of each environment, agent -> its view. info: the names of the values of `info` that its rows have.

    observations: [B] what the agents see next. present: bool [B], whether they act next. acted: whether they act in
    this step. actions: [B] as the environment takes them. finals: column -> the last observation of a truncated agent.
    """

    def __init__(
        self, seat: Seat, id: str, views: Sequence[Mapping[str, AgentView]], info: Sequence[str], first: int = 0
    ) -> None:
        self.seat = seat
        self.agents = seat.agents
        self.count = len(views) * len(self.agents)
        self._views = [[each[agent] for agent in self.agents] for each in views]
        self._check_alike(id, first)
        self._blank = [view.blank for each in self._views for view in each]
        self._convert = action_converter(seat.spec.action)
        self.needs_state = any(view.has_state for each in self._views for view in each)
        self.checks = AgentChecks(id, seat.spec.observation, self.agents, first)
        self._infos = Infos(self.checks, [name for name in info if not name.startswith(RETURN_OF)])
        self.info = info
        self._episodes: dict[int, dict[str, float]] = {}  # environment -> values of an episode that no row has yet
        self.begin()

    @property
    def observation(self) -> ObservationSpec:
        """What the agents see."""
        return self.seat.spec.observation

    def _check_alike(self, id: str, first: int) -> None:
        """Raise EnvironmentFailed if an agent has other spaces than those that its policy acts in."""
        spec = self.seat.spec
        for number, each in enumerate(self._views, start=first):
            for agent, view in zip(self.agents, each, strict=True):
                what = f"agent `{agent}` in env {number} of `{id}`"
                check_alike(what, (view.observation, view.action), (spec.observation, spec.action), "its policy")

    def begin(self) -> None:
        """Forget all episodes."""
        count = self.count
        self.observations: list[Any] = list(self._blank)
        self.present, self.acted = np.zeros(count, bool), np.zeros(count, bool)
        self.actions: Sequence[Any] = []
        self._rewards = np.zeros(count)
        self._terminated, self._truncated = np.zeros(count, np.uint8), np.zeros(count, np.uint8)
        self.returns, self.lengths = np.zeros(count), np.zeros(count, np.int32)
        self.finals: dict[int, Any] = {}
        self._episodes.clear()

    def columns_of(self, number: int) -> Iterator[tuple[int, AgentView]]:
        """Yield the columns of environment `number`, with the views of their agents."""
        yield from enumerate(self._views[number], start=number * len(self.agents))

    def take(self, actions: NDArray[Any]) -> None:
        """Take the stored actions [B, ...] of a step, which only agents that are present take."""
        self.checks.steps += 1
        self.actions = self.environment_actions(actions)
        self.acted[:] = self.present
        self.present[:] = False
        self._rewards[:] = 0.0
        self._terminated[:] = self._truncated[:] = 0
        self.observations = list(self._blank)
        self.finals.clear()

    def environment_actions(self, actions: NDArray[Any]) -> Sequence[Any]:
        """Return stored actions [B, ...] as the environment takes them, one of each column."""
        return list(each_action(self._convert(actions)))

    def credit(self, column: int, reward: Any, terminated: bool, truncated: bool) -> float:
        """Write the result of a step of an agent; return its reward. Raises EnvironmentFailed for a wrong one."""
        number = self.number(column, reward)
        self._rewards[column] = number
        self._terminated[column], self._truncated[column] = terminated, truncated and not terminated
        return number

    def number(self, column: int, reward: Any) -> float:
        """Return a reward as a number. Raises EnvironmentFailed for what is none, or not finite."""
        number, agent = divmod(column, len(self.agents))
        return self.checks.reward_of(self.agents[agent], reward, number)

    def end_episode(self, number: int, returns: Mapping[Any, float], infos: EndInfos) -> Mapping[str, float]:
        """Keep the returns and values of `info` of an episode, for the next row in which an agent ends.

        number: of the environment. Return the values of `info`.
        """
        values = self._chosen(number, infos) if self._infos.names else {}
        named = {RETURN_OF + str(agent): returned for agent, returned in returns.items()}
        self._episodes[number] = {**values, **named, TEAM: sum(returns.values())}
        return values

    def _chosen(self, number: int, infos: EndInfos) -> dict[str, float]:
        """Return the values of `info` of an episode: the means of its agents' values.

        They are those of the seat's agents that were there at the end, or else of others that were, or else of the
        seat's agents that had ended before.
        """
        own = {view.agent: column for column, view in self.columns_of(number)}
        every = infos.earlier | infos.last
        found = {agent: self._infos.of_one(own.get(agent, ~number), info) for agent, info in every.items()}
        values: dict[str, float] = {}
        for group in (infos.last.keys() & own.keys(), infos.last.keys(), own.keys()):
            for name in self._infos.names:
                each = [one[name] for agent, one in found.items() if agent in group and name in one]
                if each and name not in values:
                    values[name] = float(np.mean(each))
        return values

    def ended(self, column: int) -> tuple[float, int, NDArray[np.float32]]:
        """Return the return, the length and the values of `info` [K] of an agent's episode, and forget them."""
        returned, length = float(self.returns[column]), int(self.lengths[column])
        values = self._values_of(column)
        self.returns[column], self.lengths[column] = 0.0, 0
        return returned, length, values

    def _values_of(self, column: int) -> NDArray[np.float32]:
        """Return what the last episode of a column's environment has, [K]; NaN if another row has it."""
        values = self._episodes.pop(column // len(self.agents), {})
        return np.array([values.get(name, np.nan) for name in self.info], np.float32)

    def store(self, out: NDArray[Any]) -> None:
        """Write what the agents see next into `out` [B, ...]."""
        self.checks.observations(self.observations, out)

    def write(self, row: StepRow) -> None:
        """Write the row of a step."""
        acted = self.acted
        self.returns[acted] += self._rewards.astype(np.float32)[acted]
        self.lengths += acted
        row.rewards[:] = self._rewards
        row.terminated[:], row.truncated[:], row.valid[:] = self._terminated, self._truncated, acted
        ended = (self._terminated | self._truncated) != 0
        row.episode_returns[:] = np.where(ended, self.returns, 0.0)
        row.episode_lengths[:] = np.where(ended, self.lengths, 0)
        row.final_index[:] = -1
        for column in sorted(self.finals):
            row.final_index[column] = self.checks.final(column, self.finals[column], row.finals)
        if self.info:
            row.infos.fill(np.nan)
            for column in np.flatnonzero(ended).tolist():
                row.infos[column] = self._values_of(column)
        self.returns[ended], self.lengths[ended] = 0.0, 0
        self.store(row.observations)


def end_episode(
    seats: Sequence[SeatRows], number: int, returns: Mapping[Any, float], infos: EndInfos
) -> dict[str, Mapping[str, float]]:
    """Let the seats keep what an episode has; return `EndedEpisode.infos`."""
    return {seat.agents[0]: values for seat in seats if (values := seat.end_episode(number, returns, infos))}


def with_returns(info: Sequence[str], environment: EnvironmentSpec) -> tuple[str, ...]:
    """Return `info` and the names of the returns that rows have: of each agent of the environment, and of the team.

    More than MOST_RETURNS agents have only the team's: the values of each would fill tables and pages.
    """
    agents = [RETURN_OF + agent.name for agent in environment.agents]
    return tuple(dict.fromkeys((*info, *(agents if len(agents) <= MOST_RETURNS else ()), TEAM)))


MOST_RETURNS = 16  # agents of an environment whose returns are shown one by one
