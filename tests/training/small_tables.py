"""Collectors of scripted games of several agents (agent_games), and the rows of their rollouts, column by column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_games import Row, Scripted
from small_trainer import allocate, config_of, weights_of

from hive.envs.agents.bots import Bot
from hive.envs.agents.interface import describe_agents
from hive.envs.agents.parallel import ParallelVector
from hive.envs.agents.seats import with_returns
from hive.envs.agents.table import seat_of, table_of
from hive.envs.agents.turns import TurnsVector
from hive.envs.recipe import Recipe
from hive.envs.spaces.meaning import configured_meaning
from hive.experience import Rollout
from hive.training import Blueprint
from hive.training.collect.several import SeveralCollector


@dataclass
class Table:
    """The collector of a table, and what it collects with."""

    collector: SeveralCollector
    blueprints: Sequence[Blueprint]
    seated: Callable[[Sequence[Any]], ParallelVector | TurnsVector]  # makes a table of other environments
    collected: int = 0

    @property
    def environments(self) -> Sequence[Any]:
        return self.collector.vector.environments

    def collect(self, count: int) -> list[list[Rollout]]:
        """Return the next rollouts, those of each policy."""
        made: list[list[Rollout]] = [[] for _ in self.blueprints]
        members = self.collector.members
        for member, blueprint in zip(members, self.blueprints, strict=True):
            member.bind(weights_of(blueprint)[: blueprint.flat.block_bytes])
        for _ in range(count):
            arrays = [allocate(blueprint.rollout_layout) for blueprint in self.blueprints]
            self.collector.collect(arrays, sequence=self.collected, versions=[0] * len(members))
            self.collected += 1
            for own, one in zip(made, arrays, strict=True):
                own.append(Rollout(one))
        return made


def table(
    environments: Sequence[Scripted],
    policies: Sequence[Sequence[str]],
    *,
    steps: int = 8,
    bots: Mapping[str, Callable[[], Bot]] | None = None,
    log_probs: bool = False,
    recipe: Recipe | None = None,
    **values: Any,
) -> Table:
    """A table whose environments have been reset. policies: the agents of each. bots: of all other agents."""
    recipe = recipe or Recipe("games:Game")
    config = config_of("games:Game", **{"collection__envs": len(environments), "collection__rollout": steps, **values})
    spec = configured_meaning(describe_agents("games:Game", environments[0], recipe), config.env)
    seats = [seat_of(f"policy{number}", spec, agents) for number, agents in enumerate(policies)]
    blueprints = [
        Blueprint(replace(config, env=replace(config.env, info=with_returns((), spec))), None, seat.spec, 2)
        for seat in seats
    ]
    infos = [blueprint.config.env.info for blueprint in blueprints]
    members = [blueprint.member(0) for blueprint in blueprints]
    for member in members:
        member.log_probs = log_probs

    def seated(others: Sequence[Any]) -> ParallelVector | TurnsVector:
        return table_of([recipe] * len(others), others, seats, bots, infos)

    collector = SeveralCollector(seated(environments), members, seed=1, source=0)
    collector.reset()
    return Table(collector, blueprints, seated)


def row_at(rollout: Rollout, t: int, column: int) -> Row:
    """A row of a rollout; what follows a truncation is its final observation."""
    terminated, truncated = bool(rollout.terminated[t, column]), bool(rollout.truncated[t, column])
    index = int(rollout.final_index[t, column])
    assert (index >= 0) == truncated
    following = rollout.final_observations[index] if truncated else rollout.observations[t + 1, column]
    return Row(
        tuple(rollout.observations[t, column].tolist()),
        int(rollout.actions[t, column]),
        float(rollout.rewards[t, column]),
        terminated,
        truncated,
        None if terminated else tuple(following.tolist()),
        float(rollout.episode_returns[t, column]),
        int(rollout.episode_lengths[t, column]),
    )


def column_rows(rollouts: Sequence[Rollout], column: int) -> list[Row]:
    """The valid rows of a column, in order; where a rollout's are fewer than its steps, they are the first."""
    rows: list[Row] = []
    for rollout in rollouts:
        count = int(rollout.valid[:, column].sum())
        assert rollout.valid[:count, column].all()
        rows += [row_at(rollout, t, column) for t in range(count)]
    return rows
