"""Plays an environment of several agents with random actions, and reports what it did, for `hive check`.

It is played by the code that collects rollouts, with a seat for each kind of spaces, so what ends a run is found here
with the same words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.envs.agents.parallel import ParallelVector
from hive.envs.agents.seats import Seat, SeatRows
from hive.envs.agents.table import seat_of, table_of
from hive.envs.agents.turns import TurnsVector
from hive.envs.agents.waiting import InTurn, described_agents
from hive.envs.context import EnvContext
from hive.envs.make import make_any
from hive.envs.random_actions import RandomActions
from hive.envs.random_play import Played, play
from hive.envs.recipe import Recipe
from hive.envs.spaces.by_spaces import spaces_text
from hive.envs.spaces.kinds import kinds_of
from hive.envs.spaces.spec import EnvironmentSpec
from hive.envs.vectors.rows import StepRow
from hive.errors import EnvironmentFailed
from hive.records.run_warnings import AGENTS_ALIKE

SEED = 0  # of the environment and of the actions, which are independent of each other
SEEN_STEPS, SEEN_S = 64, 1.0  # steps, and their time, in which agents must see something different


@dataclass
class PlayedAgents:
    """What the agents did in `steps` steps or turns.

    there: agent -> steps or turns in which it acted. late, early: agents that are not there when an episode begins, and
    that end before others do. returns: of the team, of each episode; lengths: its steps or turns. rewards: of every
    agent that acted, in order. step_s: time of all steps but the first.
    """

    steps: int = 0
    there: Counter[str] = field(default_factory=Counter)
    late: set[str] = field(default_factory=set)
    early: set[str] = field(default_factory=set)
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    first_reset_s: float = 0.0
    first_step_s: float = 0.0
    step_s: float = 0.0


def seats_by_spaces(spec: EnvironmentSpec) -> list[Seat]:
    """Return a seat for each kind of spaces."""
    return [seat_of("", spec, agents) for agents in kinds_of(spec.agents).values()]


class PlayedTable(Played):
    """One environment, played with random actions. recipe: with a context. played: what its agents did."""

    def __init__(self, recipe: Recipe, environment: Any, begin: Callable[[str], object] = lambda call: None) -> None:
        super().__init__(begin)
        self.spec = described_agents(recipe, environment)
        self.table = table_of([recipe], [environment], seats_by_spaces(self.spec))
        self._rows = [StepRow.allocate(seat.seat.spec.observation, seat.count) for seat in self.table.seats]
        self.played = PlayedAgents()

    def play(self, steps: int, limit_s: float) -> PlayedAgents:
        """Play from a reset until the limits, as `play` has them; an error leaves what was played before it."""
        done = self.played = PlayedAgents()
        for number in play([self], [SEED], actions=SEED, steps=steps, limit_s=limit_s):
            if number == 0:
                done.first_reset_s = self.resets_s
            elif number == 1:
                done.first_step_s = self.step_s
            else:
                done.step_s += self.step_s
            done.steps = number
            for ended in self.table.ended:
                done.returns.append(sum(ended.returns.values()))
                done.lengths.append(ended.steps)
            self.table.ended.clear()
        return done

    def reset(self, seed: int | None, actions: int) -> None:
        """Begin an episode."""
        assert seed is not None
        specs = [seat.seat.spec for seat in self.table.seats]
        self._draw = [RandomActions(spec.action, spec.observation.mask, actions) for spec in specs]
        with self.timed("reset"):
            if isinstance(self.table, ParallelVector):
                self.table.reset([seed], [row.observations for row in self._rows])
            else:
                for seat, row in zip(self.table.seats, self._rows, strict=True):
                    seat.begin()
                    seat.store(row.observations)
                self.table.reset([seed])
        self._note_late()

    def step(self) -> None:
        """Make a step, or a turn."""
        with self.timed("step"):
            if isinstance(self.table, ParallelVector):
                self._step_at_once(self.table)
            else:
                self._turn()

    def _note_late(self) -> None:
        if isinstance(self.table, ParallelVector):
            for seat in self.table.seats:
                self.played.late |= {seat.agents[column] for column in np.flatnonzero(~seat.present)}

    def _step_at_once(self, table: ParallelVector) -> None:
        actions = [draw(row.observations) for draw, row in zip(self._draw, self._rows, strict=True)]
        for row in self._rows:
            row.finals.count = 0
        table.step(actions, self._rows)
        going_on = not table.ended
        for seat, row in zip(table.seats, self._rows, strict=True):
            acted = np.flatnonzero(row.valid)
            self.played.there.update(seat.agents[column] for column in acted)
            self.played.rewards += row.rewards[acted].tolist()
            if going_on:
                ended = np.flatnonzero(row.terminated | row.truncated)
                self.played.early |= {seat.agents[column] for column in ended}
        if not going_on:
            self._note_late()

    def _turn(self) -> None:
        assert isinstance(self.table, TurnsVector)
        (game,) = self.table.games
        turn = game.turn
        seat, row = self.table.seats[turn.seat], self._rows[turn.seat]
        seat.checks.steps += 1
        seat.checks.one(turn.column, turn.observation, row.observations)
        self.played.there[seat.agents[turn.column]] += 1
        actions = self._drawn(turn.seat, row.observations, turn.column, seat)
        game.act(seat.environment_actions(actions)[turn.column])
        self.played.rewards += [done.reward for done in game.completed]
        if not self.table.ended:
            self.played.early |= {
                self.table.seats[done.seat].agents[done.column]
                for done in game.completed
                if done.terminated or done.truncated
            }

    def _drawn(self, number: int, observations: NDArray[Any], column: int, seat: SeatRows) -> NDArray[Any]:
        """Return actions [B, ...], of which only that of one column is drawn."""
        drawn = self._draw[number](observations[column : column + 1])
        actions: NDArray[Any] = np.repeat(drawn, seat.count, axis=0)
        return actions

    def close(self) -> None:
        """Close the environment."""
        self.table.close()


def see_the_same(recipe: Recipe) -> bool:
    """Whether agents that would share a policy always see the same, while one environment is played for a moment."""
    recipe = recipe.at(EnvContext(0))
    table = PlayedTable(recipe, make_any(recipe))
    try:
        table.play(SEEN_STEPS, SEEN_S)
    except EnvironmentFailed:  # a run, and `hive check`, report it
        pass
    finally:
        table.close()
    return any(one.kind == AGENTS_ALIKE for one in table.table.notices.warnings())


def agent_facts(table: PlayedTable, played: PlayedAgents) -> dict[str, str]:
    """Return the lines about the agents, name -> text."""
    spec = table.spec
    names = [agent.name for agent in spec.agents]
    how = "act in turn" if spec.takes_turns else "act at once"
    if isinstance(table.table.environments[0], InTurn):
        how = "act only in some steps"
    facts = {"agents": f"{len(names)}, which {how}: {', '.join(names)}"}
    for seat in seats_by_spaces(spec):
        observed, _, acted = spaces_text(seat.spec).partition(" observed, ")
        stored = f"{seat.spec.observation.dtype} {list(seat.spec.observation.shape)}"
        name = ", ".join(seat.agents) if len(seat.agents) < len(names) else "each agent"
        facts[name] = f"{observed} observed, stored as {stored}; {acted}"
    if played.steps:
        unit = "turns" if spec.takes_turns else "steps"
        acted = ", ".join(f"{name} {count:,}" for name, count in sorted(played.there.items()))
        facts[unit] = f"{played.steps:,} with random actions; acted: {acted}"
        for what, agents in (("not there from the start", played.late), ("end before others", played.early)):
            if agents:
                facts[what] = ", ".join(name for name in names if name in agents)
        low, high = (min(played.rewards), max(played.rewards)) if played.rewards else (0.0, 0.0)
        facts["rewards"] = f"{low:g} to {high:g}"
        facts["episodes"] = _episodes(played, unit)
    return facts


def _episodes(played: PlayedAgents, unit: str) -> str:
    if not played.lengths:
        return "none ended"
    lengths, returns = np.array(played.lengths), np.array(played.returns)
    return (
        f"{len(lengths):,} ended, after {lengths.min():,} to {lengths.max():,} {unit} (mean {lengths.mean():.0f}), "
        f"with returns of the team from {returns.min():.4g} to {returns.max():.4g} (mean {returns.mean():.4g})"
    )


def differs(first: Sequence[float], again: Sequence[float]) -> bool:
    """Whether two plays with the same seed gave other rewards, as far as both went."""
    return any(one != other for one, other in zip(first, again, strict=False))
