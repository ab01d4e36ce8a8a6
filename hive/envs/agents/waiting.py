"""Lets agents that act only in some steps have a turn in each of these.

RLlib's classes return observations of the agents that must act next, and so do simulators whose agents decide at times
of their own. Such an environment is played turn by turn: the agents with an observation have their turns, then it makes
a step. So rewards are summed until the agent acts again, and a turn counts as in `hive.envs.agents.turns`.

    step -> observations of a and c      turn of a, turn of c, step with their actions
         -> observation of b             turn of b, step with its action
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hive.envs.agents.interface import describe_agents, views_of
from hive.envs.agents.parallel import AgentWaits, ParallelVector, StepResult
from hive.envs.agents.seats import Seat, SeatRows
from hive.envs.random_actions import RandomActions
from hive.envs.recipe import Recipe
from hive.envs.spaces.kinds import kinds_of, spec_of_kind
from hive.envs.spaces.spec import EnvironmentSpec
from hive.envs.vectors.resetting import Resets
from hive.envs.vectors.rows import StepRow
from hive.errors import EnvironmentFailed

LOOK_STEPS = 24  # steps of random actions in which an agent must wait for its environment to be played turn by turn
MOST_STEPS = 10_000  # steps without an observation of any agent, of an episode that has not ended


def described_agents(recipe: Recipe, environment: Any, *, plays: bool = False) -> EnvironmentSpec:
    """Return the spec of an environment, of which a few steps are played: as `describe_agents`, with who waits."""
    spec = describe_agents(recipe.id, environment, recipe, plays=plays)
    if spec.takes_turns:
        return spec
    views = [views_of(recipe.id, environment, recipe)]
    kinds = [spec_of_kind(spec, agents) for agents in kinds_of(spec.agents).values()]
    seats = [SeatRows(Seat("", kind), recipe.id, views, ()) for kind in kinds]
    vector = ParallelVector(recipe.id, seats, [{}], Resets([environment], [recipe.reset_options]))
    rows = [StepRow.allocate(kind.observation, seat.count) for kind, seat in zip(kinds, seats, strict=True)]
    draws = [RandomActions(kind.action, kind.observation.mask, seed=0) for kind in kinds]
    try:
        vector.reset([0], [row.observations for row in rows])
        vector.play([1])
        for _ in range(LOOK_STEPS):
            for row in rows:
                row.finals.count = 0
            vector.step([draw(row.observations) for draw, row in zip(draws, rows, strict=True)], rows)
    except AgentWaits:
        return replace(spec, takes_turns=True)
    except EnvironmentFailed:  # a run meets it in its own first episode, and reports it there
        pass
    return spec


class InTurn:
    """An environment whose agents act in some steps only, in the form of PettingZoo's AECEnv.

    made: steps since it was made. unseen: agents that the last step has truncated without an observation, so that
    `observe` returns an older one. Every other attribute is that of `env`.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.made = 0
        self.unseen: set[Any] = set()

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # before the constructor has set it
            raise AttributeError(name)
        return getattr(self.env, name)

    def agent_iter(self) -> Any:
        """Yield whose turn it is, until no agent is left."""
        while self.agents:
            yield self.agent_selection

    def reset(self, **arguments: Any) -> None:
        """Begin an episode."""
        observations, infos = self.env.reset(**arguments)
        self.agents: list[Any] = []  # those that have been seen and have not ended, or not had their last turn
        self.terminations: dict[Any, bool] = {}
        self.truncations: dict[Any, bool] = {}
        self.infos: dict[Any, Any] = dict(infos)
        self._cumulative_rewards: dict[Any, float] = {}
        self._seen: dict[Any, Any] = {}
        self._actions: dict[Any, Any] = {}
        self._turns: list[Any] = []
        self._goes_on = True
        self._see(observations, [])
        self._step_until_a_turn()

    @property
    def agent_selection(self) -> Any:
        """The agent whose turn it is."""
        return self._turns[0]

    def observe(self, agent: Any) -> Any:
        """Return what the agent has seen last."""
        return self._seen[agent]

    def last(self) -> tuple[Any, ...]:
        """Return what came since the last turn of the agent whose turn it is."""
        agent = self._turns[0]
        flags = self.terminations[agent], self.truncations[agent]
        return self._seen[agent], self._cumulative_rewards[agent], *flags, self.infos.get(agent, {})

    def step(self, action: Any) -> None:
        """Take the action of the agent whose turn it is, None of one that has ended; step after the last turn."""
        agent = self._turns.pop(0)
        self._cumulative_rewards[agent] = 0.0
        if self.terminations[agent] or self.truncations[agent]:
            self.agents.remove(agent)
        else:
            self._actions[agent] = action
        self._step_until_a_turn()

    def _step_until_a_turn(self) -> None:
        """Step while no agent has a turn and the episode goes on."""
        for _ in range(MOST_STEPS):
            if self._turns or not self._goes_on:
                return
            actions, self._actions = self._actions, {}
            found = StepResult(*self.env.step(actions))
            self.made += 1
            for agent, reward in found.rewards.items():
                self._cumulative_rewards[agent] = self._cumulative_rewards.get(agent, 0.0) + float(np.asarray(reward))
            self.infos |= found.infos
            self._end(found)
            self.unseen = {agent for agent in self.agents if self.truncations[agent]} - found.observations.keys()
            there = {a: seen for a, seen in found.observations.items() if a in self.agents or not found.is_over(a)}
            self._see(there, [agent for agent in self.agents if self._has_ended(agent)])
        raise RuntimeError(f"no agent had an observation in {MOST_STEPS:,} steps, and the episode has not ended")

    def _end(self, found: StepResult) -> None:
        """Take the flags. The episode ends when all agents have, and where none is listed any more."""
        for agent in self.agents:
            flags = (bool(flag) for flag in found.known_flags(agent))
            self.terminations[agent], self.truncations[agent] = flags
        left = [agent for agent in self.agents if not self._has_ended(agent)]
        if left and len(left) < len(self.agents) and getattr(self.env, "agents", None) == []:
            self.truncations |= dict.fromkeys(left, True)  # not told of by flags
            left = []
        unborn = any(agent not in self.terminations for agent in self.possible_agents)
        self._goes_on = bool(left) or (found.is_rllib and not found.ends_all and unborn)

    def _has_ended(self, agent: Any) -> bool:
        return self.terminations[agent] or self.truncations[agent]

    def _see(self, observations: Mapping[Any, Any], ended: list[Any]) -> None:
        """Give turns to agents that ended, which are their last ones, and then to those that must act."""
        acting = [agent for agent in observations if agent not in ended] if self._goes_on else []
        for agent in acting:
            if agent not in self.agents:
                self.agents.append(agent)
                self.terminations[agent] = self.truncations[agent] = False
                self._cumulative_rewards.setdefault(agent, 0.0)
        self._seen |= observations
        self._turns = [*ended, *acting]
