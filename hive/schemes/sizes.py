"""Refuse a run that does not fit this machine, before anything large is allocated, and say what makes it so large.

    config, spaces -> layouts -> plan -> bytes      `memory_of`: milliseconds, without memory, whatever the sizes
    more than is free -> the same with one cause of it made small, for each possible cause

The cause is the one whose small value saves most. So this module has no copy of the rules from which sizes follow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, prod
from pathlib import Path
from typing import Any

from hive.config import Config, NetworkConfig, ReplayConfig
from hive.envs import (
    ActionSpec,
    ArraySpec,
    Box,
    Composite,
    Discrete,
    EnvironmentSpec,
    ObservationPart,
    ObservationSpec,
    choices_of,
)
from hive.errors import HiveError, MemoryShort
from hive.free_memory import free_memory
from hive.runtime import Topology, check_memory
from hive.schemes.trainer import assemble
from hive.training import Blueprint

MOST_WAYS = 3  # ways out that an error lists

# Key -> a small value of it. Keys of [algorithm] that an algorithm does not have are left out.
SMALL: dict[str, Any] = {
    "network.middleware": NetworkConfig().middleware,
    "network.value_middleware": NetworkConfig().middleware,
    "network.memory_size": 1,
    "env.frame_stack": 1,
    "collection.envs": 1,
    "collection.rollout": 1,
    "collection.workers": 1,
    "collection.slots": 2,
    "collection.max_lag": 0,
    "gradients.workers": 1,
    "gradients.max_lag": 0,
    "gradients.bootstrap_rounds": 1,
    "evaluation.workers": 1,
    "algorithm.replay_capacity": 0,  # see `_keys`
    "algorithm.batch_size": 1,
    "algorithm.dueling": 1,
    "algorithm.atoms": 2,
    "algorithm.quantiles": 1,
}
CUSTOM_NETWORK = ("module", "extractor", "policy_head", "value_head")  # keys of [network] that name code of the user


@dataclass(frozen=True)
class _Cause:
    """A part of a config or of its spaces, and the same run with a small one in its place."""

    name: str
    way: str  # how it can be made smaller
    key: str  # of the config; "" for a space
    config: Config
    environment: EnvironmentSpec


def check_run(topology: Topology, config: Config, directory: Path, blueprint: Blueprint) -> None:
    """Raise MemoryShort if the topology needs more memory than is free here. blueprint: that of its trainer."""
    try:
        check_memory(topology.plan())
    except MemoryShort as error:
        raise explained(error, config, blueprint.environment, directory) from None


def check_settings(config: Config, environment: EnvironmentSpec) -> None:
    """Raise MemoryShort if a run of the built-in trainer with this config needs more memory than is free here."""
    stacked = dataclasses.replace(environment.observation, stack=config.env.frame_stack)
    environment, directory = dataclasses.replace(environment, observation=stacked), Path(config.run.name)
    try:
        check_memory(assemble(Blueprint(config, None, environment), directory).plan())
    except MemoryShort as error:
        raise explained(error, config, environment, directory) from None


def explained(error: MemoryShort, config: Config, environment: EnvironmentSpec, directory: Path) -> MemoryShort:
    """Return the error with its main cause, and with ways out."""
    free = free_memory()
    custom = [name for name in CUSTOM_NETWORK if getattr(config.network, name)]
    without: dict[str, Any] = {**dict.fromkeys(CUSTOM_NETWORK), "extractor_options": {}}
    usual = dataclasses.replace(config, network=dataclasses.replace(config.network, **without))
    before = memory_of(usual, environment, directory)
    causes = [(memory_of(cause.config, cause.environment, directory), cause) for cause in _causes(usual, environment)]
    found = sorted(((bytes, cause) for bytes, cause in causes if bytes is not None), key=lambda one: one[0])
    if not found or (before is not None and before <= free.usable and not custom):
        return error  # the actors of a custom topology need the memory
    if before is not None and before <= free.usable:
        code = " and ".join(f"network.{name}" for name in custom)
        return MemoryShort(f"{error}, because of {code}", hint=f"make the network of {code} smaller")
    enough = [cause for bytes, cause in found if bytes <= free.usable]
    keys, spaces = ([cause for cause in enough if bool(cause.key) is is_key] for is_key in (True, False))
    named = keys[:1] + spaces[:1] or [min(found, key=lambda one: one[0])[1]]
    ways = [cause.way for cause in (keys + spaces)[:MOST_WAYS]] or [f"{named[0].way}; that alone is not enough"]
    return MemoryShort(f"{error}, because of {' and '.join(cause.name for cause in named)}", hint=", or ".join(ways))


def memory_of(config: Config, environment: EnvironmentSpec, directory: Path) -> float | None:
    """Return the bytes that the built-in trainer needs; inf: more than can be counted; None: an impossible config."""
    checkpoint = dataclasses.replace(config.checkpoint, replay=False)  # no check of the disk
    try:
        blueprint = Blueprint(dataclasses.replace(config, checkpoint=checkpoint), None, environment)
        plan = assemble(blueprint, directory).plan()
    except MemoryShort:
        return inf
    except HiveError:
        return None
    return plan.bytes + plan.private_bytes


def _causes(config: Config, environment: EnvironmentSpec) -> Iterator[_Cause]:
    """Yield the spaces and keys that a run may be too large by, with a small one in the place of each."""
    observation, action = environment.observation, environment.action
    small = dataclasses.replace(environment, observation=_small_observation(observation))
    part = max(observation.inputs, key=_elements)
    way = "encode it in fewer numbers in a wrapper (env.wrappers)"
    yield _Cause(f"the observation{_called(part)}, {_space(part)}", way, "", config, small)
    few = dataclasses.replace(environment, action=_small_action(action), observation=_unmasked(observation))
    way = "give it fewer values in a wrapper (env.wrappers)"
    yield _Cause(f"the actions, {_actions(action)}", way, "", config, few)
    for key, value in SMALL.items():
        section, _, name = key.partition(".")
        table = getattr(config, section)
        now = getattr(table, name, value)
        if isinstance(config.algorithm, ReplayConfig) and name == "replay_capacity":
            value = config.collectors * config.collection.envs * config.algorithm.n_step
        if now is None or now == value or (sum(now) <= 0 if isinstance(now, tuple) else now <= value):
            continue
        smaller = dataclasses.replace(config, **{section: dataclasses.replace(table, **{name: value})})
        there = environment
        if name == "frame_stack":
            there = dataclasses.replace(environment, observation=dataclasses.replace(observation, stack=1))
        yield _Cause(f"{key} = {_value(now)}", _way(key), key, smaller, there)


def _value(value: int | tuple[int, ...]) -> str:
    """Return a value as a config has it."""
    return f"{value:_}" if isinstance(value, int) else f"[{', '.join(f'{one:_}' for one in value)}]"


def _way(key: str) -> str:
    if key == "algorithm.replay_capacity":
        return f"lower {key} or set run.replay_folder to a folder on a disk"
    return f"lower {key}"


def _small_observation(observation: ObservationSpec) -> ObservationSpec:
    """Return an observation of one number, stacked as this one."""
    return ObservationSpec((1,), "float32", stack=observation.stack)


def _unmasked(observation: ObservationSpec) -> ObservationSpec:
    """Return the observation without its action mask, whose bytes stay."""
    return dataclasses.replace(observation, mask=None)


def _small_action(action: ActionSpec) -> ActionSpec:
    """Return an action of the same kind with one element of few values."""
    match action:
        case Box():
            return dataclasses.replace(action, shape=(1,), low=action.low[:1], high=action.high[:1])
        case Composite() if choices_of(action) is None:
            return Composite(tuple(map(_small_action, action.parts)), action.names)
    return Discrete(2)


def _elements(one: ArraySpec) -> int:
    return max(prod(one.shape), sum(one.counts))


def _called(one: ArraySpec) -> str:
    return f" `{one.name}`" if isinstance(one, ObservationPart) and one.path else ""


def _space(one: ArraySpec) -> str:
    """Return the space that an array is stored for, as Gymnasium names it."""
    if len(one.counts) == 1:
        return f"Discrete({one.counts[0]})"
    if one.counts:
        return f"MultiDiscrete of {len(one.counts):,} elements with {sum(one.counts):,} values"
    return f"{prod(one.shape):,} numbers of {one.dtype} in the shape {one.shape}"


def _actions(action: ActionSpec) -> str:
    if isinstance(action, Discrete):
        return f"Discrete({action.n})"
    choices = choices_of(action)
    if choices is None:
        return f"{prod(action.shape):,} numbers"
    return f"{len(choices):,} choices of {sum(choices):,} values"
