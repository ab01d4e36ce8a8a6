"""Action specs as JSON in the description of a policy, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from hive.envs import ActionSpec, Box, Composite, Discrete, MultiBinary, MultiDiscrete, action_converter

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
