"""What the environments of a table have shown that makes results wrong: warnings of `hive check` and of a run.

late      an agent got a reward after its end, from which no action learns
old       an agent was truncated without a last observation
alike     the agents of one policy have seen the same in every step, so it cannot treat them differently
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.envs.vectors.checks import as_array
from hive.records.run_warnings import AGENTS_ALIKE, LATE_REWARDS, OLD_OBSERVATIONS, REWARDS_AGAIN, RunWarning

ROUNDING = 1e-6  # share of a sum of rewards
COMPARED = 16  # least steps in which agents saw the same, for the warning


class Notices:
    """Collects what a table shows. id: its environments', for the texts."""

    def __init__(self, id: str) -> None:
        self._id = id
        self._late: dict[str, float] = {}  # agent -> the first reward after its end
        self._kept: list[str] = []  # agents whose sums are kept
        self._old = ""  # the first agent that was truncated without an observation
        self._alike: dict[tuple[str, ...], int] = {}  # agents of a seat -> steps in which all of them saw the same
        self._seen: dict[int, dict[Any, list[int]]] = {}  # game -> agent -> what it saw in its turns, as hashes

    def late_reward(self, agent: Any, reward: float) -> None:
        """Note a reward other than 0 of an agent that has ended."""
        self._late.setdefault(str(agent), reward)

    def kept_sum(self, agent: Any) -> None:
        """Note an agent whose rewards are counted again."""
        self._kept.append(str(agent))

    def old_final(self, agent: Any) -> None:
        """Note an agent that was truncated, and whose last observation is that of its last turn."""
        self._old = self._old or str(agent)

    def compare(self, agents: tuple[str, ...], observations: NDArray[Any], present: NDArray[np.bool_]) -> None:
        """Compare what the agents of a seat see, [B, ...]. present: bool [B], whether they see anything."""
        if len(agents) < 2 or self._alike.get(agents, 0) < 0:  # they saw something else before
            return
        shape = len(present) // len(agents), len(agents)
        rows = observations.reshape(*shape, -1)
        shown = [seen[there] for seen, there in zip(rows, present.reshape(shape), strict=True) if there.sum() > 1]
        alike = all((one == one[0]).all() for one in shown)
        self._alike[agents] = self._alike.get(agents, 0) + bool(shown) if alike else -1

    def begin(self, game: int) -> None:
        """Begin an episode of agents in turn."""
        self._seen[game] = {}

    def compare_turn(self, agents: tuple[str, ...], game: int, agent: Any, observation: Any) -> None:
        """Compare what an agent of a seat sees in its turn with what others saw in theirs."""
        if len(agents) < 2 or self._alike.get(agents, 0) < 0:
            return
        turns = self._seen[game].setdefault(agent, [])
        turns.append(_hash(observation))
        at = len(turns) - 1
        others = [one[at] for name, one in self._seen[game].items() if str(name) in agents and len(one) > at]
        alike = others.count(turns[at]) == len(others)
        self._alike[agents] = self._alike.get(agents, 0) + (len(others) > 1) if alike else -1

    def warnings(self) -> list[RunWarning]:
        """Return the warnings of all that was shown."""
        found = []
        if self._late:
            agent, reward = next(iter(self._late.items()))
            others = f" (and {len(self._late) - 1} other agents did)" if len(self._late) > 1 else ""
            cause = (
                f"`{self._id}`: `{agent}` got the reward {reward:g} after it had ended{others}: returns count it, but "
                "no action learns from it"
            )
            found.append(
                RunWarning(
                    LATE_REWARDS, cause, "let an agent live until its last reward, or give that to those that live", 0
                )
            )
        if self._kept:
            cause = f"`{self._id}`: `last()` of `{self._kept[0]}` has rewards again that it had at the turn before"
            advice = "set self._cumulative_rewards[agent] = 0 in `step` for the agent that acts, as AECEnv asks for"
            found.append(RunWarning(REWARDS_AGAIN, cause, advice, 0))
        if self._old:
            cause = (
                f"`{self._id}` truncated `{self._old}` without an observation, so the one of its last turn stands in"
            )
            advice = "return an observation of each agent that a step truncates: what follows is valued by it"
            found.append(RunWarning(OLD_OBSERVATIONS, cause, advice, 0))
        for agents in (agents for agents, steps in self._alike.items() if steps >= COMPARED):
            cause = f"`{self._id}`: {', '.join(agents)} always see the same, so their policy treats them alike"
            advice = "set env.agent_index = true (scheme ippo), or give each a policy of its own in [policies]"
            found.append(RunWarning(AGENTS_ALIKE, cause, advice, 0))
        return found


def _hash(observation: Any) -> int:
    """Return a number that equal observations have in common."""
    if isinstance(observation, Mapping):
        return hash(tuple((key, _hash(part)) for key, part in observation.items()))
    if isinstance(observation, tuple):
        return hash(tuple(map(_hash, observation)))
    return hash(as_array(observation).tobytes())


class Clearing:
    """Finds out whether an environment of agents in turn clears the sum of an agent's rewards when that acts.

    It compares the rewards of single steps with what `last()` returns. is_known: whether no further look is needed.
    """

    is_known = False

    def __init__(self) -> None:
        self._since: dict[Any, float] = {}  # agent -> its rewards since it has acted last
        self._before: dict[Any, float] = {}  # agent -> what `last()` returned before it acted

    def anew(self) -> Clearing:
        """Return what looks at the next episode."""
        return self if self.is_known else Clearing()

    def stepped(self, agent: Any, rewards: Any) -> None:
        """Take the rewards of a step in which an agent has acted."""
        self._since[agent] = 0.0
        try:
            for one in self._since:
                self._since[one] += float(rewards.get(one, 0.0))
        except (AttributeError, TypeError, ValueError):  # no dictionary of numbers, as a class need not have one
            self.is_known = True

    def keeps_sum(self, agent: Any, reward: float) -> bool:
        """Return whether the reward of an agent, of `last()`, has that of the turn before in it."""
        before, since = self._before.get(agent, 0.0), self._since.get(agent)
        self._before[agent] = reward
        if not before or not since:  # nothing was added, so an equal sum says nothing
            return False
        keeps = math.isclose(reward, since + before, rel_tol=ROUNDING)
        self.is_known = keeps or math.isclose(reward, since, rel_tol=ROUNDING)
        return keeps
