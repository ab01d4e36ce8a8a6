"""Descriptions of environments as plain data, for other processes.

A description is lists for JSON: ["Box", {field: value}] for one of its dataclasses, and lists for tuples.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from hive.envs.spaces import actions, observation, spec
from hive.errors import EnvironmentFailed

CLASSES: Mapping[str, Any] = {
    name: value
    for module in (spec, observation, actions)
    for name, value in vars(module).items()
    if dataclasses.is_dataclass(value) and getattr(value, "__module__", "") == module.__name__
}
"""The dataclasses of descriptions by their names; a description holds no other objects."""


def to_plain(value: Any) -> Any:
    """Return a description as lists, maps and scalars. Raises EnvironmentFailed for what these cannot hold."""
    if dataclasses.is_dataclass(value) and type(value).__name__ in CLASSES:
        fields = (field.name for field in dataclasses.fields(value) if field.init)
        return [type(value).__name__, {name: to_plain(getattr(value, name)) for name in fields}]
    match value:
        case None | bool() | str():
            return value
        case np.bool_():
            return bool(value)
        case numbers.Integral():
            return int(value)
        case numbers.Real():
            return float(value)
        case tuple():
            return [to_plain(one) for one in value]
    raise EnvironmentFailed(
        f"the spaces of the environment hold {value!r} of type {type(value).__name__}, expected text or numbers",
        hint="name the parts of Dict spaces by texts",
        permanent=True,
    )


def from_plain(value: Any) -> Any:
    """Return the description that `to_plain` made lists of."""
    if not isinstance(value, list):
        return value
    if len(value) == 2 and isinstance(value[1], dict):
        return CLASSES[value[0]](**{name: from_plain(one) for name, one in value[1].items()})
    return tuple(from_plain(one) for one in value)
