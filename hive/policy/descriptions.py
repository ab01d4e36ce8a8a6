"""The description of a policy in a checkpoint, as JSON, and what it describes.

    describe_policy(observation, action, network, heads, distribution)     written into state.json by the learner
    specs_in, heads_in, classes_in, distribution_in                        read by hive.policy.loaded

A description of before `channels` was one of hive.declared is refused: its spaces had another meaning.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from hive.config import NetworkConfig, beside
from hive.declared import ABSENT, FIRST, LAST, NO_IMAGE
from hive.envs import (
    ActionSpec,
    Box,
    Composite,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    ObservationPart,
    ObservationSpec,
    action_converter,
)
from hive.envs.spaces.observation import MaskPart
from hive.errors import RecordError
from hive.networks.act.bounded import SquashedGaussian
from hive.networks.act.distributions import ActionDistribution, Categorical
from hive.networks.act.exploration import EpsilonGreedy, NoisyActions, epsilon_greedy
from hive.networks.build.agents import AGENT_PARTS
from hive.networks.build.configured import configured_distribution
from hive.networks.build.head_kinds import HEADS
from hive.networks.build.parameters import HeadParameters
from hive.paths import SESSION_FILE
from hive.records import Checkpoint
from hive.records.runs import folder_of_run

MOST_ELEMENTS = 1 << 20  # of a described action: no network has so many outputs, and each takes memory before any is
USUAL_HEADS = ("policy", "value")
CHANNELS = (FIRST, LAST, ABSENT, NO_IMAGE)
EARLIER = (None, "earlier")  # in the place of these: what an earlier hive has described
WIDTHS = ("middleware", "value_middleware")  # keys of [network] that are arrays
KINDS: dict[str, type[Discrete] | type[MultiDiscrete] | type[MultiBinary] | type[Box] | type[Composite]] = {
    "discrete": Discrete,
    "multi-discrete": MultiDiscrete,
    "multi-binary": MultiBinary,
    "box": Box,
    "composite": Composite,
}
NUMBERS = {"low": float, "high": float, "scaled": bool}  # fields with other values than integers


def described_action(action: ActionSpec) -> dict[str, Any]:
    """Return a description, for JSON, from which `action_in` makes the spec again."""
    kind = next(kind for kind, cls in KINDS.items() if isinstance(action, cls))
    if isinstance(action, Composite):
        return {"kind": kind, "names": json_value(action.names), "parts": [*map(described_action, action.parts)]}
    return {"kind": kind, **{name: json_value(value) for name, value in dataclasses.asdict(action).items()}}


def action_in(description: Mapping[str, Any]) -> ActionSpec:
    """Return the described spec. Raises KeyError, TypeError or ValueError if the description is invalid."""
    facts = dict(description)
    cls = KINDS[facts.pop("kind")]
    if cls is Composite:
        names = facts["names"]
        parts = tuple(map(action_in, facts["parts"]))
        if names is not None and len(names) != len(parts):
            raise ValueError(f"{len(names)} names of {len(parts)} parts")
        return Composite(parts, None if names is None else tuple(map(str, names)))
    spec = cls(**{name: _value(name, value) for name, value in facts.items()})
    if (elements := prod(getattr(spec, "env_shape", None) or spec.shape)) > MOST_ELEMENTS:
        raise ValueError(f"an action of {elements:,} elements")
    action_converter(spec)(np.zeros((1, *spec.shape), spec.dtype))  # fails if the fields do not fit each other
    return spec


def json_value(value: Any) -> Any:
    """Convert tuples to lists, and floats that are not finite, which JSON lacks, to text."""
    if isinstance(value, dict):
        return {name: json_value(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [json_value(part) for part in value]
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


def _value(name: str, value: Any) -> Any:
    """Return a field of a spec."""
    if name == "env_dtype":
        return np.dtype(str(value)).name
    convert = NUMBERS.get(name, int)
    if isinstance(value, list):
        return tuple(map(convert, value))
    return None if value is None else convert(value)


def describe_policy(
    observation: ObservationSpec,
    action: ActionSpec,
    network: NetworkConfig,
    heads: Sequence[str | HeadParameters] = USUAL_HEADS,
    distribution: ActionDistribution | None = None,
) -> dict[str, Any]:
    """Return the description, for JSON, from which `load` rebuilds a policy, apart from its weights.

    heads: the network's heads, names or parameters. distribution: that of the actions; None: the default distribution
    of the action spec.
    """
    exploration = {"epsilon": distribution.epsilon} if isinstance(distribution, EpsilonGreedy) else {}
    if isinstance(distribution, NoisyActions):
        exploration = {"exploration_noise": distribution.deviation}
    return {
        "observation": json_value(dataclasses.asdict(observation)),
        "action": described_action(action),
        "network": {name: json_value(value) for name, value in dataclasses.asdict(network).items()},
        "heads": [head if isinstance(head, str) else _described_head(head) for head in heads],
        **exploration,
    }


def _described_head(head: HeadParameters) -> dict[str, Any]:
    """Return the name of a head and its values that differ from the defaults, a custom class as "module:Class"."""
    usual = type(head)(name=head.name)
    fields = [field.name for field in dataclasses.fields(head)]
    changed = {name: getattr(head, name) for name in fields if getattr(head, name) != getattr(usual, name)}
    if head.cls is not None:
        changed["cls"] = f"{head.cls.__module__}:{head.cls.__qualname__}"
    return {"name": head.name, **changed}


def current_description(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the description of a policy, whose references to `session.py` point to where that file is now.

    A run may have been moved or copied; a file of an exported policy names the place at that time. Raises KeyError,
    TypeError or ValueError if there is none, and RecordError for one of an earlier hive.
    """
    description: dict[str, Any] = checkpoint.state["policy"]
    if dict(description["observation"]).get("channels") in EARLIER:
        raise RecordError(
            f"{checkpoint.described_in} is of an earlier hive, whose policies this one does not read",
            hint="train again, with the config.toml of its run",
        )
    if not checkpoint.exported and SESSION_FILE in (text := json.dumps(description)):
        description = json.loads(beside(text, folder_of_run(checkpoint.path.parents[1])))
    return description


