"""The inputs of a network: an observation, for a recurrent network (`recurrent`) with its state, or with an action.

These have names. Parts of an observation are addressed by their paths, tuples of keys and positions, so no name that an
environment gives to a part can be one of hive's. A custom module gets parts by the names of their paths (`dotted`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from torch import nn

from hive.networks.rows.sequences import Sequences

__all__ = [
    "ACTION_INPUT",
    "EPISODE_STARTS",
    "OBSERVATION",
    "RECURRENT_STATE",
    "dotted",
    "input_order",
    "observation_of",
    "state_width_of",
    "with_observation",
]

InputName: TypeAlias = str | tuple[str | int, ...]
"""The name of an input, or the path of a part of an observation."""

OBSERVATION = "observation"  # the only observation, where an input beside it has a name
RECURRENT_STATE = "recurrent_state"
EPISODE_STARTS = "episode_starts"

# The name of the input that holds the action; a critic of states and actions has an embedder for it.
ACTION_INPUT = "action"

FURTHER = (RECURRENT_STATE, EPISODE_STARTS, ACTION_INPUT)  # inputs beside the observation


def dotted(name: InputName) -> str:
    """Return the path of a part with dots between keys, `arm.joints`; a name as it is."""
    return name if isinstance(name, str) else ".".join(map(str, name))


def input_order(name: InputName) -> tuple[str, list[str]]:
    """Return the sort key of inputs: by dotted name, and by path where these are equal."""
    return dotted(name), [] if isinstance(name, str) else list(map(repr, name))


def state_width_of(network: nn.Module) -> int:
    """Return the number of elements in the recurrent state of one environment; 0 for a network without a memory."""
    return int(getattr(network, "state_width", 0))


def observation_of(inputs: Any) -> Any:
    """Return the only observation in the inputs of a network: these, or the one beside a state or an action."""
    if isinstance(inputs, Sequences):
        return inputs.observation
    if not isinstance(inputs, Mapping):
        return inputs
    return next(value for name, value in inputs.items() if name not in FURTHER)


def with_observation(inputs: Any, function: Callable[[Any], Any]) -> Any:
    """Return the inputs of a network with `function(observation)` in the place of the only observation.

    The result may be a mapping, whose names then stand beside the state of a recurrent network, or beside an action.
    """
    if not isinstance(inputs, Sequences | Mapping):
        return function(inputs)
    changed = function(observation_of(inputs))
    if isinstance(inputs, Sequences):
        return replace(inputs, observation=changed)
    named = changed if isinstance(changed, Mapping) else {OBSERVATION: changed}
    return {**named, **{name: inputs[name] for name in FURTHER if name in inputs}}
