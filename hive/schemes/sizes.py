"""Refuse a run that does not fit this machine, before anything large is allocated, and name what is large in it.

    config, spaces -> layouts -> plan -> bytes      `memory_of`: milliseconds, without memory, whatever the sizes

Named are the spaces of many elements, the keys that are given and larger than usual, and custom networks.
"""

from __future__ import annotations

import dataclasses
from math import inf, prod
from pathlib import Path

from hive.config import Config
from hive.envs import ActionSpec, ArraySpec, Discrete, EnvironmentSpec, ObservationPart, choices_of
from hive.errors import HiveError, MemoryShort
from hive.runtime import check_memory
from hive.schemes.trainer import assemble
from hive.training import Blueprint

MANY = 10_000  # elements of an observation or an action that an error names
CUSTOM_NETWORK = ("network.module", "network.extractor", "network.policy_head", "network.value_head")
REPLAY = "algorithm.replay_capacity"
USUAL_REPLAY = 100_000  # rows of a replay memory; more are named also where they are the default
LARGER = (
    *("network.middleware", "network.value_middleware", "network.memory_size", "env.frame_stack"),
    *("collection.envs", "collection.rollout", "collection.workers", "collection.slots", "collection.max_lag"),
    *("gradients.workers", "gradients.max_lag", "gradients.bootstrap_rounds", "evaluation.workers"),
    *(REPLAY, "algorithm.batch_size", "algorithm.dueling", "algorithm.atoms", "algorithm.quantiles"),
)  # keys whose larger values make a run larger


def check_settings(config: Config, environment: EnvironmentSpec) -> None:
    """Raise MemoryShort if a run of the built-in trainer with this config needs more memory than is free here."""
    stacked = dataclasses.replace(environment.observation, stack=config.env.frame_stack)
    environment, directory = dataclasses.replace(environment, observation=stacked), Path(config.run.name)
    try:
        check_memory(assemble(Blueprint(config, None, environment), directory).plan())
    except MemoryShort as error:
        raise explained(error, config, environment) from None


def explained(error: MemoryShort, config: Config, environment: EnvironmentSpec) -> MemoryShort:
    """Return the error with what is large in the run, and with ways out; the error itself where nothing is."""
    found: dict[str, str] = {}
    part = max(environment.observation.inputs, key=_elements)
    if _elements(part) > MANY:
        found[f"the observation{_called(part)}, {_space(part)}"] = "encode it in fewer numbers in a wrapper"
    if _acted(environment.action) > MANY:
        found[f"the actions, {_actions(environment.action)}"] = "give them fewer values in a wrapper"
    for name in CUSTOM_NETWORK:
        if config.value(name):
            found[name] = f"make the network of {name} smaller"
    for name in LARGER:
        section, _, key = name.partition(".")
        if not hasattr(getattr(config, section), key):
            continue
        value, usual = config.value(name), USUAL_REPLAY if name == REPLAY else config.unset.get(name)
        if _size(value) > _size(usual):
            ways = " or set run.replay_folder to a folder on a disk" if name == REPLAY else ""
            found[f"{name} = {_value(value)}"] = f"lower {name}{ways}"
    if not found:
        return error
    return MemoryShort(f"{error}; large in it: {', '.join(found)}", hint=", or ".join(found.values()))


def _size(value: int | tuple[int, ...] | None) -> int:
    """Return a value of LARGER as a number."""
    return sum(value) if isinstance(value, tuple) else value or 0


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


def _value(value: int | tuple[int, ...]) -> str:
    """Return a value as a config has it."""
    return f"{value:_}" if isinstance(value, int) else f"[{', '.join(f'{one:_}' for one in value)}]"


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


def _acted(action: ActionSpec) -> int:
    """Return the number of choices of an action, or of its elements."""
    choices = choices_of(action)
    return prod(action.shape) if choices is None else sum(choices)


def _actions(action: ActionSpec) -> str:
    if isinstance(action, Discrete):
        return f"Discrete({action.n})"
    choices = choices_of(action)
    if choices is None:
        return f"{prod(action.shape):,} numbers"
    return f"{len(choices):,} choices of {sum(choices):,} values"
