"""Gives an environment with a reward for each part of its actions the form of PettingZoo's ParallelEnv.

    spaces are Tuples    step returns lists of observations and rewards      rware, lbforaging, vmas
    spaces are Dicts     step returns dictionaries with the same keys        multigrid

Such an environment is a gymnasium.Env whose two spaces have a part for each agent. The agents of Tuples are agent_0,
agent_1 and so on.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hive.envs.agents.parallel import StepResult
from hive.envs.vectors.checks import as_array
from hive.envs.vectors.seeding import globals_state, restore_globals
from hive.runtime.actor.error_location import is_interrupt

if TYPE_CHECKING:
    from gymnasium.spaces import Space


COUNTS = ("n_agents", "num_agents")
"""Attributes of such environments that say how many agents there are."""


def lists_agents(environment: Any) -> bool:
    """Whether a single environment gives a reward to each part of its actions.

    Its COUNTS say so; of one that has none, a copy is played for one step.
    """
    observed, acted = (_parts(getattr(environment, name, None)) for name in ("observation_space", "action_space"))
    if len(acted) < 2 or observed.keys() != acted.keys():
        return False
    bare = getattr(environment, "unwrapped", environment)
    if any(getattr(bare, name, None) == len(acted) for name in COUNTS):
        return True
    before = globals_state()  # a look draws nothing from what the run seeds
    try:
        played = ListedAgents(copy.deepcopy(environment))
        played.reset(seed=0)
        actions = {agent: space.sample() for agent, space in played.action_spaces.items()}
        reward = played.env.step(played.joint(actions))[1]
    except BaseException as error:
        if is_interrupt(error):
            raise
        return False
    finally:
        restore_globals(before)
    return isinstance(reward, Mapping) if played.has_names else as_array(reward).shape[:1] == (len(acted),)


def _parts(space: Any) -> dict[Any, Space[Any]]:
    """Return the parts of a Tuple, a Dict or a list of spaces, by agent; {} for any other space."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return dict(space.spaces)
    parts = space.spaces if isinstance(space, spaces.Tuple) else space if isinstance(space, list | tuple) else ()
    is_each = all(isinstance(part, spaces.Space) for part in parts)
    return {f"agent_{number}": part for number, part in enumerate(parts)} if is_each else {}


class ListedAgents:
    """An environment of `lists_agents` as one whose agents act at once. Every attribute is that of `env`.

    has_names: whether its spaces are Dicts.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.observation_spaces, self.action_spaces = _parts(env.observation_space), _parts(env.action_space)
        self.observation_space, self.action_space = self.observation_spaces.get, self.action_spaces.get
        self.has_names = isinstance(env.action_space, Mapping)
        self.possible_agents = list(self.action_spaces)
        self.agents: list[Any] = []
        self._actions: dict[Any, Any] = dict.fromkeys(self.possible_agents)  # the last ones

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # before the constructor has set it
            raise AttributeError(name)
        return getattr(self.env, name)

    def joint(self, actions: Mapping[Any, Any]) -> Any:
        """Return actions as the environment takes them.

        A tuple has the last ones of agents that have ended, which the environment ignores.
        """
        self._actions.update(actions)
        return dict(actions) if self.has_names else tuple(self._actions.values())

    def reset(self, **arguments: Any) -> Any:
        """Begin an episode of all agents."""
        observations, info = self.env.reset(**arguments)
        self.agents = list(self.possible_agents)
        return self._by_agent(observations), self._by_agent(info)

    def step(self, actions: Mapping[Any, Any]) -> Any:
        """Let all agents act that have not ended."""
        found = StepResult(*map(self._by_agent, self.env.step(self.joint(actions))))
        self.agents = [agent for agent in self.agents if not found.is_over(agent)]
        return tuple(found)

    def _by_agent(self, values: Any) -> Mapping[Any, Any]:
        """Return values by agent; one that is no sequence with a value for each agent is that of every agent."""
        if isinstance(values, Mapping):
            return values if self.has_names else dict.fromkeys(self.possible_agents, values)
        try:
            is_each = len(values) == len(self.possible_agents)
        except TypeError:  # a number
            is_each = False
        return dict(zip(self.possible_agents, values if is_each else [values] * len(self.possible_agents), strict=True))
