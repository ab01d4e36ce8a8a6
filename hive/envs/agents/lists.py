"""Gives an environment with a reward for each part of its Tuple of actions the form of PettingZoo's ParallelEnv.

Packages such as rware, lbforaging and vmas have this form: a gymnasium.Env whose spaces are Tuples with a part for each
agent, and whose `step` returns a list of rewards. The agents are agent_0, agent_1 and so on.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hive.envs.vectors.checks import as_array
from hive.runtime.actor.error_location import is_interrupt

if TYPE_CHECKING:
    from gymnasium.spaces import Space


def lists_agents(environment: Any) -> bool:
    """Whether a single environment gives a reward to each part of its Tuple of actions.

    A copy of it is played for one step. Of one that cannot be copied or played, its `n_agents` says so.
    """
    observed, acted = (_parts(getattr(environment, name, None)) for name in ("observation_space", "action_space"))
    count = len(acted)
    if count < 2 or len(observed) != count:
        return False
    try:
        played = copy.deepcopy(environment)
        played.reset(seed=0)
        reward = played.step(tuple(part.sample() for part in _parts(played.action_space)))[1]
    except BaseException as error:
        if is_interrupt(error):
            raise
        return bool(getattr(getattr(environment, "unwrapped", environment), "n_agents", None) == count)
    return as_array(reward).shape[:1] == (count,)


def _parts(space: Any) -> Sequence[Space[Any]]:
    """Return the parts of a Tuple, or of a list of spaces; () for any other space."""
    from gymnasium import spaces

    parts = space.spaces if isinstance(space, spaces.Tuple) else space if isinstance(space, list | tuple) else ()
    return parts if all(isinstance(part, spaces.Space) for part in parts) else ()


class ListedAgents:
    """An environment of `lists_agents` as one whose agents act at once. Every attribute is that of `env`."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.possible_agents = [f"agent_{number}" for number in range(len(_parts(env.action_space)))]
        self.observation_spaces = self._by_agent(_parts(env.observation_space))
        self.action_spaces = self._by_agent(_parts(env.action_space))
        self.observation_space, self.action_space = self.observation_spaces.get, self.action_spaces.get
        self.agents: list[str] = []
        self._actions: dict[str, Any] = dict.fromkeys(self.possible_agents)  # the last ones

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # before the constructor has set it
            raise AttributeError(name)
        return getattr(self.env, name)

    def _by_agent(self, values: Any) -> dict[str, Any]:
        """Return values by agent; one that is no sequence with a value for each agent is that of every agent."""
        count = len(self.possible_agents)
        try:
            is_each = len(values) == count and not isinstance(values, Mapping)
        except TypeError:  # a number
            is_each = False
        return dict(zip(self.possible_agents, values if is_each else [values] * count, strict=True))

    def reset(self, **arguments: Any) -> Any:
        """Begin an episode of all agents."""
        observations, info = self.env.reset(**arguments)
        self.agents = list(self.possible_agents)
        return self._by_agent(observations), self._by_agent(info)

    def step(self, actions: Mapping[str, Any]) -> Any:
        """Let all agents act; those that have ended take their last action again, which the environment ignores."""
        self._actions.update(actions)
        observations, reward, *flags, info = self.env.step(tuple(self._actions.values()))
        terminations, truncations = map(self._by_agent, flags)
        over = {agent for agent in self.agents if terminations[agent] or truncations[agent]}
        self.agents = [agent for agent in self.agents if agent not in over]
        return *map(self._by_agent, (observations, reward)), terminations, truncations, self._by_agent(info)
