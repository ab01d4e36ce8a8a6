"""One environment of several agents that also gives pictures: the table of `hive.envs.agents` with a camera around it.

    agents at once    the picture after each step
    agents in turn    the picture after each turn, also of a bot; an agent that has ended and acts no more has none

With the same seeds it makes the episodes of environment 0 of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hive.config import EnvConfig
from hive.envs.agents.interface import has_agents
from hive.envs.agents.seats import Seat
from hive.envs.agents.table import Bots, table_of
from hive.envs.configured import recipe_of
from hive.envs.context import EnvContext
from hive.envs.drawing.rendering import Film, Rendered, choose_renderer, fps_of, render_mode_of
from hive.envs.make import make_any
from hive.errors import EnvironmentFailed


def rendered_table(
    env: EnvConfig, seats: Sequence[Seat], bots: Bots, *, context: EnvContext, window: bool = False
) -> Rendered:
    """Build an environment of several agents with pictures; as `hive.envs.drawing.rendering.rendered_environment`."""
    mode = render_mode_of(env, context, window)
    recipe = recipe_of(env).at(context)
    inner = make_any(recipe, mode)
    if not has_agents(inner):
        raise EnvironmentFailed(f"`{env.id}` has one agent with pictures, and several without", permanent=True)
    choose_renderer()
    film = Film(inner, env.id, draws=mode == "rgb_array")
    table = table_of([recipe], [_FilmedAgents(inner, film)], seats, bots)
    return Rendered(table, fps_of(inner.metadata), film)


class _FilmedAgents:
    """An environment of several agents, of either kind, that is filmed."""

    def __init__(self, environment: Any, film: Film) -> None:
        self._environment = environment
        self._film = film

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def reset(self, **arguments: Any) -> Any:
        """Begin an episode."""
        self._film.begin()
        return self._environment.reset(**arguments)

    def step(self, action: Any) -> Any:
        """Make a step of all agents, or the turn of one."""
        if action is None:  # of an agent that has ended
            return self._environment.step(None)
        with self._film.step():
            return self._environment.step(action)
