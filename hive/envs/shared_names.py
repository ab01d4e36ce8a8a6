"""Names what environments of a class share within a process: attributes of its classes, and globals of its modules.

Only values that change while one environment is played are worth naming: those are state.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

import numpy as np

OTHERS = {"abc", "builtins", "gymnasium", "hive", "pettingzoo", "typing"}  # packages whose classes have no such state
LONGEST = 2000  # characters of a value that are compared, and elements of one that is read
MOST_BYTES = 1_000_000  # of an array that is compared


def shared_values(environment: Any) -> dict[str, str]:
    """Return a digest of every value that the classes and modules of an environment hold, by its name."""
    found: dict[str, str] = {}
    for owner in type(environment).__mro__:
        if owner.__module__.partition(".")[0] in OTHERS:
            continue
        found |= {f"{owner.__name__}.{name}": digest for name, digest in _digests(vars(owner))}
        if (module := sys.modules.get(owner.__module__)) is not None:
            found |= dict(_digests(vars(module)))
    return found


def _digests(names: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in [*names.items()]:
        is_code = callable(value) or isinstance(value, ModuleType) or hasattr(type(value), "__get__")
        if not (name.startswith("__") or is_code):
            with suppress(Exception):  # the `__repr__` of any class
                yield name, _digest(value)[:LONGEST]


def _digest(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return str(hash(value.tobytes()) if value.nbytes <= MOST_BYTES else value.shape)
    if isinstance(value, list | tuple | dict | set) and len(value) > LONGEST:
        return str(len(value))
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, random.Random):
        return str(hash(value.getstate()))
    return repr(vars(value)) if hasattr(value, "__dict__") else repr(value)
