"""What acts for agents that no policy of the run learns to act for: a program, or a policy that does not change.

    class Cautious:                       # env: [policies.NAME] scripted = "bots.py:Cautious"
        def __call__(self, observation):  # what the environment returned for the agent
            return 0                      # an action as the environment takes it

A class is called without arguments, once for each environment and agent; one with a method `begin(seed)` is told of
each new episode, with the seed of the environment or None. A function of the observation serves as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hive.errors import EnvironmentFailed
from hive.runtime.actor.error_location import named

if TYPE_CHECKING:  # it imports gymnasium
    from hive.envs.agents.interface import AgentView


class Bot:
    """One agent's program. name: for errors. program: from an observation to an action.

    view: of the agent, for a trained policy, which saw what it puts together (env.agent_index, env.state, masks of
    infos); None for a program, which gets what the environment returns.
    """

    view: AgentView | None = None

    def __init__(self, name: str, program: Callable[[Any], Any]) -> None:
        self._name = name
        self._program = program
        self._begin: Callable[[int | None], object] | None = getattr(program, "begin", None)
        self.sees_view = bool(getattr(program, "sees_view", False))

    def begin(self, seed: int | None) -> None:
        """Begin an episode. seed: of the environment, None in the episodes after its first."""
        if self._begin is not None:
            self._begin(seed)

    def seen(self, observation: Any, info: Any, state: Callable[[], Any], *, ended: bool = False) -> Any:
        """Return what the program sees. state: returns that of the environment. ended: whether its agent is dead."""
        if self.view is None:
            return observation
        see = self.view.seen_dead if ended else self.view.seen
        return see(observation, info, state() if self.view.has_state else None)

    def act(self, observation: Any) -> Any:
        """Return the action for what `seen` returned. Raises EnvironmentFailed with what the program raised."""
        try:
            return self._program(observation)
        except Exception as error:
            raise EnvironmentFailed(f"the policy `{self._name}` raised {named(error)}") from error


def bot_of(name: str, found: Any) -> Bot:
    """Return a bot of a class, which is called, or of a function. Raises EnvironmentFailed for anything else."""
    program = found() if inspect.isclass(found) else found
    if not callable(program):
        raise EnvironmentFailed(
            f"the policy `{name}` is an object of type {type(program).__name__} that cannot be called",
            hint="define `def __call__(self, observation)`, which returns an action",
            permanent=True,
        )
    return Bot(name, program)
