"""Reads the first observations of an environment, from which the origins of its numbers follow (`spaces.origins`).

An environment is played for them only if its dtypes hold what float32 does not, once for a run, where its spaces are
read: in a process that is thrown away, or is the environment's own.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from hive.envs.random_play import OneVector, Player, play
from hive.envs.recipe import Recipe
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.spaces.origins import are_small, may_need, with_found_origins
from hive.envs.spaces.spec import AgentSpec, EnvironmentSpec
from hive.envs.vectors.checks import at
from hive.runtime.actor.error_location import is_interrupt

EPISODES, STEPS = 4, 8  # beginnings of episodes, and steps of random actions in each
LIMIT_S = 1.0  # after it, no further call: a simulator may take seconds for each


def with_origins_seen(spec: ObservationSpec, episode: Callable[[int], Iterator[Any]]) -> ObservationSpec:
    """Return the spec with the origins that the first observations of an environment show to be needed.

    episode: yields the first observations of the episode with this seed, in the environment's form. An error ends the
    look: a run meets it in its own first episode, and reports it there.
    """
    if not may_need(spec):
        return spec
    seen: list[Any] = []
    until_s = time.monotonic() + LIMIT_S
    try:
        for seed in range(1, EPISODES + 1):
            for observation in episode(seed):
                seen.append(copy.deepcopy(observation))  # environments may write the next one into the same array
                if time.monotonic() > until_s:
                    return with_found_origins(spec, seen)
            if are_small(spec, seen):
                return spec
    except BaseException as error:
        if is_interrupt(error):
            raise
    return with_found_origins(spec, seen)


def first_of(environment: Any, recipe: Recipe) -> Callable[[int], Iterator[Any]]:
    """Return what plays the beginning of an episode of a single environment."""

    def episode(seed: int) -> Iterator[Any]:
        player = Player(OneVector(recipe.id, environment, (), recipe.reset_options))
        for number in play([player], [seed], actions=seed, steps=STEPS):
            yield player.returned[0]
            if number and player.row.episode_lengths[0]:
                return

    return episode


def first_of_class(vector: Any, recipe: Recipe) -> Callable[[int], Iterator[Any]]:
    """Return what begins an episode of a vectorized class with one environment. It takes no options."""

    def episode(seed: int) -> Iterator[Any]:
        observations, _ = vector.reset(seed=seed)
        yield at(observations, 0)

    return episode


def with_origins_of_agents(spec: EnvironmentSpec, observe: Callable[[int], Mapping[str, Any]]) -> EnvironmentSpec:
    """Return the spec of an environment of several agents with their origins. Agents with equal spaces have equal ones.

    observe: begins an episode with a seed, and returns the first observation of each agent that is there.
    """
    if not any(may_need(agent.observation) for agent in spec.agents):
        return spec
    seen = [*_beginnings(observe)]
    agents: list[AgentSpec] = []
    for agent in spec.agents:
        alike = [one.name for one in spec.agents if (one.observation, one.action) == (agent.observation, agent.action)]
        own = [one[name] for one in seen for name in alike if name in one]
        agents.append(replace(agent, observation=with_found_origins(agent.observation, own)))
    return replace(spec, observation=agents[0].observation, agents=tuple(agents))


def _beginnings(observe: Callable[[int], Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    until_s = time.monotonic() + LIMIT_S
    try:
        for seed in range(1, EPISODES + 1):
            yield copy.deepcopy(dict(observe(seed)))
            if time.monotonic() > until_s:
                return
    except BaseException as error:  # as in `with_origins_seen`
        if is_interrupt(error) or isinstance(error, GeneratorExit):
            raise