def described_spaces(checkpoint: Checkpoint) -> tuple[ObservationSpec, ActionSpec] | None:
    """Return the specs of observations and actions that a checkpoint describes; None if it describes no policy."""
    try:
        description = current_description(checkpoint)
        return _observation_in(description["observation"]), action_in(description["action"])
    except (KeyError, TypeError, ValueError):
        return None


def specs_in(description: Mapping[str, Any]) -> tuple[ObservationSpec, ActionSpec, NetworkConfig]:
    """Read the specs in a description. Raises KeyError, TypeError or ValueError if it is invalid."""
    seen, network = (dict(description[part]) for part in ("observation", "network"))
    observation = _observation_in(seen)
    network |= {name: tuple(map(int, network[name])) for name in WIDTHS if network.get(name) is not None}
    for names in ("frozen", "critic_parts"):
        network[names] = tuple(map(str, network[names]))
    return observation, action_in(description["action"]), NetworkConfig(**network)


def _observation_in(seen: Mapping[str, Any]) -> ObservationSpec:
    """Read the description of observations. Raises KeyError, TypeError or ValueError if it is invalid."""
    parts = tuple(
        ObservationPart(**_array_in(part), path=_path_in(part["path"]), offset=int(part["offset"]))
        for part in seen["parts"]
    )
    mask = None
    if (found := seen["mask"]) is not None:
        mask = MaskPart(_path_in(found["path"]), tuple(map(int, found["choices"])), int(found["offset"]))
    observation = ObservationSpec(**_array_in(seen), parts=parts, mask=mask, stack=int(seen["stack"]))
    ends = [part.offset + part.bytes for part in parts] + ([mask.offset + sum(mask.choices)] if mask else [])
    if parts and (observation.dtype != "uint8" or len(observation.shape) != 1 or max(ends) > observation.shape[0]):
        raise ValueError("a row of bytes that is too short for its parts")
    return observation


