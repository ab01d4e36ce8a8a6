"""Makes the environments of a table: its seats, and the bots of the other agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hive.envs.agents.bots import Bot
from hive.envs.agents.interface import acts_in_turn, views_of
from hive.envs.agents.parallel import ParallelVector
from hive.envs.agents.seats import Seat, SeatRows
from hive.envs.agents.turns import TurnsVector
from hive.envs.agents.waiting import InTurn
from hive.envs.context import EnvContext
from hive.envs.make import make_each
from hive.envs.recipe import Recipe
from hive.envs.spaces.kinds import spec_of_kind
from hive.envs.spaces.spec import EnvironmentSpec
from hive.envs.vectors.resetting import Resets
from hive.envs.wrappers import with_names

Bots = Mapping[str, Callable[[], Bot]]
"""Agent -> what makes the bot that acts for it, for each environment anew."""


def make_table(
    recipe: Recipe,
    count: int,
    seats: Sequence[Seat],
    bots: Bots | None = None,
    infos: Sequence[Sequence[str]] | None = None,
    contexts: Sequence[EnvContext] | None = None,
) -> ParallelVector | TurnsVector:
    """Build `count` environments of several agents, with the agents of each seat.

    infos: of each seat, the names of the values of `info` in its rows; None: those of the recipe. contexts: as of
    `hive.envs.vectors.vector.vector_of`. Raises the errors of `make_any`, and EnvironmentFailed for spaces.
    """
    recipes, environments, again = make_each(recipe, contexts or [EnvContext(number) for number in range(count)])
    return table_of(recipes, environments, seats, bots, infos, construct=again)


def table_of(
    recipes: Sequence[Recipe],
    environments: Sequence[Any],
    seats: Sequence[Seat],
    bots: Bots | None = None,
    infos: Sequence[Sequence[str]] | None = None,
    first: int = 0,
    construct: Callable[[int], Any] | None = None,
) -> ParallelVector | TurnsVector:
    """Seat the agents of environments that exist, with the recipe of each; as `make_table`.

    first: as of `hive.envs.vectors.vector.make_vector`. construct: as of `Resets`.
    """
    recipe = recipes[0]
    id = with_names(recipe.id, recipe.wrappers)
    views = [views_of(id, environment, one) for environment, one in zip(environments, recipes, strict=True)]
    names = infos if infos is not None else [recipe.info] * len(seats)
    rows = [SeatRows(seat, id, views, info, first) for seat, info in zip(seats, names, strict=True)]
    acting = [{agent: make() for agent, make in (bots or {}).items()} for _ in environments]
    for each, bots_of_one in zip(views, acting, strict=True):
        for agent, bot in bots_of_one.items():
            bot.view = each[agent] if bot.sees_view else None
    options = [one.reset_options for one in recipes]
    if not seats[0].spec.takes_turns:
        return ParallelVector(id, rows, acting, Resets(environments, options, construct))
    in_turn = [_in_turn(one) for one in environments]
    again = construct and (lambda number: _in_turn(construct(number)))
    return TurnsVector(id, rows, acting, Resets(in_turn, options, again))


def _in_turn(environment: Any) -> Any:
    """Return an environment whose agents act one after the other: itself, or around one that they share in steps."""
    return environment if acts_in_turn(environment) else InTurn(environment)


def seat_of_all(policy: str, spec: EnvironmentSpec) -> Seat:
    """Return the seat of a policy that acts for all agents of an environment. Their spaces must be equal."""
    return seat_of(policy, spec, [agent.name for agent in spec.agents])


def seat_of(policy: str, spec: EnvironmentSpec, agents: Sequence[str]) -> Seat:
    """Return the seat of a policy that acts for these agents, whose spaces must be equal."""
    return Seat(policy, spec_of_kind(spec, agents))
