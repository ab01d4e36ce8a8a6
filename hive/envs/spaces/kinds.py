"""Groups the agents of an environment by their spaces: agents with equal spaces can share a policy.
Bounds of observations may differ: its scale is that of all of them.

`speaker_0` and `speaker_1` are the kind `speaker`; the name is that of their policy where a config has no [policies].
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from math import prod

import numpy as np

from hive.config.policies import NAME_LENGTH
from hive.envs.spaces.observation import ArraySpec
from hive.envs.spaces.origins import with_inputs
from hive.envs.spaces.spec import AgentSpec, EnvironmentSpec

ALL = "agents"
"""The name of the only kind of agents."""

LITERAL = {ord(sign): f"[{sign}]" for sign in "*?["}
"""Signs of patterns -> themselves, as a pattern."""


def kinds_of(agents: Sequence[AgentSpec]) -> dict[str, list[str]]:
    """Return the names of the agents of each kind, by the name of the kind, in the order of their first agents."""
    kinds: list[list[str]] = []
    first: list[tuple[object, object]] = []
    for agent in agents:
        spaces = agent.observation, agent.action
        if spaces not in first:
            first.append(spaces)
            kinds.append([])
        kinds[first.index(spaces)].append(agent.name)
    if len(kinds) == 1:
        return {ALL: kinds[0]}
    named: dict[str, list[str]] = {}
    for number, names in enumerate(kinds):
        stems = {_stem(name) for name in names}
        stem = stems.pop() if len(stems) == 1 else ""
        if not stem or stem in named:
            stem = next(free for free in map("policy{}".format, itertools.count(number)) if free not in named)
        named[stem] = names
    return named


def spec_of_kind(spec: EnvironmentSpec, names: Sequence[str]) -> EnvironmentSpec:
    """Return an environment as it is for these agents, whose spaces are equal but for the bounds of observations."""
    own = tuple(agent for agent in spec.agents if agent.name in names)
    arrays = zip(*(agent.observation.inputs for agent in own), strict=True)
    observation = with_inputs(own[0].observation, [_of_all(each) for each in arrays])
    return replace(spec, observation=observation, action=own[0].action, agents=own)


def _of_all(each: Sequence[ArraySpec]) -> ArraySpec:
    """Return an array that several agents see: its scale is that of the lowest and the highest of their bounds."""
    if all((one.low, one.high) == (each[0].low, each[0].high) for one in each):
        return each[0]
    size = prod(each[0].shape)
    low = np.min([np.broadcast_to(one.low or 0.0, size) for one in each], axis=0)
    high = np.max([np.broadcast_to(one.high or 1.0, size) for one in each], axis=0)
    kept = slice(1 if len({*zip(low, high, strict=True)}) == 1 else size)
    return replace(each[0], low=tuple(low[kept].tolist()), high=tuple(high[kept].tolist()))


def patterns_for(names: Sequence[str], every: Sequence[str]) -> str | list[str]:
    """Return a pattern that fits these agents and no other of `every`; their names if there is no short one."""
    escaped = [name.translate(LITERAL) for name in names]
    if len(names) == 1:
        return escaped[0]
    pattern = re.sub(r"\d+$", "", names[0]).translate(LITERAL) + "*"
    return pattern if [name for name in every if fnmatchcase(name, pattern)] == [*names] else escaped


def _stem(agent: str) -> str:
    """Return an agent's name without its number, as the name of a policy; "" if nothing is left."""
    stem = re.sub(r"[^a-z0-9_-]", "", re.sub(r"[_-]?\d+$", "", agent.lower())).strip("_-")
    return stem[:NAME_LENGTH]