def _array_in(seen: Mapping[str, Any]) -> dict[str, Any]:
    shape, dtype = tuple(map(int, seen["shape"])), str(seen["dtype"])
    if dtype not in ("float32", "uint8"):
        raise ValueError(f"observations of dtype {dtype}")
    counts, firsts = (tuple(map(int, seen[name])) for name in ("counts", "firsts"))
    env_dtype = np.dtype(str(given)).name if (given := seen["env_dtype"]) else ""
    env_shape = None if (sizes := seen["env_shape"]) is None else tuple(map(int, sizes))
    low, high = (tuple(map(float, seen[name])) for name in ("low", "high"))
    if (channels := seen["channels"]) not in CHANNELS:
        raise ValueError(f"channels {channels}")
    origin = tuple(base if type(base) is int else float(base) for base in seen["origin"])
    if len(origin) not in (0, prod(shape)) or not np.isfinite(np.array(origin, np.float64)).all():
        raise ValueError(f"an origin of {len(origin)} numbers")
    found = {"counts": counts, "firsts": firsts, "low": low, "high": high, "channels": channels, "origin": origin}
    return {"shape": shape, "dtype": dtype, **found, "env_dtype": env_dtype, "env_shape": env_shape}


def _path_in(path: Sequence[Any]) -> tuple[str | int, ...]:
    return tuple(key if isinstance(key, int) else str(key) for key in path)


def heads_in(description: Mapping[str, Any]) -> tuple[str | HeadParameters, ...]:
    """Read the heads of the network. Raises KeyError, TypeError or ValueError if they are invalid."""
    heads = description["heads"]
    names = [str(head["name"] if isinstance(head, dict) else head) for head in heads]
    if unknown := set(names) - {*HEADS, *AGENT_PARTS}:
        raise ValueError(f"unknown heads {', '.join(sorted(unknown))}")
    return tuple(_head_in(head) if isinstance(head, dict) else str(head) for head in heads)


def classes_in(description: Mapping[str, Any]) -> list[str]:
    """Return the custom class "package.module:Class" of each head, "" without one."""
    heads = description["heads"]
    return [str(head.get("cls") or "") if isinstance(head, dict) else "" for head in heads]


def _head_in(described: Mapping[str, Any]) -> HeadParameters:
    """Return the parameters of a described head. Raises TypeError or NetworkError if they are invalid."""
    values = {name: value for name, value in described.items() if name != "cls"}  # `policy_of` imports it, on request
    head = HEADS[described["name"]].parameters(**values)
    head.check_fields()
    return head


def distribution_in(
    description: Mapping[str, Any], action: ActionSpec, network: NetworkConfig, heads: Sequence[str | HeadParameters]
) -> ActionDistribution:
    """Return the distribution of the action.

    It is the epsilon-greedy one of the first head if the description has an epsilon, and NoisyActions of a
    deterministic policy.
    """
    distribution = configured_distribution(network, action, squashed="critic" in heads)
    if "deterministic_policy" in heads:
        if not isinstance(distribution, SquashedGaussian):
            raise ValueError("a deterministic policy requires a box action with bounds")
        bounds = distribution.shape, distribution.low, distribution.high
        return NoisyActions(*bounds, deviation=float(description["exploration_noise"]))
    if "epsilon" not in description:
        return distribution
    if not isinstance(distribution, Categorical):
        raise ValueError("epsilon requires a single discrete action")
    epsilon = float(description["epsilon"])
    return epsilon_greedy(heads[0], distribution.n, epsilon, epsilon)
